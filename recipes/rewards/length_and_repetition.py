"""Length and repetition: reasoning that is as long as it needs to be, and does not go in circles.

    reward = combine({"accuracy": (cosine_length_reward, 1.0), "repetition": (repetition_penalty, 0.2)})
    trainer = GRPOTrainer(reward_funcs=[reward, format_reward], ...)

The cosine length reward follows https://arxiv.org/abs/2502.03373: a right answer is worth more the shorter it is, a
wrong one costs less the longer the model tried. The repetition penalty, which keeps wrong answers from buying that
with filler, is the share of repeated n-grams. Never reward length by itself: a policy learns to pad.
"""

import math
from collections.abc import Sequence

from recipe_lib.answer_format import completion_text
from recipe_lib.rewards import accuracy_reward

RIGHT = (1.0, 0.5)  # at no length and at `max_words`
WRONG = (-0.5, 0.0)


def cosine_length_reward(
    completions: Sequence, solution: Sequence, max_words: int = 200, style: str = "think_answer", **columns: object
) -> list[float | None]:
    """Accuracy, weighted by length along half a cosine.

    Args:
        completions: strings, lists of messages, or messages whose content is a list of parts.
        solution: golds, and in `columns` whatever else `accuracy_reward` takes.
        max_words: length at which the curve ends; a CJK character counts as a word, and longer texts as this long.

    Returns:
        0.5 to 1 for right answers, -0.5 to 0 for wrong ones, None where the gold cannot be read.
    """
    if max_words < 1:
        raise ValueError(f"max_words={max_words} must be at least 1")
    right = accuracy_reward(completions, solution, style=style, **columns)
    rewards = []
    for completion, score in zip(completions, right, strict=True):
        start, end = RIGHT if score == 1.0 else WRONG
        progress = min(1.0, len(words(completion_text(completion))) / max_words)
        rewards.append(None if score is None else end + 0.5 * (start - end) * (1 + math.cos(math.pi * progress)))
    return rewards


def repetition_penalty(completions: Sequence, n: int = 3, **columns: object) -> list[float]:
    """Minus the share of n-grams of words that were said before: 0 for none, nearly -1 for a loop."""
    if n < 1:
        raise ValueError(f"n={n} must be at least 1")
    penalties = []
    for completion in completions:
        said = words(completion_text(completion).lower())
        grams = [tuple(said[start : start + n]) for start in range(len(said) - n + 1)]
        penalties.append(len(set(grams)) / len(grams) - 1.0 if grams else 0.0)
    return penalties


def words(text: str) -> list[str]:
    """Words between white space; characters of scripts without spaces are words of their own."""
    return "".join(f" {one} " if "\u3040" <= one <= "\u9fff" else one for one in text).split()
