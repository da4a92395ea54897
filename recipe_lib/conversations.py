"""Chat messages, where images stand in them, and rows in the columns that TRL's trainers read.

Every message that leaves here has a list of parts as its content, each part with exactly the keys that its
type needs: `{"type": "image"}` or `{"type": "text", "text": ...}`. That matters: Arrow fills the keys of all
parts with None, Qwen's template takes any part with an `image` key for an image, and TRL counts the ones
without it.
"""

from __future__ import annotations

import re
from typing import Any

from recipe_lib.image_sources import RowError

MARKER = "<image>"
# What processors insert themselves. In a question's text they would count as images that are not there.
RESERVED = re.compile(
    r"<\|(?:image|video)(?:_pad)?\|>|<\|vision_(?:start|end|pad)\|>|<(?:start|end)_of_image>|<image_soft_token>"
    r"|<fake_token_around_image>|<global-img>|<row_\d+_col_\d+>"
)


def build_prompt(
    question: str, num_images: int = 1, system_prompt: str | None = None, *, row_id: Any = None
) -> list[dict]:
    """Return the messages of one question: an optional system turn, then a user turn with its images.

    `<image>` markers in the question say where the images stand, and are taken out; without a marker all
    `num_images` come first. Raises RowError where the number of markers is neither 0 nor `num_images`.
    """
    if not isinstance(question, str) or not question.strip():
        raise RowError(f"the question is empty ({question!r}); drop the row", row_id=row_id, column="prompt")
    messages = [{"role": "user", "content": question}]
    if system_prompt:
        messages.insert(0, {"role": "system", "content": system_prompt})
    return normalize_messages(messages, num_images, row_id=row_id)


def normalize_messages(messages: list[dict], num_images: int, *, row_id: Any = None) -> list[dict]:
    """Return the messages with every content a list of clean parts and exactly `num_images` image parts.

    Images stand where image parts or `<image>` markers stand; with neither, before the first user text. The
    input is left as it is. Raises RowError on a count that differs, and on image tokens in a text.
    """
    cleaned = [
        {
            **{key: value for key, value in message.items() if value is not None},
            "content": _parts(message, row_id),
        }
        for message in messages
    ]
    found = count_images(cleaned)
    if found == 0 and num_images:
        for message in cleaned:
            if message["role"] == "user":
                message["content"] = [{"type": "image"}] * num_images + message["content"]
                return cleaned
        raise RowError(
            "no user turn to put the images into", row_id=row_id, column="prompt", fault="marker count"
        )
    if found != num_images:
        raise RowError(
            f"{found} image places ({MARKER} markers and image parts) for {num_images} images; "
            f"make the two equal, or take all {MARKER} markers out to put the images first",
            row_id=row_id,
            column="prompt",
            fault="marker count",
        )
    return cleaned


def count_images(messages: list[dict]) -> int:
    """Return the number of image parts in normalized messages."""
    return sum(part["type"] == "image" for message in messages for part in message["content"])


def split_markers(text: str) -> list[dict]:
    """Return the parts of a text with `<image>` markers; the text between markers stays as it is.

    White space around markers that open or close the text is the author's separator, and goes with them.
    """
    pieces = text.split(MARKER)
    parts: list[dict] = []
    for number, piece in enumerate(pieces):
        if number:
            parts.append({"type": "image"})
        if not piece.strip() and len(pieces) > 1:
            continue
        if number and all(part["type"] == "image" for part in parts):
            piece = piece.lstrip()
        if number < len(pieces) - 1 and not "".join(pieces[number + 1 :]).strip():
            piece = piece.rstrip()
        parts.append({"type": "text", "text": piece})
    return parts


def _parts(message: dict, row_id: Any) -> list[dict]:
    content = message.get("content")
    raw = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    parts: list[dict] = []
    for part in raw:
        kind = part.get("type")
        if kind == "image":
            parts.append({"type": "image"})
        elif kind == "text":
            text = part.get("text") or ""
            _refuse_reserved(text, row_id)
            parts += split_markers(text) if message["role"] == "user" else [{"type": "text", "text": text}]
        else:
            raise RowError(
                f"a part of type {kind!r}; expected 'text' or 'image'", row_id=row_id, column="prompt"
            )
    return parts


def _refuse_reserved(text: str, row_id: Any) -> None:
    if match := RESERVED.search(text):
        raise RowError(
            f"the text holds the processor's own token {match[0]!r}; write {MARKER} where an image stands",
            row_id=row_id,
            column="prompt",
            fault="marker count",
        )
