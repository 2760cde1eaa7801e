"""Large image sets: only the images that a client (or the official test set) holds are decoded.

Readers of such sets list their files and put file numbers where other sources have pixels. Rows are then chosen and
assigned to clients as usual, and `decode_images` replaces the remaining numbers by pixels: in memory up to IN_MEMORY
bytes, beyond that in a file that is mapped into memory, written once for the same images at the same size. It is in
the folder ATOLL_CACHE, or in `.atoll` beside the images. 1,281,167 images of 224x224 take 193 GB: choose fewer with
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
from atoll.data.source import Source
from atoll.errors import DataError
from atoll.preparation.images import fit_image
from atoll.preparation.value import ImageForm, Preparation

IN_MEMORY = 1 << 30
CHANNELS = 3
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp")
Fit = Literal["stretch", "crop"]


def open_image(path: Path) -> Any:
    """An image whose header has been read."""
    from PIL import Image

    try:
        return Image.open(path)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        text = str(error).splitlines()[0][:100]
        raise DataError(
            f"'{path}' is not a readable image ({text}); replace or remove it", code="unreadable-picture"
        ) from None


@dataclass(frozen=True)
class ImageFiles:
    """Files below `root`, to be resized to `size` x `size` pixels in three channels."""

    root: Path
    names: tuple[str, ...]
    size: int
    fit: Fit

    def preparation(self, classes: Sequence[str]) -> Preparation:
        form = ImageForm(channels=CHANNELS, height=self.size, width=self.size, fit=self.fit)
        return Preparation(kind="image", image=form, classes=list(classes))

    def decode(self, numbers: Indices) -> Array:
        """The pixels of these images, (rows, 3, size, size), in memory or mapped from a file."""
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
        for row, number in enumerate(numbers.tolist()):
            path = self.root / self.names[number]
            with open_image(path) as image:
                try:
                    pixels[row] = np.moveaxis(np.asarray(fit_image(image.convert("RGB"), self.size, self.fit)), 2, 0)
                except (OSError, ValueError, SyntaxError) as error:
                    raise DataError(
                        f"'{path}' is a damaged image ({error}); replace or remove it", code="unreadable-picture"
                    ) from None

    def _write(self, path: Path, shape: tuple[int, ...], numbers: Indices) -> None:
        """Write under another name first: a file of this name is always complete."""
        aside = path.with_suffix(f".{os.getpid()}.part")
        try:
            pixels = np.lib.format.open_memmap(aside, mode="w+", dtype=np.uint8, shape=shape)
            self._fill(pixels, numbers)
            pixels.flush()
            os.replace(aside, path)
        except OSError as error:
            raise DataError(
                f"'{path.parent}' cannot hold {int(np.prod(shape)) / 1e9:.1f} GB of decoded images "
                f"({error.strerror or error}); free space, choose fewer rows or name another folder in ATOLL_CACHE",
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
                f"'{place}' cannot be created ({error.strerror or error}); decoded images need a folder: name one in "
                "ATOLL_CACHE",
                code="folder-not-writable",
            ) from None
        return place

    def _key(self, numbers: Indices) -> str:
        """Other images, changed files, another size or another fit give another file."""
        digest = hashlib.sha256(f"{self.size} {self.fit}\n".encode())
        for number in numbers.tolist():
            path = self.root / self.names[number]
            try:
                about = path.stat()
            except OSError as error:
                raise DataError(
                    f"'{path}' cannot be read ({error.strerror or error}); restore it", code="file-unreadable"
                ) from None
            digest.update(f"{self.names[number]} {about.st_size} {about.st_mtime_ns}\n".encode())
        return f"images-{digest.hexdigest()[:24]}"


def decode_images(source: Source, partition: Partition) -> tuple[Source, Partition]:
    """Pixels in place of file numbers for the rows that a client holds, and the partition of these rows alone."""
    if source.images is None:
        return source, partition
    kept = np.unique(partition.rows)
    tested = source.test[0] if source.test is not None else np.zeros(0, dtype=np.int64)
    pixels = source.images.decode(np.concatenate([source.x[kept], tested]).astype(np.int64))
    ready = replace(
        source,
        x=pixels[: len(kept)],
        y=source.y[kept],
        groups=None if source.groups is None else source.groups[kept],
        parts=None if source.parts is None else source.parts[kept],
        test=None if source.test is None else (pixels[len(kept) :], source.test[1]),
        images=None,
    )
    return ready, Partition(np.searchsorted(kept, partition.rows).astype(np.int64), partition.offsets)


def appended(x: Array, more: Array) -> Array:
    """`x` followed by `more`, without a copy if they are adjacent in memory: it may be a mapped file of 200 GB."""
    whole = x.base
    if isinstance(whole, np.ndarray) and whole is more.base and whole.shape == (len(x) + len(more), *x.shape[1:]):
        return whole
    return np.concatenate([x, more])


def first_place(folder: Path, places: Sequence[str], needed: Callable[[Path], bool]) -> Path | None:
    """The first of these sub-folders for which `needed` is true."""
    return next((folder / place for place in places if needed(folder / place)), None)
