"""Multiple choice, as all adapters write it: options as a mapping from letter to text, and as lines of the question."""

from __future__ import annotations

from collections.abc import Sequence

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def lettered(choices: Sequence[str] | None) -> dict[str, str] | None:
    """["red", "blue"] -> {"A": "red", "B": "blue"}; None where there are no choices."""
    return dict(zip(LETTERS, map(str, choices))) if choices else None


def with_choices(question: str, choices: Sequence[str] | None) -> str:
    """The question with a line for each choice; unchanged where there are none."""
    lines = [f"{letter}. {text}" for letter, text in (lettered(choices) or {}).items()]
    return "\n".join([question, *lines])
