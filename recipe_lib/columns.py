"""Any data set to the columns that TRL's trainers read, lazily.

    train, skipped = ready(dataset, kind="grpo", columns={"prompt": "problem"}, on_error="skip")

Nothing is decoded and nothing is written: rows are looked over once by their text and their pictures' headers,
good ones are selected, and a transform makes messages and RGB pictures as a row is read. Streaming sets get the
same, row by row.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from datasets import Dataset, IterableDataset
from tqdm.auto import tqdm

from recipe_lib.answer_format import system_prompt
from recipe_lib.conversations import grpo_row, mpo_row
from recipe_lib.features import undecoded, with_label_names
from recipe_lib.image_sources import DEFAULT_SOURCE, RowError, Source
from recipe_lib.images import header, to_rgb

# What public sets call each of TRL's columns, most telling name first.
USUAL = {
    "prompt": ("prompt", "question", "problem", "query", "instruction"),
    "images": ("images", "image", "img", "image_path", "file_name", "decoded_image"),
    "solution": ("solution", "answer", "ground_truth", "gt_answer", "label"),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "worked": ("worked", "worked_solution", "original_answer", "rationale", "explanation"),
    "options": ("options", "choices"),
    "id": ("id", "pid", "idx", "question_id"),
}
OPTION_LINE = re.compile(r"^\s*[(\[]?([A-Z])\s*[)\].:]\s*(\S.*?)\s*$", re.MULTILINE)  # "A. red"
NEEDED = {"grpo": ("prompt", "solution"), "mpo": ("prompt", "chosen", "rejected")}


def find_columns(names: Iterable[str], kind: str, given: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Return TRL's column name -> the set's own, from the usual names and from `given`.

    Args:
        kind: "grpo" or "mpo".
        given: overrides, such as {"prompt": "problem"}; None as a value says that no column plays that part.

    Raises ValueError that lists the set's columns where a needed one is not found, and on a set that has been
    through a processor already.
    """
    if kind not in NEEDED:
        raise ValueError(f"kind={kind!r}; known kinds: {', '.join(NEEDED)}")
    names, given = list(names), dict(given or {})
    if unknown := set(given) - set(USUAL):
        raise ValueError(f"no such column of TRL's: {', '.join(sorted(unknown))}; known: {', '.join(USUAL)}")
    if missing := [name for name in given.values() if name is not None and name not in names]:
        raise ValueError(f"the set has no column {missing[0]!r}; it has: {', '.join(names)}")
    found = {role: next((name for name in usual if name in names), None) for role, usual in USUAL.items()}
    if "answer" in names and "solution" in names and "solution" not in given:
        given["solution"] = "answer"  # where a set has both, the solution is the worked one
    if given.get("solution") not in (None, "solution") and "solution" in names and "worked" not in given:
        given["worked"] = "solution"
    found = {role: name for role, name in {**found, **given}.items() if name is not None}
    if "input_ids" in names and "prompt" not in found:
        raise ValueError(
            "the rows have been through a processor already (input_ids, no prompt): TRL's trainers process rows "
            "themselves and would end in a KeyError; pass the rows as they were before that step"
        )
    for role in NEEDED[kind]:
        optional = role in given or (role == "prompt" and kind == "mpo")  # chosen may repeat the prompt
        if role not in found and not optional:
            raise ValueError(
                f"no column for {role!r} among: {', '.join(names)}; name it with columns={{{role!r}: NAME}} "
                f"(on the command line --column {role}=NAME)"
            )
    return found


def renamed(
    dataset: Dataset | IterableDataset, kind: str, given: Mapping[str, str | None] | None = None
) -> Dataset | IterableDataset:
    """Return the undecoded set with its columns under TRL's names. Raises ValueError as `find_columns`."""
    dataset = undecoded(dataset)
    names = list(dataset.column_names or next(iter(dataset), ()))
    if not names:
        raise ValueError("the set has no rows and no columns; give one that has")
    found = find_columns(names, kind, given)
    for name in found.values():
        dataset = with_label_names(dataset, name)
    taken = [role for role, name in found.items() if role != name and role in names and role not in found.values()]
    denied = {name for role, named in (given or {}).items() if named is None for name in USUAL[role]}
    taken += [name for name in names if name in denied and name not in found.values() and name not in taken]
    dataset = dataset.remove_columns(taken)  # what another column is to be called, or what is not to be read
    wanted = {name: role for role, name in found.items() if role != name}
    if isinstance(dataset, IterableDataset) and set(wanted) & set(wanted.values()):  # it renames one by one
        dataset = dataset.rename_columns({name: f"_{role}" for name, role in wanted.items()})
        wanted = {f"_{role}": role for role in wanted.values()}
    return dataset.rename_columns(wanted)


def look_over(
    rows: Iterable[dict], make: Callable[..., dict], source: Source = DEFAULT_SOURCE, first: int = 0
) -> Iterator[tuple[dict, dict | None, RowError | None]]:
    """Yield (raw row, row in TRL's columns or None, its error or None); `first` is the first row's number."""
    for number, row in enumerate(rows, first):
        row_id = row_name(row, number)
        try:
            made = make(row, row_id=row_id)
            for image in made["images"]:
                header(image, row_id=row_id, source=source)
            yield row, made, None
        except RowError as error:
            yield row, None, error


def row_name(row: Mapping, number: int | None = None) -> Any:
    """What error messages call a row: its own id, or its number in the set."""
    return row["id"] if row.get("id") is not None else number


def maker(kind: str, style: str | None = None, convert: Callable[[dict], dict] | None = None) -> Callable[..., dict]:
    """Return the function that turns a renamed, undecoded row into TRL's columns, pictures still undecoded.

    Args:
        style: answer format that the system prompt asks for (`answer_format.STYLES`); None asks for none.
        convert: a source's own change to a renamed row, such as joining the choices to the question.
    """
    return partial(_make, kind=kind, system=system_prompt(style) if style else None, convert=convert)


def ready(
    dataset: Dataset | IterableDataset,
    kind: str = "grpo",
    *,
    columns: Mapping[str, str | None] | None = None,
    style: str | None = None,
    convert: Callable[[dict], dict] | None = None,
    source: Source = DEFAULT_SOURCE,
    on_error: str = "raise",
) -> tuple[Dataset | IterableDataset, list[RowError]]:
    """Return the set in TRL's columns, and the errors of the rows that were left out.

    Args:
        dataset: any set, streaming or not.
        kind: "grpo" (prompt, images, solution; also for GSPO) or "mpo" (prompt, images, chosen, rejected).
        columns: as `find_columns`. style, convert: as `maker`. source: where pictures may come from.
        on_error: "raise" stops at the first bad row; "skip" leaves bad rows out, and says how many.

    A streaming set is looked over as it is read, so its list of errors grows then. A picture whose header is
    fine and whose pixels are not raises RowError when it is read: `python -m recipe_lib check` finds it before.
    """
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error={on_error!r}; known: 'raise', 'skip'")
    dataset, make, skipped = renamed(dataset, kind, columns), maker(kind, style, convert), []
    if isinstance(dataset, IterableDataset):
        each = partial(_stream, make=make, source=source, skipped=skipped if on_error == "skip" else None)
        return dataset.map(each, with_indices=True, batched=True, batch_size=1), skipped
    if "id" not in dataset.column_names and dataset._indices is None:
        dataset = dataset.add_column("id", np.arange(len(dataset)))  # with indices this would copy pictures
    good = []
    for number, (_, made, error) in enumerate(look_over(tqdm(dataset, desc="rows looked over"), make, source)):
        if made is not None:
            good.append(number)
        elif on_error == "raise":
            raise error
        else:
            skipped.append(error)
    if skipped:
        print(f"{len(skipped)} of {len(dataset)} rows left out; the first: {skipped[0]}")
        dataset = dataset.select(good)
    whole = {"prompt", "images"} & set(dataset.column_names)
    return dataset.with_transform(partial(_transform, make=make, source=source, whole=whole)), skipped


def option_table(value: Any) -> dict[str, str] | None:
    """An options column as the rewards read it, letter to text; None where it holds none.

    Sets keep options as a mapping, as a list ("red" or "A. red"), or as either written as JSON; Arrow fills a
    mapping's missing letters with None.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, list | tuple):
        lettered = [OPTION_LINE.fullmatch(str(text)) for text in value]
        if lettered and all(lettered):
            return {match[1]: match[2] for match in lettered}
        return {chr(ord("A") + place): str(text) for place, text in enumerate(value[:26])} or None
    if isinstance(value, Mapping):
        named = {str(key).strip(" ()[].:").upper(): str(text) for key, text in value.items() if text is not None}
        return named or None
    return None


def column_pair(text: str) -> tuple[str, str]:
    """ROLE=COLUMN of a command line, for argparse's `type`."""
    role, equals, column = text.partition("=")
    if not (role and equals and column):
        raise argparse.ArgumentTypeError(f"{text!r}: expected ROLE=COLUMN, for example prompt=question")
    return role, column


def _undated(value: Any) -> Any:
    """Dates as ISO text, at any depth: readers of JSON turn texts such as "2023-05-03" into them unasked."""
    if isinstance(value, datetime.datetime):
        return value.isoformat().removesuffix("T00:00:00")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, list):
        return [_undated(item) for item in value]
    if isinstance(value, dict):
        return {key: _undated(item) for key, item in value.items()}
    return value


def _make(row: dict, *, kind: str, system: str | None, convert: Callable | None, row_id: Any = None) -> dict:
    row = {name: value if name == "images" else _undated(value) for name, value in row.items()}
    if isinstance(row.get("solution"), bool | np.bool_):
        row["solution"] = "true" if row["solution"] else "false"  # as JSON writes it, and as the rewards read it
    row = convert(row) if convert else row
    if kind == "mpo":
        return mpo_row(row, system, row_id=row_id)
    made = grpo_row(row, system, row_id=row_id)
    if "options" in made:
        made["options"] = option_table(made["options"])
    if "solution" in made and (made["solution"] is None or not str(made["solution"]).strip()):
        raise RowError("there is no solution; drop the row", row_id=row_id, column="solution", fault="empty")
    return made


def _decoded(made: dict, row_id: Any, source: Source) -> dict:
    return {**made, "images": [to_rgb(image, row_id=row_id, source=source) for image in made["images"]]}


def _transform(batch: dict[str, list], make: Callable, source: Source, whole: set[str]) -> dict[str, list]:
    if not whole <= set(batch):  # a single column was asked for, such as dataset["solution"]
        return batch
    rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
    made = [_decoded(make(row, row_id=row_name(row)), row_name(row), source) for row in rows]
    return {name: [row[name] for row in made] for name in made[0]}


def _stream(
    batch: dict[str, list], numbers: list[int], make: Callable, source: Source, skipped: list | None
) -> dict[str, list]:
    row, number = {name: values[0] for name, values in batch.items()}, numbers[0]
    row_id = row_name(row, number)
    try:
        made = _decoded(make(row, row_id=row_id), row_id, source)
    except RowError as error:
        if skipped is None:
            raise
        skipped.append(error)
        return {name: [] for name in batch}
    return {name: [value] for name, value in made.items()}
