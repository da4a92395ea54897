"""Sources written to disk: resumable, the same rows again, bad rows told."""

from __future__ import annotations

import io
import json

import pytest
from datasets import Dataset, load_dataset
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


GOOD = {"question": "Q?", "answer": "7", "other": "8"}
EMPTY = {"question": "Q?", "answer": "", "other": "8"}


@pytest.fixture
def mine(tmp_path):
    """Writes rows to a file, and runs the script on it: `mine(rows, *arguments)` is its exit code."""

    def run(rows: list[dict], *arguments: str) -> int:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        file = tmp_path / "rows.jsonl"
        if not file.is_file() or file.read_text() != text:
            file.write_text(text)
        return prepare.run(None, ["--from", str(file), "--output", str(tmp_path / "out"), *arguments])

    return run


def test_a_trial_with_a_limit_is_no_part_of_the_whole(mine, tmp_path, capsys):
    rows = [GOOD | {"question": f"Q{number}?"} for number in range(6)]
    assert mine(rows, "--limit", "3") == 0
    assert mine(rows, "--limit", "3") == 0  # again, and nothing changes
    assert len(datasets.load(str(tmp_path / "out"))) == 3
    assert mine(rows) == 1
    assert "holds parts of {'limit': 3}, not {'limit': None}; give another --output" in capsys.readouterr().err


def test_a_part_of_another_length_is_made_again_and_a_stale_one_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "PART_ROWS", 4)
    rows = Dataset.from_list([{"question": f"Q{number}?", "answer": "1"} for number in range(6)])
    assert prepare.prepare(RawSet(rows.select(range(3))), tmp_path) == (3, 0)
    assert prepare.prepare(RawSet(rows), tmp_path) == (6, 0)
    assert [row["prompt"][-1]["content"][0]["text"] for row in datasets.load(str(tmp_path))] == rows["question"][:]
    with pytest.raises(ValueError, match="holds parts of a longer source"):
        prepare.prepare(RawSet(rows.select(range(4))), tmp_path)


def test_other_columns_and_a_changed_source_are_refused(mine, tmp_path, capsys):
    assert mine([GOOD]) == 0
    assert mine([GOOD], "--column", "solution=other") == 1
    assert "holds parts of {'columns': {}}, not {'columns': {'solution': 'other'}}" in capsys.readouterr().err
    assert mine([GOOD | {"answer": "9"}]) == 1
    assert "holds parts of {'files': [['" in capsys.readouterr().err
    source = json.loads((tmp_path / "out" / "source.json").read_text())
    file, size, _ = source["files"][0]
    assert (file, size, source["columns"]) == (str(tmp_path / "rows.jsonl"), len(json.dumps(GOOD)) + 1, {})


def test_a_part_without_a_good_row_is_passed_over(mine, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(prepare, "PART_ROWS", 2)
    rows = [EMPTY, EMPTY, GOOD, GOOD, EMPTY, EMPTY]
    for _ in range(2):
        assert mine(rows) == 0
        assert "2 rows in" in (printed := capsys.readouterr().out) and "4 left out" in printed
    assert len(datasets.load(str(tmp_path / "out"))) == 2
    assert len((tmp_path / "out" / "dropped.jsonl").read_text().splitlines()) == 4


def test_a_set_without_a_good_row_says_so_and_does_not_block_the_next_run(mine, tmp_path, capsys):
    assert mine([EMPTY, EMPTY]) == 1
    assert "has no good row: all 2 were left out, see" in capsys.readouterr().err
    assert mine([EMPTY, EMPTY], "--column", "solution=other") == 0
    assert "2 rows in" in (printed := capsys.readouterr().out) and "0 left out" in printed


def test_a_wrong_flag_leaves_nothing_behind(mine, tmp_path, capsys):
    assert mine([GOOD], "--style", "bad") == 1
    assert "bad" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit):
        mine([GOOD], "--column", "foo")
    assert "'foo': expected ROLE=COLUMN, for example prompt=question" in capsys.readouterr().err
    assert mine([GOOD]) == 0


def test_parquet_files_of_something_else_are_left_alone(mine, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    Dataset.from_list([GOOD]).to_parquet(str(tmp_path / "out" / "train-00000.parquet"))
    before = (tmp_path / "out" / "train-00000.parquet").read_bytes()
    assert mine([GOOD]) == 1
    assert "holds Parquet files of something else (no source.json)" in capsys.readouterr().err
    assert (tmp_path / "out" / "train-00000.parquet").read_bytes() == before


@pytest.mark.parametrize("streaming", [[], ["--streaming"]])
def test_a_source_that_cannot_be_read_ends_in_one_line(streaming, tmp_path, capsys):
    (tmp_path / "cut.jsonl").write_text(json.dumps(GOOD) + '\n{"question": "Q\n')
    source = ["--from", str(tmp_path / "cut.jsonl"), "--output", str(tmp_path / "out")]
    assert prepare.run(None, [*source, *streaming]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ") and "cut.jsonl, line 2: no JSON" in error
    assert not (tmp_path / "out").exists()


def test_a_broken_line_of_mmpr_is_named(tmp_path, capsys):
    public_rows.mmpr(tmp_path)
    described = next(iter(json.loads((tmp_path / "meta.json").read_text()).values()))
    annotation = next(path for path in tmp_path.rglob("*.jsonl") if path.name in described["annotation"])
    annotation.write_text('{"image": 1\n')
    assert prepare.run("mmpr", ["--path", str(tmp_path), "--output", str(tmp_path / "out")]) == 2
    assert f"{described['annotation']}, line 1: no JSON" in capsys.readouterr().err
