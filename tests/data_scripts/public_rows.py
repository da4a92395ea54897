"""Small rows in the public sets' own schemas, made here: drawn pictures, invented questions."""

from __future__ import annotations

import io
import json
from pathlib import Path

from datasets import Dataset, Features, Image, List, Value
from PIL import Image as PILImage
from PIL import ImageDraw

TEXT, INT = Value("string"), Value("int64")
PART = {"text": TEXT, "type": TEXT}
TURNS = List({"content": List(PART), "role": TEXT})


def drawing(number: int, kind: str = "PNG") -> bytes:
    """A page with `number` + 1 dots."""
    image = PILImage.new("RGB", (96, 72), "white")
    pen = ImageDraw.Draw(image)
    for dot in range(number + 1):
        pen.ellipse((10 + 20 * dot, 30, 22 + 20 * dot, 42), fill=(200, 30 * dot, 90))
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def stored(number: int) -> dict:
    return {"bytes": drawing(number), "path": f"{number}.png"}


def dataset(features: dict, rows: list[dict]) -> Dataset:
    return Dataset.from_list(rows, features=Features(features))


def open_r1() -> Dataset:
    names = ("problem", "solution", "original_question", "original_answer")
    rows = [
        {
            "image": stored(i),
            "problem": f"How many dots are there?\nChoices:\nA. {i}\nB. {i + 1}",
            "solution": "<think>I count them.</think>\n\n<answer>B</answer>",
            "original_question": "How many dots?",
            "original_answer": f"There are {i + 1} dots.\nAnswer: B",
        }
        for i in range(3)
    ]
    return dataset({"image": Image()} | dict.fromkeys(names, TEXT), rows)


def geometry3k() -> Dataset:
    rows = [
        {
            "images": [stored(i)],
            "problem": "<image>Find x.",
            "answer": ["3", "\\frac { 1 } { 2 }", "2 \\sqrt { 3 }"][i],
            "id": 10 + i,
            "choices": ["1", "2", "3", "4"],
            "ground_truth": "C",
        }
        for i in range(3)
    ]
    features = {"images": List(Image()), "problem": TEXT, "answer": TEXT, "id": INT}
    return dataset(features | {"choices": List(TEXT), "ground_truth": TEXT}, rows)


def clevr_count() -> Dataset:
    question = "How many different items are there in the image?"
    rows = [{"image": stored(i), "problem": question, "solution": f"<answer> {i + 1} </answer>"} for i in range(3)]
    return dataset({"image": Image(), "problem": TEXT, "solution": TEXT}, rows)


def rlaif_v() -> Dataset:
    def turn(role: str, *parts: dict) -> list[dict]:
        return [{"role": role, "content": list(parts)}]

    rows = [
        {
            "chosen": turn("assistant", {"type": "text", "text": f"{i + 1} dots in a row."}),
            "rejected": turn("assistant", {"type": "text", "text": "A dog."}),
            "images": [stored(i)],
            "prompt": turn("user", {"type": "image", "text": None}, {"type": "text", "text": "What is shown?"}),
        }
        for i in range(3)
    ]
    return dataset({"chosen": TURNS, "rejected": TURNS, "images": List(Image()), "prompt": TURNS}, rows)


def rlaif_v_original() -> Dataset:
    names = ("ds_name", "question", "chosen", "rejected", "origin_dataset", "origin_split", "idx", "image_path")
    rows = [
        {
            "ds_name": "RLAIF-V",
            "image": stored(i),
            "question": "What is shown?",
            "chosen": f"{i + 1} dots in a row.",
            "rejected": "A dog.",
            "origin_dataset": "drawn",
            "origin_split": "{}",
            "idx": f"pair-{i}",
            "image_path": f"{i}.png",
        }
        for i in range(3)
    ]
    return dataset({"image": Image()} | dict.fromkeys(names, TEXT), rows)


def mathvista() -> Dataset:
    names = ("pid", "question", "image", "unit", "answer", "question_type", "answer_type", "query")
    common = {"image": "images/1.jpg", "unit": None, "precision": None, "choices": None, "query": "Hint: ..."}
    rows = [
        common
        | {"pid": "1", "decoded_image": stored(0), "question": "How many dots?", "answer": "1"}
        | {"question_type": "free_form", "answer_type": "integer"},
        common
        | {"pid": "2", "decoded_image": stored(1), "question": "Which colour?", "answer": "red"}
        | {"question_type": "multi_choice", "answer_type": "text", "choices": ["blue", "red"]},
        common
        | {"pid": "3", "decoded_image": stored(2), "question": "How far?", "answer": "1.20", "unit": "cm"}
        | {"question_type": "free_form", "answer_type": "float", "precision": 2.0},
    ]
    features = dict.fromkeys(names, TEXT) | {"decoded_image": Image(), "choices": List(TEXT)}
    return dataset(features | {"precision": Value("float64")}, rows)


def scienceqa() -> Dataset:
    names = ("question", "hint", "task", "grade", "subject", "topic", "category", "skill", "lecture", "solution")
    common = dict.fromkeys(names, "")
    rows = [
        common | {"image": stored(0), "question": "Which is rounder?", "choices": ["a dot", "a box"], "answer": 0},
        common
        | {"image": None, "question": "Is water wet?", "choices": ["no", "yes"], "answer": 1}
        | {"hint": "Think of rain.", "solution": "Water is wet."},
    ]
    features = {"image": Image(), "choices": List(TEXT), "answer": Value("int8")} | dict.fromkeys(names, TEXT)
    return dataset(features, rows)


def mmpr(folder: Path) -> Path:
    """The unpacked archives, with one subset of single pictures, one of several and one without."""
    (folder / "images" / "dots").mkdir(parents=True)
    (folder / "annotations").mkdir()
    for number in range(3):
        (folder / "images" / "dots" / f"{number}.png").write_bytes(drawing(number))
    pairs = {
        "single": [{"image": "0.png", "question": "<image>\nHow many?", "chosen": "One.", "rejected": "Two."}],
        "several": [
            {"image": ["1.png", "2.png"], "question": "<image> or <image>?", "chosen": "One.", "rejected": "Two."},
            {"image": ["2.png"], "question": "<image>\nHow many?", "chosen": "Three.", "rejected": "Four."},
        ],
        "text": [{"question": "One and one?", "chosen": "Two.", "rejected": "Three."}],
    }
    meta = {}
    for name, rows in pairs.items():
        place = f"annotations/{name}.jsonl"
        (folder / place).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        meta[name] = {"root": "images/dots", "annotation": place, "repeat_time": 1, "length": len(rows)}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return folder
