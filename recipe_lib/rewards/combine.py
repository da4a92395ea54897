"""Several rewards as one, each part logged: to see which of them a policy learns from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

from .contract import check_result


def combine(parts: Mapping[str, tuple[Callable, float]], name: str = "combined_reward") -> Callable:
    """A reward that is the weighted sum of others.

    `combine({"accuracy": (accuracy_reward, 1.0), "format": (format_reward, 0.2)})`

    Under TRL each part's mean goes to the log as `parts/NAME` and each completion's part into the completions table
    as NAME. A part that abstains is left out of its completion's sum; where all do, the sum abstains.

    Args:
        parts: for each part's name its reward and its weight.
        name: under which TRL logs the sum.

    Raises:
        ValueError: no parts, or an async one, which TRL itself must await; when called: a part returned another
            length than the completions.
    """
    if not parts:
        raise ValueError("combine needs at least one part: {'accuracy': (accuracy_reward, 1.0)}")
    waiting = [part for part, (reward, _) in parts.items() if inspect.iscoroutinefunction(reward)]
    if waiting:
        raise ValueError(f"combine cannot await {', '.join(waiting)}; give async rewards to the trainer by themselves")

    def combined(
        completions: Sequence,
        log_metric: Callable[[str, float], None] | None = None,
        log_extra: Callable[[str, list], None] | None = None,
        **columns: object,
    ) -> list[float | None]:
        given = {"log_metric": log_metric, "log_extra": log_extra}
        columns |= {key: value for key, value in given.items() if value is not None}
        sums: list[float | None] = [None] * len(completions)
        for part, (reward, weight) in parts.items():
            values = check_result(part, reward(completions=completions, **columns), len(completions))
            for row, value in enumerate(values):
                if value is not None:
                    sums[row] = (sums[row] or 0.0) + weight * value
            scored = [value for value in values if value is not None]
            if log_metric is not None and scored:
                log_metric(f"parts/{part}", sum(scored) / len(scored))
            if log_extra is not None:
                log_extra(part, values)
        return sums

    combined.__name__ = combined.__qualname__ = name
    combined.parts = tuple(reward for reward, _ in parts.values())
    return combined
