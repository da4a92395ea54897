"""The `digits` visual question set: real handwriting to align on, drawn digits to warm-start on.

Two worlds share one canvas and one set of questions:

- *handwritten*: scikit-learn's 1,797 real handwritten digits (8x8 grey levels, 0 to 16), which travel inside
  its wheel, in ink of any colour on light paper of any colour. They are split by picture, so that no handwritten
  digit is in both train and test.
- *drawn*: digits drawn from the fonts that matplotlib carries, bent and thickened at random, then reduced to
  the same 8x8 grid, in black on white. The tiny models are warm-started on these alone: handwriting and colour are
  new to them.

Four kinds of question, each with one verifiable answer:

| kind | picture | question | answer |
|---|---|---|---|
| `read` | one digit | which digit is shown | the digit |
| `choice` | one digit | in which of four lettered ranges it lies | a letter |
| `larger` | two digits | which of the two is larger | the digit |
| `sum` | two digits | what is their sum | a number |

`python data_scripts/digits.py --output outputs/digits` writes both splits to disk and a sheet of examples.
"""

from __future__ import annotations

import argparse
import functools
import io
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from datasets import Dataset, Features, Image, Sequence, Value
from PIL import Image as PILImage
from PIL import ImageDraw, ImageFont

CANVAS = 84  # pixels a side: 3 x 3 merged Qwen2.5-VL tokens of 28 pixels
GLYPH = 28  # pixels a side of one pasted digit: as large as one image token of Qwen2.5-VL
PAPER, INK = (200, 255), (0, 80)  # ranges of each colour channel of a handwritten page
KINDS = ("read", "choice", "larger", "sum")
RANGES = {"A": (0, 2), "B": (3, 4), "C": (5, 6), "D": (7, 9)}  # options of `choice`, both ends included
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
        "options": {letter: Value("string") for letter in RANGES},
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
def _font_masks() -> np.ndarray:
    """Each digit's ink in each font: float32 `(10, fonts, 32, 32)` in 0..1, cropped and centred at full height."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = [ImageFont.truetype(str(folder / name), 64) for name in FONTS]
    return np.array([[_ink_mask(str(digit), font) for font in fonts] for digit in range(10)])


def _ink_mask(text: str, font: ImageFont.FreeTypeFont) -> np.ndarray:
    page = PILImage.new("L", (128, 128), 0)
    ImageDraw.Draw(page).text((32, 32), text, font=font, fill=255)
    ink = page.crop(page.getbbox())
    width = max(4, min(28, round(28 * ink.width / ink.height)))
    mask = PILImage.new("L", (32, 32), 0)
    mask.paste(ink.resize((width, 28), PILImage.Resampling.BICUBIC), ((32 - width) // 2, 2))
    return np.asarray(mask, dtype=np.float32) / 255


def draw_digits(digits: np.ndarray, rng: np.random.Generator, bend: float | np.ndarray = 1.0) -> np.ndarray:
    """Draw digits from random fonts, bend them, and reduce them to the 8x8 grid of the handwritten set.

    Rotation, shear, unequal scaling, a smooth random displacement, a random pen width and uneven ink: the ways
    in which one person's digit differs from another's without being another digit.

    Args:
        digits: shape `(n,)`, 0 to 9.
        bend: how far, one number or one for each digit. 0 is the font's own shape, at 1 rotation reaches 14
            degrees; at 2 some digits can no longer be told.

    Returns:
        uint8 `(n, 8, 8)` in 0..16.
    """
    n = len(digits)
    bend = np.broadcast_to(bend, n)
    masks = _font_masks()
    ink = torch.from_numpy(masks[digits, rng.integers(masks.shape[1], size=n)])[:, None]
    # One affine map an item, from output to input coordinates in [-1, 1] (torch's affine_grid).
    angle, shear = rng.uniform(-0.25, 0.25, (2, n)) * bend
    scale_x, scale_y = 1 + rng.uniform(-0.2, 0.3, n) * bend, 1 + rng.uniform(-0.05, 0.1, n) * bend
    theta = np.zeros((n, 2, 3), dtype=np.float32)
    theta[:, 0, 0], theta[:, 0, 1] = np.cos(angle) * scale_x, -np.sin(angle) + shear
    theta[:, 1, 0], theta[:, 1, 1] = np.sin(angle) * scale_x, np.cos(angle) * scale_y
    theta[:, :, 2] = rng.uniform(-0.06, 0.06, (n, 2)) * bend[:, None]
    grid = F.affine_grid(torch.from_numpy(theta), ink.shape, align_corners=False)
    # Bending: random shifts on a coarse 4x4 mesh, made smooth by bicubic interpolation.
    mesh = rng.uniform(-1, 1, (n, 2, 4, 4)) * (rng.uniform(0, 0.16, n) * bend)[:, None, None, None]
    shift = F.interpolate(torch.from_numpy(mesh.astype(np.float32)), size=(32, 32), mode="bicubic")
    ink = F.grid_sample(ink, grid + shift.permute(0, 2, 3, 1), align_corners=False)
    pen = torch.from_numpy(rng.integers(3, size=n))[:, None, None, None]
    bold = F.max_pool2d(F.pad(ink, (0, 1, 0, 1)), 2, stride=1)
    bolder = F.max_pool2d(ink, 3, stride=1, padding=1)
    ink = torch.where(pen == 0, ink, torch.where(pen == 1, bold, bolder))
    uneven = rng.uniform(0, 0.35, (n, 8, 8)).astype(np.float32) * bend[:, None, None].astype(np.float32)
    cells = F.avg_pool2d(ink, 4)[:, 0] * (1 - torch.from_numpy(uneven))
    cells = cells / cells.amax((1, 2), keepdim=True)  # the handwritten ones, too, reach full ink somewhere
    return (cells * 16).round().to(torch.uint8).numpy()


def compose(glyphs: list[np.ndarray], rng: np.random.Generator, coloured: bool = False) -> PILImage.Image:
    """Paste one or two 8x8 digits (0..16) on an 84x84 RGB page with a little jitter: black on white, or `coloured`."""
    page = PILImage.new("L", (CANVAS, CANVAS), 255)
    for place, glyph in enumerate(glyphs):
        ink = PILImage.fromarray(255 - np.minimum(glyph.astype(np.int32) * 16, 255).astype(np.uint8))
        left = 3 + 50 * place if len(glyphs) == 2 else 28
        at = (left + int(rng.integers(-3, 4)), 28 + int(rng.integers(-3, 4)))
        page.paste(ink.resize((GLYPH, GLYPH), PILImage.Resampling.BICUBIC), at)
    if not coloured:
        return page.convert("RGB")
    paper, pen = rng.uniform(*PAPER, 3), rng.uniform(*INK, 3)
    whiteness = np.asarray(page, dtype=np.float64)[..., None] / 255
    return PILImage.fromarray((pen + (paper - pen) * whiteness).round().astype(np.uint8))


def _png(image: PILImage.Image) -> dict:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return {"bytes": buffer.getvalue(), "path": None}


def ask(kind: str, digits: list[int]) -> dict:
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
    answer = next(letter for letter, (low, high) in RANGES.items() if low <= digits[0] <= high)
    options = {letter: f"{low} to {high}" for letter, (low, high) in RANGES.items()}
    listed = " ".join(f"{letter}. {text}" for letter, text in options.items())
    return _asked(f"Where does the digit lie? {listed}", answer, f"The digit is {digits[0]}, so {answer}.", options)


def _asked(question: str, solution: object, reasoning: str, options: dict | None = None) -> dict:
    return {"question": question, "solution": str(solution), "reasoning": reasoning, "options": options}


def digits_needed(kind: str) -> int:
    """How many digits a question of this kind shows."""
    return 2 if kind in ("larger", "sum") else 1


def drawn_rows(n: int, seed: int, bend: tuple[float, float] = (0.0, 1.0)) -> list[dict]:
    """`n` questions about drawn digits, kinds in turn, each with its picture under `image`: the warm start's food.

    `bend` is the range from which each digit's bending is drawn.
    """
    rng = np.random.default_rng([seed, 2])
    kinds = [KINDS[i % len(KINDS)] for i in range(n)]
    digits = [rng.choice(10, size=digits_needed(kind), replace=False) for kind in kinds]
    shown_digits = np.concatenate(digits)
    glyphs = iter(draw_digits(shown_digits, rng, rng.uniform(*bend, len(shown_digits))))
    rows = []
    for kind, shown in zip(kinds, digits, strict=True):
        image = compose([next(glyphs) for _ in shown], rng)
        shown = [int(d) for d in shown]
        rows.append({"kind": kind, "digits": shown, "image": image, **ask(kind, shown)})
    return rows


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
            asked = ask(kind, [int(labels[i]) for i in sources])
            asked.pop("reasoning")
            rows.append(
                {
                    "id": f"digits-{split}-{len(rows)}",
                    "images": [_png(compose([pictures[i] for i in sources], rng, coloured=True))],
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
