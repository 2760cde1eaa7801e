"""ImageNet in its usual folders: train/n01440764/*.JPEG, and val/ with the same folders, or flat with a list of labels.

The labels of a flat val/ are in val.txt (`ILSVRC2012_val_00000001.JPEG 65`: the class by its number from 0 in the
order of the folders' names, or by its folder's name), or in LOC_val_solution.csv of the Kaggle edition. The validation
images are the official test set. An image's shorter side is resized to 8/7 of the size, and the centre is cropped.
There are no natural clients: use `iid` or another partition.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from atoll.data.image_files import ImageFiles, first_place
from atoll.data.partition import Indices
from atoll.data.source import Dataset, Source
from atoll.errors import DataError

SIZE = 224
PLACES = ("imagenet", "", "ILSVRC2012", "ILSVRC/Data/CLS-LOC", "imagenet/ILSVRC/Data/CLS-LOC")
LISTS = ("val.txt", "LOC_val_solution.csv")
SUFFIXES = (".jpeg", ".jpg", ".png")


def present(folder: Path) -> bool:
    return first_place(folder, PLACES, _is_root) is not None


def read(folder: Path | None, size: int | None = None) -> Source:
    """All images below train/, and those below val/, if there are any, as the test set."""
    root = _root(folder)
    classes = sorted(entry.name for entry in os.scandir(root / "train") if entry.is_dir() and entry.name[0] != ".")
    names, labels = _in_folders(root, "train", classes)
    if len(classes) < 2:
        raise DataError(
            f"'{root / 'train'}' has {len(classes)} class folder; a classifier needs at least two", code="single-class"
        )
    for number, name in enumerate(classes):
        if number not in labels:
            raise DataError(
                f"'{root / 'train' / name}' holds no images; fill it or remove it", code="class-without-pictures"
            )
    tests, answers = _validation(root, classes) if (root / "val").is_dir() else ([], [])
    side = SIZE if size is None else size
    images = ImageFiles(root, (*names, *tests), side, "crop")
    numbers = np.arange(len(names) + len(tests))
    test = (numbers[len(names) :], _codes(answers)) if tests else None
    return Source(numbers[: len(names)], _codes(labels), images.preparation(classes), test=test, images=images)


def _root(folder: Path | None) -> Path:
    what = "train/CLASS/*.JPEG (and val/)"
    if folder is None:
        raise DataError(
            f"data set 'imagenet' needs {what}: name the folder with --data-dir or ATOLL_DATA",
            code="no-data-folder",
        )
    root = first_place(folder, PLACES, _is_root)
    if root is None:
        raise DataError(
            f"data set 'imagenet' is not in '{folder}': put {what} there or into a sub-folder 'imagenet'",
            code="dataset-files-missing",
        )
    return root


def _is_root(place: Path) -> bool:
    """Whether train/ has WordNet folders; any other train/ may belong to another data set."""
    train = place / "train"
    return train.is_dir() and any(_is_class(entry.name) and entry.is_dir() for entry in os.scandir(train))


def _is_class(name: str) -> bool:
    return name[:1] == "n" and name[1:].isdecimal()


def _in_folders(root: Path, part: str, classes: list[str]) -> tuple[list[str], list[int]]:
    names: list[str] = []
    labels: list[int] = []
    for number, name in enumerate(classes):
        found = sorted(entry.name for entry in os.scandir(root / part / name) if _is_image(entry.name))
        names += [f"{part}/{name}/{image}" for image in found]
        labels += [number] * len(found)
    return names, labels


def _validation(root: Path, classes: list[str]) -> tuple[list[str], list[int]]:
    folders = sorted(entry.name for entry in os.scandir(root / "val") if entry.is_dir() and entry.name[0] != ".")
    if folders:
        unknown = next((name for name in folders if name not in classes), None)
        if unknown is not None:
            raise DataError(
                f"'{root / 'val' / unknown}' is a class that train/ does not have; remove it", code="unknown-class"
            )
        names, labels = _in_folders(root, "val", folders)
        return names, [classes.index(folders[label]) for label in labels]
    found = sorted(entry.name for entry in os.scandir(root / "val") if _is_image(entry.name))
    places = [place / name for place in (root / "val", root, *root.parents[:3]) for name in LISTS]
    listed = next((path for path in places if path.is_file()), None)
    if listed is None:
        raise DataError(
            f"'{root / 'val'}' is flat and has no list of labels; put {' or '.join(LISTS)} beside it, or sort the "
            "images into class folders",
            code="validation-labels-missing",
        )
    given = _listed(listed, classes)
    for name in found:
        if name not in given:
            raise DataError(f"'{listed}' has no label for {name}; put the original list there", code="label-missing")
    return [f"val/{name}" for name in found], [given[name] for name in found]


def _listed(path: Path, classes: list[str]) -> dict[str, int]:
    """Image -> class number."""
    number_of = {name: number for number, name in enumerate(classes)}
    found: dict[str, int] = {}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    table = path.suffix == ".csv"
    for number, line in enumerate(lines, start=1):
        words = line.replace(",", " ").split()
        if not words or (table and number == 1):
            continue
        label = words[1] if len(words) > 1 else ""
        code = number_of.get(label, int(label) if label.isdecimal() and not table else -1)
        if not 0 <= code < len(classes):
            raise DataError(
                f"'{path}' line {number}: {label!r} is not a class of train/; correct it", code="unknown-class"
            )
        found[f"{words[0]}.JPEG" if table else Path(words[0]).name] = code
    return found


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _codes(labels: list[int]) -> Indices:
    return np.array(labels, dtype=np.int64)


IMAGENET = Dataset(
    "image", "1,281,167 + 50,000", 1000, "Deng et al. 2009 (ILSVRC 2012)", read, takes=("size",), present=present
)
