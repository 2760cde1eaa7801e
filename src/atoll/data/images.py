"""A folder of pictures: client/class/picture.png."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

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
    with open_picture(path) as picture:
        if picture.mode not in GREY + COLOUR:
            raise DataError(
                f"'{path}' has pixels of kind {picture.mode}; save it with 8 bits a channel, grey or RGB",
                code="unsupported-pixel-kind",
            )
        return (picture.width, picture.height), picture.mode in GREY


def _pixels(path: Path, mode: str) -> Any:
    with open_picture(path) as picture:
        try:
            return np.asarray(picture.convert(mode), dtype=np.uint8)
        except (OSError, ValueError, SyntaxError) as error:
            raise DataError(
                f"'{path}' is a damaged picture ({error}); replace or remove it", code="unreadable-picture"
            ) from None


def open_picture(path: Path) -> Any:
    """A picture whose header is read, or a `DataError` of one line."""
    from PIL import Image

    try:
        return Image.open(path)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        text = str(error).splitlines()[0][:100]
        raise DataError(
            f"'{path}' is not a readable picture ({text}); replace or remove it", code="unreadable-picture"
        ) from None
