"""OCR: one minus the edit distance between what the model reads and the gold, as a share of the longer text.

    from recipes.rewards.edit_distance import edit_distance_reward
    trainer = GRPOTrainer(reward_funcs=[edit_distance_reward], ...)

This is 1 - NED of the ICDAR 2019 competitions (https://arxiv.org/abs/1909.07145) for one text. It has a slope where an
exact match has none: nearly right pays nearly 1.
"""

import unicodedata
from collections.abc import Sequence

from recipe_lib.answer_format import completion_text, extract_answer
from recipe_lib.rewards.contract import check_column

MAX_CHARACTERS = 2_000  # the distance costs the product of both lengths: a second, not an hour, for a rambling model


def edit_distance_reward(
    completions: Sequence, solution: Sequence, style: str = "think_answer", case: bool = True, **columns: object
) -> list[float | None]:
    """How near each completion's answer is to the gold text.

    Args:
        completions: strings, lists of messages, or messages whose content is a list of parts.
        solution: the text on each image.
        style: how answers are written, see `recipe_lib.answer_format`.
        case: whether capitals count.

    Returns:
        0 to 1; 0 without an answer, and for one more than twice as long as the gold; None for an empty gold.
    """
    check_column("solution", solution, len(completions))
    rewards = []
    for completion, gold in zip(completions, solution, strict=True):
        target = plain(str(gold or ""), case)[:MAX_CHARACTERS]
        text = plain(extract_answer(completion_text(completion), style) or "", case)
        if not target:
            rewards.append(None)
        elif not text or len(text) > 2 * len(target) + 10:
            rewards.append(0.0)
        else:
            rewards.append(1.0 - distance(text, target) / max(len(text), len(target)))
    return rewards


def plain(text: str, case: bool = True) -> str:
    """One form of each character and single spaces: what a reader would call the same text."""
    text = " ".join(unicodedata.normalize("NFKC", text).split())
    return text if case else text.casefold()


def distance(a: str, b: str) -> int:
    """Levenshtein's distance: the fewest insertions, deletions and replacements that turn `a` into `b`."""
    previous = list(range(len(b) + 1))
    for row, left in enumerate(a, start=1):
        current = [row]
        for column, right in enumerate(b, start=1):
            replaced = previous[column - 1] + (left != right)
            current.append(min(previous[column] + 1, current[-1] + 1, replaced))
        previous = current
    return previous[-1]
