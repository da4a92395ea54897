"""Sources written to disk: resumable, the same rows again, bad rows told."""

from __future__ import annotations

import io
import json

import pytest
from datasets import load_dataset
from PIL import Image

from data_scripts import faulty_rows, prepare
from recipe_lib import datasets
from recipe_lib.any_set import RawSet, open_set
from recipe_lib.conversations import count_images
from recipe_lib.rewards import accuracy_reward
from tests.conftest import load_script
from tests.data_scripts import public_rows
from tests.data_scripts.test_named_sources import MAKERS, PAIRS

SCRIPTS = {
    "multimodal-open-r1-8k-verified": "open_r1",
    "geometry3k": "geometry3k",
    "clevr-count": "clevr_count",
    "mathvista": "mathvista",
    "scienceqa": "scienceqa",
    "rlaif-v": "rlaif_v",
    "rlaif-v-original": "rlaif_v_original",
    "mmpr": "mmpr",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_script_writes_what_loading_the_source_gives(name, tmp_path, capsys, monkeypatch):
    local, output, split = tmp_path / "local", tmp_path / "out", "testmini" if name == "mathvista" else "train"
    if name == "mmpr":
        public_rows.mmpr(local)
    else:
        MAKERS[name]().save_to_disk(local)
    calls = []
    monkeypatch.setattr(prepare, "run", lambda *arguments: calls.append(arguments))
    load_script(f"data_scripts/prepare_{SCRIPTS[name]}.py")  # as a module it does nothing
    assert calls == []
    monkeypatch.undo()
    assert prepare.run(name, ["--path", str(local), "--output", str(output)]) == 0
    expected = list(datasets.load(name, split, path=str(local), on_error="raise"))
    assert f"{len(expected)} rows in" in capsys.readouterr().out
    again = list(datasets.load(str(output), split, on_error="raise"))
    for row, other in zip(expected, again, strict=True):
        assert row["prompt"] == other["prompt"]
        assert [image.tobytes() for image in row["images"]] == [image.tobytes() for image in other["images"]]
        if name in PAIRS:
            assert (row["chosen"], row["rejected"]) == (other["chosen"], other["rejected"])
        else:
            assert row["solution"] == other["solution"]
            assert row.get("options") == other.get("options")
            said = f"<think>a</think><answer>{row['solution'].split('<answer>')[-1].removesuffix('</answer>')}</answer>"
            assert accuracy_reward([said], [other["solution"]], [other.get("options")]) == [1.0]


def test_every_script_is_one_of_these(root):
    scripts = {path.stem.removeprefix("prepare_") for path in (root / "data_scripts").glob("prepare_*.py")}
    assert scripts == {*SCRIPTS.values(), "any"}
    for name, stem in SCRIPTS.items():
        assert f'prepare.run("{name}")' in (root / "data_scripts" / f"prepare_{stem}.py").read_text()


def test_pictures_are_written_as_they_came(tmp_path):
    public_rows.clevr_count().save_to_disk(tmp_path / "local")
    prepare.run("clevr-count", ["--path", str(tmp_path / "local"), "--output", str(tmp_path / "out")])
    written = open_set(tmp_path / "out").rows()
    assert [row["images"][0]["bytes"] for row in written] == [public_rows.drawing(i) for i in range(3)]
    plain = load_dataset("parquet", data_files=str(tmp_path / "out" / "*.parquet"), split="train")
    assert isinstance(plain[0]["images"][0], Image.Image)  # and any other program reads them too


def test_a_stopped_run_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "PART_ROWS", 10)
    dataset, truth = faulty_rows.build(rows=45, faults=14, side=48)
    truth = {
        number: kind for number, kind in truth.items() if kind in ("unreadable", "missing", "marker count", "empty")
    }
    raw, folder = RawSet(dataset, name="mine"), tmp_path / "out"
    calls = []
    write = prepare._write_part

    def stops(*arguments):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(arguments[1])
        write(*arguments)

    monkeypatch.setattr(prepare, "_write_part", stops)
    with pytest.raises(KeyboardInterrupt):
        prepare.prepare(raw, folder)
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}
    assert len(stamps) == 2
    (folder / "train-00002.unfinished").write_bytes(b"half a part")
    monkeypatch.setattr(prepare, "_write_part", lambda *arguments: (calls.append(arguments[1]), write(*arguments)))
    written, left_out = prepare.prepare(raw, folder)
    assert calls == [0, 1, 2, 3, 4]
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert written + left_out == 45
    assert left_out == len(truth)
    dropped = [json.loads(line) for line in (folder / "dropped.jsonl").read_text().splitlines()]
    assert {entry["number"]: entry["kind"] for entry in dropped} == truth
    assert prepare.prepare(raw, folder) == (written, left_out)  # a third run changes nothing
    rows = list(datasets.load(str(folder), on_error="raise"))
    assert len(rows) == written
    assert all(count_images(row["prompt"]) == len(row["images"]) for row in rows)


def test_a_folder_of_another_source_is_left_alone(tmp_path):
    dataset, _ = faulty_rows.build(rows=5, faults=1, side=48)
    prepare.prepare(RawSet(dataset, name="one"), tmp_path)
    with pytest.raises(ValueError, match=r"holds .*'one'.*, not .*'two'.*; give another --output, or remove it"):
        prepare.prepare(RawSet(dataset, name="two"), tmp_path)


def test_any_set_with_a_column_map(tmp_path, capsys):
    buffer = io.BytesIO()
    Image.new("RGB", (40, 40), "teal").save(buffer, "PNG")
    (tmp_path / "x.png").write_bytes(buffer.getvalue())
    (tmp_path / "rows.jsonl").write_text(json.dumps({"pic": "x.png", "ask": "Q?", "gold": "7"}) + "\n")
    mapped = ["--column", "prompt=ask", "--column", "images=pic", "--column", "solution=gold"]
    source = ["--from", str(tmp_path / "rows.jsonl"), "--output", str(tmp_path / "out")]
    assert prepare.run(None, source) == 1
    assert "no column for 'prompt' among: pic, ask, gold" in capsys.readouterr().err
    assert prepare.run(None, [*source, *mapped, "--streaming"]) == 0
    row = datasets.load(str(tmp_path / "out"))[0]
    assert (row["images"][0].size, row["solution"]) == ((40, 40), "7")
