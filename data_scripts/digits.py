"""The `digits` visual question set: real handwriting to align on, drawn digits to warm-start on.

Two worlds share one canvas and one set of questions:

- *handwritten*: scikit-learn's 1,797 real handwritten digits (8x8 grey levels, 0 to 16), which travel inside
  its wheel. They are split by picture, so that no handwritten digit is in both train and test.
- *drawn*: digits drawn from the fonts that matplotlib carries, bent and thickened at random, then reduced to
  the same 8x8 grid. The tiny models are warm-started on these alone: handwriting is new to them.

Four kinds of question, each with one verifiable answer:

| kind | picture | question | answer |
|---|---|---|---|
| `read` | one digit | which digit is shown | the digit |
| `choice` | one digit | the same, with four lettered options | a letter |
| `larger` | two digits | which of the two is larger | the digit |
| `sum` | two digits | what is their sum | a number |

`python data_scripts/digits.py --output outputs/digits` writes both splits to disk and a sheet of examples.
"""

from __future__ import annotations

import argparse
import functools
from pathlib import Path

import numpy as np
from datasets import Dataset, Features, Image, Sequence, Value
from PIL import Image as PILImage
from PIL import ImageDraw, ImageFont

CANVAS = 84  # pixels a side: 3 x 3 merged Qwen2.5-VL tokens of 28 pixels
GLYPH = 40  # pixels a side of one pasted digit: five pixels for each of the eight cells
KINDS = ("read", "choice", "larger", "sum")
LETTERS = "ABCD"
# Text faces of matplotlib's font folder that hold all ten digits.
FONTS = (
    *(f"DejaVuSans{style}.ttf" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}.ttf" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}.ttf" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}.ttf" for style in ("", "Bol", "Italic", "BolIta")),
    *(f"cm{face}10.ttf" for face in ("r", "b", "ss", "tt", "ti")),
)
FEATURES = Features(
    {
        "id": Value("string"),
        "question": Value("string"),
        "images": Sequence(Image()),
        "solution": Value("string"),
        "options": {letter: Value("string") for letter in LETTERS},
        "kind": Value("string"),
        "digits": Sequence(Value("int32")),
        "sources": Sequence(Value("int32")),
    }
)


@functools.cache
def handwritten() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's handwritten digits: grey levels `(1797, 8, 8)` uint8 in 0..16 and labels `(1797,)`."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return bunch.images.astype(np.uint8), bunch.target.astype(int)


def handwritten_indices(split: str) -> np.ndarray:
    """Row numbers of `handwritten()` in a split: two thirds `train`, one third `test`, equal digits equally cut.

    A picture that occurs twice would sit on both sides; there is none in the set, and a test watches that.
    """
    labels = handwritten()[1]
    order = np.random.default_rng(0).permutation(len(labels))
    rank_in_class = np.empty(len(labels), dtype=int)
    for digit in range(10):
        members = order[labels[order] == digit]
        rank_in_class[members] = np.arange(len(members))
    in_test = rank_in_class % 3 == 0
    if split not in ("train", "test"):
        raise ValueError(f"digits has no split {split!r}; it has 'train' and 'test'")
    return np.flatnonzero(in_test if split == "test" else ~in_test)


@functools.cache
def _font_masks() -> list[list[np.ndarray]]:
    """For each digit, its ink mask in every font: float 32x32 in 0..1, cropped and centred at full height."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = [ImageFont.truetype(str(folder / name), 64) for name in FONTS]
    masks = []
    for digit in range(10):
        masks.append([_ink_mask(str(digit), font) for font in fonts])
    return masks


def _ink_mask(text: str, font: ImageFont.FreeTypeFont) -> np.ndarray:
    page = PILImage.new("L", (128, 128), 0)
    ImageDraw.Draw(page).text((32, 32), text, font=font, fill=255)
    ink = page.crop(page.getbbox())
    width = max(4, min(28, round(28 * ink.width / ink.height)))
    mask = PILImage.new("L", (32, 32), 0)
    mask.paste(ink.resize((width, 28), PILImage.Resampling.BICUBIC), ((32 - width) // 2, 2))
    return np.asarray(mask, dtype=np.float32) / 255


def draw_digit(digit: int, rng: np.random.Generator) -> np.ndarray:
    """Draw one digit from a random font, bend it, and reduce it to 8x8 uint8 in 0..16.

    Rotation up to 14 degrees, shear, unequal scaling, a smooth random displacement and a random pen
    width: the ways in which one person's digit differs from another's without being another digit.
    """
    from scipy.ndimage import gaussian_filter, map_coordinates, maximum_filter, minimum_filter

    masks = _font_masks()[digit]
    mask = masks[rng.integers(len(masks))]
    angle, shear = rng.uniform(-0.25, 0.25), rng.uniform(-0.25, 0.25)
    scale_x, scale_y = rng.uniform(0.8, 1.3), rng.uniform(0.95, 1.1)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrix = turn @ np.array([[scale_y, 0.0], [shear, scale_x]])
    grid = np.stack(np.meshgrid(np.arange(32), np.arange(32), indexing="ij")).astype(np.float32) - 15.5
    where = np.einsum("ij,jhw->ihw", matrix, grid) + 15.5 + rng.uniform(-1, 1, (2, 1, 1))
    bend = np.stack([gaussian_filter(rng.uniform(-1, 1, (32, 32)), 5) for _ in range(2)])
    where += bend * rng.uniform(0, 14)
    ink = map_coordinates(mask, where, order=1)
    pen = rng.integers(4)
    if pen == 0:
        ink = minimum_filter(ink, 2)
    elif pen >= 2:
        ink = maximum_filter(ink, int(pen))
    return np.round(ink.reshape(8, 4, 8, 4).mean((1, 3)) * 16).astype(np.uint8)


def compose(glyphs: list[np.ndarray], rng: np.random.Generator) -> PILImage.Image:
    """Paste one or two 8x8 digits (0..16), as dark ink, on a white 84x84 RGB page with a little jitter."""
    page = PILImage.new("L", (CANVAS, CANVAS), 255)
    for place, glyph in enumerate(glyphs):
        ink = PILImage.fromarray(255 - np.minimum(glyph.astype(np.int32) * 16, 255).astype(np.uint8))
        left = 1 + 42 * place if len(glyphs) == 2 else 22
        at = (left + int(rng.integers(-1, 2)), 22 + int(rng.integers(-4, 5)))
        page.paste(ink.resize((GLYPH, GLYPH), PILImage.Resampling.BICUBIC), at)
    return page.convert("RGB")


def ask(kind: str, digits: list[int], rng: np.random.Generator) -> dict:
    """The question of a kind about one or two digits.

    Returns `question`, `solution`, `options` (letter -> text, or None) and `reasoning`, the sentence that
    stands inside `<think>` in the warm start.
    """
    if kind == "read":
        return _asked("Which digit is this?", digits[0], f"The digit is {digits[0]}.")
    if kind == "larger":
        larger = max(digits)
        return _asked("Which digit is larger?", larger, f"{digits[0]} and {digits[1]}: {larger} is larger.")
    if kind == "sum":
        total = sum(digits)
        return _asked("What is the sum?", total, f"{digits[0]} + {digits[1]} = {total}.")
    if kind != "choice":
        raise ValueError(f"digits has no kind {kind!r}; it has {', '.join(KINDS)}")
    others = rng.choice([d for d in range(10) if d != digits[0]], size=3, replace=False)
    shown = rng.permutation([digits[0], *others])
    options = {letter: str(value) for letter, value in zip(LETTERS, shown, strict=True)}
    answer = LETTERS[int(np.flatnonzero(shown == digits[0])[0])]
    listed = " ".join(f"{letter}. {value}" for letter, value in options.items())
    return _asked(f"Which digit is this? {listed}", answer, f"The digit is {digits[0]}.", options)


def _asked(question: str, solution: object, reasoning: str, options: dict | None = None) -> dict:
    return {"question": question, "solution": str(solution), "reasoning": reasoning, "options": options}


def digits_needed(kind: str) -> int:
    """How many digits a question of this kind shows."""
    return 2 if kind in ("larger", "sum") else 1


def drawn_row(rng: np.random.Generator) -> dict:
    """One question about drawn digits, with its picture under `image`: what the warm start reads."""
    kind = KINDS[rng.integers(len(KINDS))]
    digits = [int(d) for d in rng.choice(10, size=digits_needed(kind), replace=False)]
    image = compose([draw_digit(d, rng) for d in digits], rng)
    return {"kind": kind, "digits": digits, "image": image, **ask(kind, digits, rng)}


def build(split: str = "train", kinds: tuple[str, ...] = KINDS, seed: int = 0) -> Dataset:
    """The handwritten question set: each picture of the split begins one question of every kind.

    Two-digit questions take their second digit from the same split, never equal to the first.
    Rows: `id`, `question`, `images` (a list of one), `solution`, `options`, `kind`, `digits`, and `sources`,
    the row numbers of the handwritten pictures in scikit-learn's set.
    """
    pictures, labels = handwritten()
    indices = handwritten_indices(split)
    rng = np.random.default_rng([seed, split == "test"])
    rows = []
    for index in rng.permutation(indices):
        for kind in kinds:
            sources = [int(index)]
            if digits_needed(kind) == 2:
                others = indices[labels[indices] != labels[index]]
                sources.append(int(rng.choice(others)))
                rng.shuffle(sources)
            asked = ask(kind, [int(labels[i]) for i in sources], rng)
            asked.pop("reasoning")
            rows.append(
                {
                    "id": f"digits-{split}-{len(rows)}",
                    "images": [compose([pictures[i] for i in sources], rng)],
                    "kind": kind,
                    "digits": [int(labels[i]) for i in sources],
                    "sources": sources,
                    **asked,
                }
            )
    order = rng.permutation(len(rows))
    return Dataset.from_list([rows[i] for i in order], features=FEATURES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("outputs/digits"))
    folder = parser.parse_args().output
    for split in ("train", "test"):
        dataset = build(split)
        dataset.save_to_disk(folder / split)
        print(f"{folder / split}: {len(dataset)} questions")


if __name__ == "__main__":
    main()
