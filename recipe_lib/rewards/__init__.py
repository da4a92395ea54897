"""Rewards: `reward(completions, solution, **columns) -> list[float | None]`, as long as `completions`.

A completion may be a string, a list of messages, or messages whose content is a list of parts: all three score the
same. None abstains. A reward never raises on model text, and ends in bounded time.
"""

from .accuracy import Verdict, accuracy_reward, judge
from .format import format_reward, graded_format_reward

__all__ = ["Verdict", "accuracy_reward", "format_reward", "graded_format_reward", "judge"]
