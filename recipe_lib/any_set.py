"""Opens any data set, on disk or on the hub, as the rows that it holds.

    raw = open_set("pictures/train.jsonl", columns={"prompt": "problem"})
    train, skipped = raw.ready(style="think_answer", on_error="skip")

| what `where` names | what is opened |
|---|---|
| a folder of `save_to_disk`, of one or of several splits | as it was saved |
| a folder with Parquet files | those whose names start with the split's; where none names a split, all are `train` |
| a .jsonl, .json, .csv, .tsv or .parquet file, or a folder with one | its rows; pictures come from its folder |
| `owner/name` | that set on the hub, at a pinned revision if one is given |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from datasets import Dataset, IterableDataset, load_dataset, load_from_disk

from recipe_lib.broken_tables import explained, one_line
from recipe_lib.columns import ready, renamed
from recipe_lib.image_sources import DEFAULT_SOURCE, RowError, Source

SPLITS = ("train", "testmini", "test", "validation", "val", "dev", "eval")  # file names that start so name a split
READERS = {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv"}


@dataclass(frozen=True)
class RawSet:
    """A set as it was opened, with all that is needed to read its rows.

    dataset: the rows as they are stored. kind: "grpo" or "mpo". columns, convert: see `recipe_lib.columns`.
    source: where pictures may come from. name: what messages call the set. files: what was read on this machine, and
    limit: how many rows were asked for at most, so that a later run can tell whether it reads the same.
    """

    dataset: Dataset | IterableDataset
    kind: str = "grpo"
    columns: Mapping[str, str | None] = field(default_factory=dict)
    convert: Callable[[dict], dict] | None = None
    source: Source = DEFAULT_SOURCE
    name: str = "the set"
    files: tuple[Path, ...] = ()
    limit: int | None = None

    def rows(self) -> Dataset | IterableDataset:
        """The rows under TRL's column names, pictures undecoded. Raises ValueError on a missing column."""
        return renamed(self.dataset, self.kind, self.columns)

    def ready(
        self, style: str | None = None, on_error: str = "raise"
    ) -> tuple[Dataset | IterableDataset, list[RowError]]:
        """The rows in TRL's columns, decoded lazily, and the errors of those left out: see `columns.ready`."""
        options = {"columns": self.columns, "convert": self.convert, "source": self.source}
        return ready(self.dataset, self.kind, style=style, on_error=on_error, **options)

    def first(self, limit: int | None) -> RawSet:
        """The first rows only; None keeps all."""
        if limit is None:
            return self
        if limit < 1:
            raise ValueError(f"limit={limit}: at least one row is needed; leave it out to keep all")
        if isinstance(self.dataset, IterableDataset):
            return replace(self, dataset=self.dataset.take(limit), limit=limit)
        return replace(self, dataset=self.dataset.select(range(min(limit, len(self.dataset)))), limit=limit)


def open_set(
    where: str | Path,
    split: str = "train",
    *,
    kind: str | None = None,
    columns: Mapping[str, str | None] | None = None,
    revision: str | None = None,
    config: str | None = None,
    streaming: bool = False,
    fetch_urls: bool = False,
) -> RawSet:
    """Open a set by its place; see the module's table.

    Args:
        split: name of the split, also the start of the names of Parquet files in a folder.
        kind: "grpo" or "mpo"; None takes "mpo" where there are columns `chosen` and `rejected`.
        columns: TRL's name -> the set's name, for columns that are not found by their usual names.
        revision, config: of a hub set. streaming: read rows as they come, without a download before.
        fetch_urls: fetch pictures that rows name by http(s) address.

    Raises:
        FileNotFoundError: nothing is there, or not that split; the message lists what was looked for.
        ValueError: what is there cannot be read, or has no rows; the message names the file, and the line if known.
        ConnectionError: the hub set is neither cached nor reachable.
    """
    path = Path(where)
    if path.exists():
        dataset, files = _on_disk(path, split, streaming)
        root = path if path.is_dir() else path.parent
    else:
        dataset, files, root = _on_hub(str(where), split, revision, config, streaming), (), None
    names = dataset.column_names or []
    kind = kind or ("mpo" if {"chosen", "rejected"} <= set(names) else "grpo")
    source = Source(root=root, fetch_urls=fetch_urls)
    return RawSet(dataset, kind, dict(columns or {}), None, source, str(where), files)


def splits_at(where: str | Path) -> list[str]:
    """The splits of a set on disk, and ["train"] for a single file and for anything that is not on disk.

    Raises ValueError where a saved set's own list of splits cannot be read.
    """
    path = Path(where)
    described = path / "dataset_dict.json"
    if described.is_file():
        try:
            return list(json.loads(described.read_text(encoding="utf-8"))["splits"])
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{described} lists no splits; save the set anew with `save_to_disk`") from None
    if not path.is_dir() or (path / "state.json").is_file():
        return ["train"]
    tables = next((found for suffix in READERS if (found := _tables(path, suffix))), [])
    return _named_splits(tables) or ["train"]


def _on_disk(path: Path, split: str, streaming: bool) -> tuple[Dataset | IterableDataset, tuple[Path, ...]]:
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        return _saved(path, split, streaming)
    if path.is_file() and split != "train":
        raise FileNotFoundError(f"{path} has no split {split!r}; it is a single file, whose one split is: train")
    files = [path] if path.is_file() else _table_files(path, split)
    reader = READERS.get(files[0].suffix.lower())
    if reader is None:
        raise FileNotFoundError(f"{path} is no table of rows; known endings: {', '.join(READERS)}")
    options = {"delimiter": "\t"} if files[0].suffix.lower() == ".tsv" else {}
    with explained(files):
        names = [str(file) for file in files]
        found = load_dataset(reader, data_files=names, split="train", streaming=streaming, **options)
        next(iter(found.with_format("arrow") if streaming else range(len(found))))  # StopIteration: no rows
    return found, tuple(files)


def _saved(path: Path, split: str, streaming: bool) -> tuple[Dataset | IterableDataset, tuple[Path, ...]]:
    folder, several = path, (path / "dataset_dict.json").is_file()
    if several:
        if split not in (splits := splits_at(path)):
            raise FileNotFoundError(f"{path} has no split {split!r}; it has: {', '.join(splits)}")
        folder = path / split
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        if not state["_data_files"]:  # which the library writes and then fails to read
            raise ValueError("it was saved without rows")
        if not several and split not in ("train", state.get("_split")):
            raise FileNotFoundError(f"{path} has no split {split!r}; it was saved as one split: train")
        found = load_from_disk(str(folder))
    except FileNotFoundError:
        raise
    except (ValueError, KeyError, TypeError, LookupError, OSError) as error:
        said = one_line(error)
        raise ValueError(f"{folder} cannot be read ({said}); save the set anew with `save_to_disk`") from error
    return (found.to_iterable_dataset() if streaming else found), (folder / "state.json",)


def _tables(folder: Path, suffix: str) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() == suffix)


def _split_in(file: Path) -> str | None:
    return max((split for split in SPLITS if file.name.startswith(split)), key=len, default=None)


def _named_splits(files: list[Path]) -> list[str]:
    found = {_split_in(file) for file in files}
    return [split for split in SPLITS if split in found]


def _table_files(folder: Path, split: str) -> list[Path]:
    for suffix in READERS:
        found = _tables(folder, suffix)
        # "test" is not the split of testmini-00000.parquet
        named = [file for file in found if file.name.startswith(split) and len(_split_in(file) or "") <= len(split)]
        if named or not found:
            if named:
                return named
            continue
        listed = ", ".join(file.name for file in found)
        splits = _named_splits(found) or ["train"]
        if split != "train" or splits != ["train"]:
            there = f"it has: {', '.join(splits)} (in {listed})"
            raise FileNotFoundError(f"{folder} has no split {split!r}; {there}; or name the file itself")
        if len(found) == 1 or suffix == ".parquet":
            return found
        raise FileNotFoundError(f"{folder}: none of {listed} starts with {split!r}; name the file itself")
    raise FileNotFoundError(f"{folder} holds no table of rows; looked for: *{', *'.join(READERS)}")


def _on_hub(name: str, split: str, revision: str | None, config: str | None, streaming: bool):
    if name.count("/") != 1 or name.startswith((".", "/")):
        raise FileNotFoundError(f"nothing at {name!r}: no file or folder, and no hub name of the form owner/name")
    try:
        return load_dataset(name, config, split=split, revision=revision, streaming=streaming)
    except (ConnectionError, OSError) as error:
        raise ConnectionError(
            f"{name} is neither cached nor reachable ({type(error).__name__}); with network, run "
            f"`hf download --repo-type dataset {name}` once, or give a local copy's folder"
        ) from error
