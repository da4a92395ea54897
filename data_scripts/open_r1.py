"""multimodal-open-r1-8k-verified: 7,700 mathematical questions with pictures, by LMMs-Lab.

| column | holds |
|---|---|
| `image` | one picture |
| `problem` | the question, with its choices |
| `solution` | `<think>...</think><answer>gold</answer>` |
| `original_question`, `original_answer` | before rewriting; the answer is a worked one |
"""

from __future__ import annotations

from data_scripts.source import hub_source

PLACE, REVISION = "lmms-lab/multimodal-open-r1-8k-verified", "e3c8f3a"  # as its page of files shows it
COLUMNS = {"prompt": "problem", "images": "image", "solution": "solution", "worked": "original_answer"}

build = hub_source("multimodal-open-r1-8k-verified", PLACE, REVISION, COLUMNS)
