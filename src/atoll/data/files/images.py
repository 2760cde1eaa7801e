"""Large sets of pictures: only those that a client (or the official test set) really holds are ever decoded.

Readers of such sets list their pictures and put picture numbers where other sources have pixels. Rows are then chosen
and dealt out as usual, and `develop` turns the numbers that are left into pixels: in memory up to IN_MEMORY bytes,
beyond that in a file that is mapped into memory, made once for the same pictures at the same size. It lies in the
folder ATOLL_CACHE, or in `.atoll` beside the pictures. 1,281,167 pictures of 224x224 are 193 GB: choose fewer with
`data.rows`, or smaller ones with `data.size`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from atoll.core.messages import Array
from atoll.data.partition import Indices, Partition
from atoll.data.source import Source, make_source
from atoll.errors import DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp")
GREY = ("1", "L", "LA")
COLOUR = ("RGB", "RGBA", "P", "PA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")


def pictures(folder: Path) -> list[Path]:
    """All client/class/picture files, sorted by name, hidden ones left out."""
    found = (path for path in folder.glob("*/*/*") if path.suffix.lower() in SUFFIXES and path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def read_images(folder: Path) -> Source:
    """Pictures of one size; one channel if all of them are grey, three otherwise."""
    paths = pictures(folder)
    _, grey = look_at(paths)
    clients = sorted({path.parent.parent.name for path in paths})
    classes = sorted_classes({path.parent.name for path in paths})
    return make_source(
        pixels(paths, grey),
        np.array([classes.index(path.parent.name) for path in paths]),
        class_names=classes,
        groups=np.array([clients.index(path.parent.parent.name) for path in paths], dtype=np.int64),
        group_names=clients,
        what=f"'{folder}'",
    )


def look_at(paths: list[Path]) -> tuple[tuple[int, int], bool]:
    """Width and height of the pictures, which must all have the same, and whether all of them are grey."""
    looks = [_look(path) for path in paths]
    size = looks[0][0]
    for path, (other, _) in zip(paths, looks, strict=True):
        if other != size:
            raise DataError(
                f"'{path}' is {other[0]}x{other[1]} pixels, '{paths[0]}' {size[0]}x{size[1]}; all must have one size",
                code="picture-sizes-differ",
            )
    return size, all(grey for _, grey in looks)


def pixels(paths: list[Path], grey: bool) -> Any:
    """One array of all pictures, with one channel or three."""
    return np.stack([_pixels(path, "L" if grey else "RGB") for path in paths])


def sorted_classes(names: set[str]) -> list[str]:
    """Whole numbers by size, words by the alphabet."""
    return sorted(names, key=int) if all(name.isdecimal() for name in names) else sorted(names)


def _look(path: Path) -> tuple[tuple[int, int], bool]:
    """Size, and whether the picture is grey, from the file's header."""
    with open_image(path) as picture:
        if picture.mode not in GREY + COLOUR:
            raise DataError(
                f"'{path}' has pixels of kind {picture.mode}; save it with 8 bits a channel, grey or RGB",
                code="unsupported-pixel-kind",
            )
        return (picture.width, picture.height), picture.mode in GREY


def _pixels(path: Path, mode: str) -> Any:
    with open_image(path) as picture:
        try:
            return np.asarray(picture.convert(mode), dtype=np.uint8)
        except (OSError, ValueError, SyntaxError) as error:
            raise DataError(
                f"'{path}' is a damaged picture ({error}); replace or remove it", code="unreadable-picture"
            ) from None


def open_image(path: Path) -> Any:
    """A picture whose header is read, or a `DataError` of one line."""
    from PIL import Image

    try:
        return Image.open(path)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        text = str(error).splitlines()[0][:100]
        raise DataError(
            f"'{path}' is not a readable picture ({text}); replace or remove it", code="unreadable-picture"
        ) from None


IN_MEMORY = 1 << 30
CHANNELS = 3
MARGIN = 256 / 224  # `crop`: the shorter side is resized to this times the size before the middle is cut out
Fit = Literal["stretch", "crop"]


@dataclass(frozen=True)
class ImageFiles:
    """Files below `root`, to be brought to `size` x `size` pixels in three channels."""

    root: Path
    names: tuple[str, ...]
    size: int
    fit: Fit

    def decode(self, numbers: Indices) -> Array:
        """The pixels of these pictures, (rows, 3, size, size), from memory or from the mapped file."""
        shape = (len(numbers), CHANNELS, self.size, self.size)
        if int(np.prod(shape)) <= IN_MEMORY:
            pixels = np.empty(shape, dtype=np.uint8)
            self._fill(pixels, numbers)
            return pixels
        path = self._place() / f"{self._key(numbers)}.npy"
        if not path.exists():
            self._write(path, shape, numbers)
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))

    def _fill(self, pixels: Array, numbers: Indices) -> None:
        change = _FITS[self.fit]
        for row, number in enumerate(numbers.tolist()):
            path = self.root / self.names[number]
            with open_image(path) as picture:
                try:
                    pixels[row] = np.moveaxis(np.asarray(change(picture.convert("RGB"), self.size)), 2, 0)
                except (OSError, ValueError, SyntaxError) as error:
                    raise DataError(
                        f"'{path}' is a damaged picture ({error}); replace or remove it", code="unreadable-picture"
                    ) from None

    def _write(self, path: Path, shape: tuple[int, ...], numbers: Indices) -> None:
        """Aside first: a file of this name is always whole."""
        aside = path.with_suffix(f".{os.getpid()}.part")
        try:
            pixels = np.lib.format.open_memmap(aside, mode="w+", dtype=np.uint8, shape=shape)
            self._fill(pixels, numbers)
            pixels.flush()
            os.replace(aside, path)
        except OSError as error:
            raise DataError(
                f"'{path.parent}' cannot hold {int(np.prod(shape)) / 1e9:.1f} GB of decoded pictures "
                f"({error.strerror or error}); make room, choose fewer rows or name another folder in ATOLL_CACHE",
                code="pictures-not-cached",
            ) from None
        finally:
            with suppress(OSError):
                aside.unlink(missing_ok=True)

    def _place(self) -> Path:
        place = Path(os.environ.get("ATOLL_CACHE") or self.root / ".atoll")
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"'{place}' cannot be made ({error.strerror or error}); decoded pictures need a folder: name one in "
                "ATOLL_CACHE",
                code="folder-not-writable",
            ) from None
        return place

    def _key(self, numbers: Indices) -> str:
        """Other pictures, changed files, another size or another way of fitting them give another file."""
        digest = hashlib.sha256(f"{self.size} {self.fit}\n".encode())
        for number in numbers.tolist():
            path = self.root / self.names[number]
            try:
                about = path.stat()
            except OSError as error:
                raise DataError(
                    f"'{path}' cannot be read ({error.strerror or error}); put it there", code="file-unreadable"
                ) from None
            digest.update(f"{self.names[number]} {about.st_size} {about.st_mtime_ns}\n".encode())
        return f"pictures-{digest.hexdigest()[:24]}"


def develop(source: Source, dealt: Partition) -> tuple[Source, Partition]:
    """Pixels for the picture numbers of the rows that were dealt out, and the partition over those rows alone."""
    if source.pictures is None:
        return source, dealt
    kept = np.unique(dealt.rows)
    tested = source.test[0] if source.test is not None else np.zeros(0, dtype=np.int64)
    pixels = source.pictures.decode(np.concatenate([source.x[kept], tested]).astype(np.int64))
    ready = replace(
        source,
        x=pixels[: len(kept)],
        y=source.y[kept],
        groups=None if source.groups is None else source.groups[kept],
        parts=None if source.parts is None else source.parts[kept],
        test=None if source.test is None else (pixels[len(kept) :], source.test[1]),
        pictures=None,
    )
    return ready, Partition(np.searchsorted(kept, dealt.rows).astype(np.int64), dealt.offsets)


def appended(x: Array, more: Array) -> Array:
    """`x` and then `more`; where they lie that way in memory already, that memory: it may be a file of 200 GB."""
    whole = x.base
    if isinstance(whole, np.ndarray) and whole is more.base and whole.shape == (len(x) + len(more), *x.shape[1:]):
        return whole
    return np.concatenate([x, more])


def first_place(folder: Path, places: Sequence[str], needed: Callable[[Path], bool]) -> Path | None:
    """The first of these sub-folders that has what is needed."""
    return next((folder / place for place in places if needed(folder / place)), None)


def _stretch(picture: Any, size: int) -> Any:
    return picture.resize((size, size), _smooth())


def _crop(picture: Any, size: int) -> Any:
    """Resize so that the shorter side is a little longer than wanted, then take the middle."""
    wide, high = picture.size
    factor = max(size, round(size * MARGIN)) / min(wide, high)
    wide, high = max(size, round(wide * factor)), max(size, round(high * factor))
    left, top = (wide - size) // 2, (high - size) // 2
    return picture.resize((wide, high), _smooth()).crop((left, top, left + size, top + size))


def _smooth() -> Any:
    from PIL import Image

    return Image.Resampling.BILINEAR


_FITS: dict[Fit, Callable[[Any, int], Any]] = {"stretch": _stretch, "crop": _crop}
