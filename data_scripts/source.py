"""What the adapters of the named sources share: a set of the hub, or a local copy of it, with its columns.

build = hub_source("geometry3k", "hiyouga/geometry3k", REVISION, {"prompt": "problem"})
build("test"); build("train", path="copies/geometry3k", streaming=True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from huggingface_hub import HfApi

from recipe_lib.any_set import RawSet, open_set, splits_at


def hub_source(
    name: str,
    place: str,
    revision: str,
    columns: Mapping[str, str | None],
    *,
    kind: str = "grpo",
    convert: Callable[[dict], dict] | None = None,
    only: str = "train",
) -> Callable[..., RawSet]:
    """Return the source's `build`.

    Args:
        name: what messages call the set. place: its name on the hub.
        revision: the commit that is taken, as a full or an abbreviated hash.
        columns, kind, convert: as `recipe_lib.any_set.RawSet`.
        only: the split that a local copy without splits is taken for.
    """

    def build(split: str = "train", *, path: str | None = None, **options) -> RawSet:
        """The set, from a local copy at `path` or at its pinned revision from the hub; options of `open_set`."""
        pinned = {} if path else {"revision": full_revision(place, revision)}
        asked = "train" if path and split == only and splits_at(path) == ["train"] else split
        raw = open_set(path or place, asked, kind=kind, columns=columns, **pinned, **options)
        return replace(raw, name=name, convert=convert)

    return build


def full_revision(place: str, revision: str) -> str:
    """The full hash of an abbreviated one: the hub's pages show 7 digits, and its downloads want all 40."""
    if len(revision) == 40:
        return revision
    try:
        commits = HfApi().list_repo_commits(place, repo_type="dataset")
    except Exception:  # no network, in whichever way; opening a cached copy needs none, and else says so
        return revision
    return next((commit.commit_id for commit in commits if commit.commit_id.startswith(revision)), revision)
