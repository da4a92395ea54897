"""Pictures in every container and mode that public data sets use, and what must be refused."""

from __future__ import annotations

import base64
import http.server
import io
import random
import struct
import threading
import time
import urllib.parse
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from recipe_lib.image_sources import RowError, Source
from recipe_lib.images import FORMATS, as_list, header, to_rgb, to_rgb_list


def gradient(width: int = 40, height: int = 20) -> Image.Image:
    """No two rows or columns alike, so that every turn and crop shows."""
    y, x = np.mgrid[0:height, 0:width]
    return Image.fromarray(np.stack([x * 255 // width, y * 255 // height, (x + y) % 256], axis=2).astype(np.uint8))


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def same(image: Image.Image, other: Image.Image) -> bool:
    return image.mode == other.mode == "RGB" and image.size == other.size and image.tobytes() == other.tobytes()


# --- containers -----------------------------------------------------------------------------------


def containers(picture: Image.Image, folder) -> dict:
    data = encoded(picture)
    (folder / "x.png").write_bytes(data)
    array, text = np.asarray(picture), base64.b64encode(data).decode()
    return {
        "PIL": picture,
        "bytes": data,
        "bytearray": bytearray(data),
        "memoryview": memoryview(data),
        "file object": io.BytesIO(data),
        "dict of bytes": {"bytes": data, "path": None},
        "bytes before a path that is gone": {"bytes": data, "path": "gone.png"},
        "dict of a path": {"bytes": None, "path": "x.png"},
        "list of a dict": [{"bytes": data}],
        "path text": "x.png",
        "absolute path inside": str(folder / "x.png"),
        "Path of the caller": folder / "x.png",
        "file URL": f"file://{folder}/x.png",
        "base64": text,
        "base64 in lines, unpadded": "\n".join(text[i : i + 76] for i in range(0, len(text), 76)).rstrip("="),
        "URL-safe base64": base64.urlsafe_b64encode(data).decode(),
        "data URL": f"data:image/png;base64,{text}",
        "data URL without base64": "data:image/png," + urllib.parse.quote_from_bytes(data),
        "image_url part": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{text}"}},
        "image part": {"type": "image", "image": picture},
        "array": array,
        "array of a batch of one": array[None],
        "channels first": array.transpose(2, 0, 1),
        "nested lists": array.tolist(),
        "int64": array.astype(np.int64),
        "float 0..1": array / 255,
        "float 0..255": array.astype(np.float32),
        "tensor": torch.from_numpy(array.copy()).permute(2, 0, 1),
        "tensor with a gradient": (torch.from_numpy(array / 255)).permute(2, 0, 1).requires_grad_(),
    }


NAMES = list(containers(Image.new("RGB", (2, 2)), __import__("pathlib").Path(__import__("tempfile").mkdtemp())))


@pytest.mark.parametrize("name", NAMES)
def test_every_container_gives_the_same_picture(name, tmp_path):
    picture = gradient()
    value = containers(picture, tmp_path)[name]
    source = Source(root=tmp_path)
    if name != "file object":  # read to its end by whoever comes first
        found = header(value, source=source)
        assert (found.width, found.height) == (40, 20)
    assert same(to_rgb(value, source=source), picture)


def test_bfloat16_tensors_lose_no_more_than_their_precision():
    tensor = torch.from_numpy(np.asarray(gradient()) / 255).permute(2, 0, 1).to(torch.bfloat16)
    difference = np.asarray(to_rgb(tensor), dtype=int) - np.asarray(gradient(), dtype=int)
    assert np.abs(difference).max() <= 1


def test_square_arrays_with_few_columns_are_read_in_their_librarys_order():
    tall = np.zeros((3, 50, 3), np.uint8)
    assert to_rgb(tall).size == (50, 3)
    assert to_rgb(torch.zeros(3, 50, 3)).size == (3, 50)


def test_lists_of_pictures():
    data = encoded(gradient())
    assert to_rgb_list(None) == to_rgb_list([]) == to_rgb_list([None]) == []
    assert [image.size for image in to_rgb_list([data, gradient(5, 6)])] == [(40, 20), (5, 6)]
    assert len(to_rgb_list({"bytes": data})) == len(to_rgb_list(data)) == 1
    assert len(as_list(np.asarray(gradient()).tolist())) == 1
    with pytest.raises(RowError, match="a list of 2 pictures where one was expected"):
        to_rgb([data, data])


def test_the_callers_picture_is_left_alone():
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = Image.open(io.BytesIO(encoded(gradient(), "JPEG", exif=exif)))
    assert to_rgb(turned).size == (20, 40)
    assert turned.size == (40, 20)
    plain = gradient()
    plain.info["note"] = "mine"
    to_rgb(plain)
    assert plain.info == {"note": "mine"}


# --- orientation ----------------------------------------------------------------------------------


def test_exif_rotation_is_applied_to_every_orientation_and_format():
    picture = gradient(48, 16)
    for kind in ("JPEG", "PNG", "WEBP", "TIFF"):
        lossless = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {"lossless": True}
        for orientation in range(1, 9):
            exif = Image.Exif()
            exif[0x0112] = orientation
            data = encoded(picture, kind, exif=exif, **({} if kind in ("PNG", "TIFF") else lossless))
            undo = {1: None, 2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}[orientation]
            expected = picture if undo is None else picture.transpose(undo)
            found = to_rgb(data)
            assert found.size == expected.size == (header(data).width, header(data).height), (kind, orientation)
            difference = np.asarray(found, dtype=int) - np.asarray(expected, dtype=int)
            assert np.abs(difference).mean() < 3, (kind, orientation)
            assert found.getexif().get(0x0112) is None  # or the next reader turns it again


def test_the_camera_case():
    exif = Image.Exif()
    exif[0x0112] = 6
    assert to_rgb(encoded(Image.new("RGB", (40, 20)), "JPEG", exif=exif)).size == (20, 40)


def test_a_broken_exif_block_does_not_lose_the_picture():
    data = encoded(gradient(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert to_rgb(data).size == (40, 20)
    exif = Image.Exif()
    exif[0x0112] = 77
    assert to_rgb(encoded(gradient(), "JPEG", exif=exif)).size == (40, 20)


# --- modes ----------------------------------------------------------------------------------------


def drawing(mode: str) -> Image.Image:
    """A black square on a transparent ground."""
    rgba = Image.new("RGBA", (20, 20), (0, 0, 0, 0))
    rgba.paste((0, 0, 0, 255), (5, 5, 15, 15))
    return rgba.convert(mode) if mode != "P" else rgba.quantize(4)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "PA", "RGBa", "La"])
def test_transparent_ground_becomes_white_so_that_a_black_drawing_stays_visible(mode):
    through = {"La": "LA", "PA": "P"}.get(mode, mode)  # pillow's own way to these two
    image = drawing(through).convert(mode) if through != mode else drawing(mode)
    found = to_rgb(image)
    assert found.mode == "RGB"
    assert found.getpixel((1, 1)) == (255, 255, 255)
    assert found.getpixel((10, 10)) == (0, 0, 0)


def test_a_transparent_colour_of_a_plain_png_becomes_white():
    grey = Image.new("L", (8, 8), 0)
    grey.paste(200, (0, 0, 4, 8))
    assert to_rgb(encoded(grey, transparency=0)).getpixel((6, 6)) == (255, 255, 255)
    colour = Image.new("RGB", (8, 8), (1, 2, 3))
    assert to_rgb(encoded(colour, transparency=(1, 2, 3))).getpixel((6, 6)) == (255, 255, 255)
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    assert to_rgb(encoded(palette, transparency=1)).getpixel((6, 6)) == (255, 255, 255)
    assert to_rgb(encoded(palette)).getpixel((6, 6)) == (10, 20, 30)


def test_half_transparency_mixes_with_white():
    assert to_rgb(Image.new("RGBA", (2, 2), (0, 0, 0, 128))).getpixel((0, 0)) == (127, 127, 127)


@pytest.mark.parametrize("mode", ["1", "L", "CMYK", "YCbCr", "HSV", "RGBX"])
def test_other_modes_become_rgb(mode):
    white = Image.new("RGB", (8, 8), "white").convert(mode)
    assert to_rgb(white).getpixel((3, 3)) == (255, 255, 255)


def test_cmyk_jpegs_keep_their_colours():
    red = Image.new("RGB", (16, 16), (250, 10, 10)).convert("CMYK")
    found = to_rgb(encoded(red, "JPEG", quality=100)).getpixel((8, 8))
    assert np.abs(np.array(found) - (250, 10, 10)).max() < 6


def test_deep_greys_are_scaled_and_not_clipped():
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    expected = np.rint(ramp / 257).astype(np.uint8)
    for value in (encoded(Image.fromarray(ramp)), encoded(Image.fromarray(ramp), "TIFF"), ramp, ramp.astype(np.int32)):
        assert np.array_equal(np.asarray(to_rgb(value))[:, :, 0], expected)
    big_endian = encoded(Image.fromarray(ramp), "TIFF")
    assert np.array_equal(np.asarray(to_rgb(Image.open(io.BytesIO(big_endian))))[:, :, 1], expected)
    unit = np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16)
    for value in (Image.fromarray(unit), encoded(Image.fromarray(unit), "TIFF"), unit, unit.astype(np.float16)):
        got = np.asarray(to_rgb(value))[:, :, 0].astype(int)
        assert np.abs(got - np.rint(unit * 255)).max() <= 1
    metres = np.linspace(-3, 5000, 256, dtype=np.float32).reshape(16, 16)
    metres[0, 0] = np.nan
    depth = np.asarray(to_rgb(metres))[:, :, 0]
    assert depth.min() == 0 and depth.max() == 255 and depth[0, 0] == 0
    assert np.all(np.diff(depth.ravel()[1:].astype(int)) >= 0)


def test_booleans_and_grey_shapes():
    mask = np.zeros((4, 6), bool)
    mask[0, 0] = True
    assert to_rgb(mask).getpixel((0, 0)) == (255, 255, 255)
    assert to_rgb(mask).getpixel((1, 1)) == (0, 0, 0)
    assert to_rgb(np.full((4, 6, 1), 9, np.uint8)).getpixel((0, 0)) == (9, 9, 9)
    assert to_rgb(torch.full((1, 4, 6), 9, dtype=torch.uint8)).size == (6, 4)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "ICO", "TGA", "MPO"])
def test_every_usual_format_is_read(kind):
    image = gradient(32, 32)
    assert to_rgb(encoded(image, kind)).size == (32, 32)
    assert kind in FORMATS


def test_the_first_frame_of_an_animation_is_taken():
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert to_rgb(data).getpixel((4, 4)) == (255, 0, 0)


# --- what is refused ------------------------------------------------------------------------------


def png_of_claimed_size(width: int, height: int) -> bytes:
    """A PNG whose header claims a size that its few bytes cannot fill: the head of a decompression bomb."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


REFUSED = {
    "half a JPEG": (lambda: encoded(gradient(200, 200), "JPEG")[:2000], "cannot be decoded"),
    "half a PNG": (lambda: encoded(gradient(200, 200))[:300], "cannot be decoded"),
    "a bomb": (lambda: png_of_claimed_size(60000, 60000), "more than max_pixels|DecompressionBomb"),
    "a large one": (lambda: png_of_claimed_size(9000, 9000), r"9000x9000 pixels are more than max_pixels"),
    "neither": (lambda: {"bytes": None, "path": None}, "neither bytes nor path"),
    "no keys": (dict, "neither bytes nor path"),
    "no bytes": (lambda: b"", "no bytes at all"),
    "noise": (lambda: b"not a picture", "cannot be decoded"),
    "a program": (lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "cannot be decoded"),
    "a number": (lambda: 3, "a int is no picture"),
    "None": (lambda: None, "a NoneType is no picture"),
    "an address": (lambda: "http://127.0.0.1:1/x.png", "not fetched by default"),
    "another address": (lambda: "s3://bucket/x.png", "addresses of kind s3:// are not read"),
    "a path": (lambda: "x.png", "no folder was allowed"),
    "odd base64": (lambda: "data:image/png;base64,????", "does not decode"),
    "half a data URL": (lambda: "data:image/png;base64", "without a comma"),
    "five channels": (lambda: np.zeros((7, 7, 5)), "expected H x W"),
    "text array": (lambda: np.array([["a"]]), "is no picture"),
    "no area": (lambda: np.zeros((0, 5, 3), np.uint8), "is no picture"),
    "nothing finite": (lambda: np.full((4, 4), np.nan), "without one finite number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_pictures_are_refused_by_row_and_column(name):
    make, words = REFUSED[name]
    with pytest.raises(RowError, match=words) as caught:
        to_rgb(make(), row_id="r-17", column="photo")
    assert str(caught.value).startswith("row r-17, column 'photo': ")
    assert caught.value.row_id == "r-17"


def test_a_bomb_is_refused_from_its_header_before_memory_is_spent():
    started = time.perf_counter()
    with pytest.raises(RowError, match="max_pixels"):
        header(png_of_claimed_size(9000, 9000))
    assert time.perf_counter() - started < 0.5
    wide = Source(max_pixels=100_000_000)
    assert header(png_of_claimed_size(9000, 9000), source=wide).width == 9000


def test_only_the_sets_own_folder_is_read(tmp_path):
    (tmp_path / "set").mkdir()
    gradient().save(tmp_path / "secret.png")
    gradient().save(tmp_path / "set" / "x.png")
    (tmp_path / "set" / "link.png").symlink_to(tmp_path / "secret.png")
    source = Source(root=tmp_path / "set")
    assert to_rgb("x.png", source=source).size == (40, 20)
    for path in ("../secret.png", str(tmp_path / "secret.png"), "link.png", f"file://{tmp_path}/secret.png"):
        for value in (path, {"bytes": None, "path": path}, {"type": "image", "image": path}):
            with pytest.raises(RowError, match="outside the data set's folder"):
                to_rgb(value, source=source)
    with pytest.raises(RowError, match="no such file"):
        to_rgb("gone.png", source=source)
    with pytest.raises(RowError, match="no such file"):  # a device would block or never end
        to_rgb("/dev/zero", source=Source(root="/"))
    with pytest.raises(RowError, match="max_bytes=10"):
        to_rgb("set/x.png", source=Source(root=tmp_path, max_bytes=10))


class Server(http.server.BaseHTTPRequestHandler):
    """Serves one picture, one without end, and one that drips."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        try:
            if self.path == "/x.png":
                self.wfile.write(encoded(gradient()))
            while self.path in ("/endless", "/slow"):
                self.wfile.write(b"x" * (1 if self.path == "/slow" else 65536))
                time.sleep(0.05 if self.path == "/slow" else 0)
        except OSError:
            pass

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()


def test_fetching_is_opt_in_and_bounded_in_size_and_time(server):
    with pytest.raises(RowError, match="not fetched by default"):
        to_rgb(f"{server}/x.png")
    assert same(to_rgb(f"{server}/x.png", source=Source(fetch_urls=True)), gradient())
    with pytest.raises(RowError, match="max_bytes=1000000"):
        to_rgb(f"{server}/endless", source=Source(fetch_urls=True, max_bytes=1_000_000))
    started = time.perf_counter()
    with pytest.raises(RowError, match="took longer than"):
        to_rgb(f"{server}/slow", source=Source(fetch_urls=True, timeout_s=0.3))
    assert time.perf_counter() - started < 3


# --- anything at all ------------------------------------------------------------------------------

KEYS = st.sampled_from(["bytes", "path", "image", "image_url", "url", "data", "array", "type"])
PICTURE = encoded(gradient(), "JPEG")
BYTES = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda n: PICTURE[:n], st.integers(0, len(PICTURE))),
    st.builds(
        lambda i, b: PICTURE[:i] + bytes([b]) + PICTURE[i + 1 :], st.integers(0, len(PICTURE)), st.integers(0, 255)
    ),
    st.sampled_from([b"GIF89a", b"\x89PNG\r\n\x1a\n", b"RIFF0000WEBP", b"II*\0", b"BM", b"P6 9 9 255 "]).flatmap(
        lambda head: st.binary(max_size=80).map(lambda tail: head + tail)
    ),
)
LEAVES = st.one_of(st.none(), BYTES, st.text(max_size=80), st.integers(), st.floats(), st.booleans())
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=3),
        st.dictionaries(st.text(), inner, max_size=2),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(VALUES)
def test_random_input_gives_a_picture_or_a_named_error(value):
    source = Source(max_pixels=1_000_000)
    try:
        assert to_rgb(value, row_id=5, source=source).mode == "RGB"
    except RowError as error:
        assert str(error).startswith("row 5, column 'images': ")
    try:
        assert header(value, row_id=5, source=source).width > 0
    except RowError as error:
        assert error.row_id == 5
    try:
        to_rgb_list(value, row_id=5, source=source)
    except RowError as error:
        assert error.row_id == 5


def test_bytes_flipped_at_random_in_every_format():
    rng = random.Random(0)
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"):
        data = encoded(gradient(30, 30), kind)
        for _ in range(60):
            broken = bytearray(data)
            for _ in range(rng.randint(1, 8)):
                broken[rng.randrange(len(broken))] = rng.randrange(256)
            try:
                assert to_rgb(bytes(broken), row_id=1, source=Source(max_pixels=1_000_000)).mode == "RGB"
            except RowError as error:
                assert "row 1" in str(error)


def test_pictures_that_no_one_converted_are_seen_by_transparency_in_the_palette():
    image = drawing("P")
    assert "transparency" not in image.info  # the alpha sits in the palette itself
    assert to_rgb(image).getpixel((1, 1)) == (255, 255, 255)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_a_header_is_not_believed_where_the_file_is_cut_short(kind, monkeypatch):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 90, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x010E] = "a thumbnail ends with \xff\xd9 too"
    data = encoded(noise, kind, **({"exif": exif} if kind in ("JPEG", "PNG", "WEBP") else {}))
    assert header(data).width == 90
    for part in (0.3, 0.5, 0.9):
        with pytest.raises(RowError, match="cannot be decoded"):
            header(data[: int(len(data) * part)])
    if kind in ("JPEG", "PNG", "WEBP"):  # the usual formats are not decoded for this
        monkeypatch.setattr(Image.Image, "load", lambda *_: pytest.fail("decoded"))
        assert header(data).width == 90


def test_a_header_finds_a_png_whose_bytes_were_changed():
    data = bytearray(encoded(gradient(90, 90)))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(RowError, match="cannot be decoded"):
        header(bytes(data))


def test_digests_are_of_the_encoded_bytes():
    data = encoded(gradient())
    one, other = (header(value, digest=True).digest for value in (data, {"bytes": data}))
    assert one == other != header(encoded(gradient(), "BMP"), digest=True).digest
    assert header(data).digest is None
