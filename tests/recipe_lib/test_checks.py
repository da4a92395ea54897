"""The row checker: every seeded fault is found and none is invented, from Python and from the command line."""

from __future__ import annotations

import io
import json
import random
from collections import Counter

import pytest
from datasets import Dataset, DatasetDict, Features, Image, List, Value, load_from_disk
from PIL import Image as PILImage
from pyarrow import parquet

from data_scripts import faulty_rows, tiny_families
from recipe_lib import checks, datasets
from recipe_lib.__main__ import main
from recipe_lib.any_set import RawSet, open_set
from recipe_lib.columns import option_table
from recipe_lib.faults import TokenCounter, examine
from recipe_lib.golds import final_of, gold_fault, options_in
from recipe_lib.image_budget import NAMED_RULES, rule_for

COUNTER = TokenCounter(NAMED_RULES["qwen2.5-vl-3b"], limit=2000)


def found(report) -> dict[int, list[str]]:
    kinds: dict[int, list[str]] = {}
    for fault in report.faults:
        kinds.setdefault(fault.number, []).append(fault.kind)
    return kinds


def png(colour: str, side: int = 40) -> dict:
    buffer = io.BytesIO()
    PILImage.new("RGB", (side, side), colour).save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def small(rows: list[dict]) -> RawSet:
    texts = {name: Value("string") for row in rows for name in row if name != "images"}
    return RawSet(Dataset.from_list(rows, features=Features({"images": List(Image())} | texts)))


def row(colour: str, question: str = "Q?", answer: str = "1", side: int = 40) -> dict:
    return {"images": [png(colour, side)], "question": question, "answer": answer}


# --- seeded faults --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["grpo", "mpo"])
def test_every_seeded_fault_is_found_and_none_is_invented(kind):
    dataset, truth = faulty_rows.build(rows=600, faults=48, kind=kind, side=64, seed=1)
    report = examine(RawSet(dataset, kind), tokens=COUNTER)
    assert found(report) == {number: [name] for number, name in truth.items()}
    assert set(truth.values()) == {*faulty_rows.FAULTS[kind], "duplicate"}
    assert report.rows == 600
    assert len(report.good()) == 552


@pytest.mark.slow
def test_a_hundred_faults_in_ten_thousand_rows():
    dataset, truth = faulty_rows.build(rows=10_000, faults=100, side=32, seed=2)
    assert len(truth) == 100
    assert found(examine(RawSet(dataset), tokens=COUNTER)) == {number: [name] for number, name in truth.items()}


def test_streaming_sets_are_checked_too():
    dataset, truth = faulty_rows.build(rows=120, faults=15, side=64)
    report = examine(RawSet(dataset.to_iterable_dataset()), tokens=COUNTER)
    by_headers = {number: [name] for number, name in truth.items() if name != "duplicate"}
    assert {n: k for n, k in found(report).items() if k != ["duplicate"]} == by_headers


def test_exact_counts_come_from_the_processor():
    processor = tiny_families.processor("qwen2.5-vl")
    counter = TokenCounter(rule_for(processor), processor, limit=60)
    raw = small([row("red"), row("blue", "What is this? " * 20), row("teal", side=400)])
    report = examine(raw, tokens=counter)
    assert found(report) == {1: ["over budget"]}
    assert report.tokens[2] - report.tokens[0] == 16 - 1  # max_pixels holds 16 tokens, 40 pixels make one


# --- duplicates -----------------------------------------------------------------------------------


def test_the_same_pixels_in_another_format_are_a_duplicate():
    picture = PILImage.effect_noise((50, 40), 80).convert("RGB")
    stored = []
    for kind in ("PNG", "BMP", "TIFF"):
        buffer = io.BytesIO()
        picture.save(buffer, kind)
        stored.append({"bytes": buffer.getvalue(), "path": None})
    other = png("red")
    rows = [{"images": [image], "question": "Q?", "answer": "1"} for image in [*stored, other, other]]
    rows.append({"images": [stored[0]], "question": "Another?", "answer": "1"})  # many questions a picture: usual
    report = examine(small(rows))
    assert found(report) == {1: ["duplicate"], 2: ["duplicate"], 4: ["duplicate"]}
    assert report.faults[0].problem == "the same pictures and question as row 0; drop one of them"


def test_a_turned_picture_is_the_same_as_its_upright_one():
    picture = PILImage.effect_noise((50, 40), 80).convert("RGB")
    exif = PILImage.Exif()
    exif[0x0112] = 6
    turned, upright = io.BytesIO(), io.BytesIO()
    picture.save(turned, "PNG", exif=exif)
    picture.transpose(PILImage.Transpose.ROTATE_270).save(upright, "PNG")
    rows = [
        {"images": [{"bytes": b.getvalue(), "path": None}], "question": "Q?", "answer": "1"} for b in (turned, upright)
    ]
    assert found(examine(small(rows))) == {1: ["duplicate"]}


def test_pictures_shared_between_splits_are_found_with_any_question():
    train = small([row("red"), row("blue"), row("teal")])
    test = small([row("blue", "Another question?"), row("gold")])
    report = examine(train, against=[test])
    assert found(report) == {1: ["in both splits"]}
    assert "row 0" in report.faults[0].problem


def test_a_row_that_lost_its_picture_stands_out_and_text_rows_of_a_mixed_set_do_not():
    rows = [row("red", f"Q{i}?") for i in range(99)] + [{"images": [], "question": "Q?", "answer": "1"}]
    assert found(examine(small(rows))) == {99: ["missing"]}
    half = [row("red", f"Q{i}?") | ({"images": []} if i % 2 else {}) for i in range(40)]
    assert found(examine(small(half))) == {}


def test_broken_pixels_behind_a_good_header_are_found_by_decoding():
    buffer = io.BytesIO()
    PILImage.effect_noise((60, 60), 90).convert("RGB").save(buffer, "WEBP", lossless=True)
    data = bytearray(buffer.getvalue())
    data[40:-4] = b"\xff" * (len(data) - 44)
    raw = small([row("red"), {"images": [{"bytes": bytes(data), "path": None}], "question": "Q?", "answer": "1"}])
    assert found(examine(raw)) == {}
    assert found(examine(raw, decode=True)) == {1: ["unreadable"]}


# --- golds ----------------------------------------------------------------------------------------


def gold(answer, question: str = "Q?", **columns) -> str | None:
    prompt = [{"role": "user", "content": [{"type": "text", "text": question}]}]
    fault = gold_fault({"prompt": prompt, "solution": answer, **columns})
    return fault and fault[0]


CHOICES = "Which?\nA. 3\nB. 4"


@pytest.mark.parametrize(
    ("answer", "columns", "kind"),
    [
        ("A", {"worked": "so the angle = C"}, "gold against solution"),
        ("A", {"worked": "hence x = A."}, None),
        ("7", {"worked": "3 + 4 = 7"}, None),
        ("7", {"worked": "3 + 5 = 8"}, "gold against solution"),
        ("1/2", {"worked": "so \\boxed{0.5}"}, None),
        ("1/2", {"worked": "so \\boxed{0.6}"}, "gold against solution"),
        ("<think>a</think><answer>B</answer>", {"worked": "Two dots.\nAnswer: A"}, "gold against solution"),
        ("B", {"worked": "1 + 3 = 4", "question": CHOICES}, None),  # the option's value
        ("B", {"worked": "1 + 2 = 3", "question": CHOICES}, "gold against solution"),
        ("B", {"worked": "1 + 2 = 3"}, None),  # a letter against a value: nothing tells
        ("red", {"worked": "It is the colour of blood."}, None),  # ends in nothing that could be read
        ("E", {"options": {"A": "3", "B": "4"}}, "gold letter"),
        ("C", {"question": CHOICES}, "gold letter"),
        ("C", {"question": "Which? (A) 3 (B) 4"}, "gold letter"),
        ("C", {"question": "Which point lies on AB?"}, None),  # no options to miss
        ("B", {"options": ["3", "4"]}, None),
        ("4", {"options": ["3", "4"]}, None),
        ("???", {}, "gold unreadable"),
        ("12.5 cm", {}, None),
        (7, {}, None),
        ("\\frac{\\sqrt{3}}{2}", {}, None),
    ],
)
def test_golds_are_judged_as_the_reward_judges_them(answer, columns, kind):
    assert gold(answer, **columns) == kind


def test_options_of_every_shape():
    expected = {"A": "red", "B": "blue"}
    for value in (
        expected,
        ["red", "blue"],
        ["A. red", "B. blue"],
        '["red", "blue"]',
        {"(a)": "red", "b.": "blue", "C": None},
    ):
        assert option_table(value) == expected
    assert option_table(None) is option_table([]) is option_table("not json") is None
    assert options_in("Which?\n(A) red\n(B) blue") == options_in("Which? (A) red (B) blue") == expected
    assert options_in("Triangle ABC. Find A.") == {}
    assert final_of("a\nThe answer is 5.") == "5"
    assert final_of(None) is None


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture
def faulty(tmp_path):
    """A folder with one Parquet file, as sets come from the hub; save_to_disk itself fails on empty pictures."""
    dataset, truth = faulty_rows.build(rows=80, faults=16, side=64)
    (tmp_path / "set").mkdir()
    parquet.write_table(dataset.data.table, tmp_path / "set" / "train.parquet")
    return tmp_path / "set", truth


def test_the_verdict_is_printed_and_is_the_exit_code(faulty, tmp_path, capsys):
    folder, truth = faulty
    png_file, report = tmp_path / "out" / "tokens.png", tmp_path / "out" / "report.json"
    code = main(["check", str(folder), "--max-tokens", "2000", "--png", str(png_file), "--report", str(report)])
    assert code == checks.FAULTY
    printed = capsys.readouterr().out
    assert "80 rows" in printed
    assert "verdict: 16 faulty rows of 80" in printed
    assert "estimated" in printed  # no processor of a real model on this machine
    for kind, number in Counter(truth.values()).items():
        assert f"{kind}: {number} " in printed
    assert png_file.read_bytes().startswith(b"\x89PNG")
    written = json.loads(report.read_text())[0]
    assert {fault["number"]: fault["kind"] for fault in written["faults"]} == truth
    assert written["faulty_rows"] == 16


def test_drop_writes_the_clean_rows_and_says_what_went(faulty, tmp_path, capsys):
    folder, truth = faulty
    before = open_set(folder).dataset
    clean = tmp_path / "clean"
    assert main(["check", str(folder), "--max-tokens", "2000", "--drop", str(clean)]) == checks.FAULTY
    kept = load_from_disk(clean)
    assert kept.features == before.features
    assert kept["id"][:] == [before[number]["id"] for number in range(80) if number not in truth]
    dropped = [json.loads(line) for line in (clean / "dropped.jsonl").read_text().splitlines()]
    assert {entry["number"]: entry["kind"] for entry in dropped} == truth
    assert all(entry["problem"] and entry["row_id"] for entry in dropped)
    assert main(["check", str(clean), "--max-tokens", "2000"]) == checks.CLEAN
    assert "verdict: no faults found" in capsys.readouterr().out


def folder_of_pictures(folder, suffix: str):
    folder.mkdir()
    for number, colour in enumerate(["red", "blue", "teal"]):
        (folder / f"{number}.png").write_bytes(png(colour)["bytes"])
    rows = [("0.png", "Q0?", "1"), ("1.png", "Q1?", "2"), ("gone.png", "Q2?", "3"), ("../x.png", "Q3?", "4")]
    if suffix == "jsonl":
        lines = [json.dumps({"file_name": f, "question": q, "answer": a}) for f, q, a in rows]
    else:
        mark = "," if suffix == "csv" else "\t"
        lines = [mark.join(("file_name", "question", "answer")), *(mark.join(line) for line in rows)]
    (folder / f"train.{suffix}").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv"])
def test_a_folder_of_pictures_with_a_table(suffix, tmp_path, capsys):
    folder = tmp_path / "pictures"
    folder_of_pictures(folder, suffix)
    assert main(["check", str(folder), "--drop", str(tmp_path / "clean")]) == checks.FAULTY
    assert "missing: 1   rows 2" in capsys.readouterr().out
    clean = load_from_disk(tmp_path / "clean")
    assert [row["images"][0].size for row in clean] == [(40, 40)] * 2  # the files went along
    train, skipped = open_set(folder / f"train.{suffix}").ready(on_error="skip")
    assert (len(train), [error.row_id for error in skipped]) == (2, [2, 3])


def test_a_cleaned_set_holds_the_files_as_they_are_now(tmp_path):
    folder = tmp_path / "pictures"
    folder_of_pictures(folder, "jsonl")
    for side in (40, 44):
        (folder / "0.png").write_bytes(png("red", side)["bytes"])
        main(["check", str(folder), "--drop", str(tmp_path / f"clean{side}")])
        assert load_from_disk(tmp_path / f"clean{side}")[0]["images"][0].size == (side, side)


@pytest.mark.parametrize("stored", ["bytes", "path"])
def test_of_a_set_without_one_good_row_only_the_faults_are_written(stored, tmp_path):
    raw = small([row("red", answer="???"), row("blue", question=" ")])
    if stored == "path":
        (tmp_path / "rows.jsonl").write_text(json.dumps({"image": "gone.png", "question": "Q?", "answer": "1"}) + "\n")
        raw = open_set(tmp_path / "rows.jsonl")
    report = examine(raw)
    checks.write_clean(raw, report, tmp_path / "clean")
    assert [path.name for path in (tmp_path / "clean").iterdir()] == ["dropped.jsonl"]
    assert len((tmp_path / "clean" / "dropped.jsonl").read_text().splitlines()) == len(report.faults) > 0


def test_all_splits_of_a_saved_set_are_checked_against_each_other(tmp_path, capsys):
    splits = {"train": small([row("red"), row("blue")]).dataset, "test": small([row("blue"), row("gold")]).dataset}
    DatasetDict(splits).save_to_disk(tmp_path / "set")
    assert main(["check", str(tmp_path / "set")]) == checks.FAULTY
    printed = capsys.readouterr().out
    assert "set train: 2 rows" in printed
    assert "in both splits: 1   rows 0" in printed
    assert main(["check", str(tmp_path / "set"), "--split", "train"]) == checks.CLEAN
    assert main(["check", str(tmp_path / "set"), "--split", "train", "--against", "test"]) == checks.FAULTY


def test_columns_are_mapped_on_the_command_line(tmp_path, capsys):
    data = {"pic": [png("red")], "ask": ["Q?"], "gold": ["1"]}
    Dataset.from_dict(data).cast_column("pic", Image()).save_to_disk(tmp_path / "set")
    assert main(["check", str(tmp_path / "set")]) == checks.FAULTY
    assert "no column for 'prompt' among: pic, ask, gold" in capsys.readouterr().err
    mapped = ["--column", "prompt=ask", "--column", "images=pic", "--column", "solution=gold"]
    assert main(["check", str(tmp_path / "set"), *mapped]) == checks.CLEAN
    with pytest.raises(SystemExit):
        main(["check", str(tmp_path / "set"), "--column", "prompt"])


def test_rows_that_went_through_a_processor_are_explained(tmp_path, capsys):
    Dataset.from_dict({"input_ids": [[1, 2]], "pixel_values": [[0.0]]}).save_to_disk(tmp_path / "set")
    assert main(["check", str(tmp_path / "set")]) == checks.FAULTY
    assert "been through a processor already (input_ids, no prompt)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "unknown data set 'nowhere'; known: digits"),
        (["./nowhere/at/all"], "unknown data set"),
        (["digits", "--model", "gpt"], "unknown model 'gpt'; known:"),
        (["digits", "--split", "dev"], "dev"),
        (["hiyouga/geometry3k"], "neither cached nor reachable"),
    ],
)
def test_what_cannot_be_opened_is_told_apart_from_what_is_faulty(arguments, words, capsys):
    assert main(["check", *arguments]) == checks.UNUSABLE
    assert words in capsys.readouterr().err


def lines(path, *rows: dict):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


GOOD, BAD = {"question": "Q?", "answer": "1"}, {"question": "R?", "answer": "???"}


def refused(capsys, *arguments) -> str:
    """The one line with which a check refuses its arguments."""
    assert main(["check", *(str(argument) for argument in arguments)]) == checks.UNUSABLE
    printed = capsys.readouterr()
    assert printed.out == ""
    *bars, last = printed.err.replace("\r", "\n").splitlines()
    assert last.startswith("error: ") and all("examples" in bar for bar in bars if bar)  # the library's own progress
    return last


def test_splits_that_are_not_there_are_refused_and_a_set_is_not_compared_with_itself(tmp_path, capsys):
    file = lines(tmp_path / "ok.jsonl", GOOD)
    for flag in ("--split", "--against"):
        assert "has no split 'nosuch'; it is a single file, whose one split is: train" in refused(
            capsys, file, flag, "nosuch"
        )
    for other in ("train", file):
        assert f"--against {other} is what is checked itself" in refused(capsys, file, "--against", other)
    DatasetDict({"train": small([row("red")]).dataset, "test": small([row("blue")]).dataset}).save_to_disk(
        tmp_path / "set"
    )
    assert "has no split 'nosuch'; it has: train, test" in refused(capsys, tmp_path / "set", "--against", "nosuch")
    assert main(["check", str(tmp_path / "set"), "--against", "test"]) == checks.CLEAN  # test not with itself
    assert main(["check", str(tmp_path / "set"), "--split", "test", "--against", "train"]) == checks.CLEAN


def test_all_splits_of_another_set_and_of_a_folder_of_tables_are_compared(tmp_path, capsys):
    folder = tmp_path / "set"
    folder.mkdir()
    for split, colour in (("train", "red"), ("test", "blue")):
        small([row(colour, f"{split}?")]).dataset.to_parquet(str(folder / f"{split}-0.parquet"))
    assert main(["check", str(folder)]) == checks.CLEAN
    assert "set test: 1 rows" in capsys.readouterr().out
    other = tmp_path / "other"
    other.mkdir()
    data = small([row("blue", "Else?"), row("gold")]).dataset.rename_column("question", "ask")
    data.to_parquet(str(other / "train.parquet"))
    arguments = ["check", str(other), "--against", str(folder)]
    assert main([*arguments, "--column", "prompt=ask"]) == checks.FAULTY
    assert "in both splits: 1   rows 0" in capsys.readouterr().out


def test_a_cleaned_copy_never_mixes_with_an_earlier_one(tmp_path, capsys):
    clean = tmp_path / "clean"
    assert main(["check", str(lines(tmp_path / "ok.jsonl", GOOD)), "--drop", str(clean)]) == checks.CLEAN
    capsys.readouterr()
    bad = lines(tmp_path / "bad.jsonl", BAD)
    assert "holds files already; give a new folder, or remove that one" in refused(capsys, bad, "--drop", clean)
    assert "holds files already" in refused(capsys, clean, "--drop", clean)  # onto the set itself
    with pytest.raises(ValueError, match="holds files already"):
        checks.write_clean(open_set(bad), examine(open_set(bad)), clean)
    assert len(load_from_disk(clean)) == 1


@pytest.mark.parametrize(
    ("flag", "place", "words"),
    [
        ("--drop", "ok.jsonl", "is a file"),
        ("--drop", "ok.jsonl/clean", "is a file"),
        ("--report", ".", "is a folder; give the name of a file"),
        ("--png", ".", "is a folder; give the name of a file"),
        ("--report", "ok.jsonl", "is the set itself"),
        ("--png", "ok.jsonl/x.png", "is a file"),
        ("--drop", "/proc/nowhere/clean", "cannot be written"),
        ("--report", "/proc/nowhere/report.json", "cannot be written"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_check(flag, place, words, tmp_path, capsys):
    file = lines(tmp_path / "ok.jsonl", GOOD)
    assert words in refused(capsys, file, flag, tmp_path / place)
    assert [path.name for path in tmp_path.iterdir()] == ["ok.jsonl"]


def test_flags_that_do_not_fit_the_set_are_refused(tmp_path, capsys):
    file = lines(tmp_path / "ok.jsonl", GOOD)
    assert "--path is for named sets" in refused(capsys, file, "--path", "x")
    assert "--column: digits is a named set" in refused(capsys, "digits", "--column", "prompt=x")
    assert "--kind: digits is a named set" in refused(capsys, "digits", "--kind", "mpo")
    assert "digits has no option 'path'" in refused(capsys, "digits", "--path", "x")


def test_a_model_is_counted_by_its_own_rule_or_not_at_all(tmp_path, capsys):
    file = lines(tmp_path / "ok.jsonl", GOOD)
    for unknown in ("Qwen/Qwen9", tmp_path):
        words = refused(capsys, file, "--model", unknown)
        assert f"--model {unknown}: its processor is not on this machine" in words
        assert "or name one of: tiny-qwen2.5-vl" in words
    counter, how = checks.token_counter("smolvlm-instruct")
    assert counter.rule == NAMED_RULES["smolvlm-instruct"]
    for words in ("image tokens by its family's TilesRule", "estimated at 3.5", "no limit checked; --max-tokens sets"):
        assert words in how
    assert "no limit" not in checks.token_counter("smolvlm-instruct", 2000)[1]


def test_broken_input_ends_in_one_line(tmp_path, capsys):
    (tmp_path / "cut.jsonl").write_text('{"question": "Q\n')
    assert "cut.jsonl, line 1: no JSON" in refused(capsys, tmp_path / "cut.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    assert "empty.jsonl holds no rows" in refused(capsys, tmp_path / "empty.jsonl")


def test_true_false_and_dates_are_golds(tmp_path, capsys):
    for answers in ((True, False), ("2023-05-03", "2023-05-04")):
        rows = [{"question": f"Q{place}?", "answer": answer} for place, answer in enumerate(answers)]
        assert main(["check", str(lines(tmp_path / "rows.jsonl", *rows))]) == checks.CLEAN
    assert gold(True) is gold(False) is None


def test_the_embedded_sets_are_in_order():
    train, test = datasets.open_raw("digits", "train").first(100), datasets.open_raw("digits", "test").first(100)
    assert found(examine(train, against=[test])) == {}
    assert main(["check", "digits", "--model", "tiny-qwen2.5-vl", "--limit", "30"]) == checks.CLEAN


def test_help_names_the_exit_codes(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["check", "--help"])
    assert stopped.value.code == 0
    assert "Exit code 0: no fault" in capsys.readouterr().out


def test_the_histogram_keeps_outliers_in_one_line():
    rng = random.Random(0)
    lines = checks.histogram([rng.randint(100, 140) for _ in range(500)] + [9000])
    assert len(lines) <= 10
    assert lines[-2].split()[1:3] == ["or", "more"]
    assert "longest 9,000" in lines[-1]
    assert checks.histogram([7])[0].split()[-1] == "1"
