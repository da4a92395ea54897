"""How many tokens a picture costs, from its width and height alone, for each family of models.

    rule = rule_for(processor)                 # or NAMED_RULES["qwen2.5-vl-3b"], without loading anything
    rule.tokens(1920, 1080)                    # image tokens of one picture
    prompt_tokens(processor, messages, [(1920, 1080)])   # the whole prompt, text included

The counts equal what the processors of transformers 5.17 yield; tests hold the two side by side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from transformers.image_processing_utils import select_best_resolution
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

from recipe_lib import template_warnings
from recipe_lib.image_sources import DEFAULT_SOURCE, RowError, Source
from recipe_lib.images import as_list, header

MAX_ASPECT = 200  # Qwen's processor raises above it
LARGEST_SIDE = 4096  # Idefics3 and SmolVLM never resize beyond it


class Rule:
    """What one picture costs: `tokens` of it, and `expand`, the text that stands for it in a processed prompt."""

    def tokens(self, width: int, height: int) -> int:
        """Image tokens of a picture of that size in pixels."""
        raise NotImplementedError

    def expand(self, processor: Any, width: int, height: int) -> str:
        """The text that the processor puts where one image stands."""
        return processor.image_token * self.tokens(width, height)


@dataclass(frozen=True)
class QwenRule(Rule):
    """Qwen2.5-VL and Qwen3-VL: both sides become multiples of `factor`, the area stays within the two limits.

    factor: patch size times merge size, in pixels; one token covers factor x factor pixels.
    min_pixels, max_pixels: area after resizing.
    """

    min_pixels: int = 56 * 56
    max_pixels: int = 12845056
    factor: int = 28

    def resized(self, width: int, height: int) -> tuple[int, int]:
        """Width and height that the vision tower sees. Raises RowError on an aspect ratio above 200.

        By transformers' own function: that of qwen-vl-utils rounds a thin picture's short side down to 0.
        """
        limits = {"min_pixels": self.min_pixels, "max_pixels": self.max_pixels}
        try:
            new_height, new_width = smart_resize(height, width, self.factor, **limits)
        except ValueError:
            raise RowError(
                f"{width}x{height} is longer than {MAX_ASPECT} times its width, which the processor refuses; "
                "crop or pad the picture",
                fault="aspect",
            ) from None
        return new_width, new_height

    def tokens(self, width: int, height: int) -> int:
        new_width, new_height = self.resized(width, height)
        return (new_width // self.factor) * (new_height // self.factor)

    def limit(self, processor: Any) -> None:
        """Make the processor keep to this rule."""
        processor.image_processor.size = {"shortest_edge": self.min_pixels, "longest_edge": self.max_pixels}


def _with_long_side(width: int, height: int, long_side: int) -> tuple[int, int]:
    # through the ratio, as the processors do it: exact arithmetic would differ at the edges
    aspect = width / height
    if width >= height:
        return long_side, max(1, int(long_side / aspect))
    return max(1, int(long_side * aspect)), long_side


@dataclass(frozen=True)
class TilesRule(Rule):
    """Idefics3 and SmolVLM: the picture is cut into square tiles, and one overview is added.

    longest_edge: every picture is resized to it, small ones too, so that a thumbnail may cost 17 tiles.
    tile: side of a tile in pixels; tile_tokens: image tokens of a tile.
    splitting: False sends the overview alone.
    """

    longest_edge: int
    tile: int
    tile_tokens: int
    splitting: bool = True

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """Rows and columns of tiles; (0, 0) where the overview is sent alone."""
        if not self.splitting:
            return 0, 0
        width, height = _with_long_side(width, height, self.longest_edge)
        # the processor makes an odd short side even here, and only here
        width, height = (width, height + height % 2) if width >= height else (width + width % 2, height)
        if max(width, height) > LARGEST_SIDE:
            width, height = _with_long_side(width, height, LARGEST_SIDE)
        long_side = math.ceil(max(width, height) / self.tile) * self.tile
        width, height = _with_long_side(width, height, long_side)
        rows, columns = math.ceil(height / self.tile), math.ceil(width / self.tile)
        return (rows, columns) if max(rows, columns) > 1 else (0, 0)

    def tokens(self, width: int, height: int) -> int:
        rows, columns = self.grid(width, height)
        return self.tile_tokens * (rows * columns + 1)

    def expand(self, processor: Any, width: int, height: int) -> str:
        rows, columns = self.grid(width, height)
        fake, image = "<fake_token_around_image>", processor.image_token * self.tile_tokens
        lines = "".join(
            "".join(f"{fake}<row_{row}_col_{column}>{image}" for column in range(1, columns + 1)) + "\n"
            for row in range(1, rows + 1)
        )
        return f"{lines}{chr(10) if rows else ''}{fake}<global-img>{image}{fake}"

    def limit(self, processor: Any) -> None:
        """Make the processor keep to this rule."""
        processor.image_processor.size = {"longest_edge": self.longest_edge}
        processor.image_processor.do_image_splitting = self.splitting


@dataclass(frozen=True)
class AnyResRule(Rule):
    """LLaVA-NeXT: an overview, and the picture on the best-fitting grid of tiles with its padding taken off.

    pinpoints: the grids' (height, width) in pixels; side: of a tile; patch: of a patch, in pixels.
    extra: tokens beside the overview's patches: +1 for a class token, -1 for the strategy "default".
    """

    pinpoints: tuple[tuple[int, int], ...] = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))
    side: int = 336
    patch: int = 14
    extra: int = 0

    def tokens(self, width: int, height: int) -> int:
        best_height, best_width = select_best_resolution((height, width), self.pinpoints)
        patches = self.side // self.patch
        rows, columns = best_height // self.side * patches, best_width // self.side * patches
        if width / height > columns / rows:
            rows -= (rows - int(round(height * (columns / width), 7))) // 2 * 2
        else:
            columns -= (columns - int(round(width * (rows / height), 7))) // 2 * 2
        return rows * columns + rows + patches * patches + self.extra  # one newline token ends each row


@dataclass(frozen=True)
class CropsRule(Rule):
    """Gemma 3: a fixed number of tokens a picture, and the same again for each pan-and-scan crop.

    pan_and_scan: crop pictures whose aspect ratio is at least `min_ratio` into at most `max_crops` pieces,
    none with a side below `min_crop` pixels. Only an argument of the processor's call turns it on: the
    processor's defaults win over the image processor's own setting, so that TRL's trainers never use it.
    """

    tile_tokens: int = 256
    pan_and_scan: bool = False
    min_crop: int = 256
    max_crops: int = 4
    min_ratio: float = 1.2

    def crops(self, width: int, height: int) -> int:
        """Number of crops beside the whole picture."""
        long_side, short_side = max(width, height), min(width, height)
        if not self.pan_and_scan or long_side / short_side < self.min_ratio:
            return 0
        wanted = min(math.floor(long_side / self.min_crop), math.floor(long_side / short_side + 0.5))
        count = min(self.max_crops, max(2, wanted))
        return 0 if min(math.ceil(long_side / count), short_side) < self.min_crop else count

    def tokens(self, width: int, height: int) -> int:
        return self.tile_tokens * (1 + self.crops(width, height))

    def expand(self, processor: Any, width: int, height: int) -> str:
        whole, crops = processor.full_image_sequence, self.crops(width, height)
        if not crops:
            return whole
        intro = f"Here is the original image {whole} and here are some crops to help you see better "
        return intro + " ".join([whole] * crops)


# What training uses for the named models: at most 512 tokens a picture for Qwen (its own limit is 16,384),
# the overview alone for SmolVLM (with splitting and its own longest edge a picture costs up to 17 tiles).
NAMED_RULES: dict[str, Rule] = {
    "qwen2.5-vl-3b": QwenRule(max_pixels=512 * 28 * 28),
    "qwen2.5-vl-7b": QwenRule(max_pixels=512 * 28 * 28),
    "smolvlm-instruct": TilesRule(longest_edge=384, tile=384, tile_tokens=81, splitting=False),
    "smolvlm2-500m": TilesRule(longest_edge=512, tile=512, tile_tokens=64, splitting=False),
    "smolvlm2-2.2b": TilesRule(longest_edge=384, tile=384, tile_tokens=81, splitting=False),
}


def rule_for(processor: Any) -> Rule:
    """Read the rule off a processor as it is set now. Raises ValueError on a family without a rule."""
    family, images = type(processor).__name__, processor.image_processor
    if family in ("Qwen2VLProcessor", "Qwen2_5_VLProcessor", "Qwen3VLProcessor"):
        size = images.size
        return QwenRule(size["shortest_edge"], size["longest_edge"], images.patch_size * images.merge_size)
    if family in ("SmolVLMProcessor", "Idefics3Processor"):
        longest, tile = images.size["longest_edge"], images.max_image_size["longest_edge"]
        return TilesRule(longest, tile, processor.image_seq_len, images.do_image_splitting)
    if family == "LlavaNextProcessor":
        pinpoints = tuple((height, width) for height, width in images.image_grid_pinpoints)
        extra = processor.num_additional_image_tokens - (processor.vision_feature_select_strategy == "default")
        return AnyResRule(pinpoints, images.crop_size["height"], processor.patch_size, extra)
    if family == "Gemma3Processor":
        return CropsRule(processor.image_seq_length)
    known = "Qwen2.5-VL, Qwen3-VL, SmolVLM, Idefics3, LLaVA-NeXT, Gemma 3"
    raise ValueError(f"no image budget for {family}; known families: {known}")


def prompt_tokens(
    processor: Any, messages: list[dict], sizes: Iterable[tuple[int, int]], rule: Rule | None = None
) -> int:
    """Return the number of tokens of a prompt with its images, without touching a pixel.

    Args:
        messages: normalized messages (`conversations`), one image part for each of `sizes`.
        sizes: (width, height) of each picture, in the order in which they stand.
        rule: as `rule_for(processor)`, which is the default.
    """
    rule = rule or rule_for(processor)
    with template_warnings.left_out(processor):
        text = processor.apply_chat_template(messages, add_generation_prompt=True)
    pieces = text.split(processor.image_token)
    filled = [pieces[0]]
    for piece, (width, height) in zip(pieces[1:], sizes, strict=True):
        filled += [rule.expand(processor, width, height), piece]
    text, bos = "".join(filled), processor.tokenizer.bos_token
    # as ProcessorMixin.apply_chat_template: no second BOS where the template wrote one
    ids = processor.tokenizer(text, add_special_tokens=not (bos and text.startswith(bos)))["input_ids"]
    return len(ids)


def require_fit(
    rows: Iterable[dict],
    processor: Any,
    limit: int,
    setting: str = "max_length",
    source: Source = DEFAULT_SOURCE,
) -> None:
    """Raise RowError on the first row whose prompt exceeds `limit` tokens; names row, count and setting.

    To be called before training: a prompt cut inside its image tokens crashes the first step that meets it.
    """
    rule = rule_for(processor)
    for number, row in enumerate(rows):
        row_id = row.get("id", number)
        headers = [header(image, row_id=row_id, source=source) for image in as_list(row.get("images"))]
        sizes = [(found.width, found.height) for found in headers]
        count = prompt_tokens(processor, row["prompt"], sizes, rule)
        if count > limit:
            images = sum(rule.tokens(*size) for size in sizes)
            raise RowError(
                f"{count} prompt tokens, {images} of them for images, exceed {setting}={limit}; raise "
                f"{setting}, lower the processor's max_pixels, or drop the row",
                row_id=row_id,
                column="prompt",
                fault="over budget",
            )
