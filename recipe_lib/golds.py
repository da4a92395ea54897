"""Whether a row's gold can be scored at all, and whether the row itself contradicts it.

Read through the accuracy reward, so that the check and the training cannot disagree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from recipe_lib.columns import OPTION_LINE, option_table
from recipe_lib.rewards import judge
from recipe_lib.rewards.letters import gold_letter, label_of
from recipe_lib.rewards.reading import gold_text

_INLINE_OPTION = re.compile(r"[(\[]([A-Z])[)\]]\s*(.*?)\s*(?=[(\[][A-Z][)\]]|$)", re.DOTALL)
_LAST_EQUATION = re.compile(r"=\s*([^=\n]+?)[.\s]*$")


def gold_fault(made: Mapping) -> tuple[str, str, str] | None:
    """Return (kind, column, problem) for a row in TRL's columns, or None where its gold is in order.

    Args:
        made: with `solution`, and where the set has them `options` (a mapping, a list, or either as JSON; else
            they are looked for in the question) and `worked`, a worked solution.
    """
    gold = made.get("solution")
    if isinstance(gold, bool):  # a row that did not come through `columns`, which writes it so
        gold = "true" if gold else "false"
    options = option_table(made.get("options"))
    shown = options or options_in(_question(made))
    letter = gold_letter(gold_text(gold).strip()) if isinstance(gold, str) else None
    if letter and shown and label_of(letter[0]) not in shown:
        return "gold letter", "solution", f"gold {gold!r} is none of the options {', '.join(shown)}; mend the gold"
    verdict = judge(_said(gold_text(gold) if isinstance(gold, str) else gold), gold, options)
    if verdict.score != 1.0:
        return "gold unreadable", "solution", f"no reward can read gold {gold!r:.80} ({verdict.path}); mend or drop it"
    if final := _contradiction(gold, made.get("worked"), shown):
        problem = f"the worked solution ends in {final!r:.60}, the gold says {gold!r:.60}; mend one of them"
        return "gold against solution", "solution", problem
    return None


def _contradiction(gold: Any, worked: Any, options: dict[str, str]) -> str | None:
    """What the worked solution ends in, where that can be read and is not the gold."""
    final = final_of(worked)
    if final is None or judge(_said(final), final, options).score != 1.0:
        return None
    letters = [bool(gold_letter(gold_text(str(text)).strip())) for text in (gold, final)]
    if letters[0] != letters[1] and not options:
        return None  # a letter against a value: only the options could tell
    return final if judge(_said(final), gold, options).score == 0 else None


def options_in(question: str) -> dict[str, str]:
    """The options that a question lists, lettered from A on without a gap; empty where it lists none."""
    for pattern in (OPTION_LINE, _INLINE_OPTION):
        found = dict(pattern.findall(question))
        if len(found) >= 2 and list(found) == [chr(ord("A") + place) for place in range(len(found))]:
            return found
    return {}


def final_of(worked: Any) -> str | None:
    """What a worked solution ends in: its answer block, box or stated answer, else its last equation's right side."""
    if not isinstance(worked, str) or not worked.strip():
        return None
    stated = gold_text(worked).strip()
    if stated and stated != worked.strip():
        return stated.strip(" .\n")
    lines = [line for line in worked.strip().splitlines() if line.strip()]
    match = _LAST_EQUATION.search(lines[-1])
    return match[1].strip() if match else None


def _said(answer: Any) -> str:
    return f"<think>so</think><answer>{answer}</answer>"


def _question(made: Mapping) -> str:
    turns = [message for message in made["prompt"] if message["role"] == "user"]
    return "\n".join(part.get("text", "") for message in turns for part in message["content"])
