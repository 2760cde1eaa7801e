"""Own data in numpy archives: one file a client with `x` and `y`, or one file with `client` ids as well."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from atoll.data.formats import read_npz
from atoll.data.naming import group_by_id
from atoll.data.partition import MINIMUM, Indices
from atoll.data.source import Missing, Source, make_source
from atoll.errors import DataError
from atoll.messages import Array


def read_archives(paths: list[Path], missing: Missing, alone: bool) -> Source:
    """One client a file; `alone`: a single file for all, its clients named by an array `client` if there is one."""
    loaded = [read_npz(path, ("x", "y"), ("client", "feature_names", "class_names")) for path in paths]
    first = loaded[0]
    for path, arrays in zip(paths, loaded, strict=True):
        check(path, arrays, paths[0], first, missing)
    names: list[str] = [path.stem for path in paths]
    groups: Indices | None = np.repeat(np.arange(len(paths)), [len(arrays["y"]) for arrays in loaded])
    if alone:
        groups, names = group_by_id(first["client"], "client") if "client" in first else (None, [])
    if groups is not None and len(groups) != len(first["y"]) and alone:
        raise DataError(
            f"'{paths[0]}' has {len(groups)} client ids for {len(first['y'])} rows; give one a row",
            code="client-ids-mismatch",
        )
    return make_source(
        np.concatenate([arrays["x"] for arrays in loaded]),
        np.concatenate([arrays["y"] for arrays in loaded]),
        class_names=words(first, "class_names"),
        feature_names=words(first, "feature_names"),
        groups=groups,
        group_names=names,
        what=f"'{paths[0] if alone else paths[0].parent}'",
    )


def check(path: Path, arrays: dict[str, Array], first_path: Path, first: dict[str, Array], missing: Missing) -> None:
    """What has to hold for one file, alone and beside the first one."""
    x, y = arrays["x"], arrays["y"]
    if x.dtype.kind not in "buif" or y.dtype.kind not in "buifU":
        raise DataError(
            f"'{path}': x is {x.dtype} and y {y.dtype}; x must be numbers and y whole numbers or words",
            code="wrong-array-type",
        )
    if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
        raise DataError(
            f"'{path}': x has shape {x.shape} and y {y.shape}; every row of x needs one label in y",
            code="label-count-mismatch",
        )
    if len(y) < MINIMUM:
        held = "no rows" if len(y) == 0 else "only one row"
        raise DataError(
            f"'{path}' has {held}; every client needs at least {MINIMUM}: add rows or leave the file out",
            code="too-few-rows",
        )
    if x.shape[1:] != first["x"].shape[1:]:
        raise DataError(
            f"'{path}' has rows of shape {x.shape[1:]}, '{first_path}' {first['x'].shape[1:]}; they must agree",
            code="row-shapes-differ",
        )
    if x.ndim > 2 and x.dtype != first["x"].dtype:
        # Bytes are divided by 255 and floats are not: a mixture would be on two scales.
        raise DataError(
            f"'{path}' has pixels of type {x.dtype}, '{first_path}' {first['x'].dtype}; use one type for all",
            code="pixel-types-differ",
        )
    if (y.dtype.kind == "U") != (first["y"].dtype.kind == "U"):
        raise DataError(
            f"'{path}' and '{first_path}': one labels by words, the other by numbers; use one of them for all",
            code="label-kinds-differ",
        )
    if missing == "refuse" and x.dtype.kind == "f" and np.isnan(x).any():
        row, *place = (int(index) for index in np.argwhere(np.isnan(x))[0])
        raise DataError(
            f"'{path}': x has a missing value in row {row}, column {', '.join(map(str, place))}; set data.missing to "
            "'mean', 'median' or 'zero' to fill it, or remove the row",
            code="missing-value",
        )


def words(arrays: dict[str, Array], name: str) -> list[str] | None:
    return [str(word) for word in arrays[name]] if name in arrays else None
