"""The image sets of the catalogue, read from any of their published file formats."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from atoll.core.messages import Array
from atoll.data.files.formats import Bytes, cifar_records, read_idx, read_mat, read_npz, tar_members
from atoll.data.published import ARCHIVES, PUBLISHED, remember, verify
from atoll.data.source import Dataset, Source, make_source
from atoll.errors import DataError

Arrays = tuple[Array, Array, Array, Array]  # x_train, y_train, x_test, y_test

FASHION_CLASSES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_WORDS = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can "
    "castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin "
    "elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard "
    "lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear "
    "pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal "
    "shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank "
    "telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm "
)
CIFAR100_CLASSES = tuple(_WORDS.split())
DIGIT_CLASSES = tuple(str(digit) for digit in range(10))
CLASSES: dict[str, tuple[str, ...]] = {
    "mnist": DIGIT_CLASSES,
    "fashion_mnist": FASHION_CLASSES,
    "cifar10": CIFAR10_CLASSES,
    "cifar10_small": CIFAR10_CLASSES,
    "cifar100": CIFAR100_CLASSES,
    "svhn": DIGIT_CLASSES,
}


def image_set(name: str, folder: Path | None) -> Source:
    """An image set with its official test set."""
    if folder is None:
        raise DataError(
            f"data set '{name}' needs files: name their folder with --data-dir or ATOLL_DATA; {hint(name)}",
            code="no-data-folder",
        )
    files = find(name, folder)
    if not files:
        raise DataError(f"data set '{name}' is not in '{folder}': {hint(name)}", code="dataset-files-missing")
    known = {path: _known(name, path) for path in files}
    for path in files:
        verify(path, known[path])
    x_train, y_train, x_test, y_test = _reader(files)(name, files)
    source = make_source(x_train, y_train, class_names=CLASSES[name], test=(x_test, y_test), what=f"data set '{name}'")
    for path in files:
        remember(path, known[path])
    return source


def find(name: str, folder: Path) -> list[Path]:
    """The first complete set of files this data set can be read from; empty if there is none."""
    for candidate in _candidates(name):
        for place in (folder / name, folder, *(folder / extra for extra in _FOLDERS.get(name, ()))):
            paths = [place / file for file in candidate]
            # Idx files have the same names in several data sets: they must be in a folder named after the data set.
            if all(path.is_file() for path in paths) and (place != folder or "idx" not in candidate[0]):
                return paths
    return []


def hint(name: str) -> str:
    """Which files to put where."""
    choices = [" + ".join(candidate) for candidate in _candidates(name)[:2]]
    fetch = f", or run `atoll datasets fetch {name}`" if name in PUBLISHED else ""
    return f"put {' or '.join(choices)} into a sub-folder '{name}' there{fetch}"


_FOLDERS = {"cifar10": ("cifar-10-batches-bin",), "cifar100": ("cifar-100-binary",)}


def _candidates(name: str) -> list[list[str]]:
    sets = [[f"{name}.npz"]]
    if name in PUBLISHED:
        sets.append(list(PUBLISHED[name].files))
    if name in ("mnist", "fashion_mnist"):
        sets.append([file.removesuffix(".gz") for file in PUBLISHED[name].files])
    if name == "cifar10":
        sets.append([*_TRAIN_BATCHES, "test_batch.bin"])
    if name == "cifar100":
        sets.append(["train.bin", "test.bin"])
    return sets


_TRAIN_BATCHES = [f"data_batch_{number}.bin" for number in range(1, 6)]


def _known(name: str, path: Path) -> str | None:
    if path.suffix == ".npz":
        return ARCHIVES.get(path.name)
    return PUBLISHED[name].files.get(path.name) if name in PUBLISHED else None


def _reader(files: list[Path]) -> Callable[[str, list[Path]], Arrays]:
    readers = {".npz": _from_npz, ".mat": _from_mat, ".bin": _from_bin}
    if files[0].name.endswith(".tar.gz"):
        return _from_tar
    return readers.get(files[0].suffix, _from_idx)


def _from_npz(_name: str, files: list[Path]) -> Arrays:
    arrays = read_npz(files[0], ("x_train", "y_train", "x_test", "y_test"))
    return arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"]


def _from_idx(_name: str, files: list[Path]) -> Arrays:
    x_train, y_train, x_test, y_test = (read_idx(path) for path in files)
    return x_train, y_train, x_test, y_test


def _from_mat(_name: str, files: list[Path]) -> Arrays:
    pairs: list[Array] = []
    for path in files:
        arrays = read_mat(path)
        if "X" not in arrays or "y" not in arrays or arrays["X"].ndim != 4:
            raise DataError(
                f"'{path}' has no arrays X and y of cropped digits; get SVHN's format 2 files", code="array-missing"
            )
        # MATLAB puts the rows last, and SVHN writes the digit 0 as 10.
        pairs += [np.transpose(arrays["X"], (3, 0, 1, 2)), arrays["y"].reshape(-1) % 10]
    return pairs[0], pairs[1], pairs[2], pairs[3]


def _from_bin(name: str, files: list[Path]) -> Arrays:
    return _cifar(name, {path.name: path.read_bytes() for path in files})


def _from_tar(name: str, files: list[Path]) -> Arrays:
    return _cifar(name, tar_members(files[0], _candidates(name)[-1]))


def _cifar(name: str, content: dict[str, bytes]) -> Arrays:
    label_bytes = 2 if name == "cifar100" else 1
    parts: list[tuple[Bytes, Bytes]] = [cifar_records(raw, label_bytes, file) for file, raw in content.items()]
    order = list(content)
    test = order.index("test.bin" if name == "cifar100" else "test_batch.bin")
    # The members of an archive are in any order; training batches are joined in the order of their names.
    train = sorted((index for index in range(len(order)) if index != test), key=lambda index: order[index])
    x_train, y_train = (np.concatenate([parts[index][side] for index in train]) for side in (0, 1))
    return x_train, y_train, parts[test][0], parts[test][1]


def _dataset(name: str, rows: str, origin: str) -> Dataset:
    return Dataset(
        "image",
        rows,
        len(CLASSES[name]),
        origin,
        partial(image_set, name),
        present=lambda folder: bool(find(name, folder)),
    )


MNIST = _dataset("mnist", "60,000 + 10,000", "LeCun, Cortes, Burges")
FASHION_MNIST = _dataset("fashion_mnist", "60,000 + 10,000", "Zalando Research")
CIFAR10 = _dataset("cifar10", "50,000 + 10,000", "Krizhevsky 2009")
CIFAR10_SMALL = _dataset("cifar10_small", "15,000 + 3,000", "a balanced subset of cifar10")
CIFAR100 = _dataset("cifar100", "50,000 + 10,000", "Krizhevsky 2009")
SVHN = _dataset("svhn", "73,257 + 26,032", "Netzer et al. 2011, cropped digits")
