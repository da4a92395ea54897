"""The named sources, on rows of our own in their schemas: opened by name, from a local copy, into TRL's columns."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from data_scripts import clevr_count as clevr_adapter
from data_scripts import geometry3k as geometry3k_adapter
from data_scripts import mathvista as mathvista_adapter
from data_scripts import mmpr as mmpr_adapter
from data_scripts import open_r1 as open_r1_adapter
from data_scripts import rlaif_v as rlaif_v_adapter
from data_scripts import scienceqa as scienceqa_adapter
from data_scripts import source
from recipe_lib import datasets
from recipe_lib.any_set import RawSet
from recipe_lib.conversations import count_images
from recipe_lib.rewards import accuracy_reward
from tests.data_scripts.public_rows import (
    clevr_count,
    geometry3k,
    mathvista,
    mmpr,
    open_r1,
    rlaif_v,
    rlaif_v_original,
    scienceqa,
)

MAKERS = {
    "multimodal-open-r1-8k-verified": open_r1,
    "geometry3k": geometry3k,
    "clevr-count": clevr_count,
    "mathvista": mathvista,
    "scienceqa": scienceqa,
    "rlaif-v": rlaif_v,
    "rlaif-v-original": rlaif_v_original,
}
PAIRS = ("rlaif-v", "rlaif-v-original", "mmpr")


@pytest.fixture
def local(tmp_path):
    """A function: a source's name to the folder of its local copy."""

    def save(name: str) -> str:
        folder = tmp_path / name
        if name == "mmpr":
            return str(mmpr(folder))
        MAKERS[name]().save_to_disk(folder)
        return str(folder)

    return save


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("name", [*MAKERS, "mmpr"])
def test_every_source_gives_trls_columns(name, streaming, local):
    split = "testmini" if name == "mathvista" else "train"
    rows = list(datasets.load(name, split, path=local(name), streaming=streaming, on_error="raise"))
    assert rows
    for row in rows:
        assert count_images(row["prompt"]) == len(row["images"])
        assert all(image.mode == "RGB" for image in row["images"])
        if name in PAIRS:
            assert row["chosen"] != row["rejected"]
            assert row["chosen"][0]["role"] == "assistant"
            assert row["prompt"][0]["role"] == "user"  # no answer format is asked for where pairs are compared
        else:
            assert row["prompt"][0]["role"] == "system"
            said = f"<think>I looked.</think><answer>{plain(row['solution'])}</answer>"
            assert accuracy_reward([said], [row["solution"]], [row.get("options")]) == [1.0]


def plain(solution: str) -> str:
    found = re.search(r"<answer>(.*?)</answer>", solution)
    return found[1] if found else solution


def question(row: dict) -> str:
    return "".join(part.get("text", "") for part in row["prompt"][-1]["content"])


def test_geometry3k_puts_the_picture_where_the_marker_stood(local):
    row = datasets.load("geometry3k", path=local("geometry3k"))[1]
    assert row["prompt"][1]["content"] == [{"type": "image"}, {"type": "text", "text": "Find x."}]
    assert row["solution"] == "\\frac { 1 } { 2 }"


def test_clevr_golds_lose_their_tags(local):
    assert [row["solution"] for row in datasets.load("clevr-count", path=local("clevr-count"))] == ["1", "2", "3"]


def test_mathvista_asks_for_the_form_that_decides(local):
    rows = list(datasets.load("mathvista", "testmini", path=local("mathvista")))
    assert question(rows[0]) == "How many dots? Answer with an integer."
    assert question(rows[1]) == "Which colour?\nA. blue\nB. red"
    assert question(rows[2]) == "How far? (unit: cm) Answer with a number of 2 decimal places."
    options = rows[1]["options"]
    said = ["<think>a</think><answer>B</answer>", "<think>a</think><answer>A</answer>"]
    assert accuracy_reward(said, [rows[1]["solution"]] * 2, [options] * 2) == [1.0, 0.0]


def test_scienceqa_gives_letters_and_rows_without_pictures(local):
    rows = list(datasets.load("scienceqa", path=local("scienceqa")))
    assert [row["solution"] for row in rows] == ["A", "B"]
    assert [len(row["images"]) for row in rows] == [1, 0]
    assert question(rows[1]) == "Context: Think of rain.\nIs water wet?\nA. no\nB. yes"
    assert rows[1]["worked"] == "Water is wet."


def test_mmpr_takes_one_several_and_no_pictures(local):
    folder = local("mmpr")
    rows = list(datasets.load("mmpr", path=folder))
    assert [len(row["images"]) for row in rows] == [1, 2, 1, 0]
    assert rows[1]["prompt"][0]["content"] == [
        {"type": "image"},
        {"type": "text", "text": "or "},
        {"type": "image"},
        {"type": "text", "text": "?"},
    ]
    few = datasets.load("mmpr", path=folder, subsets=("several",), per_subset=1)
    assert [row["id"] for row in few] == ["several/0"]


def test_mmpr_sees_that_a_file_has_changed(local):
    folder = local("mmpr")
    assert len(datasets.load("mmpr", path=folder, subsets=("text",))) == 1
    lines = Path(folder, "annotations", "text.jsonl")
    lines.write_text(2 * lines.read_text())
    assert len(datasets.load("mmpr", path=folder, subsets=("text",))) == 2  # not the rows of the cache


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "/nowhere"}, "no meta.json in /nowhere; with network, run `hf download"),
        ({"subsets": ("gone",)}, "no such subset: gone; known: single, several, text"),
        ({"split": "test"}, "mmpr has no split 'test'"),
    ],
)
def test_mmpr_says_what_is_missing(options, words, local):
    with pytest.raises((FileNotFoundError, ValueError), match=re.escape(words)):
        datasets.load("mmpr", **{"path": local("mmpr"), **options})


def test_unknown_names_and_forms_list_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown data set 'geometry4k'; known: digits, shapes, .*mmpr, or a folder"):
        datasets.load("geometry4k")
    with pytest.raises(ValueError, match="form='raw'; known: formatted, original"):
        datasets.load("rlaif-v", form="raw")


@pytest.mark.parametrize("name", [*MAKERS])
def test_without_network_the_cause_and_the_way_are_named(name, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConnectionError, match=r"neither cached nor reachable .*hf download --repo-type dataset"):
        datasets.load(name, "testmini" if name == "mathvista" else "train")


ADAPTERS = (clevr_adapter, geometry3k_adapter, mathvista_adapter, mmpr_adapter, open_r1_adapter, scienceqa_adapter)


def test_revisions_are_pinned():
    revisions = [adapter.REVISION for adapter in ADAPTERS] + [rlaif_v_adapter.REVISION]
    revisions.append(rlaif_v_adapter.ORIGINAL_REVISION)
    assert all(re.fullmatch(r"[0-9a-f]{7}|[0-9a-f]{40}", revision) for revision in revisions)


def test_an_abbreviated_revision_is_looked_up_and_a_full_one_is_not(monkeypatch):
    full = "e3c8f3a" + 33 * "0"
    asked = []

    def list_repo_commits(self, place, repo_type):
        asked.append((place, repo_type))
        return [SimpleNamespace(commit_id=commit) for commit in (40 * "1", full)]

    monkeypatch.setattr("data_scripts.source.HfApi.list_repo_commits", list_repo_commits)
    assert source.full_revision("owner/name", "e3c8f3a") == full
    assert asked == [("owner/name", "dataset")]
    assert source.full_revision("owner/name", 40 * "a") == 40 * "a"
    assert source.full_revision("owner/name", "7777777") == "7777777"  # unknown: the hub's own error is the better one
    taken = []
    monkeypatch.setattr("data_scripts.source.open_set", lambda place, split, **k: taken.append(k) or RawSet(None))
    source.hub_source("mine", "owner/name", "e3c8f3a", {})("train")
    source.hub_source("mine", "owner/name", "e3c8f3a", {})("train", path="copy")
    assert [options.get("revision") for options in taken] == [full, None]
