"""Opens any data set, on disk or on the hub, as the rows that it holds.

    raw = open_set("pictures/train.jsonl", columns={"prompt": "problem"})
    train, skipped = raw.ready(style="think_answer", on_error="skip")

| what `where` names | what is opened |
|---|---|
| a folder of `save_to_disk`, of one or of several splits | as it was saved |
| a folder with Parquet files | all of them, or those whose names start with the split's |
| a .jsonl, .json, .csv, .tsv or .parquet file, or a folder with one | its rows; pictures come from its folder |
| `owner/name` | that set on the hub, at a pinned revision if one is given |
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from datasets import Dataset, DatasetDict, IterableDataset, load_dataset, load_from_disk

from recipe_lib.columns import ready, renamed
from recipe_lib.image_sources import DEFAULT_SOURCE, RowError, Source

READERS = {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv"}


@dataclass(frozen=True)
class RawSet:
    """A set as it was opened, with all that is needed to read its rows.

    dataset: the rows as they are stored. kind: "grpo" or "mpo". columns, convert: see `recipe_lib.columns`.
    source: where pictures may come from. name: what messages call the set.
    """

    dataset: Dataset | IterableDataset
    kind: str = "grpo"
    columns: Mapping[str, str | None] = field(default_factory=dict)
    convert: Callable[[dict], dict] | None = None
    source: Source = DEFAULT_SOURCE
    name: str = "the set"

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
            return replace(self, dataset=self.dataset.take(limit))
        return replace(self, dataset=self.dataset.select(range(min(limit, len(self.dataset)))))


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
        ConnectionError: the hub set is neither cached nor reachable.
    """
    path = Path(where)
    dataset, root = _on_disk(path, split, streaming) if path.exists() else (None, None)
    if dataset is None:
        dataset = _on_hub(str(where), split, revision, config, streaming)
    names = dataset.column_names or []
    kind = kind or ("mpo" if {"chosen", "rejected"} <= set(names) else "grpo")
    return RawSet(dataset, kind, dict(columns or {}), None, Source(root=root, fetch_urls=fetch_urls), str(where))


def splits_at(where: str) -> list[str]:
    """The splits of a set saved on disk, and ["train"] for anything else."""
    described = Path(where) / "dataset_dict.json"
    return json.loads(described.read_text(encoding="utf-8"))["splits"] if described.is_file() else ["train"]


def _on_disk(path: Path, split: str, streaming: bool) -> tuple[Dataset | IterableDataset, Path]:
    folder = path if path.is_dir() else path.parent
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        found = load_from_disk(str(path))
        if isinstance(found, DatasetDict):
            if split not in found:
                raise FileNotFoundError(f"{path} has no split {split!r}; it has: {', '.join(found)}")
            found = found[split]
        return (found.to_iterable_dataset() if streaming else found), folder
    files = [path] if path.is_file() else _table_files(path, split)
    reader = READERS.get(files[0].suffix.lower())
    if reader is None:
        raise FileNotFoundError(f"{path} is no table of rows; known endings: {', '.join(READERS)}")
    options = {"delimiter": "\t"} if files[0].suffix.lower() == ".tsv" else {}
    names = [str(file) for file in files]
    return load_dataset(reader, data_files=names, split="train", streaming=streaming, **options), folder


def _table_files(folder: Path, split: str) -> list[Path]:
    for suffix in READERS:
        found = sorted(file for file in folder.iterdir() if file.suffix.lower() == suffix)
        named = [file for file in found if file.name.startswith(split)]
        if named or len(found) == 1 or (found and suffix == ".parquet"):
            return named or found
        if found:
            listed = ", ".join(file.name for file in found)
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
