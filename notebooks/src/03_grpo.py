# %% [markdown]
# # GRPO, opened up
#
# **What you will learn**
# - what a *group* is, and how rewards become *advantages*;
# - which tokens count: *completion masks*;
# - what *clipping* does, and when it does nothing;
# - what the *KL* divergence and the *entropy* tell of a run;
# - what to watch while a run goes on.
#
# Every number and every picture comes from the run in this notebook. Set `MODEL` to `tiny-smolvlm` for the other
# family.
#
# **Hardware and time**: two CPU cores, about 5 minutes, under 3 GB of memory.

# %% [markdown]
# ## Parameters
#
# `BETA` is the weight of the KL term; Shao et al. 2024 have 0.04 (section 4.2). The trainer measures the KL
# divergence only where it is above 0. A real model trains adapters (LoRA); give it a `LEARNING_RATE` of 1e-5.

# %% tags=["parameters"]
MODEL = "tiny-qwen2.5-vl"
DATASET = "digits"
MAX_STEPS = 232
N_EVAL = 600
LEARNING_RATE = 7e-4
NUM_GENERATIONS = 4
BATCH_SIZE = 64
TEMPERATURE = 1.3
BETA = 0.08
SEED = 0
RESUME = False
OUTPUT_DIR = "outputs/03_grpo"
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
# Two functions from a text to a number, added up. Neither says *how* to answer.

# %%
from recipe_lib.rewards import accuracy_reward, format_reward

for text in ("<think>The digit is 7.</think><answer>7</answer>", "<think>A 1.</think><answer>1</answer>", "7"):
    print(f"accuracy {accuracy_reward([text], solution=['7'])[0]}  format {format_reward([text])[0]}  {text}")

# %% [markdown]
# ## Train
#
# `guards.GRPOConfig` is TRL's config, and says what would do where a batch does not hold whole groups. `guards.check`
# asks what else would only fail in mid-run: does the longest prompt with its pictures leave room for a completion?
# `watch.attach` adds what the trainer does not log itself.

# %%
from trl import ModelConfig

from recipe_lib import adapters, guards, trainers, watch
from recipe_lib.evaluation import compare, evaluate, record_fields
from recipe_lib.ratios import Probe

MAX_COMPLETION_LENGTH = 16 if TINY else 256  # in tokens; what is longer is cut off
before = evaluate(model, processor, test_set, max_new_tokens=MAX_COMPLETION_LENGTH, description="before")
print(f"before: {before.accuracy:.1%} right")

# %%
config = guards.GRPOConfig(
    output_dir=OUTPUT_DIR,
    max_steps=MAX_STEPS,
    learning_rate=LEARNING_RATE,
    lr_scheduler_type="linear",
    warmup_steps=5,
    per_device_train_batch_size=BATCH_SIZE,  # completions a step
    num_generations=NUM_GENERATIONS,  # completions a group
    max_completion_length=MAX_COMPLETION_LENGTH,
    temperature=TEMPERATURE,
    beta=BETA,  # weight of the KL divergence in the loss
    epsilon=0.2,  # a ratio counts between 0.8 and 1.2
    gradient_checkpointing=not TINY,
    bf16=not TINY,
    logging_steps=1,
    save_steps=100,
    save_total_limit=2,
    report_to=REPORT_TO,
    push_to_hub=PUSH_TO_HUB,
    seed=SEED,
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
middle = min(MAX_STEPS, max(2, MAX_STEPS // 5))
probe = Probe(trainer, steps=[1, middle])  # keeps what these steps train on
trainer.add_callback(probe)

# %%
train_seconds = trainers.train(trainer, resume=RESUME)
print(f"{trainer.state.global_step} steps in {train_seconds:.0f} s")
print(f"pages with pictures, completions and advantages: {OUTPUT_DIR}/gallery")

# %% [markdown]
# ## Groups and advantages
#
# The trainer takes a few questions and samples `NUM_GENERATIONS` completions of each: a *group*. With $r_i$ the
# reward of completion $i$, its advantage is
#
# $$A_i = \frac{r_i - \mathrm{mean}(r_1, \dots, r_G)}{\mathrm{std}(r_1, \dots, r_G) + 10^{-4}}$$
#
# There is no second network that guesses how good a question's answers should be: the other answers of the group
# are the measure. That is the whole idea (Shao et al. 2024, arXiv 2402.03300). Here are groups of the last rollout,
# and the formula beside the trainer's own numbers.

# %%
import numpy as np

logs = trainer._logs  # the last rollout, group by group
rewards = np.array([list(values) for values in logs["rewards"].values()]).sum(0).reshape(-1, NUM_GENERATIONS)
advantages = np.array(logs["advantages"]).reshape(-1, NUM_GENERATIONS)
by_hand = (rewards - rewards.mean(1, keepdims=True)) / (rewards.std(1, ddof=1, keepdims=True) + 1e-4)
assert np.allclose(by_hand, advantages, atol=1e-3)

mixed = np.flatnonzero(rewards.std(1) > 0)[:2]
for group in (*mixed, *np.flatnonzero(rewards.std(1) == 0)[:1]):
    print("question:", list(logs["prompt"])[group * NUM_GENERATIONS][-1]["content"][-1]["text"])
    for i in range(NUM_GENERATIONS):
        text = list(logs["completion"])[group * NUM_GENERATIONS + i][0]["content"]
        print(f"  reward {rewards[group, i]:.0f}  advantage {advantages[group, i]:+.2f}  {text}")

# %% [markdown]
# A group whose rewards are all equal has advantages of 0: it costs time and teaches nothing. At the left, how many
# such groups there were; when the line nears 1, training has come to its end, and harder questions are needed, or a
# higher temperature. At the right, the spread within groups, which is what is left to learn from.

# %%
import matplotlib.pyplot as plt


def plot_logged(*panels):
    """Draw logged figures over the steps: one panel for each dictionary of label -> key."""
    figure, axes = plt.subplots(1, len(panels), figsize=(5.5 * len(panels), 3.2), squeeze=False)
    for axis, panel in zip(axes[0], panels):
        for label, key in panel.items():
            points = [(e["step"], e[key]) for e in trainer.state.log_history if e.get(key) is not None]
            axis.plot(*zip(*points), label=label)
        axis.set_xlabel("step")
        axis.legend(frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    plt.close(figure)
    return figure


plot_logged(
    {"share of groups without spread": "frac_reward_zero_std"},
    {"spread, accuracy": "spread/accuracy_reward", "spread, format": "spread/format_reward"},
)

# %% [markdown]
# ## Which tokens count
#
# Completions of a batch have different lengths, so short ones are padded, and the *completion mask* is 1 on the
# tokens that count: all of a completion's own, its end token included. Prompt and pictures are never trained on.
# Blue tokens are made likelier, red ones less likely, white ones are padding. All tokens of a completion share its
# advantage: the method does not know which of them was the mistake.

# %%
rollout = probe.rollouts[1]
shown = np.argsort(-np.abs(rollout.advantages), kind="stable")[:24]
signed = np.where(rollout.mask[shown] == 1, rollout.advantages[shown, None], np.nan)
figure, axis = plt.subplots(figsize=(9, 4))
image = axis.imshow(signed, cmap="RdBu", vmin=-2, vmax=2, aspect="auto")
axis.set(xlabel="token of the completion", ylabel="completion", title="Advantage where the mask is 1, first step")
figure.colorbar(image)
plt.close(figure)
print(f"{rollout.mask.sum():.0f} of {rollout.mask.size} places count: {rollout.mask.mean():.0%}")
figure

# %%
plot_logged(
    {"mean length, tokens": "completions/mean_length", "longest": "completions/max_length"},
    {"share cut off by the limit": "completions/clipped_ratio"},
)

# %% [markdown]
# ## Ratio and clipping
#
# For a token $t$ of completion $i$, let $r_{i,t}$ be the ratio of its probability now to that when it was sampled.
# The loss is the mean over all tokens that count of
#
# $$-\min\big(r_{i,t} A_i,\ \mathrm{clip}(r_{i,t}, 1 - \epsilon, 1 + \epsilon) A_i\big)$$
#
# Once a good token has become $1 + \epsilon$ times as likely, the minimum is flat: there is nothing to gain from
# pushing on, on the word of one sample. So it is for a bad token below $1 - \epsilon$. **But in this run the ratio
# is exactly 1 whenever the loss is computed**, since each rollout is used once, before the policy moves. Nothing is
# ever clipped. What the step then does to the ratios of its own tokens shows how large a step is:

# %%
moved = probe.rollouts[middle].token_ratios()
figure, axes = plt.subplots(1, 2, figsize=(11, 3.2))
axes[0].hist(np.clip(moved, 0.5, 1.5), bins=60, color="#1f6feb")
axes[0].set_yscale("log")
for edge in (1 - config.epsilon, 1 + config.epsilon):
    axes[0].axvline(edge, color="#c2410c", linestyle="--")
axes[0].set(title=f"Ratio of each token after step {middle}", xlabel="ratio", ylabel="tokens")
ratio = np.linspace(0.5, 1.5, 200)
for advantage, colour in ((1, "#1f6feb"), (-1, "#c2410c")):
    kept = np.minimum(ratio * advantage, np.clip(ratio, 1 - config.epsilon, 1 + config.epsilon) * advantage)
    axes[1].plot(ratio, kept, color=colour, label=f"advantage {advantage:+d}")
axes[1].set(title="What the loss sees of it", xlabel="ratio")
axes[1].legend(frameon=False)
figure.tight_layout()
plt.close(figure)
outside = np.mean(np.abs(moved - 1) > config.epsilon)
print(f"one step took {outside:.2%} of its tokens out of the clip range")
figure

# %% [markdown]
# Reusing a rollout (`steps_per_generation` above `gradient_accumulation_steps`, or `num_iterations` above 1) saves
# sampling time, and then clipping does its work. Notebook 04 goes that way, with another ratio.

# %% [markdown]
# ## KL and entropy
#
# The KL divergence tells how far the policy has gone from the start. For a token of log-probability $\ell$ now and
# $\ell_0$ at the start, the trainer averages $e^{\ell_0 - \ell} - (\ell_0 - \ell) - 1$, which is never negative and
# right on average (Schulman 2020, "Approximating KL divergence"). A KL that grows faster and faster, while the
# reward falls, is a run that breaks up. The entropy tells how undecided the policy is. It falls as the model learns;
# at 0 all completions of a group are the same, and learning is over.

# %%
plot_logged({"KL to the start, nats a token": "kl"}, {"entropy, nats a token": "entropy"})

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

# %%
reports.plot_rewards(trainer.state.log_history)

# %%
reports.plot_accuracy(before, after)

# %%
reports.show_answers(test_set, before, after)

# %% [markdown]
# **What can go wrong.** `watch` prints a plain warning when all rewards stay equal, when every completion is cut
# off, when a reward never fires, or when the KL runs away; this run's warnings are listed here.

# %%
print("\n".join(warnings.said.values()) or "no warnings")

# %% [markdown]
# ## Record

# %%
from recipe_lib.record import peak_rss_mb, write_record

write_record(
    OUTPUT_DIR,
    notebook="03_grpo",
    method="GRPO",
    model=MODEL,
    dataset=DATASET,
    seed=SEED,
    train_steps=trainer.state.global_step,
    train_seconds=train_seconds,
    peak_rss_mb=peak_rss_mb(),
    **record_fields(before, after),
    **trainers.run_figures(trainer.state.log_history),
)

# %% [markdown]
# ## What next
#
# - 04_gspo: one ratio for the whole completion, and rollouts that are used more than once.
# - The same as a script, for real models too: `python recipes/grpo.py --config recipes/configs/grpo_tiny_smolvlm.yaml`.
# - Is it the reward that teaches? `--shuffle_rewards` deals the same rewards at random within each group.
