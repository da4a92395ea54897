"""Geometry3K in hiyouga's form: 3,000 questions on diagrams, with marked places for the pictures.

| column | holds |
|---|---|
| `images` | a list of one picture |
| `problem` | the question, with an `<image>` marker |
| `answer` | the value, in LaTeX where needed |
| `choices`, `ground_truth` | four values and the letter of the right one: not part of the question, so not used |

Splits: train 2,101, validation 300, test 601.
"""

from __future__ import annotations

from dataclasses import replace

from recipe_lib.any_set import RawSet, open_set

PLACE, REVISION = "hiyouga/geometry3k", "37e4933"
COLUMNS = {"prompt": "problem", "images": "images", "solution": "answer", "options": None}


def build(split: str = "train", *, path: str | None = None, **options) -> RawSet:
    """The set, from the hub or from a local copy at `path`."""
    raw = open_set(path or PLACE, split, kind="grpo", columns=COLUMNS, revision=REVISION, **options)
    return replace(raw, name="geometry3k")
