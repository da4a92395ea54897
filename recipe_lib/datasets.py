"""Named question sets, as rows that TRL's GRPOTrainer takes.

    train = datasets.load("digits", split="train")
    train[0]  # {"prompt": [...], "images": [<PIL image>], "solution": "7", "options": None, "kind": "read", ...}

A name is looked up here and made by its module under `data_scripts/`. The prompt is added lazily, as a row is
read: no picture is decoded or copied until then.
"""

from __future__ import annotations

import importlib
from functools import partial

from datasets import Dataset

from recipe_lib.answer_format import system_prompt
from recipe_lib.conversations import build_prompt

# Name -> the module whose `build(split, **options)` makes it.
NAMED_DATASETS = {
    "digits": "data_scripts.digits",
    "shapes": "data_scripts.shapes",
}


def load(
    name: str, split: str = "train", *, limit: int | None = None, style: str = "think_answer", **options
) -> Dataset:
    """Load a named set with its prompts.

    Args:
        name: one of `NAMED_DATASETS`.
        split: `train` or `test`. The two never share a picture.
        limit: keep the first rows only; None keeps all.
        style: answer format that the system prompt asks for (`recipe_lib.answer_format.STYLES`).
        options: passed to the set's own `build`, such as `shift` of `shapes`.

    Returns:
        Rows with `prompt` (messages whose parts say where each image stands), `images` (list of PIL images),
        `solution`, and the set's own columns (`question`, `kind`, `options`, ...).

    Raises:
        ValueError: unknown name (the known ones are listed), unknown split, or a limit below 1.
    """
    if name not in NAMED_DATASETS:
        raise ValueError(f"unknown data set {name!r}; known: {', '.join(NAMED_DATASETS)}")
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}: at least one row is needed; leave it out to keep all")
    dataset = importlib.import_module(NAMED_DATASETS[name]).build(split, **options)
    if limit is not None:
        dataset = dataset.select(range(min(limit, len(dataset))))
    return with_prompts(dataset, style)


def with_prompts(dataset: Dataset, style: str = "think_answer") -> Dataset:
    """Give rows of `question` and `images` a `prompt` in the asked answer format, lazily."""
    return dataset.with_transform(partial(_add_prompts, system=system_prompt(style)))


def _add_prompts(batch: dict[str, list], system: str) -> dict[str, list]:
    pairs = zip(batch["question"], batch["images"], strict=True)
    return {"prompt": [build_prompt(question, len(images), system) for question, images in pairs], **batch}
