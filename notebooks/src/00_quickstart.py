# %% [markdown]
# # Quickstart: a vision-language model learns to read handwriting
#
# **What you will learn**
# - what a question set for alignment looks like, and how a model is measured on it;
# - how a *reward* says what a good answer is, and how GRPO turns rewards into better answers;
# - how to tell a real gain from a lucky one.
#
# The model is a tiny Qwen2.5-VL that has only ever seen *printed* digits, black on white. We show it real
# handwriting, in coloured ink on coloured paper. Nobody tells it the right answers: it tries, and hears which tries
# were right.
#
# **Hardware and time**: two CPU cores, about 3 minutes, under 3 GB of memory. The same code trains a real
# checkpoint on a GPU when you change `MODEL`.

# %% [markdown]
# ## Parameters
#
# `MODEL = "auto"` takes the tiny model on a CPU, and a real one as large as the GPU allows. `RESUME = True` goes
# on after a stop.

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
OUTPUT_DIR = "outputs/00_quickstart"
REPORT_TO = "none"
PUSH_TO_HUB = False

# %%
from recipe_lib.parameters import check_parameters

check_parameters(globals())

# %% [markdown]
# ## Data
#
# A row is a question with its picture and the right answer. Four kinds of question are asked: read a digit, pick
# the right option, name the larger of two digits, add two digits. No picture is in both sets.

# %%
from recipe_lib import datasets, reports

train_set = datasets.load(DATASET, "train")
test_set = datasets.load(DATASET, "test", limit=N_EVAL)
print(f"{len(train_set)} questions to train on, {len(test_set)} held-out ones to measure with")
reports.show_rows(test_set)

# %% [markdown]
# This is what the model reads. The processor replaces the one image token by as many as the picture needs.

# %%
from recipe_lib import models

MODEL = models.pick(MODEL)
model, processor = models.load(MODEL)
print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, on {model.device}\n")
print(processor.apply_chat_template(test_set[0]["prompt"], add_generation_prompt=True))

# %% [markdown]
# ## The reward by hand
#
# A reward is a function from a text to a number. It is the whole specification of the run: the model will do
# whatever scores. So try it before you train, on a good answer and on bad ones. Two rewards are added up here:
#
# - `accuracy_reward`: is the text inside `<answer>` the right answer?
# - `format_reward`: is the text of the form `<think>...</think><answer>...</answer>`?

# %%
from recipe_lib.rewards import accuracy_reward, format_reward

for text in (
    "<think>The digit is 7.</think><answer>7</answer>",  # right
    "<think>The digit is 1.</think><answer>1</answer>",  # well formed, but wrong
    "It is a 7.",  # right for a person, but nothing that can be checked
):
    accuracy, form = accuracy_reward([text], solution=["7"])[0], format_reward([text])[0]
    print(f"accuracy {accuracy}   format {form}   {text}")

# %% [markdown]
# ## Train
#
# First we measure. Without a *before* there is no gain. The answers are greedy: the likeliest token at each step.

# %%
from recipe_lib.evaluation import compare, evaluate, record_fields

MAX_COMPLETION_LENGTH = 16 if MODEL.startswith("tiny") else 256  # in tokens; what is longer is cut off

before = evaluate(model, processor, test_set, max_new_tokens=MAX_COMPLETION_LENGTH, description="before")
print(f"before: {before.accuracy:.1%} right")

# %% [markdown]
# GRPO (*group relative policy optimization*) repeats one step:
#
# 1. take a few questions, and **sample** a group of answers to each of them;
# 2. **reward** every answer;
# 3. the **advantage** of an answer is its reward minus the mean of its group, in units of the group's spread;
# 4. make answers with a positive advantage likelier, and the others less likely.
#
# `beta` adds a slight pull back towards the start (the *KL* term), so that what is not rewarded stays as it was.
#
# An answer is judged against the other answers to the *same* question. So a group in which all are right, or all
# are wrong, teaches nothing. These settings are all there is to it:

# %%
from recipe_lib import guards, trainers

config = guards.GRPOConfig(  # TRL's own, and says what would do where a value would not
    output_dir=OUTPUT_DIR,
    max_steps=MAX_STEPS,
    learning_rate=LEARNING_RATE,
    lr_scheduler_type="linear",
    warmup_steps=5,
    per_device_train_batch_size=BATCH_SIZE,  # completions a step
    num_generations=NUM_GENERATIONS,  # completions a group
    max_completion_length=MAX_COMPLETION_LENGTH,
    temperature=TEMPERATURE,  # above 1 the answers of a group differ more
    beta=BETA,  # a slight pull back to the start
    gradient_checkpointing=False,
    bf16=not MODEL.startswith("tiny"),
    logging_steps=1,
    save_steps=100,
    save_total_limit=2,
    report_to=REPORT_TO,
    push_to_hub=PUSH_TO_HUB,
    seed=SEED,
)
guards.check(config, source=models.source(MODEL), dataset=train_set)  # what would only fail in mid-run
trainer = trainers.GRPOTrainer(
    model=model,
    reward_funcs=[accuracy_reward, format_reward],
    args=config,
    train_dataset=train_set,
    processing_class=processor,
)

# %%
train_seconds = trainers.train(trainer, resume=RESUME)
print(f"{trainer.state.global_step} steps in {train_seconds:.0f} s")

# %% [markdown]
# ## Evaluate
#
# The same questions, on pictures that were never trained on. Both measurements saw the same questions, so we
# compare them question by question. The interval comes from a *paired bootstrap*: draw 600 questions again and
# again from these 600, and see how much the gain moves.

# %%
after = evaluate(trainer.model, processor, test_set, max_new_tokens=MAX_COMPLETION_LENGTH, description="after")
gain = compare(before.correct, after.correct)
low, high = gain["gain_ci95"]
print(f"before {before.accuracy:.1%}, after {after.accuracy:.1%}")
print(f"gain {100 * gain['gain']:+.1f} points, 95 % interval {100 * low:+.1f} to {100 * high:+.1f}")

# %% [markdown]
# ## Plots
#
# Left: the rewards of the *sampled* answers during training. Right: what is left to learn from. When the orange
# line nears 1, almost every group agrees with itself, and training has come to its end.

# %%
reports.plot_rewards(trainer.state.log_history)

# %% [markdown]
# Which kinds of question improved? A sum needs two digits read right, so it is the hardest.

# %%
reports.plot_accuracy(before, after)

# %% [markdown]
# The first six held-out pictures, with the answers before and after. They are not chosen by their outcome.

# %%
reports.show_answers(test_set, before, after)

# %% [markdown]
# **What can go wrong.** A learning rate ten times as high destroys the model within a few steps: the curve falls
# to 0 and stays there. If the curve is flat from the start, look at the right-hand plot: without spread within
# groups there is nothing to learn. If accuracy rises in training and not on held-out questions, the model has
# learnt the training pictures by heart: take more of them.

# %% [markdown]
# ## Record

# %%
from recipe_lib.record import peak_rss_mb, write_record

write_record(
    OUTPUT_DIR,
    notebook="00_quickstart",
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
# - Your own data: give the trainer rows with `prompt`, `images` and `solution`.
# - The same run as a script: `python recipes/grpo.py --config recipes/configs/grpo_tiny_qwen2_5_vl.yaml`.
# - Is it the reward that teaches? Add `--shuffle_rewards` to the script: the same rewards, dealt at random within
#   each group, must teach nothing.
