"""Where pictures come from: unwraps what a row holds to encoded bytes, a PIL picture or an array of numbers.

Safe by default: a path is read only inside `Source.root` (the data set's own folder), no URL is fetched, and
nothing larger than `Source.max_bytes` is read.
"""

from __future__ import annotations

import base64
import binascii
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

_BASE64 = re.compile(r"[A-Za-z0-9+/_\-\s]+={0,2}\s*")
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG", b"GIF8", b"RIFF", b"BM", b"II*\0", b"MM\0*")


class RowError(ValueError):
    """A row that cannot be used. Names the row, the column, what is wrong and what mends it.

    `fault` is the row checker's name for the kind of fault, for example "unreadable".
    """

    def __init__(self, problem: str, *, row_id: Any = None, column: str = "images", fault: str = "unreadable"):
        where = f"row {row_id}" if row_id is not None else "row (no id given)"
        super().__init__(f"{where}, column {column!r}: {problem}")
        self.problem, self.row_id, self.column, self.fault = problem, row_id, column, fault


@dataclass(frozen=True)
class Source:
    """Where pictures may come from, and how large they may be.

    root: the folder that paths may point into, links followed; None refuses every path that a row names.
    fetch_urls: fetch http(s) addresses, each within `max_bytes` and `timeout_s` seconds.
    max_pixels: width times height (67 million: an 8k x 8k scan passes, a decompression bomb does not).
    max_bytes: of the encoded file.
    """

    root: str | Path | None = None
    fetch_urls: bool = False
    timeout_s: float = 10.0
    max_pixels: int = 1 << 26
    max_bytes: int = 100 << 20


DEFAULT_SOURCE = Source()


def resolve(value: Any, source: Source = DEFAULT_SOURCE) -> Any:
    """Unwrap `value` to bytes, a PIL picture or an array, reading files and addresses as `source` allows.

    Raises RowError, and OSError from the file system or the network.
    """
    if isinstance(value, Image.Image) or is_array(value):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return _limited(bytes(value), source)
    if isinstance(value, Mapping):
        return _from_mapping(value, source)
    if isinstance(value, list | tuple):
        if is_nested_numbers(value):
            return np.asarray(value)
        if len(value) == 1:
            return resolve(value[0], source)
        raise RowError(f"a list of {len(value)} pictures where one was expected; use to_rgb_list")
    if isinstance(value, Path):  # a row holds texts, never Path objects: this one comes from the caller's own code
        return _read_file(value, source)
    if isinstance(value, str):
        return _from_text(value, source)
    if hasattr(value, "read"):
        return _limited(value.read(source.max_bytes + 1), source)
    raise RowError(f"a {type(value).__name__} is no picture; give bytes, a path, a PIL picture or an array")


def is_array(value: Any) -> bool:
    """True for numpy arrays, torch tensors and their like."""
    return isinstance(value, np.ndarray) or (hasattr(value, "__array__") and hasattr(value, "shape"))


def is_nested_numbers(value: Any) -> bool:
    """True for a picture as lists of lists of numbers, as Arrow and JSON give arrays back."""
    depth = 0
    while isinstance(value, list | tuple) and value:
        value, depth = value[0], depth + 1
    return depth >= 2 and isinstance(value, int | float)


def shorten(text: str, limit: int = 120) -> str:
    """Cut a text for an error message."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _from_mapping(value: Mapping, source: Source) -> Any:
    # bytes before path: a path beside bytes says where the picture once was, mostly on another machine
    for key in ("bytes", "path", "image", "image_url", "url", "data", "array"):
        if value.get(key) is not None:
            return resolve(value[key], source)
    keys = shorten(", ".join(map(repr, value)))
    raise RowError(f"neither bytes nor path in {{{keys}}}; embed the bytes or drop the row", fault="missing")


def _from_text(text: str, source: Source) -> bytes:
    if text.startswith("data:"):
        head, comma, body = text.partition(",")
        if not comma:
            raise RowError("a data URL without a comma; expected data:image/png;base64,...")
        raw = urllib.parse.unquote_to_bytes(body)
        is_base64 = head.endswith(";base64")
        return _limited(_from_base64(raw.decode("ascii", "replace")) if is_base64 else raw, source)
    scheme = re.match(r"([a-z][a-z0-9+.\-]+)://", text, re.IGNORECASE)
    kind = scheme[1].lower() if scheme else "file"
    if kind in ("http", "https"):
        return _fetch(text, source)
    if kind != "file":
        raise RowError(f"addresses of kind {kind}:// are not read; embed the picture's bytes")
    # a short base64 text could also be a file's name; its first bytes decide
    if len(text) >= 64 and _BASE64.fullmatch(text) and _from_base64(text[:64]).startswith(_MAGIC):
        return _limited(_from_base64(text), source)
    path = urllib.parse.unquote(urllib.parse.urlsplit(text).path) if scheme else text
    return _read_file(_inside(path, source), source)


def _inside(path: str, source: Source) -> Path:
    if source.root is None:
        raise RowError(f"path {shorten(path)!r} is not read: no folder was allowed; pass Source(root=FOLDER)")
    root = Path(source.root).resolve()
    full = (root / path).resolve()
    if not full.is_relative_to(root):
        raise RowError(
            f"path {shorten(path)!r} lies outside the data set's folder {root}; pass a wider Source(root=...)"
        )
    return full


def _from_base64(text: str) -> bytes:
    try:
        # the URL-safe alphabet and line breaks appear in the wild, and padding is often left off
        compact = re.sub(r"\s+", "", text).translate(str.maketrans("-_", "+/")).rstrip("=")
        return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RowError("base64 text that does not decode; embed the picture's bytes") from error


def _read_file(path: Path, source: Source = DEFAULT_SOURCE) -> bytes:
    if not path.is_file():  # also refuses devices and pipes, which could block for ever
        raise RowError(f"no such file: {path}; check the folder that Source(root=...) names", fault="missing")
    if path.stat().st_size > source.max_bytes:
        raise RowError(f"{path} holds more than max_bytes={source.max_bytes}; raise Source(max_bytes=...)")
    return path.read_bytes()


def _fetch(url: str, source: Source) -> bytes:
    if not source.fetch_urls:
        raise RowError(f"address {shorten(url)} is not fetched by default; pass Source(fetch_urls=True)")
    deadline = time.monotonic() + source.timeout_s
    data = bytearray()
    with urllib.request.urlopen(url, timeout=source.timeout_s) as answer:
        while chunk := answer.read1(1 << 16):
            data += chunk
            _limited(data, source)
            # the socket's own limit starts anew with each packet, so a slow server needs this one
            if time.monotonic() > deadline:
                raise RowError(f"{shorten(url)} took longer than Source(timeout_s={source.timeout_s})")
    return bytes(data)


def _limited(data: Any, source: Source) -> Any:
    if len(data) > source.max_bytes:
        raise RowError(f"more than max_bytes={source.max_bytes}; raise Source(max_bytes=...) if this is meant")
    return data
