"""A set's columns read as other kinds, while the stored data stays as it is: no picture is written anew."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
from datasets import ClassLabel, Dataset, Features, Image, IterableDataset, LargeList, List, Value
from datasets.fingerprint import Hasher
from datasets.table import ConcatenationTable, InMemoryTable


def undecoded(dataset: Dataset | IterableDataset) -> Dataset | IterableDataset:
    """Return the set with its pictures as they are stored (bytes or path), and without any transform."""
    features = {name: _plain(feature) for name, feature in (dataset.features or {}).items()}
    if isinstance(dataset, IterableDataset):
        for name, feature in features.items():
            dataset = dataset if feature is None else dataset.cast_column(name, feature)
        return dataset
    info = dataset.info.copy()
    info.features = Features({name: plain or dataset.features[name] for name, plain in features.items()})
    # cast_column would do, but it writes a list of pictures anew: only the description changes here
    mark = Hasher.hash([dataset._fingerprint, "undecoded"])
    return Dataset(dataset.data, info, dataset.split, indices_table=dataset._indices, fingerprint=mark)


def with_label_names(dataset: Dataset | IterableDataset, name: str) -> Dataset | IterableDataset:
    """Return the set with a column of class numbers as the classes' names: as golds, numbers would mean nothing."""
    feature = (dataset.features or {}).get(name)
    if not isinstance(feature, ClassLabel):
        return dataset
    names = dict(enumerate(feature.names))  # the hub writes -1 where a row has no label
    features = Features({**dataset.features, name: Value("string")})
    if isinstance(dataset, IterableDataset):
        return dataset.map(partial(_named_label, name=name, names=names), features=features)
    stored = dataset.data.column(name).to_pylist()
    texts = InMemoryTable(pa.table({name: pa.array([names.get(number) for number in stored], pa.string())}))
    others = dataset.data.remove_column(dataset.data.column_names.index(name))
    # beside the others, which stay where they are on disk: a map would write the pictures anew
    data = ConcatenationTable.from_tables([others, texts], axis=1)
    info = dataset.info.copy()
    info.features = Features({column: features[column] for column in data.column_names})
    mark = Hasher.hash([dataset._fingerprint, "label names", name])
    return Dataset(data, info, dataset.split, indices_table=dataset._indices, fingerprint=mark)


def _named_label(row: dict, name: str, names: dict[int, str]) -> dict:
    return {name: names.get(row[name])}


def _plain(feature: Any) -> Any:
    """The same feature with pictures undecoded, or None where there is nothing to change."""
    if isinstance(feature, Image):
        return Image(decode=False) if feature.decode else None
    if isinstance(feature, List | LargeList) and (inner := _plain(feature.feature)) is not None:
        return type(feature)(inner)
    return None
