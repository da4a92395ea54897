"""Turns any source into a set on disk that is ready to train on: checked, in TRL's columns, pictures as they came.

    python -m data_scripts.prepare_geometry3k --output outputs/geometry3k
    python -m data_scripts.prepare_any --from owner/name --column prompt=problem --output outputs/mine

The output is a folder of Parquet parts with `images` (encoded bytes), `prompt`, `solution` or `chosen` and
`rejected`, and the source's other texts; `dropped.jsonl` says which rows went and why. A part that is there whole is
not made again, so a run that was stopped goes on where it was; `source.json` says from what and how it was made.
`datasets.load("outputs/geometry3k")` loads the folder.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, Features, Image, List, Value
from pyarrow import parquet
from tqdm.auto import tqdm

from recipe_lib import datasets as named
from recipe_lib.any_set import RawSet
from recipe_lib.columns import column_pair, look_over, maker, row_name
from recipe_lib.image_sources import RowError
from recipe_lib.images import encoded

PART_ROWS = 500
TURNS = List({"role": Value("string"), "content": List({"type": Value("string"), "text": Value("string")})})


def prepare(raw: RawSet, folder: str | Path, split: str = "train", style: str | None = None) -> tuple[int, int]:
    """Write a source's good rows to `folder` as Parquet parts; return how many rows were written and left out.

    Args:
        style: answer format whose system prompt goes into the prompts; None leaves it to `datasets.load(style=)`.

    Raises ValueError where the folder holds parts of another source or of other settings, and on a source without a
    good row.
    """
    folder, rows = Path(folder), raw.rows()
    maker(raw.kind, style, raw.convert)  # a wrong style or column is told before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    _same_settings(folder, _settings(raw, split, style))
    total = len(rows) if isinstance(rows, Dataset) else None
    written = left_out = places = 0
    with tqdm(total=total, desc=f"preparing {raw.name}", unit="row") as bar:
        for place, part in enumerate(_parts(rows)):
            target, dropped = _part_files(folder, split, place)
            if sum(_counts(target, dropped)) != len(part):
                _write_part(part, place, raw, style, target, dropped)
            kept, lost = _counts(target, dropped)
            written, left_out, places = written + kept, left_out + lost, place + 1
            bar.update(len(part))
    if any(stale.exists() for stale in _part_files(folder, split, places)):
        raise ValueError(f"{folder} holds parts of a longer source than {raw.name} now is; remove the folder")
    with (folder / "dropped.jsonl").open("w", encoding="utf-8") as lines:
        for part_file in sorted(folder.glob("dropped-*.jsonl")):
            lines.write(part_file.read_text(encoding="utf-8"))
    if not written:
        raise ValueError(f"{raw.name} has no good row: all {left_out:,} were left out, see {folder}/dropped.jsonl")
    return written, left_out


def _part_files(folder: Path, split: str, place: int) -> tuple[Path, Path]:
    return folder / f"{split}-{place:05}.parquet", folder / f"dropped-{place:05}.jsonl"


def _counts(target: Path, dropped: Path) -> tuple[int, int]:
    """Rows that a part holds and has left out, as they are on disk; a part without a good row has no Parquet file."""
    kept = parquet.read_metadata(target).num_rows if target.is_file() else 0
    return kept, len(dropped.read_text(encoding="utf-8").splitlines()) if dropped.is_file() else 0


def _parts(rows: Iterable[dict]) -> Iterable[list[dict]]:
    part: list[dict] = []
    for row in rows:
        part.append(row)
        if len(part) == PART_ROWS:
            yield part
            part = []
    if part:
        yield part


def _write_part(part: list[dict], place: int, raw: RawSet, style: str | None, target: Path, dropped: Path) -> None:
    kept, lost = [], []
    make = maker(raw.kind, style, raw.convert)
    for offset, (row, made, error) in enumerate(look_over(part, make, raw.source, first=place * PART_ROWS)):
        number = place * PART_ROWS + offset
        if error is None:
            try:
                kept.append(_stored(made, raw) | {"id": str(row_name(row, number))})
                continue
            except RowError as failure:
                error = failure
        lost.append({"row_id": error.row_id, "number": number, "kind": error.fault, "problem": error.problem})
    dropped.write_text("".join(json.dumps(entry, default=str) + "\n" for entry in lost), encoding="utf-8")
    target.unlink(missing_ok=True)
    if not kept:
        return
    scratch = target.with_suffix(".unfinished")
    Dataset.from_list(kept, features=_features(raw.kind, kept)).to_parquet(str(scratch))
    scratch.replace(target)  # a part is either whole or not there


def _stored(made: dict, raw: RawSet) -> dict:
    images = [{"bytes": encoded(image, raw.source), "path": None} for image in made["images"]]
    plain = {name: _plain(value) for name, value in made.items() if name not in ("prompt", "chosen", "rejected")}
    turns = {name: made[name] for name in ("prompt", "chosen", "rejected") if name in made}
    return {**plain, **turns, "images": images}


def _plain(value: Any) -> str | None:
    """Metadata as text, so that parts of one source share a schema whatever their rows hold."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value.tolist() if isinstance(value, np.ndarray) else value, default=str)


def _features(kind: str, kept: list[dict]) -> Features:
    turns = ("prompt", "chosen", "rejected")
    return Features(
        {name: List(Image()) if name == "images" else TURNS if name in turns else Value("string") for name in kept[0]}
    )


def _settings(raw: RawSet, split: str, style: str | None) -> dict:
    """What decides which rows come out, the files on this machine by their place, size and time of change."""
    stamps = [(file.resolve(), file.stat()) for file in raw.files]
    files = [[str(file), stamp.st_size, stamp.st_mtime_ns] for file, stamp in stamps]
    settings = {"name": raw.name, "kind": raw.kind, "split": split, "style": style, "limit": raw.limit}
    return settings | {"columns": dict(raw.columns), "files": files}


def _same_settings(folder: Path, settings: dict) -> None:
    path, begun = folder / "source.json", any(folder.glob("*.parquet"))
    if begun and not path.is_file():
        raise ValueError(f"{folder} holds Parquet files of something else (no source.json); give another --output")
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else settings
    unlike = [name for name in settings if before.get(name) != settings[name]]
    if unlike and not begun:  # a run that wrote no row must not stand in the way of the corrected one
        for lost in folder.glob("dropped-*.jsonl"):
            lost.unlink()
    elif unlike:
        theirs, ours = ({name: known.get(name) for name in unlike} for known in (before, settings))
        raise ValueError(f"{folder} holds parts of {theirs}, not {ours}; give another --output, or remove it")
    path.write_text(json.dumps(settings), encoding="utf-8")


def run(name: str | None, argv: list[str] | None = None) -> int:
    """The command line of all `prepare_*.py`; `name` is the source, None takes it from --from."""
    parser = argparse.ArgumentParser(description=f"Write {name or 'a set'}, ready to train on, to a folder of Parquet.")
    if name is None:
        parser.add_argument("--from", dest="place", required=True, help="a folder, a file, or a hub name owner/name")
        parser.add_argument("--kind", choices=("grpo", "mpo"))
        parser.add_argument("--column", action="append", default=[], type=column_pair, metavar="ROLE=COLUMN")
    else:
        parser.add_argument("--path", help="a local copy; without it the pinned revision is taken from the hub")
    parser.add_argument("--split", default="testmini" if name == "mathvista" else "train")
    parser.add_argument("--output", required=True, type=Path)
    parser.add_argument("--style", help="answer format whose system prompt goes into the prompts")
    parser.add_argument("--limit", type=int, help="the first rows only")
    parser.add_argument("--streaming", action="store_true", help="read rows as they come, without a download before")
    options = parser.parse_args(argv)
    extra: dict[str, Any] = {"streaming": options.streaming}
    if name is None:
        extra |= {"kind": options.kind, "columns": dict(options.column)}
    elif options.path:
        extra["path"] = options.path
    try:
        raw = named.open_raw(name or options.place, options.split, **extra).first(options.limit)
    except (ValueError, OSError) as error:
        return _failed(error, 2)
    try:
        written, left_out = prepare(raw, options.output, options.split, options.style)
    except (ValueError, OSError) as error:
        told = error if raw.name in str(error) else ValueError(f"{raw.name}: {error}")
        return _failed(told, 1)
    print(f"{written:,} rows in {options.output}; {left_out:,} left out, listed in {options.output}/dropped.jsonl")
    return 0


def _failed(error: Exception, code: int) -> int:
    """Say what went wrong; 2 where the source cannot be opened, 1 where it cannot be prepared, as `check` has it."""
    print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
    return code
