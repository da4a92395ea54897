"""Pictures and tables of a run: what to look at before believing a number."""

from __future__ import annotations

import textwrap

import matplotlib.pyplot as plt
import numpy as np
from datasets import Dataset
from matplotlib.figure import Figure

from recipe_lib.evaluation import Evaluation, wilson_interval

BEFORE, AFTER, WRONG = "#9aa5b1", "#1f6feb", "#c2410c"  # told apart in grey print as well


def plot_rewards(log_history: list[dict], smooth: int = 5) -> Figure:
    """Draw mean reward per step, its spread within groups, and each reward part.

    Args:
        log_history: `trainer.state.log_history` of a GRPOTrainer.
        smooth: steps in the running mean; the raw curve stays behind it in pale.

    Raises:
        ValueError: no step was logged.
    """
    logs = [entry for entry in log_history if "reward" in entry]
    if not logs:
        raise ValueError("log_history holds no 'reward': nothing was trained, or logging_steps is above max_steps")
    steps = [entry["step"] for entry in logs]
    parts = sorted(key for key in logs[0] if key.startswith("rewards/") and key.endswith("/mean"))
    figure, axes = plt.subplots(1, 2, figsize=(11, 3.4), sharex=True)
    for part in parts:
        name = part.removeprefix("rewards/").removesuffix("/mean").replace("_", " ")
        _draw_smoothed(axes[0], steps, [entry.get(part) for entry in logs], smooth, label=name)
    axes[0].set(title="Rewards of the sampled completions", xlabel="step", ylabel="mean over the batch")
    axes[0].set_ylim(-0.02, 1.05)
    axes[0].legend(loc="lower right", frameon=False)
    for key, name, colour in (
        ("reward_std", "spread of the rewards", AFTER),
        ("frac_reward_zero_std", "share of groups without spread", WRONG),
    ):
        if key in logs[0]:
            _draw_smoothed(axes[1], steps, [entry[key] for entry in logs], smooth, label=name, color=colour)
    axes[1].set(title="What is left to learn from", xlabel="step")
    axes[1].set_ylim(-0.02, 1.05)
    axes[1].legend(loc="lower left", frameon=False)
    return _finish(figure)


def _running_mean(values: list[float | None], width: int) -> np.ndarray:
    filled = np.array([np.nan if value is None else value for value in values], dtype=float)
    return np.array([np.nanmean(filled[max(0, i - width + 1) : i + 1]) for i in range(len(filled))])


def plot_accuracy(before: Evaluation, after: Evaluation) -> Figure:
    """Bars of held-out accuracy before and after, for all questions and for each kind, with Wilson intervals."""
    kinds = list(dict.fromkeys(before.kinds))
    figure, axis = plt.subplots(figsize=(2.2 + 1.5 * (len(kinds) + 1), 3.4))
    for offset, run, colour, label in ((-0.2, before, BEFORE, "before"), (0.2, after, AFTER, "after")):
        of_kind = np.array(run.kinds)
        groups = [run.correct, *(run.correct[of_kind == kind] for kind in kinds)]
        shares = [100 * group.mean() for group in groups]
        ends = [wilson_interval(int(group.sum()), len(group)) for group in groups]
        errors = [
            [share - 100 * low for share, (low, _) in zip(shares, ends, strict=True)],
            [100 * high - share for share, (_, high) in zip(shares, ends, strict=True)],
        ]
        at = np.arange(len(groups)) + offset
        bars = axis.bar(at, shares, width=0.38, color=colour, yerr=errors, capsize=3, label=label)
        axis.bar_label(bars, fmt="%.0f", padding=3)
    axis.set_xticks(range(len(kinds) + 1), ["all", *kinds])
    axis.set(ylim=(0, 112), ylabel="held-out accuracy, %", title="Greedy answers, 95 % intervals")
    axis.legend(loc="upper left", ncols=2, frameon=False)
    return _finish(figure)


def show_answers(dataset: Dataset, before: Evaluation, after: Evaluation, n: int = 6) -> Figure:
    """`n` held-out pictures, each with its question, the right answer, and the answers before and after.

    The rows are the first `n`, not chosen by outcome.
    """
    n = min(n, len(dataset))
    figure, axes = plt.subplots(1, n, figsize=(2.5 * n, 4.4), squeeze=False)
    for i, axis in enumerate(axes[0]):
        row = dataset[i]
        _picture(axis, row)
        for line, (label, run) in enumerate((("before", before), ("after", after))):
            colour = "#15803d" if run.correct[i] else WRONG
            sign = "✓" if run.correct[i] else "✗"
            said = textwrap.fill(run.completions[i].replace("\n", " "), 26)
            text = f"{label} {sign}\n{said}"
            axis.text(0, -0.12 - 0.42 * line, text, transform=axis.transAxes, va="top", color=colour, fontsize=8)
    figure.subplots_adjust(bottom=0.42, top=0.82, left=0.02, right=0.99, wspace=0.15)
    plt.close(figure)
    return figure


def show_rows(dataset: Dataset, n: int = 6) -> Figure:
    """The first `n` rows: picture, question and right answer."""
    n = min(n, len(dataset))
    figure, axes = plt.subplots(1, n, figsize=(2.2 * n, 2.9), squeeze=False)
    for i, axis in enumerate(axes[0]):
        _picture(axis, dataset[i])
    return _finish(figure)


def _picture(axis: plt.Axes, row: dict) -> None:
    axis.imshow(row["images"][0])
    axis.set(xticks=[], yticks=[])
    question = textwrap.fill(row["question"], 24)
    axis.set_title(f"{question}\nright: {row['solution']}", fontsize=9)


def _draw_smoothed(axis, steps: list[int], values: list[float | None], smooth: int, **style) -> None:
    line = axis.plot(steps, _running_mean(values, smooth), linewidth=2, **style)[0]
    axis.plot(steps, values, color=line.get_color(), alpha=0.25, linewidth=1)


def _finish(figure: Figure) -> Figure:
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    plt.close(figure)  # the notebook shows the returned figure; pyplot must not show it a second time
    return figure
