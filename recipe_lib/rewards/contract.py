"""What every reward may rely on: columns as long as the completions, and of the kind that they claim."""

from __future__ import annotations

from collections.abc import Sequence


def check_column(name: str, column: object, count: int, kind: type | None = None) -> None:
    """Refuse a column that is no list of `count` entries, or (with `kind`) holds something else than `kind` or None.

    Raises:
        ValueError: names the column, both lengths, or the row and its value.
    """
    if isinstance(column, str) or not hasattr(column, "__len__") or not hasattr(column, "__getitem__"):
        raise ValueError(
            f"{name} must be a list with one entry per completion, not {type(column).__name__}: {column!r:.80}"
        )
    if kind is not None and isinstance(column, kind):
        raise ValueError(
            f"{name} must be a list with one {kind.__name__} per completion, not one {type(column).__name__}"
        )
    if len(column) != count:
        raise ValueError(f"{name} has {len(column)} entries for {count} completions: give one per completion")
    for row, value in enumerate(column if kind is not None else ()):
        if value is not None and not isinstance(value, kind):
            raise ValueError(
                f"{name}[{row}] must be a {kind.__name__} such as {{'A': '26°'}} or None, "
                f"not {type(value).__name__}: {value!r:.80}"
            )


def check_rewards(rewards: Sequence[float | None], name: str, count: int) -> list[float | None]:
    """A reward's own list, refused where it has another length than the completions."""
    if len(rewards) != count:
        raise ValueError(
            f"reward {name} returned {len(rewards)} rewards for {count} completions: return one per completion"
        )
    return list(rewards)
