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
# **Hardware and time**: two CPU cores, about 3 minutes.

# %% [markdown]
# ## Parameters

# %% tags=["parameters"]
MODEL = "tiny-qwen2.5-vl"
DATASET = "digits"
MAX_STEPS = 30
N_EVAL = 200
LEARNING_RATE = 3e-4
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
# Five faults that public recipes ship. To see what each does to a run, we need no language model: a policy that
# chooses among a few *ways to answer* shows it in a moment. It learns as GRPO does: sample a group, and make
# likelier what scored above the group's mean. Orange is what the curve of the faulty reward shows you; blue is
# how often the answers are truly right; green is how often they become right under this library's rewards.

# %%
import re

import numpy as np


def found(pattern, text, group=0):
    match = re.search(pattern, text, re.DOTALL)
    return match[group] if match else None


GOLD = "8/3"
FAULTS = {
    "reads boxes in the reasoning": (
        lambda text: float(f"\\boxed{{{GOLD}}}" in text),
        GOLD,
        [
            "<think>2 + 2/3</think><answer>8/3</answer>",
            "<think>\\boxed{2} \\boxed{8/3} \\boxed{5}?</think><answer>5</answer>",  # a guess of everything
            "<think>so</think><answer>2</answer>",
        ],
    ),
    "reads only the first number": (
        lambda text: float(found(r"<answer>(-?\d+)", text, 1) == "2"),  # of the gold 2 2/3 it keeps 2
        "2 2/3",
        [
            "<think>a</think><answer>2 2/3</answer>",
            "<think>a</think><answer>2</answer>",
            "<think>a</think><answer>3</answer>",
        ],
    ),
    "takes any letter A": (
        lambda text: float("A" in found(r"<answer>(.*?)</answer>", text, 1)),
        "A",
        [
            "<think>a</think><answer>A</answer>",
            "<think>a</think><answer>A triangle, so D</answer>",
            "<think>a</think><answer>A, B, C, D</answer>",
            "<think>a</think><answer>D</answer>",
        ],
    ),
    "cannot read the gold": (
        lambda text: 0.0,  # a letter gold given to a mathematics parser
        "B",
        [
            "<think>a</think><answer>B</answer>",
            "<think>a</think><answer>C</answer>",
            "<think>a</think><answer>D</answer>",
        ],
    ),
    "its own example fails the format": (
        lambda text: float(bool(re.match(r"^<think>.*?</think>\s*<answer>.*?</answer>$", text))),  # no DOTALL
        "4",
        ["<think>1.\n2.</think>\n<answer>4</answer>", "<think></think><answer></answer>", "4"],
    ),
}


def learn(reward, ways, gold, steps=60, group=32, rate=0.5):
    """Policy gradient over ways to answer, all as likely at first; mean reward and true accuracy at each step."""
    rng, logits, curve = np.random.default_rng(SEED), np.zeros(len(ways)), []
    scores = np.array([reward(way) for way in ways])
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
for name, (faulty, gold, ways) in FAULTS.items():
    curves[name] = learn(faulty, ways, gold), learn(ours(gold), ways, gold)
    (shown, truly), (_, mended) = curves[name][0][-1], curves[name][1][-1]
    print(f"{name:<34} the curve says {shown:4.0%}   truly right {truly:4.0%}   with the reward mended {mended:4.0%}")

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(1, len(curves), figsize=(16, 2.8), sharey=True)
for axis, (name, (faulty, mended)) in zip(axes, curves.items(), strict=True):
    axis.plot(faulty[:, 0], color="#e8863a", linewidth=3, label="faulty reward")
    axis.plot(faulty[:, 1], color="#2f6fb0", label="truly right under it")
    axis.plot(mended[:, 1], color="#3f9b57", linestyle="--", label="truly right, mended")
    axis.set(title=name, xlabel="step", ylim=(-0.05, 1.05))
    axis.title.set_fontsize(10)
axes[0].legend(fontsize=8)
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
from trl import GRPOConfig, GRPOTrainer

from recipe_lib import models, trainers
from recipe_lib.answer_format import completion_text
from recipe_lib.evaluation import compare, evaluate
from recipe_lib.rewards import combine

MAX_COMPLETION_LENGTH = 48 if MODEL.startswith("tiny") else 256


def length_reward(completions, **columns):
    """Words, up to 1.0 for twenty of them: this will be gamed."""
    return [min(1.0, len(completion_text(one).split()) / 20) for one in completions]


def length_if_right_reward(completions, solution, **columns):
    """The same, mended: length is worth something only where the answer is right, and never more than the answer."""
    right = accuracy_reward(completions, solution, **columns)
    lengths = length_reward(completions)
    return [None if r is None else r * (0.8 + 0.2 * length) for r, length in zip(right, lengths, strict=True)]


GAMED = combine({"accuracy": (accuracy_reward, 1.0), "length": (length_reward, 2.0)}, name="gamed")
MENDED = combine({"length_if_right": (length_if_right_reward, 1.0), "format": (format_reward, 0.2)}, name="mended")


def run(reward):
    """Train a fresh model on `reward`; its log, its answers before and after, and the seconds it took."""
    model, processor = models.load(MODEL)
    before = evaluate(model, processor, test_set, max_new_tokens=MAX_COMPLETION_LENGTH, description="before")
    config = GRPOConfig(
        output_dir=f"{OUTPUT_DIR}/{reward.__name__}",
        max_steps=MAX_STEPS,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=3,
        per_device_train_batch_size=64,
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
    trainer = GRPOTrainer(
        model=model, reward_funcs=[reward], args=config, train_dataset=train_set, processing_class=processor
    )
    seconds = trainers.train(trainer)
    after = evaluate(trainer.model, processor, test_set, max_new_tokens=MAX_COMPLETION_LENGTH, description="after")
    return trainer, before, after, seconds


# %%
gamed, before, gamed_after, _ = run(GAMED)

# %%
mended, _, mended_after, train_seconds = run(MENDED)

# %% [markdown]
# ## Evaluate

# %%
words = {
    name: np.mean([len(text.split()) for text in evaluation.completions])
    for name, evaluation in {"before": before, "gamed": gamed_after, "mended": mended_after}.items()
}
print(f"before training         {before.accuracy:6.1%} right   {words['before']:.1f} words an answer")
print(f"length rewarded         {gamed_after.accuracy:6.1%} right   {words['gamed']:.1f} words an answer")
print(f"length only where right {mended_after.accuracy:6.1%} right   {words['mended']:.1f} words an answer")
print("\nTo the first held-out question the model now says, with length rewarded:\n ", gamed_after.completions[0])
print("and mended:\n ", mended_after.completions[0])

# %% [markdown]
# ## Plots
#
# Each part of a combined reward is logged by itself: that is how you see *what* rose. On the left the sum goes up,
# and a look at the sum alone calls it a success. The parts tell.

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
    return [
        r and float(len(judge(one, gold).answer.split()) == 1) for r, one, gold in zip(right, completions, solution)
    ]


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

gain = compare(before.correct, mended_after.correct)
write_record(
    OUTPUT_DIR,
    notebook="02_rewards",
    method="GRPO",
    model=MODEL,
    dataset=DATASET,
    seed=SEED,
    n_eval=len(test_set),
    accuracy_before=before.accuracy,
    accuracy_before_ci95=before.ci95,
    accuracy_after=mended_after.accuracy,
    accuracy_after_ci95=mended_after.ci95,
    gain=gain["gain"],
    gain_ci95=gain["gain_ci95"],
    train_steps=mended.state.global_step,
    train_seconds=train_seconds,
    peak_rss_mb=peak_rss_mb(),
    accuracy_gamed=gamed_after.accuracy,
    words_before=words["before"],
    words_gamed=words["gamed"],
    words_mended=words["mended"],
    **trainers.run_figures(mended.state.log_history),
)

# %% [markdown]
# ## What next
#
# - Rewards to copy, each under 80 lines: boxes, edit distance, length and repetition, a language model as judge
#   (`recipes/rewards/`).
# - A neural reward: captions aligned to a CLIP model's similarity (`recipes/grpo_captions.py`).
# - Audit your own data: `python -m recipe_lib score FILE.jsonl --reward accuracy`.
