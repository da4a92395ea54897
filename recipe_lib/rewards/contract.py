"""What every reward may rely on: columns as long as the completions, and of the kind that they claim."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence

GIVEN_BY_TRAINER = {
    "prompts",
    "completions",
    "completion_ids",
    "trainer_state",
    "log_extra",
    "log_metric",
    "environments",
}


def check_column(name: str, column: object, count: int, kind: type | None = None) -> None:
    """Refuse a column that is no list of `count` entries, or (with `kind`) holds something else than `kind` or None.

    Raises:
        ValueError: names the column, both lengths, or the row and its value.
    """
    each = f"must be a list with one {kind.__name__ if kind else 'entry'} per completion"
    if isinstance(column, str) or not hasattr(column, "__len__") or (kind and isinstance(column, kind)):
        raise ValueError(f"{name} {each}, not one {type(column).__name__}: {column!r:.80}")
    if len(column) != count:
        raise ValueError(f"{name} has {len(column)} entries for {count} completions; it {each}")
    for row, value in enumerate(column if kind is not None else ()):
        if value is not None and not isinstance(value, kind):
            kinds = f"{kind.__name__}, not {type(value).__name__}"
            raise ValueError(f"{name}[{row}] must be None or a {kinds}: {value!r:.80}")


def check_result(name: str, rewards: object, count: int) -> list[float | None]:
    """What a reward returned, refused where it is no list with one number or None per completion.

    Raises:
        ValueError: names the reward and both lengths, or the row and its value.
    """
    if not isinstance(rewards, Sequence) or len(rewards) != count:
        got = f"{len(rewards)} rewards" if isinstance(rewards, Sequence) else type(rewards).__name__
        raise ValueError(f"reward {name} returned {got} for {count} completions; return one per completion")
    for row, value in enumerate(rewards):
        if value is not None and (isinstance(value, (str, bytes)) or not hasattr(value, "__float__")):
            raise ValueError(f"reward {name} returned {value!r:.80} for completion {row}; return a number or None")
    return list(rewards)


def check_rewards(rewards: Iterable[Callable], dataset: Iterable[dict]) -> None:
    """Refuse, before training, rewards that do not fit the data: call each once on the first rows.

    Args:
        rewards: TRL reward functions; of async ones only the columns are checked, since they may cost money.
        dataset: rows as the trainer gets them.

    Raises:
        ValueError: the data is empty; a reward asks for a column which it lacks (named with the columns that there
            are); a reward returned another length than the completions.
    """
    rows = list(itertools.islice(dataset, 2))
    if not rows:
        raise ValueError("the data set has no rows")
    for reward in rewards:
        check_columns(reward, rows[0])
        if not inspect.iscoroutinefunction(reward):
            columns = {key: [row[key] for row in rows] for key in rows[0] if key not in GIVEN_BY_TRAINER}
            completions = [[{"role": "assistant", "content": ""}] for _ in rows]
            given = {"prompts": [row.get("prompt") for row in rows], "completion_ids": [[] for _ in rows]}
            check_result(reward_name(reward), reward(completions=completions, **given, **columns), len(rows))


def check_columns(reward: Callable, columns: Iterable[str]) -> None:
    """Refuse a reward that asks for a column which the data lacks, or has a setting of a column's name.

    Of a combined reward, each part is looked at.

    Raises:
        ValueError: names the reward, the column that it asks for, and the columns that there are.
    """
    for part in getattr(reward, "parts", ()):
        check_columns(part, columns)
    for name, parameter in inspect.signature(reward).parameters.items():
        by_name = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if by_name and name in columns and parameter.default not in (parameter.empty, None):
            raise ValueError(
                f"the data's column {name!r} would reach reward {reward_name(reward)} as its setting {name!r} "
                f"(default {parameter.default!r}); rename or remove it: dataset.remove_columns({name!r})"
            )
        if by_name and parameter.default is parameter.empty and name not in {*columns, *GIVEN_BY_TRAINER}:
            raise ValueError(
                f"reward {reward_name(reward)} asks for the column {name!r}, but the data has {', '.join(columns)}; "
                f"rename one with dataset.rename_column(OLD, {name!r})"
            )


def reward_name(reward: Callable) -> str:
    """The name under which a reward is logged; of a `functools.partial` that of its function."""
    return getattr(reward, "__name__", None) or reward_name(getattr(reward, "func", type(reward)))
