# %% [markdown]
# # vLLM as the sampler
#
# **What you will learn**
# - the two ways to sample with vLLM in a GRPO run, and how to choose;
# - how to see that the samples come from the policy that is trained, and what it looks like when they do not;
# - what the stock libraries get wrong about images, and what this repository does about it.
#
# **Hardware and time**: two CPU cores, about 8 minutes, most of it for starting the engine. vLLM has to be
# installed: `requirements-dev.txt` brings its CPU build, `requirements-vllm.txt` the one for GPUs.

# %% [markdown]
# ## Parameters
#
# On a CPU, a tiny model shows everything but the speed: vLLM is made for GPUs and for long completions.

# %% tags=["parameters"]
MODEL = "tiny-qwen2.5-vl"
DATASET = "digits"
MAX_STEPS = 10
N_EVAL = 200
LEARNING_RATE = 5e-4
NUM_GENERATIONS = 4
BATCH_SIZE = 64
MAX_COMPLETION_LENGTH = 16
SEED = 0
OUTPUT_DIR = "outputs/06_vllm"
REPORT_TO = "none"
PUSH_TO_HUB = False

# %%
from recipe_lib.parameters import check_parameters

check_parameters(globals())

# %% [markdown]
# ### Two modes
#
# | | colocate | server |
# |---|---|---|
# | where the engine runs | in the trainer's process | in a process of its own |
# | GPUs | the same ones, in turns | its own ones, at least one |
# | how weights get there | copied within the process | over NCCL |
# | memory | shared: `vllm_gpu_memory_utilization` is vLLM's part | each has its GPU to itself |
# | on a CPU | works | samples, but cannot be trained with: NCCL needs CUDA |
#
# **How to choose.** One GPU, or a model that fits twice: colocate. A model so large that training fills the GPU, or
# completions so long that sampling is most of the time: a server on GPUs of its own.
#
# Server mode takes two terminals. This is what the first one runs:

# %%
import shlex

from recipe_lib.rollouts import server_command

print(
    "CUDA_VISIBLE_DEVICES=1 VLLM_SERVER_DEV_MODE=1",
    shlex.join(server_command("Qwen/Qwen2.5-VL-3B-Instruct", 8000, dtype="bfloat16")),
)

# %% [markdown]
# (On a CPU the command begins with `python -m vllm.entrypoints.openai.api_server`; with a GPU it is `vllm serve`.)
# The second one runs `CUDA_VISIBLE_DEVICES=0 python recipes/grpo.py --config
# recipes/configs/grpo_qwen2_5_vl_3b_lora_vllm_server.yaml`. Guides that say `trl vllm-serve --model ...` are older:
# TRL 1.16 still has it, calls it deprecated, and starts the same server. In Python, `recipe_lib.rollouts.serve`
# starts a server on a free port, waits until it answers, and ends it whatever happens.

# %% [markdown]
# ## Data

# %%
from recipe_lib import datasets

train_set = datasets.load(DATASET, "train")
test_set = datasets.load(DATASET, "test", limit=N_EVAL)
print(f"{len(train_set)} questions to train on, {len(test_set)} held-out ones")

# %% [markdown]
# An image is one token in the text of a prompt, and many in what the model reads: the processor writes the token as
# often as the picture needs. vLLM does that expansion by itself. So it has to be given the prompt *before* it. TRL
# 1.16 gives it the prompt after it, and every image is expanded twice.

# %%
from recipe_lib import models
from recipe_lib.evaluation import encode

MODEL = models.pick(MODEL)
model, processor = models.load(MODEL)
text = processor.apply_chat_template(test_set[0]["prompt"], add_generation_prompt=True)
inputs = encode(processor, [test_set[0]])
image = processor.image_token_id
print(f"as the chat template writes it: {text.count(processor.image_token)} image token")
print(f"as the model reads it:          {(inputs['input_ids'] == image).sum().item()} image tokens")

# %% [markdown]
# ## The reward by hand

# %%
from recipe_lib.rewards import accuracy_reward, format_reward

answer = "<think>The digit is 7.</think><answer>7</answer>"
print("accuracy", accuracy_reward([answer], solution=["7"])[0], "format", format_reward([answer])[0])

# %% [markdown]
# ## Train
#
# `use_vllm` and `vllm_mode` are the whole difference to a run without vLLM. What the trainer of this repository adds
# by itself: one placeholder an image, the trainer's number format, its image size limits, room for the longest prompt
# and completion of the data and no more, no image tokens in completions, and a check of every rollout.

# %%
from recipe_lib import guards, trainers
from recipe_lib.evaluation import evaluate, record_fields

tiny = MODEL.startswith("tiny")
config = guards.GRPOConfig(
    output_dir=OUTPUT_DIR,
    max_steps=MAX_STEPS,
    learning_rate=LEARNING_RATE,
    lr_scheduler_type="linear",
    per_device_train_batch_size=BATCH_SIZE,
    num_generations=NUM_GENERATIONS,
    max_completion_length=MAX_COMPLETION_LENGTH,
    use_vllm=True,
    vllm_mode="colocate",
    vllm_enable_sleep_mode=not tiny,  # vLLM's memory is free while the optimiser works
    bf16=not tiny,
    gradient_checkpointing=not tiny,
    logging_steps=1,
    save_strategy="no",
    report_to=REPORT_TO,
    push_to_hub=PUSH_TO_HUB,
    seed=SEED,
)
guards.check(config, source=models.source(MODEL), dataset=train_set)
before = evaluate(model, processor, test_set, max_new_tokens=MAX_COMPLETION_LENGTH, description="before")
trainer = trainers.GRPOTrainer(
    model=model,
    reward_funcs=[accuracy_reward, format_reward],
    args=config,
    train_dataset=train_set,
    processing_class=processor,
)

# %%
train_seconds = trainers.train(trainer)
steps = [entry for entry in trainer.state.log_history if "step_time" in entry]
vllm_seconds = sorted(entry["step_time"] for entry in steps)[len(steps) // 2]
print(f"{trainer.state.global_step} steps in {train_seconds:.0f} s; the middle one took {vllm_seconds:.1f} s")

# %% [markdown]
# ## Evaluate

# %%
after = evaluate(trainer.model, processor, test_set, max_new_tokens=MAX_COMPLETION_LENGTH, description="after")
print(f"before {before.accuracy:.1%}, after {after.accuracy:.1%}: {MAX_STEPS} steps are for looking, not for learning")

# %% [markdown]
# ## Plots
#
# Each point is a sampled token: the log-probability that vLLM gave it, and the one that the trainer gives it. GRPO
# takes the two for the same number. On the left the run above; on the right the same engine and the same weights,
# but with the prompts that TRL alone would have sent. Points off the line are tokens that the trained policy would
# not have said: rewarding them teaches little, and the correction for the mismatch throws most of them away.

# %%
import matplotlib.pyplot as plt

rows = [train_set[i // NUM_GENERATIONS] for i in range(BATCH_SIZE)]
repaired = trainer.sampled_logps(rows)
trainer.vllm_generation.expands_twice = False  # as TRL alone does it
unrepaired = trainer.sampled_logps(rows)
trainer.vllm_generation.expands_twice = True

figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharex=True, sharey=True)
gaps = {}
for axis, name, (ours, theirs) in zip(axes, ("repaired", "TRL 1.16 alone"), (repaired, unrepaired), strict=True):
    gaps[name] = (ours - theirs).abs().mean().item()
    axis.scatter(theirs.cpu(), ours.cpu(), s=6, alpha=0.4, color="#1f6feb")
    axis.axline((0, 0), slope=1, color="#9aa5b1", linewidth=1)
    axis.set(title=f"{name}: mean gap {gaps[name]:.4f}", xlabel="log p, vLLM")
axes[0].set_ylabel("log p, trainer")
figure.tight_layout()
plt.close(figure)
figure

# %% [markdown]
# The gap over the run. A run whose gap is over the tolerance (0.005 on average in float32) stops before its first
# optimiser step, and says what is the likely cause: the prompt, the template, the number format, or weights that did
# not arrive.

# %%
looked = [entry for entry in trainer.state.log_history if "rollout_logp_gap_mean" in entry]
figure, axis = plt.subplots(figsize=(9, 3))
for kind in ("mean", "max"):
    axis.plot([e["step"] for e in looked], [e[f"rollout_logp_gap_{kind}"] for e in looked], "o-", label=kind)
axis.axhline(trainer.tolerance.mean, color="#c2410c", linestyle="--", label="tolerance of the mean")
axis.axhline(gaps["TRL 1.16 alone"], color="#9aa5b1", linestyle="--", label="mean, TRL 1.16 alone")
axis.set(yscale="log", xlabel="step", ylabel="|log p(trainer) - log p(vLLM)|, nats", title="The gap, step by step")
axis.legend(frameon=False, fontsize=8)
plt.close(figure)
figure

# %% [markdown]
# What a step costs without vLLM, on this machine:

# %%
config.use_vllm, config.max_steps, config.output_dir = False, 3, f"{OUTPUT_DIR}/without_vllm"
plain = trainers.GRPOTrainer(
    model=trainer.model,
    reward_funcs=[accuracy_reward, format_reward],
    args=config,
    train_dataset=train_set,
    processing_class=processor,
)
trainers.train(plain)
steps = [entry for entry in plain.state.log_history if "step_time" in entry]
plain_seconds = sorted(entry["step_time"] for entry in steps)[len(steps) // 2]
print(f"seconds a step: {vllm_seconds:.2f} with vLLM, {plain_seconds:.2f} with transformers' generation")

# %% [markdown]
# **What can go wrong.** A mean gap of whole nats: the prompt. One that grows with the steps: weights that do not
# arrive. One that is there from the start and small: the number format; in bfloat16 a few hundredths are normal, and
# `vllm_importance_sampling_correction` (on by default) is there for them. A model that vLLM has no implementation of,
# or a poor one: `vllm_model_impl="transformers"`.

# %% [markdown]
# ## Record

# %%
from recipe_lib.record import peak_rss_mb, write_record

write_record(
    OUTPUT_DIR,
    notebook="06_vllm",
    method="GRPO",
    model=MODEL,
    dataset=DATASET,
    seed=SEED,
    train_steps=trainer.state.global_step,
    train_seconds=train_seconds,
    peak_rss_mb=peak_rss_mb(),
    **record_fields(before, after),
    **trainers.run_figures(trainer.state.log_history)
    | {
        "rollout_logp_gap_mean_unrepaired": gaps["TRL 1.16 alone"],
        "seconds_a_step_vllm": vllm_seconds,
        "seconds_a_step_transformers": plain_seconds,
    },
)

# %% [markdown]
# ## What next
#
# - Is your model right under vLLM? `python -m recipe_lib vllm-check --model NAME` samples, compares, and says so.
# - Settings of real models, a line of reason each: `recipes/configs/grpo_qwen2_5_vl_3b_lora_vllm_colocate.yaml`.
# - The fault itself, in thirty lines, for TRL's maintainers: `tests/upstream/`.
