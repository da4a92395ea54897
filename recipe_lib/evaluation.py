"""Held-out accuracy with intervals, and comparisons of two runs on the same questions.

before = evaluate(model, processor, test)
...train...
after = evaluate(model, processor, test)
compare(before.correct, after.correct)   # gain, with its interval
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from tqdm.auto import tqdm
from transformers import PreTrainedModel, ProcessorMixin
from trl import prepare_multimodal_messages

from recipe_lib.rewards import accuracy_reward

Z95 = 1.959963984540054  # the normal distribution's 97.5 % point


@dataclass
class Evaluation:
    """Greedy answers of one model on one set of questions.

    `completions` are texts, `correct` is 0 or 1 a row, `kinds` the questions' kinds. Accuracies are shares
    in 0..1, `ci95` their Wilson intervals.
    """

    completions: list[str]
    correct: np.ndarray
    kinds: list[str] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        return float(self.correct.mean())

    @property
    def ci95(self) -> list[float]:
        return wilson_interval(int(self.correct.sum()), len(self.correct))

    def by_kind(self) -> dict[str, float]:
        """Accuracy of each kind of question, in order of first appearance."""
        kinds = np.array(self.kinds)
        return {kind: float(self.correct[kinds == kind].mean()) for kind in dict.fromkeys(self.kinds)}


def evaluate(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    dataset: Dataset,
    *,
    max_new_tokens: int = 40,
    batch_size: int = 64,
    reward: Callable[..., list[float | None]] = accuracy_reward,
    description: str = "evaluating",
) -> Evaluation:
    """Answer every question greedily and score the answers.

    Args:
        dataset: rows of `prompt`, `images`, `solution`, as `recipe_lib.datasets.load` gives them.
        reward: scores 1.0 for right. Other columns of the rows are passed to it by name.

    Raises:
        ValueError: the reward abstains (None) on some rows: a held-out set needs golds that can be read.
    """
    completions = generate(
        model, processor, dataset, max_new_tokens=max_new_tokens, batch_size=batch_size, description=description
    )
    # The pictures stay out: a reward that needs them reads the rows itself.
    rows = dataset.with_format(None).remove_columns("images")
    columns = {name: list(rows[name]) for name in rows.column_names}
    scores = reward(completions=completions, **columns)
    unread = [row for row, score in enumerate(scores) if score is None]
    if unread:
        raise ValueError(
            f"rows {unread[:5]} ({len(unread)} in all): the reward cannot read the solution, "
            f"{columns['solution'][unread[0]]!r} in the first; mend or leave out these rows"
        )
    return Evaluation(completions, np.array(scores, dtype=float), columns.get("kind", []))


@torch.no_grad()
def generate(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    dataset: Dataset,
    *,
    max_new_tokens: int = 40,
    batch_size: int = 64,
    description: str = "generating",
) -> list[str]:
    """Greedy completions, one text a row, special tokens removed. The model's mode (train or eval) is kept."""
    was_training = model.training
    model.eval()
    texts = []
    try:
        for start in tqdm(range(0, len(dataset), batch_size), desc=description, leave=False):
            rows = [dataset[i] for i in range(start, min(start + batch_size, len(dataset)))]
            inputs = encode(processor, rows).to(model.device)
            output = model.generate(**inputs, max_new_tokens=max_new_tokens, do_sample=False, use_cache=True)
            new_tokens = output[:, inputs["input_ids"].shape[1] :]
            texts += processor.batch_decode(new_tokens, skip_special_tokens=True)
    finally:
        model.train(was_training)
    return texts


def encode(processor: ProcessorMixin, rows: list[dict]):
    """Prompts and pictures of some rows as the model's inputs, padded on the left: what GRPOTrainer feeds too."""
    conversations = [prepare_multimodal_messages(row["prompt"], images=row["images"] or None) for row in rows]
    return processor.apply_chat_template(
        conversations,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        processor_kwargs={"padding": True, "padding_side": "left", "return_tensors": "pt"},
    )


def wilson_interval(successes: int, n: int, z: float = Z95) -> list[float]:
    """Wilson's score interval of a share: `[low, high]` in 0..1 (Wilson 1927, JASA 22, p. 209)."""
    if not 0 <= successes <= n or n < 1:
        raise ValueError(f"{successes} successes of {n}: needs 0 <= successes <= n and n >= 1")
    share = successes / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return [max(0.0, float(centre - half)), min(1.0, float(centre + half))]


def compare(before: np.ndarray, after: np.ndarray, *, resamples: int = 10_000, seed: int = 0) -> dict:
    """The gain from `before` to `after` on the same questions, with its paired-bootstrap interval.

    Questions are drawn with replacement, each with both of its scores, so that what makes a question easy for
    both models cancels (Efron and Tibshirani 1993, An Introduction to the Bootstrap, ch. 8 and 13).

    Args:
        before: scores in 0..1, shape `(n,)`.
        after: shape `(n,)`, or `(seeds, n)` for several training runs from the same start; then training seeds
            are drawn with replacement as well, and the gain is the mean over them.

    Returns:
        `gain` and `gain_ci95` as shares, `n`, `seeds`.
    """
    before, after = np.asarray(before, dtype=float), np.atleast_2d(np.asarray(after, dtype=float))
    if before.ndim != 1 or after.shape[1:] != before.shape:
        raise ValueError(f"before has shape {before.shape} and after {after.shape}: the questions must be the same")
    difference = after - before
    seeds, n = difference.shape
    rng = np.random.default_rng(seed)
    gains = np.empty(resamples)
    for i in range(resamples):
        drawn_seeds = rng.integers(seeds, size=seeds)
        gains[i] = difference[drawn_seeds][:, rng.integers(n, size=n)].mean()
    low, high = np.quantile(gains, [0.025, 0.975])
    return {"gain": float(difference.mean()), "gain_ci95": [float(low), float(high)], "n": n, "seeds": seeds}


def record_fields(before: Evaluation, after: Evaluation) -> dict:
    """What a run record says of two measurements on the same questions: n, both accuracies, gain, intervals."""
    gain = compare(before.correct, after.correct)
    return {
        "n_eval": len(before.correct),
        "accuracy_before": before.accuracy,
        "accuracy_before_ci95": before.ci95,
        "accuracy_after": after.accuracy,
        "accuracy_after_ci95": after.ci95,
        "gain": gain["gain"],
        "gain_ci95": gain["gain_ci95"],
    }


def write_answers(output_dir: str | os.PathLike, dataset: Dataset, before: Evaluation, after: Evaluation) -> Path:
    """Write both answers to every question, with their scores, to `output_dir/answers.jsonl`; return the path."""
    path = Path(output_dir) / "answers.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = dataset.with_format(None).remove_columns("images")
    with path.open("w", encoding="utf-8") as file:
        for i, row in enumerate(rows):
            kept = {key: row[key] for key in ("id", "kind", "question", "solution") if key in row}
            answers = {"before": before.completions[i], "after": after.completions[i]}
            scores = {"right_before": before.correct[i], "right_after": after.correct[i]}
            file.write(json.dumps({**kept, **answers, **scores}, ensure_ascii=False) + "\n")
    return path
