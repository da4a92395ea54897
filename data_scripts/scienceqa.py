"""ScienceQA: 21,000 multiple-choice questions of school science, half of them with a picture.

| column | holds |
|---|---|
| `image` | a picture, or none |
| `question`, `hint`, `choices` | the question, its context (often empty), the options |
| `answer` | the place of the right option, from 0 |
| `lecture`, `solution` | what is taught, and why the answer is right |

Splits: train 12,726, validation 4,241, test 4,241.
"""

from __future__ import annotations

from data_scripts.choices import LETTERS, lettered, with_choices
from data_scripts.source import hub_source

PLACE, REVISION = "derek-thomas/ScienceQA", "f18b0a70359ebfb41f658fd564208d0355b013f4"
COLUMNS = {
    "prompt": "question",
    "images": "image",
    "solution": "answer",
    "options": "choices",
    "worked": "solution",
}


def as_letter(row: dict) -> dict:
    """The question with its context and choices; the answer's place as a letter."""
    question, choices, answer = row.get("prompt"), row.get("options") or [], row.get("solution")
    if isinstance(question, str):
        context = f"Context: {row['hint']}\n" if row.get("hint") else ""
        question = with_choices(context + question, choices)
    if isinstance(answer, int):
        answer = LETTERS[answer] if 0 <= answer < len(choices) else None
    return {**row, "prompt": question, "options": lettered(choices), "solution": answer}


build = hub_source("scienceqa", PLACE, REVISION, COLUMNS, convert=as_letter)
