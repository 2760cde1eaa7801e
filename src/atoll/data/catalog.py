"""The data sets that are found by name: those of the registry's group `datasets`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from atoll.data.published import PUBLISHED
from atoll.data.source import Dataset, Source
from atoll.errors import DataError
from atoll.registry import find, names


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
class Entry:
    """A line of `atoll datasets`."""

    name: str
    kind: Literal["image", "table"]
    rows: str
    classes: int
    origin: str
    present: bool
    fetchable: bool


def read(
    name: str, data_dir: str | Path | None, size: int | None = None, attributes: Sequence[str] | None = None
) -> Source:
    """The data set of this name, from the data folder (argument or ATOLL_DATA) if it needs files."""
    dataset: Dataset = find("datasets", name)
    settings = {"size": size, "attributes": attributes}
    for word, value in settings.items():
        if value is not None and word not in dataset.takes:
            able = " and ".join(one for one in names("datasets") if word in find("datasets", one).takes)
            raise DataError(
                f"data.{word} = {value!r}: '{name}' has none to choose, only {able}; leave it out",
                code="inapplicable-setting",
            )
    folder = data_folder(data_dir) if dataset.present is not None else None
    return dataset.read(folder, **{word: settings[word] for word in dataset.takes})


def catalogue(data_dir: str | Path | None = None) -> list[Entry]:
    """Every data set, and whether its files are in the data folder (argument or ATOLL_DATA). Nothing is read."""
    folder = data_folder(data_dir)
    entries = []
    for name in names("datasets"):
        one: Dataset = find("datasets", name)
        present = one.present is None or (folder is not None and one.present(folder))
        entries.append(Entry(name, one.kind, one.rows, one.classes, one.origin, present, name in PUBLISHED))
    return entries
