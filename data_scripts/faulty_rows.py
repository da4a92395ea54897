"""Sets with known faults, for the row checker's tests and benchmark and for the data notebook.

dataset, truth = faulty_rows.build(rows=10_000, faults=100)
truth[17]  # "marker count": what row 17 suffers from; rows that are not in `truth` are in order
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from datasets import Dataset, Features, Image, List, Value
from PIL import Image as PILImage
from tqdm.auto import tqdm

COLUMNS = ("id", "question", "answer", "worked")
GRPO = Features({"images": List(Image()), "choices": List(Value("string"))} | {n: Value("string") for n in COLUMNS})
MPO = Features({"images": List(Image())} | {n: Value("string") for n in ("id", "question", "chosen", "rejected")})


def picture(rng: np.random.Generator, side: int, kind: str = "JPEG") -> bytes:
    """A coloured pattern of `side` x `side` pixels, as a photograph of that size weighs."""
    small = PILImage.fromarray(rng.integers(0, 256, (side // 16, side // 16, 3), dtype=np.uint8))
    return _encoded(small.resize((side, side), PILImage.Resampling.BICUBIC), kind)


def _encoded(image: PILImage.Image, kind: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **({"quality": 90} if kind == "JPEG" else {}))
    return buffer.getvalue()


def good_row(number: int, rng: np.random.Generator, side: int = 384) -> dict:
    """A row in order, in one of three kinds: a count, a choice, an expression."""
    row = {"id": f"row-{number}", "images": [{"bytes": picture(rng, side), "path": None}], "choices": None}
    a, b = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    kind = number % 3
    if kind == 0:
        return row | {"question": f"<image>\nHow many of shape {number}?", "answer": str(a), "worked": f"{a} = {a}."}
    if kind == 1:
        choices = [str(a), str(a + b), str(a * 10)]
        asked = f"Which is the number of picture {number}?\nA. {choices[0]}\nB. {choices[1]}\nC. {choices[2]}"
        return row | {"question": asked, "answer": "B", "worked": f"{a} + {b} = {a + b}", "choices": choices}
    return row | {"question": f"Find x in {number}.", "answer": f"\\sqrt{{{a}}}", "worked": None}


def good_pair(number: int, rng: np.random.Generator, side: int = 384) -> dict:
    """A preference pair in order."""
    row = {"id": f"row-{number}", "images": [{"bytes": picture(rng, side), "path": None}]}
    return row | {"question": f"What is in {number}?", "chosen": f"Pattern {number}.", "rejected": "A dog."}


def _image(change: Callable[[bytes, np.random.Generator], bytes | None]) -> Callable:
    def spoil(row: dict, rng: np.random.Generator) -> dict:
        return row | {"images": [{"bytes": change(row["images"][0]["bytes"], rng), "path": None}]}

    return spoil


def _text(**changed) -> Callable:
    return lambda row, rng: row | changed


def _sized(width: int, height: int) -> Callable:
    return _image(lambda data, rng: _encoded(PILImage.new("RGB", (width, height), "teal"), "PNG"))


ANY = {
    "unreadable": [_image(lambda data, rng: data[: len(data) // 2]), _image(lambda data, rng: rng.bytes(400))],
    "missing": [_image(lambda data, rng: None)],
    "too small": [_sized(10, 10), _sized(200, 27)],
    "aspect": [_sized(30, 30 * 210)],
    "over budget": [lambda row, rng: row | {"question": row["question"] + " Why?" * 2500}],
    "marker count": [_text(question="<image> or <image>?"), _text(question="Is <|image_pad|> here?")],
}
FAULTS = {
    "grpo": ANY
    | {
        "empty": [_text(question="  "), _text(answer=None), _text(answer="")],
        "gold unreadable": [_text(answer="???", choices=None, worked=None)],
        "gold letter": [_text(answer="E", choices=["1", "2"], worked=None)],
        "gold against solution": [
            _text(answer="A", choices=None, worked="so the angle = C", question="<image>\nWhich angle?"),
            _text(answer="7", choices=None, worked="hence 3 + 5 = 8.", question="<image>\nHow many?"),
        ],
    },
    "mpo": ANY
    | {
        "empty": [_text(question=None), _text(chosen=""), _text(rejected=None)],
        "equal pair": [lambda row, rng: row | {"rejected": row["chosen"]}],
    },
}


def build(
    rows: int = 1000, faults: int = 20, kind: str = "grpo", side: int = 384, seed: int = 0
) -> tuple[Dataset, dict[int, str]]:
    """Return a set of `rows` rows, and what is wrong with which of them, by row number.

    Args:
        faults: number of faulty rows, all kinds in turn, among them duplicates (the same pixels in another format).
        side: of the good pictures, in pixels.
    """
    rng = np.random.default_rng(seed)
    spoilers = [(name, spoil) for name, several in FAULTS[kind].items() for spoil in several] + [("duplicate", None)]
    where = sorted(rng.choice(np.arange(1, rows), size=faults, replace=False).tolist())
    truth = {number: spoilers[place % len(spoilers)][0] for place, number in enumerate(where)}
    spoil_at = {number: spoilers[place % len(spoilers)][1] for place, number in enumerate(where)}
    make = good_row if kind == "grpo" else good_pair
    made: list[dict] = []
    for number in tqdm(range(rows), desc="making rows", disable=None):
        row = make(number, rng, side)
        if number in truth and truth[number] == "duplicate":
            source = next(made[n] for n in range(number - 1, -1, -1) if n not in truth)
            pixels = PILImage.open(io.BytesIO(source["images"][0]["bytes"]))
            row = source | {"id": row["id"], "images": [{"bytes": _encoded(pixels, "PNG"), "path": None}]}
        elif number in truth:
            row = spoil_at[number](row, rng)
        made.append(row)
    return Dataset.from_list(made, features=GRPO if kind == "grpo" else MPO), truth
