"""The `shapes` visual question set: coloured shapes on a page, with a dial for how far they have drifted.

Each picture holds one to five copies of one shape in one colour. Three kinds of question:

| kind | question | answer |
|---|---|---|
| `colour` | what colour are the shapes | a word |
| `shape` | which shape is shown | a word |
| `count` | how many shapes are there | a number |

`shift` moves the pictures away from the clean ones that the tiny models saw in their warm start: at 0 large,
pure-coloured shapes on white; at 1 smaller, jittered in colour, on a tinted and noisy page.

`python data_scripts/shapes.py --output outputs/shapes --shift 1.0` writes both splits to disk.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
from datasets import Dataset, Features, Image, Sequence, Value
from PIL import Image as PILImage
from PIL import ImageDraw

CANVAS = 84  # pixels a side, as in `digits`
KINDS = ("colour", "shape", "count")
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 160, 60),
    "blue": (50, 80, 220),
    "yellow": (235, 205, 40),
    "black": (25, 25, 25),
    "purple": (150, 50, 180),
}
SHAPES = ("circle", "square", "triangle", "cross", "ring")
SPLIT_SEEDS = {"train": 11, "test": 12}
FEATURES = Features(
    {
        "id": Value("string"),
        "question": Value("string"),
        "images": Sequence(Image()),
        "solution": Value("string"),
        "kind": Value("string"),
        "caption": Value("string"),
    }
)


def draw_scene(shape: str, colour: str, count: int, shift: float, rng: np.random.Generator) -> PILImage.Image:
    """Draw `count` (1 to 5) copies of a shape on an 84x84 page; `shift` in 0..1 as in the module's text."""
    page = np.full(3, 255.0) - shift * rng.uniform(0, 70, 3)
    ink = np.clip(np.array(COLOURS[colour]) + shift * rng.uniform(-45, 45, 3), 0, 255)
    image = PILImage.new("RGB", (CANVAS, CANVAS), tuple(int(v) for v in page))
    pen = ImageDraw.Draw(image)
    # Five of the nine cells of a 3x3 grid, so that shapes never touch and a count can be read off.
    for cell in rng.choice(9, size=count, replace=False):
        radius = 11 - shift * rng.uniform(0, 5)
        slack = max(0.0, 13 - radius) * (0.5 + shift / 2)
        x = 14 + 28 * (cell % 3) + rng.uniform(-slack, slack)
        y = 14 + 28 * (cell // 3) + rng.uniform(-slack, slack)
        _draw_shape(pen, shape, x, y, radius, tuple(int(v) for v in ink), tuple(int(v) for v in page))
    if shift:
        noisy = np.asarray(image, dtype=np.float32) + rng.normal(0, 12 * shift, (CANVAS, CANVAS, 1))
        image = PILImage.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))
    return image


def _draw_shape(pen, shape: str, x: float, y: float, r: float, ink: tuple, page: tuple) -> None:
    box = (x - r, y - r, x + r, y + r)
    if shape == "circle":
        pen.ellipse(box, fill=ink)
    elif shape == "square":
        pen.rectangle(box, fill=ink)
    elif shape == "triangle":
        pen.polygon([(x, y - r), (x + r, y + r), (x - r, y + r)], fill=ink)
    elif shape == "cross":
        pen.rectangle((x - r, y - r / 3, x + r, y + r / 3), fill=ink)
        pen.rectangle((x - r / 3, y - r, x + r / 3, y + r), fill=ink)
    else:  # ring
        pen.ellipse(box, fill=ink)
        pen.ellipse((x - r / 2, y - r / 2, x + r / 2, y + r / 2), fill=page)


def drawn_rows(n: int, seed: int, shift: float = 0.0) -> list[dict]:
    """`n` questions, kinds in turn: `question`, `solution`, `reasoning`, `caption`, `kind` and the PIL `image`."""
    rng = np.random.default_rng([seed, 3])
    rows = []
    for i in range(n):
        shape, colour = SHAPES[rng.integers(len(SHAPES))], list(COLOURS)[rng.integers(len(COLOURS))]
        count = int(rng.integers(1, 6))
        kind = KINDS[i % len(KINDS)]
        question, answer = {
            "colour": ("What colour are the shapes?", colour),
            "shape": ("Which shape is shown?", shape),
            "count": ("How many shapes are there?", str(count)),
        }[kind]
        caption = f"{count} {colour} {shape}" + ("s" if shape != "cross" else "es") * (count > 1)
        rows.append(
            {
                "kind": kind,
                "question": question,
                "solution": answer,
                "reasoning": f"I see {caption}.",
                "caption": caption,
                "image": draw_scene(shape, colour, count, shift, rng),
            }
        )
    return rows


def build(split: str = "train", n: int = 1200, shift: float = 1.0) -> Dataset:
    """`n` questions of a split (`train` or `test`), at a shift in 0..1.

    Rows: `id`, `question`, `images` (a list of one), `solution`, `kind`, `caption`.
    """
    if split not in SPLIT_SEEDS:
        raise ValueError(f"shapes has no split {split!r}; it has {', '.join(map(repr, SPLIT_SEEDS))}")
    if not 0 <= shift <= 1:
        raise ValueError(f"shapes: shift {shift} is outside 0..1")
    rows = drawn_rows(n, SPLIT_SEEDS[split], shift)
    for i, row in enumerate(rows):
        buffer = io.BytesIO()
        row.pop("image").save(buffer, "PNG", compress_level=1)
        row.pop("reasoning")
        row.update(id=f"shapes-{split}-{i}", images=[{"bytes": buffer.getvalue(), "path": None}])
    return Dataset.from_list(rows, features=FEATURES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("outputs/shapes"))
    parser.add_argument("--shift", type=float, default=1.0)
    options = parser.parse_args()
    for split in SPLIT_SEEDS:
        dataset = build(split, shift=options.shift)
        dataset.save_to_disk(options.output / split)
        print(f"{options.output / split}: {len(dataset)} questions")


if __name__ == "__main__":
    main()
