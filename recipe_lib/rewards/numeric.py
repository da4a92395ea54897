"""Numeric closeness: for angles, counts and measures where near is good enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from ..answer_format import completion_text, system_prompt
from .clean import clean
from .contract import check_column
from .exact import Value, rational
from .quantities import Quantity, in_degrees
from .reading import answer_text, gold_string, gold_text, quantity_in, shorten
from .units import DEGREE, PERCENT, agree


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
    if not (0 <= tolerance < math.inf and 0 <= relative < math.inf) or (period is not None and period <= 0):
        raise ValueError(f"tolerance={tolerance}, relative={relative} and period={period} must be numbers from 0 on")
    scores: list[float | None] = []
    for completion, gold in zip(completions, solution, strict=True):
        gold = gold_string(gold)
        wanted = quantity_in(clean(gold_text(gold))) if gold is not None else None
        target = approximate(wanted.value) if wanted else None
        if target is None:
            scores.append(None)
            continue
        text = answer_text(completion_text(completion), style, think_prefilled)
        stated = _in_unit_of(wanted, quantity_in(clean(shorten(text.strip())))) if text else []
        allowed = max(_exact(tolerance), _exact(relative) * abs(target))
        scores.append(float(any(_distance(target, number, period) <= allowed for number in stated)))
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


def _in_unit_of(gold: Quantity, answer: Quantity | None) -> list[Fraction]:
    """The answer's number in the gold's unit; empty for no number and for a unit that contradicts.

    50 and 0.5 may both mean 50%: where one side has no sign, both readings are given.
    """
    unit = gold.unit
    if answer and unit == DEGREE:
        answer = in_degrees(answer)
    number = approximate(answer.value) if answer else None
    if number is None:
        return []
    if unit and answer.unit:
        return [number * answer.unit.factor / unit.factor] if agree(unit, answer.unit) else []
    if unit == PERCENT:
        return [number, 100 * number]
    return [number, number / 100] if answer.unit == PERCENT else [number]


def _distance(gold: Fraction, answer: Fraction, period: float | None) -> Fraction:
    distance = abs(gold - answer)
    if period is not None:
        distance %= _exact(period)
        distance = min(distance, _exact(period) - distance)
    return distance


def _exact(number: float) -> Fraction:
    return Fraction(str(number))  # 0.1 as it is written, so that a tolerance's end is inside
