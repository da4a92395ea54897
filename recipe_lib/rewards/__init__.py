"""Rewards: `reward(completions, solution, **columns) -> list[float | None]`, as long as `completions`.

A completion may be a string, a list of messages, or messages whose content is a list of parts: all three score the
same. None abstains. A reward never raises on model text, and ends in bounded time. Settings that are no columns are
given with `functools.partial(accuracy_reward, style="boxed")`, which TRL logs under the function's name.
"""

from .accuracy import Verdict, accuracy_reward, judge
from .combine import combine
from .contract import check_rewards
from .format import format_reward, graded_format_reward
from .numeric import closeness_reward

__all__ = [
    "Verdict",
    "accuracy_reward",
    "check_rewards",
    "closeness_reward",
    "combine",
    "format_reward",
    "graded_format_reward",
    "judge",
]
