"""MathVista testmini: 1,000 questions of mathematics in pictures, for evaluation.

| column | holds |
|---|---|
| `decoded_image` | the picture (`image` is only its path in the original archive) |
| `question`, `choices` | the question, and for multiple choice the options |
| `answer` | a number, or the text of the right option |
| `answer_type`, `precision`, `unit` | how the answer is to be written |

Choices become lettered lines, and the wanted form of a number is asked for, since it decides right and wrong.
"""

from __future__ import annotations

from data_scripts.choices import lettered, with_choices
from data_scripts.source import hub_source

PLACE, REVISION = "AI4Math/MathVista", "2b6ad69445fbb5695c9b165475e8decdbeb97747"
COLUMNS = {
    "prompt": "question",
    "images": "decoded_image",
    "solution": "answer",
    "options": "choices",
    "id": "pid",
}


def asked_for(row: dict) -> dict:
    """The question with its choices, its unit and the wanted form of the answer; options by letter."""
    question, choices = row.get("prompt"), row.get("options")
    if isinstance(question, str):
        if row.get("unit"):
            question = f"{question} (unit: {row['unit']})"
        form = {"integer": "Answer with an integer.", "list": "Answer with a list, such as [1, 2, 3]."}
        if row.get("answer_type") == "float":
            form["float"] = f"Answer with a number of {int(row.get('precision') or 1)} decimal places."
        question = with_choices(question, choices)
        if not choices and row.get("answer_type") in form:
            question = f"{question} {form[row['answer_type']]}"
    return {**row, "prompt": question, "options": lettered(choices)}


build = hub_source("mathvista", PLACE, REVISION, COLUMNS, convert=asked_for, only="testmini")
