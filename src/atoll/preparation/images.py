"""Raw images: files and arrays, as the pixels that a network takes. See `tables.py` for what this file may import."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from atoll.preparation.tables import RowError

IMAGES = (".png", ".jpg", ".jpeg", ".bmp")


def image_values(preparation: Mapping[str, Any], rows: Any) -> Any:
    """(rows, channels, height, width) of the type of the training data, from arrays, files, or a folder of files."""
    form = preparation["image"]
    if isinstance(rows, (str, Path)):
        path = Path(rows)
        if path.suffix.lower() in (".npy", ".npz"):
            return image_values(preparation, read_array(path))
        rows = image_files(path) if path.is_dir() else [path]
    if isinstance(rows, Sequence) and rows and all(isinstance(row, (str, Path)) for row in rows):
        return np.stack([_fitted(Path(row), form) for row in rows])
    pixels = np.asarray(rows)
    shape = (form["channels"], form["height"], form["width"])
    last = (*shape[1:], shape[0])
    if pixels.shape in (shape, last) or (shape[0] == 1 and pixels.shape == shape[1:]):
        pixels = pixels[None]
    if shape[0] == 1 and pixels.shape[1:] == shape[1:]:
        pixels = pixels[:, None]
    elif pixels.shape[1:] == last and pixels.shape[1:] != shape:
        pixels = np.moveaxis(pixels, 3, 1)
    if pixels.shape[1:] != shape:
        raise RowError(
            f"images of shape {pixels.shape}: the network takes {form['height']}x{form['width']} pixels with "
            f"{form['channels']} channel{'s' if form['channels'] > 1 else ''}",
            "image-shape",
        )
    if pixels.dtype != form["dtype"] and not (form["dtype"] == "float32" and pixels.dtype.kind in "fiu"):
        raise RowError(
            f"pixels of type {pixels.dtype}: the network takes {form['dtype']}, as its training data was", "pixel-type"
        )
    pixels = np.ascontiguousarray(pixels.astype(form["dtype"], copy=False))
    if pixels.dtype.kind == "f" and not np.isfinite(pixels).all():
        raise RowError("an image holds values that are not finite numbers; correct it", "infinite-value")
    return pixels


def image_files(folder: Path) -> list[Path]:
    """The images of a folder and of its sub-folders, sorted by name."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGES and path.is_file())
    if not found:
        raise RowError(f"'{folder}' holds no images (png, jpg, bmp); name the folder that does", "no-images")
    return found


def read_array(path: Path) -> Any:
    try:
        loaded = np.load(path, allow_pickle=False)
        return loaded["x"] if path.suffix.lower() == ".npz" else loaded
    except (OSError, ValueError, KeyError) as error:
        raise RowError(
            f"'{path}' is not a readable array, or archive with an array x ({error})", "file-damaged"
        ) from None


def _fitted(path: Path, form: Mapping[str, Any]) -> Any:
    """The pixels of an image file, (channels, height, width)."""
    plain = form["fit"] == "exact" and path.suffix.lower() == ".png"
    pixels = read_png(path) if plain else _by_pillow(path, form)
    if pixels.shape[:2] != (form["height"], form["width"]):
        raise RowError(
            f"'{path}' has {pixels.shape[1]}x{pixels.shape[0]} pixels; the network takes "
            f"{form['width']}x{form['height']}",
            "image-shape",
        )
    if form["channels"] == 1 and pixels.shape[2] == 3:
        # The usual weights of red, green and blue, in whole numbers.
        wide = pixels.astype(np.uint32)
        pixels = ((wide @ np.array([19595, 38470, 7471], np.uint32) + 0x8000) >> 16).astype(np.uint8)[:, :, None]
    elif form["channels"] == 3 and pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    return np.moveaxis(pixels, 2, 0).astype(form["dtype"])


def _by_pillow(path: Path, form: Mapping[str, Any]) -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise RowError(
            f"'{path}': only PNG is read without Pillow; install it (pip install pillow)", "no-pillow"
        ) from None
    try:
        with Image.open(path) as image:
            colour = image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")
            pixels = np.asarray(fit_image(colour, form["width"], form["fit"]), np.uint8)
    except (OSError, ValueError, SyntaxError) as error:
        raise RowError(f"'{path}' is not a readable image ({error}); replace it", "unreadable-picture") from None
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def fit_image(image: Any, size: int, fit: str) -> Any:
    """An image of Pillow's in size x size pixels: stretched, or with the centre cropped after the shorter side was
    resized to a little more than `size`; exact: as it is."""
    from PIL import Image

    if fit == "exact":
        return image
    if fit == "stretch":
        return image.resize((size, size), Image.Resampling.BILINEAR)
    wide, high = image.size
    factor = max(size, round(size * 256 / 224)) / min(wide, high)
    wide, high = max(size, round(wide * factor)), max(size, round(high * factor))
    left, top = (wide - size) // 2, (high - size) // 2
    return image.resize((wide, high), Image.Resampling.BILINEAR).crop((left, top, left + size, top + size))


def read_png(path: Path) -> Any:
    """The pixels of a PNG file of 8 bits a channel, (height, width, 1 or 3); transparency is ignored."""
    try:
        data = path.read_bytes()
        if data[:8] != b"\x89PNG\r\n\x1a\n":
            raise ValueError("no PNG signature")
        chunks: dict[bytes, bytes] = {}
        place = 8
        while place + 8 <= len(data):
            (length,) = struct.unpack(">I", data[place : place + 4])
            kind = data[place + 4 : place + 8]
            chunks[kind] = chunks.get(kind, b"") + data[place + 8 : place + 8 + length]
            place += 12 + length
        wide, high, depth, colour, _, _, laced = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
        samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
        if depth != 8 or laced:
            return _by_pillow(path, {"width": wide, "fit": "exact"})
        pixels = _unfiltered(zlib.decompress(chunks[b"IDAT"]), wide, high, samples)
        if colour == 3:
            return np.frombuffer(chunks[b"PLTE"], np.uint8).reshape(-1, 3)[pixels[:, :, 0]]
    except (OSError, ValueError, KeyError, IndexError, zlib.error, struct.error) as error:
        raise RowError(f"'{path}' is not a readable PNG image ({error}); replace it", "unreadable-picture") from None
    return pixels[:, :, :1] if samples < 3 else pixels[:, :, :3]


def _unfiltered(raw: bytes, wide: int, high: int, samples: int) -> Any:
    """The samples of an image: each line is stored as differences to the pixels to its left and above it."""
    lines = np.frombuffer(raw, np.uint8).reshape(high, 1 + wide * samples)
    above = np.zeros(wide * samples, np.uint8)
    done = np.empty((high, wide * samples), np.uint8)
    for row in range(high):
        kind, line = int(lines[row, 0]), lines[row, 1:].copy()
        if kind == 2:
            line += above
        elif kind:
            for place in range(len(line)):
                left = int(line[place - samples]) if place >= samples else 0
                up = int(above[place])
                corner = int(above[place - samples]) if place >= samples else 0
                guess = {1: left, 3: (left + up) // 2, 4: _paeth(left, up, corner)}[kind]
                line[place] = (int(line[place]) + guess) & 255
        done[row] = above = line
    return done.reshape(high, wide, samples)


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda one: abs(guess - one))
