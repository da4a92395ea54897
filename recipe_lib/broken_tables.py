"""Why a table of rows cannot be read: the file, and the line where it is broken."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from datasets.utils import logging


@contextlib.contextmanager
def explained(files: list[Path]) -> Iterator[None]:
    """Errors of reading tables, of whichever library, as one ValueError that names the file and the line."""
    before = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)  # the library's own line about it would stand before ours
    try:
        yield
    except Exception as error:  # pyarrow's, pandas', the library's own, and StopIteration on an empty file
        raise ValueError(_why(files, error)) from error
    finally:
        logging.set_verbosity(before)


def _why(files: list[Path], error: Exception) -> str:
    columns: dict[Path, set[str]] = {}
    for file in files:
        if file.suffix.lower() == ".parquet":
            continue
        try:
            text = file.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as broken:
            line = broken.object.count(b"\n", 0, broken.start) + 1
            byte = broken.object[broken.start]
            return f"{file}, line {line}: byte {byte:#04x} is not UTF-8; save the file as UTF-8"
        if not text.strip():
            return f"{file} holds no rows; give a file that does"
        if file.suffix.lower() not in (".jsonl", ".json") or _is_json(text):
            continue
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as broken:
                return f"{file}, line {number}: no JSON ({one_line(broken)}); mend the line or take it out"
            if not isinstance(row, dict):
                return f"{file}, line {number}: {line:.60} is no row; expected an object such as {{...}}"
            columns.setdefault(file, set()).update(row)
    unlike = [file for file in columns if columns[file] != columns[next(iter(columns))]]
    if unlike:
        theirs, mine = (", ".join(sorted(columns[file])) for file in (next(iter(columns)), unlike[0]))
        return f"{unlike[0]} has the columns {mine}, and {next(iter(columns))} has {theirs}; name one of the files"
    named = ", ".join(str(file) for file in files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    if isinstance(error, StopIteration) or "corresponds to no data" in str(error):
        return f"{named}: no rows; give a table that has some"
    return f"{named} cannot be read: {one_line(error.__cause__ or error)}"


def _is_json(text: str) -> bool:
    """Whether a whole text is one JSON array or object, as .json files mostly are, and not lines of them."""
    try:
        return isinstance(json.loads(text), dict | list) and "\n" in text.strip()
    except ValueError:
        return False


def one_line(error: BaseException) -> str:
    """An error's text in one line, at most 300 characters; its kind where it says nothing."""
    return " ".join(str(error).split())[:300] or type(error).__name__
