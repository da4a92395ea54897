"""RLAIF-V: 83,000 preference pairs over pictures, by OpenBMB, and the form that TRL's examples use.

| form | columns |
|---|---|
| `formatted` | `images` (list of one), `prompt`, `chosen`, `rejected` as messages of parts; splits train, test |
| `original` | `image`, `question`, `chosen`, `rejected` as texts, `idx`, `ds_name`, ...; split train |
"""

from __future__ import annotations

from dataclasses import replace

from recipe_lib.any_set import RawSet, open_set

PLACES = {
    "formatted": ("HuggingFaceH4/rlaif-v_formatted", "329bef50207c10a56443a2282bf45762e86ffc20"),
    "original": ("openbmb/RLAIF-V-Dataset", "fb08536fc84ca3c8b5aed0bc72b1130b37c7a91e"),
}
COLUMNS = {
    "formatted": {"prompt": "prompt", "images": "images"},
    "original": {"prompt": "question", "images": "image", "id": "idx"},
}


def build(split: str = "train", *, form: str = "formatted", path: str | None = None, **options) -> RawSet:
    """The set in one of its two forms, from the hub or from a local copy at `path`."""
    if form not in PLACES:
        raise ValueError(f"form={form!r}; known: {', '.join(PLACES)}")
    place, revision = PLACES[form]
    raw = open_set(path or place, split, kind="mpo", columns=COLUMNS[form], revision=revision, **options)
    return replace(raw, name=f"rlaif-v, {form}")
