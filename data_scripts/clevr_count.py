"""CLEVR counting, as R1-V trained on it: 70,000 rendered scenes, "How many items are there in the image?".

| column | holds |
|---|---|
| `image` | one picture, 480x320 |
| `problem` | the question |
| `solution` | `<answer> 3 </answer>` |
"""

from __future__ import annotations

from data_scripts.source import hub_source

PLACE, REVISION = "leonardPKU/clevr_cogen_a_train", "d5a8da6"  # as its page of files shows it
COLUMNS = {"prompt": "problem", "images": "image", "solution": "solution"}


def plain_gold(row: dict) -> dict:
    """The number alone, without its tags."""
    solution = row.get("solution")
    if isinstance(solution, str):
        row = {**row, "solution": solution.replace("<answer>", "").replace("</answer>", "").strip()}
    return row


build = hub_source("clevr-count", PLACE, REVISION, COLUMNS, convert=plain_gold)
