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

from data_scripts.source import hub_source

PLACE, REVISION = "hiyouga/geometry3k", "37e4933"  # as its page of files shows it
COLUMNS = {"prompt": "problem", "images": "images", "solution": "answer", "options": None}

build = hub_source("geometry3k", PLACE, REVISION, COLUMNS)
