"""Numeric closeness: for angles, counts and measures where near is good enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from ..answer_format import completion_text, system_prompt
from .clean import clean
from .contract import check_column
from .exact import Value, rational
from .quantities import Quantity
from .reading import answer_text, gold_text, quantity_in
from .units import agree


def closeness_reward(
    completions: Sequence,
    solution: Sequence,
    tolerance: float = 0.0,
    relative: float = 0.0,
    period: float | None = None,
    style: str = "think_answer",
    think_prefilled: bool = False,
    **columns: object,
) -> list[float | None]:
    """Whether each answer is a number within a tolerance of the gold.

    Args:
        completions: strings, lists of messages, or messages whose content is a list of parts.
        solution: golds, one for each completion: numbers with or without units.
        tolerance: the largest difference that scores 1.0, in the gold's unit; its ends are inside.
        relative: the same as a share of the gold's size; the larger of the two holds.
        period: directions repeat: with 360, 359 is 2 away from 1.
        style, think_prefilled: how answers are written, see `answer_format`.

    Returns:
        As long as `completions`: 1.0, 0.0 (also for a contradicting unit), or None where the gold is no number.
    """
    system_prompt(style)
    check_column("solution", solution, len(completions))
    if tolerance < 0 or relative < 0 or (period is not None and period <= 0):
        raise ValueError(f"tolerance={tolerance}, relative={relative} and period={period} must not be negative or 0")
    scores: list[float | None] = []
    for completion, gold in zip(completions, solution, strict=True):
        wanted = quantity_in(clean(gold_text(str(gold))))
        target = approximate(wanted.value) if wanted else None
        if target is None:
            scores.append(None)
            continue
        text = answer_text(completion_text(completion), style, think_prefilled)
        stated = _in_unit_of(wanted, quantity_in(clean(text))) if text and len(text) <= 400 else None
        allowed = max(_exact(tolerance), _exact(relative) * abs(target))
        scores.append(float(stated is not None and _distance(target, stated, period) <= allowed))
    return scores


def approximate(value: Value) -> Fraction | None:
    """The value as a fraction, roots and pi to the precision of a float; None where letters are left in it."""
    exact = rational(value)
    if exact is not None:
        return exact
    total = Fraction(0)
    for (radicand, symbols), coefficient in value.items():
        if any(symbol != "pi" or abs(power) > 20 for symbol, power in symbols):
            return None
        powers = math.prod(math.pi**power for _, power in symbols)
        total += coefficient * Fraction(math.sqrt(radicand) * powers)
    return total


def _in_unit_of(gold: Quantity, answer: Quantity | None) -> Fraction | None:
    """The answer's number in the gold's unit; None for no number or for a unit that contradicts."""
    number = approximate(answer.value) if answer else None
    if number is None or not (gold.unit and answer.unit):
        return number
    return number * answer.unit.factor / gold.unit.factor if agree(gold.unit, answer.unit) else None


def _distance(gold: Fraction, answer: Fraction, period: float | None) -> Fraction:
    distance = abs(gold - answer)
    if period is not None:
        distance %= _exact(period)
        distance = min(distance, _exact(period) - distance)
    return distance


def _exact(number: float) -> Fraction:
    return Fraction(str(number))  # 0.1 as it is written, so that a tolerance's end is inside
