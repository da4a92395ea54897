"""SmolVLM's processor warns, at each prompt, of settings that it adds itself: kept out of what people read."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from transformers import SmolVLMProcessor


@contextlib.contextmanager
def left_out(processor: Any) -> Iterator[None]:
    """Leave that warning out within the block.

    transformers 5 wants a template's further arguments as `processor_kwargs`, and warns of others. SmolVLM's processor
    adds `num_frames` and `fps`, of videos, to the others. For other families the warning tells of a mistake.
    """
    logger = logging.getLogger("transformers.processing_utils")

    def tells(record: logging.LogRecord) -> bool:
        return "have to be in `processor_kwargs`" not in record.getMessage()

    if isinstance(processor, SmolVLMProcessor):
        logger.addFilter(tells)
    try:
        yield
    finally:
        logger.removeFilter(tells)
