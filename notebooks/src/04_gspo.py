# %% [markdown]
# # GSPO: one ratio for the whole answer
#
# **What you will learn**
# - how GSPO differs from GRPO, in five settings and in one formula;
# - how the two ratios look on *the same rollouts*, and why GSPO's clip range is so narrow;
# - when GSPO is nothing but GRPO under another name;
# - why it was made for mixture-of-experts models.
#
# Set `MODEL` to `tiny-smolvlm` for the other family.
#
# **Hardware and time**: two CPU cores, about 6 minutes, under 3 GB of memory.

# %% [markdown]
# ## Parameters
#
# The values of the paper (Zheng et al. 2025, arXiv 2507.18071, section 5.1): each rollout is cut into 4 minibatches,
# and the ratio counts between 1 - 3e-4 and 1 + 4e-4. A real model trains adapters (LoRA); give it a `LEARNING_RATE`
# of 1e-5.

# %% tags=["parameters"]
MODEL = "tiny-qwen2.5-vl"
DATASET = "digits"
MAX_STEPS = 116
N_EVAL = 600
LEARNING_RATE = 1e-3
NUM_GENERATIONS = 4
BATCH_SIZE = 128
STEPS_PER_GENERATION = 4
EPSILON = 3e-4
EPSILON_HIGH = 4e-4
TEMPERATURE = 1.3
SEED = 0
RESUME = False
OUTPUT_DIR = "outputs/04_gspo"
REPORT_TO = "none"
PUSH_TO_HUB = False

# %%
from recipe_lib.parameters import check_parameters

check_parameters(globals())

# %% [markdown]
# ## Data

# %%
from recipe_lib import datasets, models, reports

train_set = datasets.load(DATASET, "train")
test_set = datasets.load(DATASET, "test", limit=N_EVAL)
MODEL = models.pick(MODEL)
model, processor = models.load(MODEL)
TINY = MODEL.startswith("tiny")
print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, {len(train_set)} training questions")
reports.show_rows(test_set)

# %% [markdown]
# ## The reward by hand
#
# A reward is given to a whole answer, never to a token. This is where GSPO starts from: *what is rewarded as a whole
# should be weighed as a whole*.

# %%
from recipe_lib.rewards import accuracy_reward, format_reward

for text in ("<think>The digit is 7.</think><answer>7</answer>", "<think>A 1.</think><answer>1</answer>", "7"):
    print(f"accuracy {accuracy_reward([text], solution=['7'])[0]}  format {format_reward([text])[0]}  {text}")

# %% [markdown]
# ## The ratio
#
# Rollouts are costly, so each is used for several optimiser steps. After the first of them the policy is no longer
# the one that sampled, and every completion $y$ to a question $x$ must be weighed by how likely it is *now*,
# relative to *then*.
#
# GRPO weighs each token by its own ratio. But one sample of one token says next to nothing about a distribution, so
# these weights are noise, and the noise adds up along the answer. GSPO takes one ratio for the answer, the geometric
# mean of its tokens' ratios:
#
# $$s(y) = \left(\frac{\pi_\mathrm{new}(y \mid x)}{\pi_\mathrm{old}(y \mid x)}\right)^{1/|y|}
# = \exp\Big(\frac{1}{|y|} \sum_t \log \frac{\pi_\mathrm{new}(y_t)}{\pi_\mathrm{old}(y_t)}\Big)$$
#
# The root keeps long and short answers on one scale, and makes the ratio move by far less than a token's does:
# hence a clip range a thousand times as narrow as the usual 0.2. What is clipped are whole answers.

# %% [markdown]
# ## When GSPO does nothing
#
# If every rollout is used before the policy moves, both ratios are exactly 1, nothing is clipped, and GSPO is GRPO.
# That is so with the trainer's defaults. Only `steps_per_generation` above `gradient_accumulation_steps`, or
# `num_iterations` above 1, let the policy move in between. The guard refuses settings that do nothing:

# %%
from trl import ModelConfig

from recipe_lib import adapters, guards, trainers, watch
from recipe_lib.evaluation import compare, evaluate, record_fields
from recipe_lib.ratios import Probe, clipped_updates

MAX_COMPLETION_LENGTH = 16 if TINY else 256  # in tokens; what is longer is cut off
shared = {
    "output_dir": OUTPUT_DIR,
    "max_steps": MAX_STEPS,
    "learning_rate": LEARNING_RATE,
    "lr_scheduler_type": "linear",
    "warmup_steps": 5,
    "per_device_train_batch_size": BATCH_SIZE,  # completions an optimiser step
    "num_generations": NUM_GENERATIONS,  # completions a group
    "max_completion_length": MAX_COMPLETION_LENGTH,
    "temperature": TEMPERATURE,
    "beta": 0.0,
    "gradient_checkpointing": not TINY,
    "bf16": not TINY,
    "logging_steps": 1,
    "save_steps": 100,
    "save_total_limit": 2,
    "report_to": REPORT_TO,
    "push_to_hub": PUSH_TO_HUB,
    "seed": SEED,
}
try:
    guards.check(guards.GRPOConfig(importance_sampling_level="sequence", **shared))
except ValueError as refusal:
    print(refusal)

# %% [markdown]
# ## Train

# %%
before = evaluate(model, processor, test_set, max_new_tokens=MAX_COMPLETION_LENGTH, description="before")
print(f"before: {before.accuracy:.1%} right")

# %%
config = guards.GRPOConfig(
    importance_sampling_level="sequence",  # the ratio of the whole answer
    loss_type="grpo",  # mean over answers, as in the paper; the others would count long answers more
    epsilon=EPSILON,
    epsilon_high=EPSILON_HIGH,
    steps_per_generation=STEPS_PER_GENERATION,  # optimiser steps on one rollout
    **shared,
)
guards.check(config, source=models.source(MODEL), dataset=train_set)
trainer = trainers.GRPOTrainer(
    model=model,
    reward_funcs=[accuracy_reward, format_reward],
    args=config,
    train_dataset=train_set,
    processing_class=processor,
    peft_config=adapters.prepare(model, ModelConfig(use_peft=not TINY, lora_dropout=0.0)),
)
warnings = watch.attach(trainer)
# the last step on a rollout, about a third into the run: after it the policy has moved STEPS_PER_GENERATION times
step = min(MAX_STEPS, max(1, MAX_STEPS // 3 // STEPS_PER_GENERATION) * STEPS_PER_GENERATION)
probe = Probe(trainer, steps=[step])
trainer.add_callback(probe)

# %%
train_seconds = trainers.train(trainer, resume=RESUME)
print(f"{trainer.state.global_step} steps in {train_seconds:.0f} s")

# %% [markdown]
# ## Two ratios of the same rollout
#
# Below is one rollout after the last step that used it. Left: GRPO's ratio, one for each token. Right: GSPO's, one
# for each answer. Dashed lines are the clip ranges: GRPO's usual one, and the paper's for GSPO. Mind the two scales.

# %%
import matplotlib.pyplot as plt
import numpy as np

of_tokens, of_answers = probe.rollouts[step].token_ratios(), probe.rollouts[step].sequence_ratios()
figure, axes = plt.subplots(1, 2, figsize=(11, 3.2))
panels = (
    (of_tokens, (1 - 0.2, 1 + 0.2), "GRPO: ratio of each token", "tokens"),
    (of_answers, (1 - EPSILON, 1 + EPSILON_HIGH), "GSPO: ratio of each answer", "answers"),
)
for axis, (values, (low, high), title, label) in zip(axes, panels):
    width = max(np.quantile(np.abs(values - 1), 0.99), 2 * (high - 1))
    axis.hist(np.clip(values, 1 - width, 1 + width), bins=60, color="#1f6feb")
    axis.set_yscale("log")
    for edge in (low, high):
        axis.axvline(edge, color="#c2410c", linestyle="--")
    outside = np.mean((values < low) | (values > high))
    axis.set(title=f"{title}; {outside:.0%} outside", xlabel="ratio", ylabel=label)
    axis.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
plt.close(figure)
spreads = np.std(np.log(of_tokens)), np.std(np.log(of_answers))
print(f"standard deviation of the log ratio: tokens {spreads[0]:.4f}, answers {spreads[1]:.4f}")
figure

# %% [markdown]
# An answer is *clipped* when its ratio has left the range on the side to which its advantage pushes: a good answer
# that is already likelier by more than `EPSILON_HIGH`, or a bad one already less likely. It then has no gradient. By
# the paper, clipping a large share of answers (there, two orders of magnitude more tokens than under GRPO) does not
# hurt: what is left out are samples that have said what they had to say.
#
# The share that was clipped in each optimiser step, by its place among the steps on one rollout. At the first place
# the policy has not moved, and nothing can be clipped.

# %%
logged = [entry for entry in trainer.state.log_history if entry.get("clip_ratio/region_mean") is not None]
figure, axes = plt.subplots(1, 2, figsize=(11, 3.2), width_ratios=(2, 1))
axes[0].plot([entry["step"] for entry in logged], [entry["clip_ratio/region_mean"] for entry in logged], ".-")
axes[0].set(title="Share of clipped answers", xlabel="step")
by_place = [
    [entry["clip_ratio/region_mean"] for entry in logged if (entry["step"] - 1) % STEPS_PER_GENERATION == place]
    for place in range(STEPS_PER_GENERATION)
]
axes[1].bar(range(1, STEPS_PER_GENERATION + 1), [np.mean(values) if values else 0 for values in by_place])
axes[1].set(title="Mean, by place in the rollout", xlabel="optimiser step on the rollout")
figure.tight_layout()
plt.close(figure)
clipped_share = clipped_updates(trainer.state.log_history, STEPS_PER_GENERATION)
if clipped_share is not None:
    print(f"something was clipped in {clipped_share:.0%} of the off-policy updates")
figure

# %% [markdown]
# ## Why mixture-of-experts models need it
#
# In such a model a router sends every token to a few of many experts. After an optimiser step it may choose other
# experts for the very same token, whose probability then jumps although the text is the same. By the paper (section
# 5.3), about a tenth of the active experts differ after each step in a model of 48 layers. Ratios of tokens jump with
# them, until GRPO's training breaks down; until then the remedy had been to record the routes of the old policy and
# to replay them, which costs memory and bandwidth. The likelihood of a whole answer hardly notices which way single
# tokens went, so that GSPO needs no such remedy.
#
# The models here are dense, and GRPO trains them well too. A tiny Qwen3-VL with four experts takes GSPO steps in
# `tests/recipe_lib/test_hazards.py`.

# %% [markdown]
# ## Evaluate

# %%
after = evaluate(trainer.model, processor, test_set, max_new_tokens=MAX_COMPLETION_LENGTH, description="after")
gain = compare(before.correct, after.correct)
low, high = gain["gain_ci95"]
print(f"before {before.accuracy:.1%}, after {after.accuracy:.1%}")
print(f"gain {100 * gain['gain']:+.1f} points, 95 % interval {100 * low:+.1f} to {100 * high:+.1f}")

# %% [markdown]
# ## Plots
#
# Rewards are known only in steps that begin with a rollout, one in `STEPS_PER_GENERATION`.

# %%
reports.plot_rewards(trainer.state.log_history)

# %%
reports.plot_accuracy(before, after)

# %%
reports.show_answers(test_set, before, after)

# %% [markdown]
# **What can go wrong.** Above all, that nothing is clipped: then look at `steps_per_generation`. A clip range meant
# for tokens (0.2) never clips an answer, so that a rollout may be used until it misleads. Warnings of this run:

# %%
print("\n".join(warnings.said.values()) or "no warnings")

# %% [markdown]
# ## Record

# %%
from recipe_lib.record import peak_rss_mb, write_record

write_record(
    OUTPUT_DIR,
    notebook="04_gspo",
    method="GSPO",
    model=MODEL,
    dataset=DATASET,
    seed=SEED,
    train_steps=trainer.state.global_step,
    train_seconds=train_seconds,
    peak_rss_mb=peak_rss_mb(),
    **record_fields(before, after),
    **trainers.run_figures(trainer.state.log_history),
    clipped_updates=clipped_share,
    log_ratio_std_tokens=float(spreads[0]),
    log_ratio_std_answers=float(spreads[1]),
)

# %% [markdown]
# ## What next
#
# - The same as a script: `python recipes/grpo.py --config recipes/configs/gspo_tiny_qwen2_5_vl.yaml`. The head of that
#   file names the settings in which it differs from GRPO's.
# - 05_mpo: learning from pairs of a better and a worse answer, without sampling.
