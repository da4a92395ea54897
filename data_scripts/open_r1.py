"""multimodal-open-r1-8k-verified: 7,700 mathematical questions with pictures, by LMMs-Lab.

| column | holds |
|---|---|
| `image` | one picture |
| `problem` | the question, with its choices |
| `solution` | `<think>...</think><answer>gold</answer>` |
| `original_question`, `original_answer` | before rewriting; the answer is a worked one |
"""

from __future__ import annotations

from dataclasses import replace

from recipe_lib.any_set import RawSet, open_set

PLACE, REVISION = "lmms-lab/multimodal-open-r1-8k-verified", "e3c8f3a"
COLUMNS = {"prompt": "problem", "images": "image", "solution": "solution", "worked": "original_answer"}


def build(split: str = "train", *, path: str | None = None, **options) -> RawSet:
    """The set, from the hub or from a local copy at `path`. Only a `train` split exists."""
    raw = open_set(path or PLACE, split, kind="grpo", columns=COLUMNS, revision=REVISION, **options)
    return replace(raw, name="multimodal-open-r1-8k-verified")
