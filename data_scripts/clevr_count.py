"""CLEVR counting, as R1-V trained on it: 70,000 rendered scenes, "How many items are there in the image?".

| column | holds |
|---|---|
| `image` | one picture, 480x320 |
| `problem` | the question |
| `solution` | `<answer> 3 </answer>` |
"""

from __future__ import annotations

from dataclasses import replace

from recipe_lib.any_set import RawSet, open_set

PLACE, REVISION = "leonardPKU/clevr_cogen_a_train", "d5a8da6"
COLUMNS = {"prompt": "problem", "images": "image", "solution": "solution"}


def build(split: str = "train", *, path: str | None = None, **options) -> RawSet:
    """The set, from the hub or from a local copy at `path`. Only a `train` split exists."""
    raw = open_set(path or PLACE, split, kind="grpo", columns=COLUMNS, revision=REVISION, **options)
    return replace(raw, name="clevr-count", convert=plain_gold)


def plain_gold(row: dict) -> dict:
    """The number alone, without its tags."""
    solution = row.get("solution")
    if isinstance(solution, str):
        row = {**row, "solution": solution.replace("<answer>", "").replace("</answer>", "").strip()}
    return row
