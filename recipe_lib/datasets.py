"""Named question sets, as rows that TRL's GRPOTrainer takes.

    train = datasets.load("digits", split="train")
    train[0]  # {"prompt": [...], "images": [<PIL image>], "solution": "7", "options": None, "kind": "read", ...}

A name is looked up here and made by its module under `data_scripts/`. The prompt is added lazily, as a row is
read: no picture is decoded or copied until then.
"""

from __future__ import annotations

import importlib
import inspect
from functools import partial
from pathlib import Path

from datasets import Dataset, Image, List, Value

from recipe_lib.answer_format import system_prompt
from recipe_lib.any_set import RawSet, open_set
from recipe_lib.conversations import build_prompt

# Name -> the module whose `build(split, **options)` makes it.
NAMED_DATASETS = {
    "digits": "data_scripts.digits",
    "shapes": "data_scripts.shapes",
    "multimodal-open-r1-8k-verified": "data_scripts.open_r1",
    "geometry3k": "data_scripts.geometry3k",
    "clevr-count": "data_scripts.clevr_count",
    "mathvista": "data_scripts.mathvista",
    "scienceqa": "data_scripts.scienceqa",
    "rlaif-v": "data_scripts.rlaif_v",
    "rlaif-v-original": "data_scripts.rlaif_v_original",
    "mmpr": "data_scripts.mmpr",
}


def load(
    name: str,
    split: str = "train",
    *,
    limit: int | None = None,
    style: str = "think_answer",
    on_error: str = "skip",
    **options,
) -> Dataset:
    """Load a named set with its prompts.

    Args:
        name: one of `NAMED_DATASETS`, or a folder, a file or a hub name (`recipe_lib.any_set`).
        split: `train` or `test`. The two never share a picture.
        limit: keep the first rows only; None keeps all.
        style: answer format that the system prompt asks for (`recipe_lib.answer_format.STYLES`).
        on_error: "skip" leaves bad rows of a public set out and says how many; "raise" stops at the first.
        options: passed to the set's own `build`, such as `shift` of `shapes` or `path` of a local copy.

    Returns:
        Rows with `prompt` (messages whose parts say where each image stands), `images` (list of PIL images),
        `solution`, and the set's own columns (`question`, `kind`, `options`, ...).

    Raises:
        ValueError: unknown name (the known ones are listed), unknown split, or a limit below 1.
    """
    raw = open_raw(name, split, **options).first(limit)
    if _in_our_columns(raw.dataset):
        return with_prompts(raw.dataset, style)
    return raw.ready(style if raw.kind == "grpo" else None, on_error)[0]


def open_raw(name: str, split: str = "train", **options) -> RawSet:
    """Open a named set, or any set by its folder, file or hub name, as it is stored.

    Raises ValueError on an unknown name (the known ones are listed), and what the set's own `build` raises.
    """
    if name not in NAMED_DATASETS:
        if Path(name).exists() or name.count("/") == 1:
            return open_set(name, split, **options)
        known = ", ".join(NAMED_DATASETS)
        raise ValueError(f"unknown data set {name!r}; known: {known}, or a folder, a file, a hub name `owner/name`")
    build = importlib.import_module(NAMED_DATASETS[name]).build
    known = inspect.signature(build).parameters.values()
    unknown = set(options) - {parameter.name for parameter in known}
    if unknown and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in known):
        raise ValueError(f"{name} has no option {sorted(unknown)[0]!r}; it has: {', '.join(p.name for p in known)}")
    made = build(split, **options)
    return made if isinstance(made, RawSet) else RawSet(made, name=name)


def _in_our_columns(dataset: Dataset) -> bool:
    """Whether rows need a prompt and nothing else: `digits`, `shapes`, and their copies on disk."""
    features = getattr(dataset, "features", None) or {}
    ours = {"question": Value("string"), "images": List(Image()), "solution": Value("string")}
    return isinstance(dataset, Dataset) and all(features.get(name) == feature for name, feature in ours.items())


def with_prompts(dataset: Dataset, style: str = "think_answer") -> Dataset:
    """Give rows of `question` and `images` a `prompt` in the asked answer format, lazily."""
    return dataset.with_transform(partial(_add_prompts, system=system_prompt(style)))


def _add_prompts(batch: dict[str, list], system: str) -> dict[str, list]:
    pairs = zip(batch["question"], batch["images"], strict=True)
    return {"prompt": [build_prompt(question, len(images), system) for question, images in pairs], **batch}
