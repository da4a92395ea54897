"""Opening sets on disk: splits are kept apart, broken files are named with their line, and golds stay what they say."""

from __future__ import annotations

import datetime
import io
import json

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, Value
from PIL import Image as PILImage

from recipe_lib import datasets
from recipe_lib.any_set import open_set, splits_at
from recipe_lib.columns import renamed

ROW = '{"question": "Q?", "answer": "1"}\n'


def parquet(folder, *names: str):
    folder.mkdir(exist_ok=True)
    for name in names:
        Dataset.from_dict({"question": [f"{name}?"], "answer": ["1"]}).to_parquet(str(folder / name))
    return folder


# --- splits ---------------------------------------------------------------------------------------


def test_a_split_that_a_folder_lacks_is_an_error_that_lists_those_it_has(tmp_path):
    folder = parquet(tmp_path / "set", "train-0.parquet", "train-1.parquet", "test-0.parquet")
    assert splits_at(folder) == ["train", "test"]
    assert len(open_set(folder, "train").dataset) == 2
    assert open_set(folder, "test").dataset["question"][:] == ["test-0.parquet?"]
    with pytest.raises(FileNotFoundError, match=r"has no split 'validation'; it has: train, test \(in test-0.parquet"):
        open_set(folder, "validation")


def test_a_split_is_not_one_whose_name_it_begins(tmp_path):
    folder = parquet(tmp_path / "set", "testmini-0.parquet", "validation.parquet")
    assert splits_at(folder) == ["testmini", "validation"]
    for split in ("test", "val", "train"):
        with pytest.raises(FileNotFoundError, match=f"no split '{split}'; it has: testmini, validation"):
            open_set(folder, split)


def test_files_that_name_no_split_are_train(tmp_path):
    folder = parquet(tmp_path / "set", "a.parquet", "b.parquet")
    assert splits_at(folder) == ["train"]
    assert len(open_set(folder).dataset) == 2
    with pytest.raises(FileNotFoundError, match="no split 'test'; it has: train"):
        open_set(folder, "test")


@pytest.mark.parametrize("kind", ["file", "saved"])
def test_a_single_set_has_the_one_split_train(kind, tmp_path):
    place = tmp_path / "rows.jsonl"
    place.write_text(ROW)
    if kind == "saved":
        open_set(place).dataset.save_to_disk(tmp_path / "saved")
        place = tmp_path / "saved"
    assert splits_at(place) == ["train"]
    with pytest.raises(FileNotFoundError, match=r"no split 'test'; it .* one split.*: train"):
        open_set(place, "test")


# --- broken files ---------------------------------------------------------------------------------

BROKEN = {
    "cut.jsonl": (ROW + '{"question": "Q\n' + ROW, r"cut.jsonl, line 2: no JSON \(Unterminated string"),
    "latin.csv": ("question,answer\ncafé,1\n".encode("latin-1"), "latin.csv, line 2: byte 0xe9 is not UTF-8"),
    "number.json": ("5", "number.json, line 1: 5 is no row"),
    "empty.jsonl": ("", "empty.jsonl holds no rows"),
    "blank.jsonl": ("\n\n\n", "blank.jsonl holds no rows"),
    "heading.csv": ("question,answer\n", "heading.csv: no rows"),
    "uneven.csv": ("question,answer\na,b\na,b,c\n", "uneven.csv cannot be read: .* line 3"),
    "other.parquet": ("no Parquet", "other.parquet cannot be read: Parquet magic bytes"),
}


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_with_its_line(name, streaming, tmp_path):
    text, words = BROKEN[name]
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=words) as raised:
        open_set(tmp_path / name, streaming=streaming)
    assert "\n" not in str(raised.value)


def test_files_of_unlike_columns_are_named(tmp_path):
    (tmp_path / "train-1.jsonl").write_text(ROW)
    (tmp_path / "train-2.jsonl").write_text('{"colour": 1, "answer": "2"}\n')
    with pytest.raises(
        ValueError, match=r"train-2.jsonl has the columns answer, colour, and .*train-1.jsonl has answe"
    ):
        open_set(tmp_path)


def test_saved_sets_that_cannot_be_read_are_named(tmp_path):
    rows = Dataset.from_dict({"question": ["Q?"], "answer": ["1"]})
    rows.select([]).save_to_disk(tmp_path / "none")
    with pytest.raises(ValueError, match=r"none cannot be read .it was saved without rows"):
        open_set(tmp_path / "none")
    DatasetDict(train=rows, test=rows).save_to_disk(tmp_path / "two")
    (tmp_path / "two" / "dataset_dict.json").write_text("{}")
    for opened in (splits_at, open_set):
        with pytest.raises(ValueError, match=r"two.dataset_dict.json lists no splits"):
            opened(tmp_path / "two")


# --- golds ----------------------------------------------------------------------------------------


def golds(place, streaming: bool = False) -> list:
    return [row["solution"] for row in open_set(place, streaming=streaming).ready()[0]]


@pytest.mark.parametrize("streaming", [False, True])
def test_dates_stay_texts(streaming, tmp_path):
    place = tmp_path / "rows.jsonl"
    rows = [
        {"question": "When?", "answer": f"2023-05-0{day}", "options": ["2023-05-03", "2024-01-01"]} for day in (3, 4)
    ]
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert isinstance(open_set(place).dataset[0]["answer"], datetime.datetime)  # what the reader of JSON makes of it
    assert golds(place, streaming) == ["2023-05-03", "2023-05-04"]
    made = next(iter(open_set(place, streaming=streaming).ready()[0]))
    assert made["options"] == {"A": "2023-05-03", "B": "2024-01-01"}


@pytest.mark.parametrize("streaming", [False, True])
def test_true_and_false_are_texts(streaming, tmp_path):
    place = tmp_path / "rows.jsonl"
    place.write_text("".join(json.dumps({"question": "Q?", "answer": answer}) + "\n" for answer in (True, False)))
    assert golds(place, streaming) == ["true", "false"]


def png(colour: str = "red") -> dict:
    buffer = io.BytesIO()
    PILImage.new("RGB", (40, 40), colour).save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def labelled() -> Dataset:
    features = Features({"image": Image(), "question": Value("string"), "answer": ClassLabel(names=["cat", "dog"])})
    rows = [{"image": png(), "question": "Q?", "answer": answer} for answer in (1, 0, 1)]
    return Dataset.from_list(rows, features=features)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_class_labels_gold_is_its_name(streaming, tmp_path):
    labelled().to_parquet(str(tmp_path / "train.parquet"))
    assert golds(tmp_path, streaming) == ["dog", "cat", "dog"]
    row = next(iter(open_set(tmp_path, streaming=streaming).ready()[0]))
    assert row["images"][0].size == (40, 40)


def test_label_names_follow_a_selection_and_leave_missing_ones_empty():
    rows = labelled()
    assert renamed(rows.select([1, 2]), "grpo")["solution"][:] == ["cat", "dog"]
    missing = Dataset.from_dict(
        {"question": ["Q?"] * 2, "answer": [-1, None]}, features=rows.remove_columns("image").features
    )
    assert renamed(missing, "grpo")["solution"][:] == [None, None]


def test_options_that_a_named_set_lacks_are_refused():
    with pytest.raises(ValueError, match="digits has no option 'path'; it has: split"):
        datasets.load("digits", path="copies/digits")


def test_a_set_of_someone_elses_with_our_columns_names_is_made_ready_too(tmp_path):
    (tmp_path / "x.png").write_bytes(png()["bytes"])
    row = {"question": "When?", "images": ["x.png"], "answer": "2023-05-03"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    made = datasets.load(str(tmp_path / "rows.jsonl"))[0]
    assert (made["solution"], made["images"][0].size) == ("2023-05-03", (40, 40))
