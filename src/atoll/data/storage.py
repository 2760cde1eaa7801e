"""Arrays and an index in a folder: `.npy` files that processes map into memory together, and one JSON file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from atoll.errors import DataError
from atoll.messages import Array

INDEX = "federated.json"
FORMAT = 1


def write(folder: Path, arrays: dict[str, Array], index: dict[str, Any]) -> None:
    """Write everything, the index last: a folder without it was not finished."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX).unlink(missing_ok=True)
    for name, array in arrays.items():
        # Replaced, never overwritten: another process may have the old file mapped.
        aside = folder / f"{name}.npy.part"
        if not _linked(array, aside):
            with aside.open("wb") as file:
                np.save(file, array, allow_pickle=False)
        os.replace(aside, folder / f"{name}.npy")
    text = json.dumps({"format": FORMAT, "arrays": sorted(arrays), **index})
    aside = folder / f"{INDEX}.part"
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, folder / INDEX)


def _linked(array: Array, path: Path) -> bool:
    """A second name for the file that an array is mapped from, if it is all of a `.npy` file on the same disk."""
    mapped: Any = array
    while isinstance(mapped, np.ndarray) and not isinstance(mapped, np.memmap):
        mapped = mapped.base
    if not isinstance(mapped, np.memmap) or not str(mapped.filename).endswith(".npy"):
        return False
    same = array.shape == mapped.shape and array.dtype == mapped.dtype and array.strides == mapped.strides
    if not same or os.path.getsize(str(mapped.filename)) != mapped.offset + array.nbytes:
        return False  # a part of it, or the same bytes read in another way
    try:
        path.unlink(missing_ok=True)
        os.link(str(mapped.filename), path)
    except OSError:
        return False
    return True


def read(folder: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays, mapped read-only from disk, and the index."""
    path = folder / INDEX
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"'{folder}' holds no saved federation ({INDEX} is missing); save one there first",
            code="no-saved-federation",
        ) from None
    except ValueError as error:
        raise DataError(f"'{path}' is not readable ({error}); save the federation again", code="file-damaged") from None
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise DataError(
            f"'{path}' is not of format {FORMAT}; save the federation again with this version",
            code="wrong-format-version",
        )
    arrays = {}
    for name in index["arrays"]:
        try:
            mapped = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(
                f"'{folder / name}.npy' is damaged ({error}); save the federation again", code="file-damaged"
            ) from None
        arrays[name] = np.asarray(mapped)
    return arrays, index
