"""Folders of images: client/class/name.png."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from atoll.data import DataSettings, Federated, load
from atoll.errors import DataError
from refusals import refused


def paint(path: Path, colour: int | tuple[int, ...], mode: str = "L", size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


def grey_folder(folder: Path) -> Path:
    for client in ("north", "south"):
        for shade, kind in ((0, "dark"), (255, "light")):
            for number in range(2):
                paint(folder / client / kind / f"{number}.png", shade)
    return folder


def take(folder: Path) -> Federated:
    return load(DataSettings(folder=str(folder), split=(1.0, 0.0, 0.0)), 0)


def test_grey_images(tmp_path: Path) -> None:
    federated = take(grey_folder(tmp_path))
    assert federated.names == ["north", "south"] and federated.schema.classes == ("dark", "light")
    assert federated.schema.shape == (1, 4, 6)  # channels, height, width
    x, y = federated.client("south").part("train")
    assert np.array_equal(x.mean(axis=(1, 2, 3)), y) and sorted(y.tolist()) == [0, 0, 1, 1]


def test_one_colour_image_makes_all_of_them_colour(tmp_path: Path) -> None:
    paint(grey_folder(tmp_path) / "north" / "light" / "2.png", (255, 0, 0), "RGB")
    assert take(tmp_path).schema.shape == (3, 4, 6)


def test_hidden_files_are_overlooked_and_numbers_sorted(tmp_path: Path) -> None:
    for kind in ("2", "10"):
        for number in range(2):
            paint(tmp_path / "c" / kind / f"{number}.png", 9)
    (tmp_path / "c" / "2" / ".hidden.png").write_bytes(b"")
    (tmp_path / "c" / "2" / "notes.txt").write_text("no picture")
    assert take(tmp_path).schema.classes == ("2", "10")


def test_images_that_do_not_fit(tmp_path: Path) -> None:
    folder = grey_folder(tmp_path)
    odd = folder / "south" / "light" / "x.png"
    paint(odd, 1, size=(5, 4))
    with refused(DataError, "picture-sizes-differ", odd, "5x4", "6x4"):
        take(folder)
    odd.write_bytes(b"not a picture")
    with refused(DataError, "unreadable-picture", odd):
        take(folder)
    paint(odd, 1)
    whole = odd.read_bytes()
    odd.write_bytes(whole[:50])
    with refused(DataError, "unreadable-picture", odd):
        take(folder)
    paint(odd, 1, "I;16")
    with refused(DataError, "unsupported-pixel-kind", odd, "I;16"):
        take(folder)


def test_a_client_with_one_image(tmp_path: Path) -> None:
    paint(grey_folder(tmp_path) / "west" / "dark" / "0.png", 0)
    with refused(DataError, "too-few-rows", "west' has 1 row"):
        take(tmp_path)
