"""RLAIF-V: 83,000 preference pairs over pictures, by OpenBMB, and the form that TRL's examples use.

| form | columns |
|---|---|
| `formatted` | `images` (list of one), `prompt`, `chosen`, `rejected` as messages of parts; splits train, test |
| `original` | `image`, `question`, `chosen`, `rejected` as texts, `idx`, `ds_name`, ...; split train |
"""

from __future__ import annotations

from data_scripts.source import hub_source
from recipe_lib.any_set import RawSet

PLACE, REVISION = "HuggingFaceH4/rlaif-v_formatted", "329bef50207c10a56443a2282bf45762e86ffc20"
ORIGINAL, ORIGINAL_REVISION = "openbmb/RLAIF-V-Dataset", "fb08536fc84ca3c8b5aed0bc72b1130b37c7a91e"
FORMS = {
    "formatted": hub_source("rlaif-v", PLACE, REVISION, {"prompt": "prompt", "images": "images"}, kind="mpo"),
    "original": hub_source(
        "rlaif-v-original",
        ORIGINAL,
        ORIGINAL_REVISION,
        {"prompt": "question", "images": "image", "id": "idx"},
        kind="mpo",
    ),
}


def build(split: str = "train", *, form: str = "formatted", **options) -> RawSet:
    """The set in one of its two forms, from the hub or from a local copy at `path`."""
    if form not in FORMS:
        raise ValueError(f"form={form!r}; known: {', '.join(FORMS)}")
    return FORMS[form](split, **options)
