"""Pictures in: anything that a public data set holds, to one upright RGB picture.

`to_rgb` takes a PIL picture, a path, bytes, a dict with bytes or a path, a list of one of these, base64, a
data URL, a numpy array or a torch tensor. `header` reads size and orientation without decoding a pixel. Both
raise `RowError`, and nothing else, on a value that cannot be used. `image_sources` says what may be read.
"""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from PIL import Image

from recipe_lib.image_sources import (
    DEFAULT_SOURCE,
    RowError,
    Source,
    is_array,
    is_nested_numbers,
    resolve,
    shorten,
)

# Formats of public picture sets. The others stay closed: EPS, for one, runs Ghostscript.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "ICO", "TGA", "JPEG2000")
Image.init()  # registers all of them; Image.open(formats=...) fails on one that is not registered yet
OVERSHOOT = 0.01  # of floats in 0..1, as resizing leaves it
_OPENED = tuple(name for name in FORMATS if name in Image.OPEN)


@dataclass(frozen=True)
class Header:
    """What a picture's header says: upright width and height in pixels, the file's format and mode.

    digest: of the encoded bytes, where it was asked for; another digest need not mean another picture.
    """

    width: int
    height: int
    format: str
    mode: str
    digest: bytes | None = None


def to_rgb(value: Any, *, row_id: Any = None, column: str = "images", source: Source = DEFAULT_SOURCE) -> Image.Image:
    """Return the picture that `value` holds as an upright PIL picture of mode RGB.

    EXIF rotation is applied, transparent areas become white, 16-bit values are divided by 257, floats in 0..1
    are multiplied by 255 (values outside 0..255 are stretched from their minimum to their maximum).
    Raises RowError, which names the row, the column and the remedy.
    """
    try:
        found = resolve(value, source)
        image = found if isinstance(found, Image.Image) else _from_array(found) if is_array(found) else None
        if image is None:
            image = _open(found, source)
        _limit(image.width, image.height, source)
        image.load()
        return _flatten(_upright(image))
    except RowError as error:
        raise RowError(error.problem, row_id=row_id, column=column, fault=error.fault) from error.__cause__
    except Exception as error:  # decoders raise almost anything on a broken file
        raise RowError(_broken(error), row_id=row_id, column=column) from error


def to_rgb_list(
    value: Any, *, row_id: Any = None, column: str = "images", source: Source = DEFAULT_SOURCE
) -> list[Image.Image]:
    """Return all pictures of a row: None and [] give [], one picture gives a list of one."""
    return [to_rgb(item, row_id=row_id, column=column, source=source) for item in as_list(value)]


def as_list(value: Any) -> list:
    """Return a row's pictures as a list of undecoded values; None and None entries hold no picture."""
    if value is None:
        return []
    if isinstance(value, list | tuple) and not is_nested_numbers(value):
        return [item for item in value if item is not None]
    return [value]


def header(
    value: Any,
    *,
    row_id: Any = None,
    column: str = "images",
    source: Source = DEFAULT_SOURCE,
    digest: bool = False,
) -> Header:
    """Return the picture's upright size without decoding it. Raises RowError as `to_rgb` does.

    A file that is cut short, by its own structure, is decoded to be sure, and raises then.
    """
    try:
        found = resolve(value, source)
        image = _from_array(found) if is_array(found) else found
        if not isinstance(image, Image.Image):
            image = _open(found, source)
            if not _is_whole(found, image.format):
                _open(found, source).load()
        width, height = image.size
        if _orientation(image) >= 5 and image.format != "TIFF":  # pillow turns TIFFs itself, the size included
            width, height = height, width
        _limit(width, height, source)
        stored = (found if isinstance(found, bytes) else image.tobytes()) if digest else b""
        mark = blake2b(stored, digest_size=16).digest() if digest else None
        return Header(width, height, image.format or "array", image.mode, mark)
    except RowError as error:
        raise RowError(error.problem, row_id=row_id, column=column, fault=error.fault) from error.__cause__
    except Exception as error:
        raise RowError(_broken(error), row_id=row_id, column=column) from error


def encoded(value: Any, source: Source = DEFAULT_SOURCE) -> bytes:
    """Return the picture's bytes as they are stored; pictures and arrays in memory become PNG."""
    found = resolve(value, source)
    if isinstance(found, bytes):
        return found
    buffer = io.BytesIO()
    to_rgb(found, source=source).save(buffer, "PNG")
    return buffer.getvalue()


def _is_whole(data: bytes, kind: str | None) -> bool:
    """Whether the file ends where its format says; False also for formats whose end is not looked for."""
    if kind in ("JPEG", "MPO"):
        place = 2
        while data[place : place + 1] == b"\xff" and data[place + 1] != 0xDA:  # segments up to the first scan
            place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
        # inside a scan 0xFF is always followed by 0 or a restart mark, so this can only be the end
        return place + 2 < len(data) and (data.endswith(b"\xff\xd9") or data.find(b"\xff\xd9", place) > 0)
    if kind == "PNG":
        place = 8
        while place + 12 <= len(data):
            end = place + 8 + int.from_bytes(data[place : place + 4], "big")
            if zlib.crc32(data[place + 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
                return False
            if data[place + 4 : place + 8] == b"IEND":
                return True
            place = end + 4
        return False
    if kind == "WEBP":
        return int.from_bytes(data[4:8], "little") + 8 <= len(data)
    return False


def _limit(width: int, height: int, source: Source) -> None:
    if width < 1 or height < 1:
        raise RowError(f"a picture of {width}x{height} pixels has no area; drop the row", fault="too small")
    if width * height > source.max_pixels:
        raise RowError(
            f"{width}x{height} pixels are more than max_pixels={source.max_pixels}; "
            "raise Source(max_pixels=...) if this is no decompression bomb"
        )


def _open(data: bytes, source: Source) -> Image.Image:
    if not data:
        raise RowError("no bytes at all; drop the row", fault="missing")
    image = Image.open(io.BytesIO(data), formats=_OPENED)
    _limit(image.width, image.height, source)
    return image


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 where there is none or where it cannot be read."""
    try:
        value = image.getexif().get(0x0112, 1)
    except Exception:  # a broken EXIF block does not make the picture unusable
        return 1
    return value if value in range(1, 9) else 1


def _upright(image: Image.Image) -> Image.Image:
    turn = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }.get(_orientation(image))
    return image if turn is None else image.transpose(turn)


def _flatten(image: Image.Image) -> Image.Image:
    """To RGB: transparency on white, deep greys scaled; no metadata, so nothing turns the picture twice."""
    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        return _from_array(np.asarray(image)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("LA") if image.mode == "La" else image  # pillow has no direct way
        over = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", over.size, "white"), over).convert("RGB")
    flat = image.convert("RGB")
    if flat is image or flat.getexif():
        flat = flat.copy()
        flat.info = {}
        flat.getexif().clear()
    return flat


def _from_array(value: Any) -> Image.Image:
    """A picture from H x W, H x W x C or (torch's order) C x H x W numbers, C in 1..4; leading ones go."""
    channels_first = hasattr(value, "detach")
    if channels_first:  # torch, without importing it; numpy knows no bfloat16
        value = value.detach().cpu()
        value = value.float() if value.is_floating_point() else value
    array = np.asarray(value)
    shape = array.shape
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 3:
        first, last = array.shape[0] in (1, 2, 3, 4), array.shape[2] in (1, 2, 3, 4)
        if first and (channels_first or not last):
            array, last = array.transpose(1, 2, 0), True
        if not last:
            raise RowError(f"an array of shape {shape} is no picture; expected H x W, H x W x C or C x H x W")
        array = array[:, :, 0] if array.shape[2] == 1 else array
    if array.ndim not in (2, 3) or 0 in array.shape or array.dtype.kind not in "buif":
        raise RowError(f"an array of shape {shape} and type {array.dtype} is no picture; expected H x W x C numbers")
    return Image.fromarray(np.ascontiguousarray(_to_bytes(array)))


def _to_bytes(array: np.ndarray) -> np.ndarray:
    """Scale numbers to 0..255: by type for booleans, 8 and 16 bits, else by the range of the values."""
    if array.dtype == np.uint8:
        return array
    if array.dtype == bool:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype == np.uint16:
        return np.rint(array / 257).astype(np.uint8)
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if not finite.size:
        raise RowError("an array without one finite number; drop the row")
    low, high = float(finite.min()), float(finite.max())
    wide = np.nan_to_num(wide, nan=low, posinf=high, neginf=low)
    if array.dtype.kind == "f" and low >= -OVERSHOOT and high <= 1 + OVERSHOOT:
        wide = np.clip(wide, 0, 1) * 255
    elif array.dtype.kind in "iu" and low >= 0 and 255 < high <= 65535:
        wide = wide / 257
    elif low < 0 or high > 255:
        wide = (wide - low) / max(high - low, 1e-12) * 255
    return np.rint(wide).astype(np.uint8)


def _broken(error: Exception) -> str:
    return f"cannot be decoded ({type(error).__name__}: {shorten(str(error))}); mend the file or drop the row"
