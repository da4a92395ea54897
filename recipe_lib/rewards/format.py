"""The format reward: 1.0 for a completion that keeps to its style, 0.0 for one that does not; and its graded form."""

from __future__ import annotations

from collections.abc import Sequence

from ..answer_format import TAGS, completion_text, extract_answer, is_well_formed, system_prompt


def format_reward(
    completions: Sequence, style: str = "think_answer", think_prefilled: bool = False, **columns: object
) -> list[float]:
    """Whether the whole of each completion keeps to `style`; see `answer_format.is_well_formed`.

    Args:
        completions: strings, lists of messages, or messages whose content is a list of parts.
        style: a key of `answer_format.STYLES`.
        think_prefilled: the chat template already printed `<think>`; completions without it count.

    Returns:
        1.0 or 0.0 for each completion.
    """
    system_prompt(style)
    return [float(is_well_formed(completion_text(one), style, think_prefilled)) for one in completions]


def graded_format_reward(
    completions: Sequence, style: str = "think_answer", think_prefilled: bool = False, **columns: object
) -> list[float]:
    """Part of the way to `format_reward`, for policies that never reach the whole format by chance.

    Returns:
        For each completion 1.0 where it is well formed, and else at most 0.8: 0.6 times the share of the style's tags
        that stand exactly once, and 0.2 where an answer can be extracted.
    """
    system_prompt(style)
    return [_grade(completion_text(one), style, think_prefilled) for one in completions]


def _grade(text: str, style: str, think_prefilled: bool) -> float:
    if is_well_formed(text, style, think_prefilled):
        return 1.0
    asked = {"think_answer": TAGS, "think": TAGS[:2]}.get(style, ())
    if think_prefilled and asked:
        asked = asked[1:]
    share = sum(text.count(tag) == 1 for tag in asked) / len(asked) if asked else 0.0
    return 0.6 * share + 0.2 * (extract_answer(text, style, think_prefilled) is not None)
