"""Chat messages, where images stand in them, and rows in the columns that TRL's trainers read.

Every message that leaves here has a list of parts as its content, each part with exactly the keys that its
type needs: `{"type": "image"}` or `{"type": "text", "text": ...}`. That matters: Arrow fills the keys of all
parts with None, Qwen's template takes any part with an `image` key for an image, and TRL counts the ones
without it. LLaVA-NeXT's template loses string content, and puts all images of a turn before its text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from recipe_lib.image_sources import RowError
from recipe_lib.images import as_list

MARKER = "<image>"
ROLES = ("system", "user", "assistant")
# What processors insert themselves. In a question's text they would count as images that are not there.
RESERVED = re.compile(
    r"<\|(?:image|video)(?:_pad)?\|>|<\|vision_(?:start|end|pad)\|>|<(?:start|end)_of_image>|<image_soft_token>"
    r"|<fake_token_around_image>|<global-img>|<row_\d+_col_\d+>|<\|?image[ _-]?\d+\|?>"  # numbered: order unclear
)
_INLINE = ("image", "image_url", "url", "path", "base64", "bytes", "input_image")


def build_prompt(
    question: str, num_images: int = 1, system_prompt: str | None = None, *, row_id: Any = None
) -> list[dict]:
    """Return the messages of one question: an optional system turn, then a user turn with its images.

    `<image>` markers in the question say where the images stand, and are taken out; without a marker all
    `num_images` come first. Raises RowError where the number of markers is neither 0 nor `num_images`.
    """
    if not isinstance(question, str) or not question.strip():
        raise _error(f"the question is empty ({question!r}); drop the row", row_id, fault="empty")
    return with_system(normalize_messages(question, num_images, row_id=row_id), system_prompt)


def normalize_messages(messages: Any, num_images: int, *, row_id: Any = None) -> list[dict]:
    """Return messages whose every content is a list of clean parts, with exactly `num_images` image parts.

    Images stand where image parts or `<image>` markers stand; with neither, before the first user text. A
    string is one user turn. The input is left as it is. Raises RowError on a count that differs, on image
    tokens in a text, and on what is no list of messages.
    """
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list | tuple) or not messages:
        raise _error(f"expected a text or a list of messages, got {messages!r:.80}", row_id, fault="empty")
    cleaned = [{"role": _role(message, row_id), "content": _merge(_parts(message, row_id))} for message in messages]
    found = count_images(cleaned)
    if found != num_images and found:
        raise _error(
            f"{found} image places ({MARKER} markers and image parts) for {num_images} images; "
            f"make the two equal, or take all {MARKER} markers out to put the images first",
            row_id,
            fault="marker count",
        )
    if found != num_images:
        first = next((message for message in cleaned if message["role"] == "user"), None)
        if first is None:
            raise _error("no user turn to put the images into", row_id, fault="marker count")
        first["content"] = [{"type": "image"} for _ in range(num_images)] + first["content"]
    if empty := next((message["role"] for message in cleaned if not message["content"]), None):
        raise _error(f"an empty turn of the {empty}; drop the turn or the row", row_id, fault="empty")
    return cleaned


def with_system(messages: list[dict], system_prompt: str | None) -> list[dict]:
    """Put `system_prompt` first, or after the text of a system turn that is there already.

    One turn with one text part: the templates of LLaVA-NeXT and Gemma 3 read only the first part.
    """
    if not system_prompt:
        return messages
    own = [part["text"] for message in messages if message["role"] == "system" for part in message["content"]]
    rest = [message for message in messages if message["role"] != "system"]
    text = "\n\n".join([*own, system_prompt])
    return [{"role": "system", "content": [{"type": "text", "text": text}]}, *rest]


def count_images(messages: list[dict]) -> int:
    """Return the number of image parts in normalized messages."""
    return sum(part["type"] == "image" for message in messages for part in message["content"])


def inline_images(messages: Any) -> list:
    """Return the pictures that stand inside the messages themselves, undecoded, in their order.

    Such are Qwen's `{"type": "image", "image": ...}` and OpenAI's `{"type": "image_url", ...}`. Parts whose
    values are all None, which is how Arrow gives a plain `{"type": "image"}` back, hold none.
    """
    if not isinstance(messages, list | tuple):
        return []
    contents = [message.get("content") for message in messages if isinstance(message, Mapping)]
    parts = [part for content in contents if isinstance(content, list | tuple) for part in content]
    found = [[part[key] for key in _INLINE if part.get(key) is not None] for part in parts if isinstance(part, Mapping)]
    return [values[0] for values in found if values]


def split_markers(text: str) -> list[dict]:
    """Return the parts of a text with `<image>` markers; the text between markers stays as it is.

    White space around markers that open or close the text is the author's separator, and goes with them.
    """
    pieces = text.split(MARKER)
    if len(pieces) == 1:
        return [{"type": "text", "text": text}]
    filled = [number for number, piece in enumerate(pieces) if piece.strip()]
    parts: list[dict] = []
    for number, piece in enumerate(pieces):
        if number:
            parts.append({"type": "image"})
        if number in filled:
            piece = piece.lstrip() if number and number == filled[0] else piece
            piece = piece.rstrip() if number < len(pieces) - 1 and number == filled[-1] else piece
            parts.append({"type": "text", "text": piece})
    return parts


def grpo_row(row: Mapping, system_prompt: str | None = None, *, row_id: Any = None) -> dict:
    """Return the row with `prompt` as messages and `images` as a list of undecoded pictures.

    Args:
        row: `prompt` (a question, or messages) and `images` (None, one picture, or a list); other columns,
            such as `solution`, pass unchanged.
    """
    images = _pictures(row, row_id)
    prompt = row.get("prompt")
    if isinstance(prompt, str):
        messages = build_prompt(prompt, len(images), system_prompt, row_id=row_id)
    else:
        messages = with_system(normalize_messages(prompt, len(images), row_id=row_id), system_prompt)
    if messages[-1]["role"] != "user":
        raise _error(f"the prompt ends with a turn of the {messages[-1]['role']}; end it with the user's", row_id)
    return {**row, "prompt": messages, "images": images}


def mpo_row(row: Mapping, system_prompt: str | None = None, *, row_id: Any = None) -> dict:
    """Return the row with `prompt` and `images` as `grpo_row`, `chosen` and `rejected` as one assistant turn.

    Answers may be texts, messages, or whole conversations that repeat the prompt: the last turn counts. Raises
    RowError on an empty answer, on two equal ones, and on an image in an answer.
    """
    if row.get("prompt") is None and isinstance(row.get("chosen"), list | tuple):
        row = {**row, "prompt": row["chosen"][:-1]}
    answers = {name: _answer(row.get(name), name, row_id) for name in ("chosen", "rejected")}
    if answers["chosen"] == answers["rejected"]:
        raise RowError("equals 'rejected'; drop the row", row_id=row_id, column="chosen", fault="equal pair")
    return {**grpo_row(row, system_prompt, row_id=row_id), **answers}


def _answer(value: Any, name: str, row_id: Any) -> list[dict]:
    if isinstance(value, list | tuple) and value:
        value = value[-1]
    if not isinstance(value, Mapping):
        value = {"role": "assistant", "content": value}
    try:
        parts = _merge(_parts({**value, "role": "assistant"}, row_id))
    except RowError as error:
        raise RowError(error.problem, row_id=row_id, column=name, fault=error.fault) from None
    if not any(part["text"].strip() for part in parts):
        raise RowError(f"the answer is empty ({value!r:.60}); drop the row", row_id=row_id, column=name, fault="empty")
    return [{"role": "assistant", "content": parts}]


def _pictures(row: Mapping, row_id: Any) -> list:
    images, inline = as_list(row.get("images")), inline_images(row.get("prompt"))
    if images and inline:
        raise _error("images stand both in the column 'images' and inside the messages; keep one", row_id)
    return images or inline


def _role(message: Any, row_id: Any) -> str:
    role = message.get("role") if isinstance(message, Mapping) else None
    if role not in ROLES:
        raise _error(f"a message with role {role!r}; expected one of {', '.join(ROLES)}", row_id)
    return role


def _parts(message: Mapping, row_id: Any) -> list[dict]:
    content = message.get("content")
    if not isinstance(content, list | tuple):
        content = [] if content is None else [content]
    parts: list[dict] = []
    for part in content:
        part = {"type": "text", "text": part} if isinstance(part, str) else part
        kind = _kind(part, row_id)
        if kind == "image":
            if message["role"] != "user":
                raise _error(f"an image in a turn of the {message['role']}; only the user's can hold one", row_id)
            parts.append({"type": "image"})
            continue
        text = part.get("text") or ""
        if match := RESERVED.search(text):
            raise _error(
                f"{match[0]!r} in the text; write {MARKER} where an image stands, in the order of the images",
                row_id,
                fault="marker count",
            )
        if MARKER in text and message["role"] != "user":
            raise _error(f"{MARKER} in a turn of the {message['role']}; take it out", row_id, "marker count")
        parts += split_markers(text) if message["role"] == "user" else [{"type": "text", "text": text}]
    return parts


def _kind(part: Any, row_id: Any) -> str:
    if isinstance(part, Mapping):
        kind = part.get("type")
        if kind in ("image", "image_url", "input_image") or (kind is None and part.get("image") is not None):
            return "image"
        if kind in ("text", "input_text", None) and isinstance(part.get("text"), str | None):
            return "text"
    raise _error(f"a part {part!r:.80}; expected {{'type': 'text', 'text': ...}} or {{'type': 'image'}}", row_id)


def _merge(parts: list[dict]) -> list[dict]:
    """Join neighbouring texts, since some templates read only the first part of a turn; drop empty ones."""
    merged: list[dict] = []
    for part in parts:
        if part["type"] == "text" and merged and merged[-1]["type"] == "text":
            merged[-1] = {"type": "text", "text": merged[-1]["text"] + part["text"]}
        elif part["type"] == "image" or part["text"]:
            merged.append(part)
    return merged


def _error(problem: str, row_id: Any, fault: str = "malformed") -> RowError:
    return RowError(problem, row_id=row_id, column="prompt", fault=fault)
