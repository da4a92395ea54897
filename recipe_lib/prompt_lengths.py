"""The longest prompt of a set, counted from image headers and texts: no picture is decoded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from transformers import ProcessorMixin

from recipe_lib.image_budget import Rule, prompt_tokens, rule_for
from recipe_lib.image_sources import DEFAULT_SOURCE
from recipe_lib.images import as_list, header


@dataclass
class Longest:
    """The longest prompt that was counted: tokens, those of its images among them, and the row's id."""

    tokens: int = 0
    images: int = 0
    row: object = None


def longest_prompt(rows: Iterable[dict], processor: ProcessorMixin, rule: Rule | None = None) -> Longest:
    """Count the prompts of `rows`, which have `prompt` and may have `images` and `id`.

    Args:
        rule: what a picture costs; the processor's own where left out.
    """
    rule = rule or rule_for(processor)
    longest = Longest()
    for number, row in enumerate(rows):
        row_id = row.get("id", number)
        headers = [header(image, row_id=row_id, source=DEFAULT_SOURCE) for image in as_list(row.get("images"))]
        sizes = [(found.width, found.height) for found in headers]
        tokens = prompt_tokens(processor, row["prompt"], sizes, rule)
        if tokens > longest.tokens:
            longest = Longest(tokens, sum(rule.tokens(*size) for size in sizes), row_id)
    return longest
