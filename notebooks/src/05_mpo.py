# %% [markdown]
# # MPO: learning from pairs of answers, and what each of its three losses does
#
# **What you will learn**
# - how to make preference pairs with the model itself, out of questions whose answers can be checked;
# - what the three losses of MPO (*mixed preference optimization*, [Wang et al. 2024](https://arxiv.org/abs/2411.10442))
#   are, and what the *reward shift* is that TRL leaves out;
# - how to compare methods honestly: same pairs, same steps, same held-out questions, several seeds, intervals.
#
# **Hardware and time**: two CPU cores, about 25 minutes for all four methods and three seeds, under 3 GB of memory.
# With `N_SEEDS = 1` it is a third of that.

# %% [markdown]
# ## Parameters
#
# `RESUME = True` keeps the runs that are done and goes on with the others.

# %% tags=["parameters"]
MODEL = "tiny-qwen2.5-vl"
DATASET = "digits"
MAX_STEPS = 130
N_EVAL = 600
N_QUESTIONS = 2400
SAMPLES = 4
SAMPLING_TEMPERATURE = 1.3
PAIRS_PER_QUESTION = 2
BATCH_SIZE = 32
LEARNING_RATE = 3e-4
BETA = 0.1
N_SEEDS = 3
SEED = 0
RESUME = False
OUTPUT_DIR = "outputs/05_mpo"
REPORT_TO = "none"
PUSH_TO_HUB = False

# %%
from recipe_lib.parameters import check_parameters

check_parameters(globals())

# %% [markdown]
# ## Data
#
# We begin with questions, not with pairs: the model answers each question several times, and a checker says which
# answers are right.

# %%
from recipe_lib import datasets, models, reports

MODEL = models.pick(MODEL)
TINY = MODEL.startswith("tiny")
MAX_ANSWER_TOKENS = 16 if TINY else 512

questions = datasets.load(DATASET, "train", limit=N_QUESTIONS)
test_set = datasets.load(DATASET, "test", limit=N_EVAL)
model, processor = models.load(MODEL)
print(f"{len(questions)} questions to make pairs of, {len(test_set)} held-out ones to measure with")
reports.show_rows(test_set)

# %% [markdown]
# Each right answer (*chosen*) is paired with a wrong one (*rejected*) to the same question. Questions that the model
# always gets right, or never, give no pair. No question gives more than `PAIRS_PER_QUESTION`, so that the few on which
# the model wavers most do not fill the set.

# %%
import time

from data_scripts import make_preferences

how = make_preferences.PairArguments(
    pairs=f"{OUTPUT_DIR}/pairs_{MODEL}_{SEED}",
    samples=SAMPLES,
    sampling_temperature=SAMPLING_TEMPERATURE,
    top_k=0 if TINY else 50,
    max_answer_tokens=MAX_ANSWER_TOKENS,
    pairs_per_question=PAIRS_PER_QUESTION,
)
started = time.perf_counter()
pairs = make_preferences.make(MODEL, model, processor, questions, how, dataset=DATASET, seed=SEED)
pair_seconds = time.perf_counter() - started
for row in pairs.select(range(3)):
    texts = {side: row[side][0]["content"][0]["text"] for side in ("chosen", "rejected")}
    print(f"\nchosen    {texts['chosen']}\nrejected  {texts['rejected']}")

# %% [markdown]
# ## The reward by hand
#
# Here no function scores answers. The *implicit reward* of an answer is how much likelier the model finds it than at
# the start: $r = \beta\,(\log \pi(y|x) - \log \pi_0(y|x))$. MPO adds up three losses:
#
# | loss | formula | asks |
# |---|---|---|
# | preference (DPO), weight 0.8 | $-\log\sigma(r_c - r_r)$ | is the chosen answer *ahead of* the rejected one? |
# | quality (BCO), weight 0.2 | $-\log\sigma(r_c - \delta) - \log\sigma(-(r_r - \delta))$ | is each by itself on the right side of $\delta$? |
# | generation (SFT), weight 1.0 | $-\log\pi(y_c \mid x) / \mathrm{len}(y_c)$ | is the chosen answer likely? |
#
# $\delta$, the reward shift, is a running mean of all rewards so far. TRL 1.16 computes the quality loss with
# $\delta = 0$. Look at a pair in which *both* answers have become less likely:

# %%
import math


def log_sigmoid(x: float) -> float:
    return -math.log1p(math.exp(-x))


chosen, rejected = -1.0, -3.0  # rewards: both fell, the rejected one further
for delta in (0.0, -2.0):  # -2 is the mean of the two
    preference = -log_sigmoid(chosen - rejected)
    quality = -log_sigmoid(chosen - delta) - log_sigmoid(-(rejected - delta))
    print(f"shift {delta:4}: preference loss {preference:.2f}, quality loss {quality:.2f}")

# %% [markdown]
# The preference loss is content: the chosen answer is ahead. This is the known weakness of DPO alone, which may push
# both answers down as long as the rejected one falls faster. Without a shift, the quality loss objects. With it, the
# bar has moved down together with the answers, and it objects less. What that does to a model, only a run can tell.

# %% [markdown]
# ## Train
#
# Four methods, all on the same pairs, with the same learning rate and as many steps. They are one trainer with other
# weights: DPO is the preference loss alone, SFT on the chosen answers the generation loss alone (tests hold both
# against TRL's own trainers, step by step).

# %%
from recipe_lib.evaluation import compare, evaluate

before = evaluate(model, processor, test_set, max_new_tokens=MAX_ANSWER_TOKENS, description="before")
del model
print(f"before: {before.accuracy:.1%} right")

# %%
from pathlib import Path

from trl import ModelConfig

from recipe_lib import adapters, trainers
from recipe_lib.mpo import MPOConfig, MPOTrainer

METHODS = {
    "SFT": {"loss_type": ["sft"]},
    "DPO": {"loss_type": ["sigmoid"]},
    "MPO, no shift": {"bco_shift": "none"},
    "MPO": {"bco_shift": "running_mean"},
}


def folder_of(method: str, seed: int) -> Path:
    return Path(OUTPUT_DIR) / f"{method.lower().replace(', ', '_').replace(' ', '_')}_{seed}"


def make_trainer(method: str, seed: int) -> MPOTrainer:
    model, processor = models.load(MODEL)  # every run begins at the same start
    config = MPOConfig(
        output_dir=str(folder_of(method, seed)),
        **METHODS[method],  # loss_weights left out: 0.8, 0.2 and 1.0
        beta=BETA,
        max_steps=MAX_STEPS,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="cosine",
        warmup_steps=5,
        per_device_train_batch_size=BATCH_SIZE,
        max_length=None,  # nothing is cut
        gradient_checkpointing=not TINY,
        bf16=not TINY,
        logging_steps=1,
        save_steps=50,
        save_total_limit=1,
        report_to=REPORT_TO,
        push_to_hub=PUSH_TO_HUB and (method, seed) == ("MPO", SEED),
        seed=seed,
    )
    return MPOTrainer(
        model=model,
        args=config,
        train_dataset=pairs,
        processing_class=processor,
        peft_config=adapters.prepare(model, ModelConfig(use_peft=not TINY)),  # real models: LoRA, no reference kept
    )


# %%
import json

from transformers.utils import logging

logging.disable_progress_bar()  # two bars a run, of loading a small model
logging.set_verbosity_error()

SEEDS = range(SEED, SEED + N_SEEDS)
runs = {}
for seed in SEEDS:
    for method in METHODS:
        result = folder_of(method, seed) / "result.json"
        if not (RESUME and result.is_file()):
            trainer = make_trainer(method, seed)
            seconds = trainers.train(trainer, resume=RESUME)
            after = evaluate(trainer.model, processor, test_set, max_new_tokens=MAX_ANSWER_TOKENS, description=method)
            found = {"seconds": seconds, "correct": after.correct.tolist(), "log": trainer.state.log_history}
            result.write_text(json.dumps(found))
            del trainer
        runs[method, seed] = json.loads(result.read_text())
        right, count = sum(runs[method, seed]["correct"]), len(test_set)
        print(f"{method}, seed {seed}: {right / count:.1%} in {runs[method, seed]['seconds']:.0f} s", flush=True)

# %% [markdown]
# ## Evaluate
#
# Gains are means over the seeds. The intervals draw seeds and questions again and again, and ask how much the gain
# moves. A difference counts only where its interval leaves out 0.

# %%
import numpy as np

correct = {method: np.array([runs[method, seed]["correct"] for seed in SEEDS]) for method in METHODS}
gains = {method: compare(before.correct, correct[method]) for method in METHODS}
print(f"base: {before.accuracy:.1%} of {len(test_set)} questions\n")
print(f"{'':<16}{'accuracy':>9}  gain over the base, with its 95 % interval")
for method, gain in gains.items():
    low, high = gain["gain_ci95"]
    accuracy = before.accuracy + gain["gain"]
    print(f"{method:<16}{accuracy:>9.1%}  {100 * gain['gain']:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}) points")

# %% [markdown]
# Now the methods against each other, question by question and seed by seed:

# %%
differences = {}
for other in ("SFT", "DPO", "MPO, no shift"):
    differences[other] = compare(np.zeros(len(test_set)), correct["MPO"] - correct[other])
    low, high = differences[other]["gain_ci95"]
    verdict = "MPO is better" if low > 0 else "MPO is worse" if high < 0 else "no difference shown"
    points = 100 * differences[other]["gain"]
    print(f"MPO minus {other:<14} {points:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}) points: {verdict}")

# %% [markdown]
# **Which shift is the default?** The paper's running mean. Not because it does better here: over three seeds the two
# differ by -0.1 points (-0.8 to +0.5) on the tiny Qwen2.5-VL and by -0.3 (-2.0 to +1.4) on the tiny SmolVLM, which is
# nothing shown either way. It is the method as it was published, and `bco_shift="none"` is one word away. What the
# pairs add to SFT on their chosen halves is small and there: +2.7 points (+0.5 to +4.9), and +3.6 (+1.4 to +5.8). Two
# cores, 2026-12-02, this notebook.
#
# **How to read the paper's figures.** On MathVista, InternVL2-8B answered 58.3 % right when asked for the answer
# directly, and after MPO 64.5 %: that is the +6.2. But SFT on the same chosen answers reached 62.7 % (their table 3).
# So most of the gain came from the chosen answers themselves, and 1.8 points from telling them apart from rejected ones.
# With reasoning before the answer it was 56.8 % at the start, 64.2 % after SFT, 67.0 % after MPO. The often quoted +8.7
# compares 67.0 % *with* reasoning to 58.3 % *without*. The paper gives no intervals.

# %% [markdown]
# ## Plots
#
# Means over the seeds, on the batches that were trained on. The last two plots show how much likelier the answers
# have become since the start, in nats for a whole answer.

# %%
import matplotlib.pyplot as plt


def curve(method: str, name: str) -> np.ndarray:
    """One logged figure, a value a step, mean over the seeds."""
    return np.mean([[entry[name] for entry in runs[method, seed]["log"] if name in entry] for seed in SEEDS], axis=0)


PANELS = {
    "rewards/margins": ("Margin: chosen reward minus rejected", 1.0),
    "rewards/accuracies": ("Share of pairs with the chosen ahead", 1.0),
    "rewards/chosen": ("Chosen answers: log-probability gained", 1 / BETA),
    "rewards/rejected": ("Rejected answers: log-probability gained", 1 / BETA),
}
figure, axes = plt.subplots(2, 2, figsize=(11, 6.6), sharex=True)
for axis, (name, (title, scale)) in zip(axes.flat, PANELS.items(), strict=True):
    for method, style in zip(METHODS, ("-", "--", "-.", "-"), strict=True):
        values = scale * curve(method, name)
        axis.plot(range(1, len(values) + 1), values, style, label=method, linewidth=2.4 if method == "MPO" else 1.6)
    axis.axhline(0.5 if "accuracies" in name else 0, color="grey", linewidth=0.8)
    axis.set(title=title, xlabel="step")
axes[0, 0].legend(frameon=False)
figure.tight_layout()
plt.close(figure)
figure

# %% [markdown]
# Does DPO alone make even the chosen answers less likely here? The last tenth of the steps says:

# %%
moved = {method: float(curve(method, "rewards/chosen")[-max(1, MAX_STEPS // 10) :].mean() / BETA) for method in METHODS}
for method, change in moved.items():
    word = "less" if change < 0 else "more"
    print(f"{method:<16} chosen answers {abs(change):.2f} nats {word} likely than at the start")

# %% [markdown]
# Held-out accuracy, with its intervals over seeds and questions:

# %%
names = ["base", *METHODS]
shares = [before.accuracy, *(before.accuracy + gain["gain"] for gain in gains.values())]
ends = [before.ci95, *(compare(np.zeros(len(test_set)), correct[method])["gain_ci95"] for method in METHODS)]
figure, axis = plt.subplots(figsize=(8, 3.4))
errors = np.abs(100 * np.array(ends).T - 100 * np.array(shares))
bars = axis.bar(names, [100 * share for share in shares], yerr=errors, capsize=4, color=["#9aa5b1", *["#1f6feb"] * 4])
axis.bar_label(bars, fmt="%.0f", padding=3)
axis.set(ylabel="held-out accuracy, %", ylim=(0, 112), title="Greedy answers, 95 % intervals")
axis.spines[["top", "right"]].set_visible(False)
plt.close(figure)
figure

# %% [markdown]
# **What can go wrong.** Pairs whose rejected answers are all badly formed teach the form and nothing else: look at a
# few before you train. If the margin grows while accuracy falls, the model is told apart from itself by some habit of
# wording: look at `rewards/chosen`, which should not sink. All methods had one learning rate here; a method that looks
# weak may only have been given too few or too large steps.

# %% [markdown]
# ## Record

# %%
from recipe_lib.record import peak_rss_mb, write_record

accuracy = compare(np.zeros(len(test_set)), correct["MPO"])
write_record(
    OUTPUT_DIR,
    notebook="05_mpo",
    method="MPO",
    model=MODEL,
    dataset=DATASET,
    seed=SEED,
    n_eval=len(test_set),
    accuracy_before=before.accuracy,
    accuracy_before_ci95=before.ci95,
    accuracy_after=accuracy["gain"],
    accuracy_after_ci95=accuracy["gain_ci95"],
    gain=gains["MPO"]["gain"],
    gain_ci95=gains["MPO"]["gain_ci95"],
    train_steps=MAX_STEPS,
    train_seconds=max(runs["MPO", seed]["seconds"] for seed in SEEDS),
    peak_rss_mb=peak_rss_mb(),
    n_seeds=N_SEEDS,
    n_pairs=len(pairs),
    pair_seconds=pair_seconds,
    gains={method: [gain["gain"], *gain["gain_ci95"]] for method, gain in gains.items()},
    mpo_minus={other: [found["gain"], *found["gain_ci95"]] for other, found in differences.items()},
    chosen_logp_gained=moved,
)

# %% [markdown]
# ## What next
#
# - The same as a script: `python recipes/mpo.py --config recipes/configs/mpo_tiny_qwen2_5_vl.yaml`.
# - Ready-made pairs: `--pairs rlaif-v`, or a folder that `python -m data_scripts.prepare_any` made of your own set.
# - No golds? `python -m data_scripts.make_preferences --pair_method drop_and_continue` makes pairs without them.
# - The pairs here are the start's own. Make new ones with the trained model, and see whether a second round pays.
