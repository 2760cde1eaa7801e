"""One client's rows as image files: class/name.png."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from atoll.data.files.agreement import Agreement, DataDescription, FileRows, Kind, Problem, too_few_rows
from atoll.data.image_files import SUFFIXES, open_image
from atoll.data.settings import DataSettings
from atoll.errors import DataError

GREY = ("1", "L", "LA")
COLOUR = ("RGB", "RGBA", "P", "PA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB")


@dataclass(frozen=True)
class ImageFolder:
    """Images of one size; one channel if those of all clients are grey, three otherwise."""

    kind: ClassVar[Kind] = "images"
    path: Path
    images: list[Path]

    @classmethod
    def open(cls, path: Path) -> ImageFolder:
        """All class/image files, sorted by name, without hidden ones. There may be none."""
        found = (image for image in path.glob("*/*") if image.suffix.lower() in SUFFIXES and image.is_file())
        return cls(path, sorted(image for image in found if not hidden(image) and not hidden(image.parent)))

    @property
    def rows(self) -> int:
        return len(self.images)

    def problems(self, settings: DataSettings, as_text: Collection[str] = ()) -> list[Problem]:
        found, first = too_few_rows(self.path, self.path.name, self.rows), None
        for image in self.images:
            try:
                size, _ = _header(image)
            except DataError as problem:
                found.append(Problem(problem.code, str(problem)))
                continue
            first = first or (image, size)
            if size != first[1]:
                text = f"'{image}' has {size[0]}x{size[1]} pixels, '{first[0]}' {first[1][0]}x{first[1][1]}"
                found.append(Problem("picture-sizes-differ", f"{text}; all images need one size"))
        return found

    def describe(self, settings: DataSettings, as_text: Collection[str] = ()) -> DataDescription:
        headers = [_header(image) for image in self.images]
        size = headers[0][0]
        labels = sorted({image.parent.name for image in self.images})
        return DataDescription(kind=self.kind, labels=labels, shape=size, grey=all(grey for _, grey in headers))

    def read(self, agreement: Agreement, settings: DataSettings, unseen: bool = False) -> FileRows:
        form = agreement.preparation.image
        x = np.stack([_pixels(image, "L" if form and form.channels == 1 else "RGB") for image in self.images])
        labels = np.array([image.parent.name for image in self.images])
        return FileRows(x, agreement.class_numbers(labels, self.path))


def hidden(path: Path) -> bool:
    return path.name.startswith(".")


def _header(path: Path) -> tuple[tuple[int, int], bool]:
    """Width and height, and whether the image is grey."""
    with open_image(path) as image:
        if image.mode not in GREY + COLOUR:
            raise DataError(
                f"'{path}' has pixels of kind {image.mode}; save it with 8 bits per channel, grey or RGB",
                code="unsupported-pixel-kind",
            )
        return (image.width, image.height), image.mode in GREY


def _pixels(path: Path, mode: str) -> Any:
    with open_image(path) as image:
        try:
            return np.asarray(image.convert(mode), dtype=np.uint8)
        except (OSError, ValueError, SyntaxError) as error:
            raise DataError(
                f"'{path}' is a damaged image ({error}); replace or remove it", code="unreadable-picture"
            ) from None
