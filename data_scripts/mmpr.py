"""MMPR: three million preference pairs over pictures, the set of the MPO paper, by OpenGVLab.

It is published as archives, to be unpacked beside each other:

    MMPR-v1.1/meta.json      subset -> {"root": folder of pictures, "annotation": file of pairs, ...}
    MMPR-v1.1/images/...     MMPR-v1.1/annotations/*.jsonl

A pair is {"image": a path or a list of paths below the root, or nothing, "question", "chosen", "rejected"}, with
an `<image>` marker in the question where a picture stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from datasets import Dataset, Features, IterableDataset, List, Value
from datasets.exceptions import DatasetGenerationError

from recipe_lib.any_set import RawSet
from recipe_lib.image_sources import Source
from recipe_lib.images import as_list

PLACE, REVISION = "OpenGVLab/MMPR-v1.1", "f4f3c430f6b37a1d8406d08336a4d9bcf64ace1a"
TEXTS = ("id", "prompt", "chosen", "rejected")
FEATURES = Features({"images": List(Value("string"))} | {name: Value("string") for name in TEXTS})


def build(
    split: str = "train",
    *,
    path: str | None = None,
    subsets: tuple[str, ...] = (),
    per_subset: int | None = None,
    streaming: bool = False,
) -> RawSet:
    """The pairs of the unpacked folder at `path`, subset by subset.

    Args:
        subsets: names of `meta.json`; empty takes all. per_subset: the first pairs of each; None takes all.

    Raises FileNotFoundError where the folder is not unpacked, ValueError on an unknown subset or split.
    """
    if split != "train":
        raise ValueError(f"mmpr has no split {split!r}; it has: train")
    folder = Path(path or "MMPR-v1.1")
    if not (folder / "meta.json").is_file():
        raise FileNotFoundError(
            f"no meta.json in {folder}; with network, run `hf download --repo-type dataset --revision {REVISION} "
            f"--local-dir {folder} {PLACE}`, join and unpack its archives there, and give path=FOLDER"
        )
    try:
        known = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{folder / 'meta.json'} is no JSON ({error}); fetch it again") from error
    if unknown := set(subsets) - set(known):
        raise ValueError(f"no such subset: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    wanted = {name: known[name] for name in subsets or known}
    stamps = tuple(_below(str(folder), described["annotation"]).stat().st_mtime_ns for described in wanted.values())
    options = {"folder": str(folder), "wanted": wanted, "per_subset": per_subset, "stamps": stamps}
    make = IterableDataset.from_generator if streaming else Dataset.from_generator
    try:
        pairs = make(_pairs, gen_kwargs=options, features=FEATURES)
    except DatasetGenerationError as error:  # whose own message says nothing
        raise ValueError(f"{folder} cannot be read: {error.__cause__}") from error
    return RawSet(pairs, "mpo", source=Source(root=folder), name="mmpr")


def _pairs(folder: str, wanted: dict[str, dict], per_subset: int | None, stamps: tuple[int, ...]) -> Iterator[dict]:
    """The pairs as rows. `stamps` only tell the library's cache of generated sets that a file has changed."""
    for name, described in wanted.items():
        root = _below(folder, described["root"])
        with _below(folder, described["annotation"]).open(encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                if per_subset is not None and number >= per_subset:
                    break
                try:
                    pair = json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{described['annotation']}, line {number + 1}: no JSON ({error})") from None
                images = [str(root / image) for image in as_list(pair.get("image"))]
                texts = {"prompt": pair.get("question")} | {key: pair.get(key) for key in ("chosen", "rejected")}
                yield {"id": f"{name}/{number}", "images": images, **texts}


def _below(folder: str, place: str) -> Path:
    """A place of `meta.json`: below its folder, or below the folder's parent, as some releases write it."""
    inside, beside = Path(folder) / place, Path(folder).parent / place
    return beside.resolve() if beside.exists() and not inside.exists() else inside.resolve()
