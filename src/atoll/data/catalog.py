"""The data sets Atoll knows by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from atoll.data.published import PUBLISHED
from atoll.data.source import Source
from atoll.data.sources import builtin, celeba, glucose, image_sets, imagenet, sensors, walking
from atoll.errors import DataError, nearest


def data_folder(data_dir: str | Path | None) -> Path | None:
    """The folder that was named, or else the environment's ATOLL_DATA; None if neither is given."""
    named = data_dir or os.environ.get("ATOLL_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        which = "--data-dir" if data_dir else "ATOLL_DATA"
        raise DataError(
            f"{which} names '{folder}', which is not a folder; create it or name another one",
            code="no-such-data-folder",
        )
    return folder


@dataclass(frozen=True)
class Dataset:
    """One entry: what it is, where it comes from and how it is read. No `file`: an image set, or built in.

    A set of pictures that are brought to a size has `present`, and its `read` takes `size` (and `attributes`).
    """

    name: str
    kind: Literal["image", "table"]
    rows: str
    classes: int
    origin: str
    read: Callable[..., Source]
    file: str = ""
    takes: tuple[str, ...] = ()
    present: Callable[[Path], bool] | None = None

    @property
    def built_in(self) -> bool:
        """It comes with an installed library and needs no file."""
        return self.origin == "scikit-learn"


@dataclass(frozen=True)
class Entry:
    """A line of `atoll datasets`."""

    name: str
    kind: Literal["image", "table"]
    rows: str
    classes: int
    origin: str
    present: bool
    fetchable: bool


def _image(name: str, rows: str, classes: int, origin: str) -> Dataset:
    return Dataset(name, "image", rows, classes, origin, partial(image_sets.image_set, name))


_ALL = (
    Dataset("digits", "image", "1,797", 10, "scikit-learn", builtin.digits),
    Dataset("breast_cancer", "table", "569", 2, "scikit-learn", builtin.breast_cancer),
    Dataset("wine", "table", "178", 3, "scikit-learn", builtin.wine),
    _image("mnist", "60,000 + 10,000", 10, "LeCun, Cortes, Burges"),
    _image("fashion_mnist", "60,000 + 10,000", 10, "Zalando Research"),
    _image("cifar10", "50,000 + 10,000", 10, "Krizhevsky 2009"),
    _image("cifar10_small", "15,000 + 3,000", 10, "a balanced subset of cifar10"),
    _image("cifar100", "50,000 + 10,000", 100, "Krizhevsky 2009"),
    Dataset(
        "celeba",
        "image",
        "200,288",
        8,
        "Liu et al. 2015, 9,343 people (LEAF)",
        celeba.read,
        takes=("size", "attributes"),
        present=celeba.present,
    ),
    Dataset(
        "celeba_leaf",
        "image",
        "by files",
        2,
        "the same, from LEAF's files",
        celeba.read_leaf,
        takes=("size", "attributes"),
        present=celeba.leaf_present,
    ),
    Dataset(
        "imagenet",
        "image",
        "1,281,167 + 50,000",
        1000,
        "Deng et al. 2009 (ILSVRC 2012)",
        imagenet.read,
        takes=("size",),
        present=imagenet.present,
    ),
    _image("svhn", "73,257 + 26,032", 10, "Netzer et al. 2011, cropped digits"),
    Dataset("uci_har", "table", "7,352", 6, "Anguita et al. 2013, 21 subjects", sensors.uci_har, "uci_har.npz"),
    Dataset("wisdm", "table", "5,418", 6, "Kwapisz et al. 2010, 36 subjects", sensors.wisdm, "wisdm_v11.npz"),
    Dataset("wisdm_v11", "table", "5,418", 6, "the same as wisdm", sensors.wisdm, "wisdm_v11.npz"),
    Dataset("apnea_hrv", "table", "33,866", 2, "Penzel et al. 2000, 70 nights", sensors.apnea_hrv, "apnea_hrv.npz"),
    Dataset(
        "apnea_hrv_5min",
        "table",
        "33,866",
        2,
        "the same nights, over 5 minutes",
        sensors.apnea_hrv_5min,
        "apnea_hrv.npz",
    ),
    Dataset("ohio_t1dm", "table", "by files", 7, "Marling, Bunescu 2020, 12 subjects", glucose.ohio_t1dm, "*-ws-*.xml"),
    Dataset(
        "har70plus", "table", "by files", 7, "Ustad et al. 2023, 18 subjects", walking.har70plus, "5[0-9][0-9].csv"
    ),
)
DATASETS: dict[str, Dataset] = {entry.name: entry for entry in _ALL}
NAMES: tuple[str, ...] = tuple(DATASETS)


def read(
    name: str, data_dir: str | Path | None, size: int | None = None, attributes: Sequence[str] | None = None
) -> Source:
    """The data set of this name, from the data folder (argument or ATOLL_DATA) if it needs files."""
    if name not in DATASETS:
        raise DataError(f"data.name = '{name}': no such data set; {nearest(name, DATASETS)}", code="unknown-dataset")
    dataset = DATASETS[name]
    asked = {"size": size, "attributes": attributes}
    for word, value in asked.items():
        if value is not None and word not in dataset.takes:
            able = " and ".join(one.name for one in DATASETS.values() if word in one.takes)
            raise DataError(
                f"data.{word} = {value!r}: '{name}' has none to choose, only {able}; leave it out",
                code="inapplicable-setting",
            )
    folder = None if dataset.built_in else data_folder(data_dir)
    return dataset.read(folder, **{word: asked[word] for word in dataset.takes})


def catalogue(data_dir: str | Path | None = None) -> list[Entry]:
    """Every data set, and whether its files are in the data folder (argument or ATOLL_DATA). Nothing is read."""
    folder = data_folder(data_dir)
    return [
        Entry(one.name, one.kind, one.rows, one.classes, one.origin, _present(one, folder), one.name in PUBLISHED)
        for one in DATASETS.values()
    ]


def _present(dataset: Dataset, folder: Path | None) -> bool:
    if dataset.built_in:
        return True
    if folder is None:
        return False
    if dataset.present is not None:
        return dataset.present(folder)
    if dataset.file:
        if "*" in dataset.file or "[" in dataset.file:
            return any(folder.rglob(dataset.file))
        return any((place / dataset.file).is_file() for place in (folder, folder / dataset.name))
    return bool(image_sets.find(dataset.name, folder))
