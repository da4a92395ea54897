# %% [markdown]
# # Rewards: what they measure, how they fail, and how they are gamed
#
# **What you will learn**
# - how to try a reward by hand before you trust a training run to it;
# - what the known faults of public rewards look like, in a table and in a reward curve;
# - how a model games a reward, shown on a real run, and how the reward is mended;
# - how to write your own reward, and check it before the first step.
#
# The reward is the specification of the whole run. The model never sees what you meant, only what you score.
#
# **Hardware and time**: two CPU cores, about 4 minutes.

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
MODEL = "tiny-qwen2.5-vl"
DATASET = "digits"
MAX_STEPS = 40
N_EVAL = 200
LEARNING_RATE = 3e-4
BATCH_SIZE = 64
TEMPERATURE = 1.3
SEED = 0
OUTPUT_DIR = "outputs/02_rewards"
REPORT_TO = "none"
PUSH_TO_HUB = False

# %%
from recipe_lib.parameters import check_parameters

check_parameters(globals())

# %% [markdown]
# ## Data
#
# A reward gets the completions, and by name every column of the data: `solution`, `options`, `images`, ... Here
# are the golds that three rows of the set come with. A row with options has a letter as its gold.

# %%
from recipe_lib import datasets

train_set = datasets.load(DATASET, "train")
test_set = datasets.load(DATASET, "test", limit=N_EVAL)
for row in [test_set[i] for i in range(3)]:
    print(f"{row['question']!r:.60}  gold {row['solution']!r}  options {row['options']}")

# %% [markdown]
# ## The reward by hand
#
# A reward is a function: completions in, one number for each of them out. Change the text and run the cell again.

# %%
from recipe_lib.rewards import accuracy_reward, closeness_reward, format_reward, judge

text = "<think>180 - 50 = 130, so \\boxed{130}.</think><answer>130°</answer>"
print("accuracy ", accuracy_reward([text], solution=["130"]))
print("format   ", format_reward([text]))
print("within 2°", closeness_reward([text], solution=["131°"], tolerance=2))

# %% [markdown]
# `judge` gives the verdict with its reason: what was read as the answer, and by which path it was compared. The
# verdict is 1.0, 0.0, or None, which *abstains*: a gold that cannot be read must neither pay nor punish.

# %%
CASES = [  # gold, what stands in the answer block, options
    ("B", "So the answer is B.", None),
    ("B", "A triangle is shown, so B", None),  # the article A is no answer
    ("B", "A, B, C or D", None),  # hedging must not pay
    ("C", "C. 154°", {"B": "77°", "C": "154°"}),
    ("C", "C. 77°", {"B": "77°", "C": "154°"}),  # the letter says one thing, the value another
    ("C", "154 degrees", {"B": "77°", "C": "154°"}),
    ("8/3", "2 2/3", None),
    ("2 2/3", "2", None),
    ("3\\sqrt{2}", "√18", None),
    ("1331 and 1728", "1728", None),  # every value that is asked for must be there
    ("1.3 m", "130 cm", None),
    ("130 m", "130 cm", None),
    ("12", "12厘米", None),
    ("50%", "0.5", None),
    ("yes", "Yes, there is.", None),
    ("3x-y+13=0", "6x - 2y + 26 = 0", None),
    ("3x-y+13=0", "0", None),
    ("", "3", None),
]
print(f"{'gold':<16}{'answer':<28}{'verdict':<9}reason")
for gold, answer, options in CASES:
    verdict = judge(f"<think>I look.</think><answer>{answer}</answer>", gold, options)
    print(f"{gold:<16}{answer:<28}{verdict.score!s:<9}{verdict.path}")

# %% [markdown]
# To audit your own data, put rows of `completion`, `solution` and `options` into a file and run
# `python -m recipe_lib score FILE.jsonl`.
#
# ## How each fault shows in a reward curve
#
# Five faults that public recipes ship:
#
# | fault | what the reward does | what it teaches |
# |---|---|---|
# | reads the reasoning | looks for the right box anywhere in the text | to box every guess while thinking |
# | first number only | reads `2 2/3` as `2` | to stop at the first number |
# | any letter A | takes an A in "A triangle" for the answer | to name all letters |
# | unreadable gold | gives a letter to a mathematics parser, and 0 to everybody | nothing |
# | format too strict | its pattern does not allow line breaks: the prompt's own example fails | to say nothing |
#
# To see what each does to a run, we need no language model: a policy that chooses among a few *ways to answer*
# shows it in a moment. It learns as GRPO does: sample a group, and make likelier what scored above the group's mean.

# %%
import re

import numpy as np


def say(answer, reasoning="a"):
    return f"<think>{reasoning}</think><answer>{answer}</answer>"


FAULTS = {  # name: gold, the faulty reward, ways to answer
    "reads the reasoning": (
        "8/3",
        lambda text: "boxed{8/3}" in text,
        [say("8/3"), say("5", "\\boxed{2} \\boxed{8/3} \\boxed{5}?"), say("2")],
    ),
    "first number only": (
        "2 2/3",
        lambda text: re.search(r"<answer>(\d+)", text)[1] == "2",
        [say("2 2/3"), say("2"), say("3")],
    ),
    "any letter A": (
        "A",
        lambda text: "A" in text,
        [say("A"), say("A triangle, so D"), say("A, B, C, D"), say("D")],
    ),
    "unreadable gold": ("B", lambda text: 0, [say("B"), say("C"), say("D")]),
    "format too strict": (
        "4",
        lambda text: re.fullmatch("<think>.*</think><answer>.*</answer>", text) is not None,
        [say("4", "1. two\n2. four"), say("", ""), "4"],
    ),
}


def learn(reward, ways, gold, steps=60, group=32, rate=0.5):
    """Policy gradient over ways to answer; mean reward and true accuracy at each step."""
    rng, logits, curve = np.random.default_rng(SEED), np.zeros(len(ways)), []
    scores = np.array([float(reward(way)) for way in ways])
    truly = np.array([judge(way, gold).score for way in ways])
    for _ in range(steps):
        p = np.exp(logits) / np.exp(logits).sum()
        curve.append((p @ scores, p @ truly))
        taken = rng.choice(len(ways), group, p=p)
        advantage = (scores[taken] - scores[taken].mean()) / (scores[taken].std() + 1e-4)
        for way, value in zip(taken, advantage, strict=True):
            logits += rate * value / group * ((np.arange(len(ways)) == way) - p)
    return np.array(curve)


def ours(gold):
    return lambda text: judge(text, gold).score + 0.2 * format_reward([text])[0]


curves = {}
print(f"{'at the last step':<22}{'the curve says':>16}{'truly right':>14}{'reward mended':>16}")
for name, (gold, faulty, ways) in FAULTS.items():
    curves[name] = learn(faulty, ways, gold), learn(ours(gold), ways, gold)
    (shown, truly), (_, mended) = curves[name][0][-1], curves[name][1][-1]
    print(f"{name:<22}{shown:>16.0%}{truly:>14.0%}{mended:>16.0%}")

# %% [markdown]
# The thick orange line is all that you see in such a run. The blue line is what happens.

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(2, 3, figsize=(11, 5.4), sharex=True, sharey=True)
for axis, (name, (faulty, mended)) in zip(axes.flat, curves.items()):
    axis.plot(faulty[:, 0], color="#e8863a", linewidth=5, alpha=0.6, label="the faulty reward's curve")
    axis.plot(faulty[:, 1], color="#2f6fb0", linewidth=2, label="truly right under it")
    axis.plot(mended[:, 1], color="#3f9b57", linestyle="--", label="truly right, reward mended")
    axis.set(title=name, xlabel="step", ylim=(-0.05, 1.05))
axes.flat[-1].axis("off")
axes.flat[-1].legend(*axes.flat[0].get_legend_handles_labels(), loc="center", frameon=False, fontsize=11)
figure.tight_layout()
plt.show()

# %% [markdown]
# - A curve that **rises while accuracy does not** is a reward that pays for something else (four of the five).
# - A curve that is **flat at 0** is a reward that never pays: look at the golds, and try the prompt's own example.
# - No curve shows accuracy by itself. Measure it on held-out questions, with a check that is not the reward.

# %% [markdown]
# ## Train
#
# Now a real model. Somebody would like longer reasoning, and adds a reward for length. What could go wrong?

# %%
from recipe_lib import guards, models, trainers
from recipe_lib.answer_format import completion_text
from recipe_lib.evaluation import evaluate, record_fields
from recipe_lib.rewards import combine

MAX_COMPLETION_LENGTH = 48 if MODEL.startswith("tiny") else 256


def length_reward(completions, **columns):
    """Words, up to 1.0 for twenty of them: this will be gamed."""
    return [min(1.0, len(completion_text(one).split()) / 20) for one in completions]


def length_if_right_reward(completions, solution, **columns):
    """The same, mended: length is worth something only where the answer is right."""
    right = accuracy_reward(completions, solution, **columns)
    lengths = length_reward(completions)
    return [None if r is None else r * (0.8 + 0.2 * length) for r, length in zip(right, lengths, strict=True)]


GAMED = combine(
    {"accuracy": (accuracy_reward, 1.0), "length": (length_reward, 2.0)},
    name="gamed",
)
MENDED = combine(
    {"length_if_right": (length_if_right_reward, 1.0), "format": (format_reward, 0.2)},
    name="mended",
)


def run(reward):
    """Train a fresh model on `reward`: the trainer, the answers afterwards, and the seconds it took."""
    model, processor = models.load(MODEL)
    config = guards.GRPOConfig(
        output_dir=f"{OUTPUT_DIR}/{reward.__name__}",
        max_steps=MAX_STEPS,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=3,
        temperature=TEMPERATURE,
        per_device_train_batch_size=BATCH_SIZE,
        num_generations=8,
        max_completion_length=MAX_COMPLETION_LENGTH,
        beta=0.0,
        gradient_checkpointing=False,
        bf16=not MODEL.startswith("tiny"),
        logging_steps=1,
        save_strategy="no",
        report_to=REPORT_TO,
        push_to_hub=PUSH_TO_HUB,
        seed=SEED,
    )
    guards.check(config, source=models.source(MODEL), dataset=train_set)
    trainer = trainers.GRPOTrainer(
        model=model, reward_funcs=[reward], args=config, train_dataset=train_set, processing_class=processor
    )
    seconds = trainers.train(trainer)
    return trainer, measure(trainer.model, processor, "after"), seconds


def measure(model, processor, when):
    return evaluate(model, processor, test_set, max_new_tokens=MAX_COMPLETION_LENGTH, description=when)


before = measure(*models.load(MODEL), "before")

# %%
gamed, gamed_after, _ = run(GAMED)

# %%
mended, mended_after, train_seconds = run(MENDED)

# %% [markdown]
# ## Evaluate

# %%
runs = {"before training": before, "length rewarded": gamed_after, "length if right": mended_after}
words = {name: np.mean([len(text.split()) for text in found.completions]) for name, found in runs.items()}
print(f"{'held out, greedy':<20}{'right':>8}{'words':>8}   the first answer")
for name, found in runs.items():
    print(f"{name:<20}{found.accuracy:>8.1%}{words[name]:>8.1f}   {found.completions[0][:90]}")

# %% [markdown]
# ## Plots
#
# Each part of a combined reward is logged by itself: that is how you see *what* rose. On the left the dotted sum goes
# up, and who looks at the sum alone calls the run a success. The parts tell: the model talks, and has stopped to
# answer. It found the shortest way to what was scored, which is not what was meant.

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 3), sharex=True)
for axis, (name, trainer) in zip(axes, {"length rewarded": gamed, "mended": mended}.items(), strict=True):
    logs = [entry for entry in trainer.state.log_history if "reward" in entry]
    for key in sorted({key for entry in logs for key in entry if key.startswith("parts/")}):
        axis.plot(
            [entry["step"] for entry in logs if key in entry], [entry[key] for entry in logs if key in entry], label=key
        )
    axis.plot([entry["step"] for entry in logs], [entry["reward"] for entry in logs], "k:", label="sum")
    axis.set(title=name, xlabel="step", ylabel="mean of the batch")
    axis.legend(fontsize=8)
figure.tight_layout()
plt.show()

# %% [markdown]
# **The mending rule**: what you add must not be reachable without what you want. A product with accuracy does that
# (`recipes/rewards/length_and_repetition.py` has the cosine form); a sum with a larger weight does the opposite.
#
# ## Write your own
#
# A reward takes `completions` and the columns it needs by name, and swallows the rest with `**columns`. It returns
# one number for each completion, or None to abstain, and never raises on what a model wrote. Check it against the
# data before the first step: a column that is missing, or a list of the wrong length, is named here and now.

# %%
from recipe_lib.rewards import check_rewards


def short_answer_reward(completions, solution, **columns):
    """Right, and said in one word."""
    right = accuracy_reward(completions, solution, **columns)
    answers = [judge(one, gold).answer or "" for one, gold in zip(completions, solution, strict=True)]
    return [r and float(len(answer.split()) == 1) for r, answer in zip(right, answers, strict=True)]


check_rewards([short_answer_reward], train_set)
good = "<think>a</think><answer>7</answer>"
wordy = "<think>a</think><answer>The digit is 7</answer>"
print(short_answer_reward([good, wordy], solution=["7", "7"]))

try:
    check_rewards([short_answer_reward], [{"prompt": "Which digit?", "answer": "7"}])
except ValueError as error:
    print(error)

# %% [markdown]
# ## Record

# %%
from recipe_lib.record import peak_rss_mb, write_record

write_record(
    OUTPUT_DIR,
    notebook="02_rewards",
    method="GRPO",
    model=MODEL,
    dataset=DATASET,
    seed=SEED,
    train_steps=mended.state.global_step,
    train_seconds=train_seconds,
    peak_rss_mb=peak_rss_mb(),
    accuracy_gamed=gamed_after.accuracy,
    words_before=words["before training"],
    words_gamed=words["length rewarded"],
    words_mended=words["length if right"],
    **record_fields(before, mended_after),
    **trainers.run_figures(mended.state.log_history),
)

# %% [markdown]
# ## What next
#
# - Rewards to copy, each under 80 lines: boxes, edit distance, length and repetition, a language model as judge
#   (`recipes/rewards/`).
# - A neural reward: captions aligned to a CLIP model's similarity (`recipes/grpo_captions.py`).
# - Audit your own data: `python -m recipe_lib score FILE.jsonl --reward accuracy`.
