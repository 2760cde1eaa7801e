"""Own data without code: a folder with one CSV or NPZ file a client, or client/class/*.png, or one file for all."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from atoll.core.messages import Array
from atoll.data.files.formats import read_npz
from atoll.data.files.images import pictures, read_images
from atoll.data.files.tables import CsvTable, read_csv, to_numbers
from atoll.data.naming import group_by_id
from atoll.data.partition import MINIMUM, Indices
from atoll.data.settings import DataSettings
from atoll.data.source import Missing, Source, make_source
from atoll.errors import DataError, nearest


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


def read_folder(settings: DataSettings) -> Source:
    """The own data the settings point to. A file's name without its ending is the client's name."""
    source = _read(settings)
    strange = [name for name in source.schema.classes if settings.classes is not None and name not in settings.classes]
    if strange:
        raise DataError(
            f"'{settings.folder}': class '{strange[0]}' is not among data.classes; "
            f"{nearest(strange[0], settings.classes or ())}",
            code="unknown-class",
        )
    return source


def _read(settings: DataSettings) -> Source:
    if settings.folder is None:
        raise ValueError("settings without a folder")
    place = Path(settings.folder).expanduser()
    if not place.exists():
        raise DataError(
            f"data.folder = '{place}' does not exist; name a folder with one CSV or NPZ file a client",
            code="no-such-data-folder",
        )
    tables, archives = _files(place, ".csv"), _files(place, ".npz")
    if tables and archives:
        raise DataError(f"'{place}' holds CSV and NPZ files; keep one kind, one file a client", code="mixed-file-kinds")
    if settings.client_column is not None and (archives or len(tables) != 1):
        raise DataError(
            f"data.client_column = '{settings.client_column}' is for one CSV file with all clients, but '{place}' "
            f"holds {len(tables)}; leave it out or name the file",
            code="inapplicable-setting",
        )
    if archives:
        return read_archives(archives, settings.missing or "refuse", alone=place.is_file())
    if tables:
        shared = place.is_file() or settings.client_column is not None
        return _one_table(tables[0], settings) if shared else _tables(tables, settings)
    if place.is_dir() and pictures(place):
        return read_images(place)
    raise DataError(
        f"'{place}' holds no data: put one CSV or NPZ (x, y) file a client there, or pictures as client/class/name.png",
        code="no-data-files",
    )


def _files(place: Path, suffix: str) -> list[Path]:
    # By name, not by file name: sites of a federation come in the order of their names too.
    candidates = [place] if place.is_file() else sorted(place.iterdir(), key=lambda path: (path.stem, path.name))
    return [
        path
        for path in candidates
        if path.suffix.lower() == suffix and path.is_file() and not path.name.startswith(".")
    ]


def _tables(paths: list[Path], settings: DataSettings) -> Source:
    """One client a file."""
    tables = [read_csv(path) for path in paths]
    for table in tables:
        if settings.label in table.columns:  # a missing label column is the clearer complaint, and comes later
            check_rows(len(table.rows), table.path)
    numbers = to_numbers(tables, settings.label, settings.categories, settings.missing or "refuse")
    sizes = [len(table.rows) for table in tables]
    return make_source(
        numbers.x,
        numbers.labels,
        feature_names=numbers.features,
        groups=np.repeat(np.arange(len(tables)), sizes),
        group_names=[path.stem for path in paths],
        what=f"'{paths[0].parent}'",
    )


def _one_table(path: Path, settings: DataSettings) -> Source:
    """All clients in one file: told apart by a column, or to be dealt out by a partition."""
    table = read_csv(path)
    column = settings.client_column
    if column is not None and column not in table.columns:
        raise DataError(
            f"'{path}' has no client column '{column}'; {nearest(column, table.columns)}", code="client-column-missing"
        )
    check_rows(len(table.rows), path)
    numbers = to_numbers([table], settings.label, settings.categories, settings.missing or "refuse", column)
    groups, names = (None, []) if column is None else group_by_id(_client_ids(table, column), "client")
    return make_source(
        numbers.x,
        numbers.labels,
        feature_names=numbers.features,
        groups=groups,
        group_names=names,
        what=f"'{path}'",
    )


def _client_ids(table: CsvTable, column: str) -> np.ndarray[tuple[int], np.dtype[np.int64] | np.dtype[np.str_]]:
    words = table.column(column)
    for line, word in zip(table.lines, words, strict=True):
        if not word:
            raise DataError(
                f"'{table.path}' line {line} has no client in column '{column}'; name it or remove the row",
                code="row-without-client",
            )
    if all(word.isdecimal() and len(word) < 18 for word in words):
        return np.array([int(word) for word in words], dtype=np.int64)
    return np.array(words, dtype=np.str_)


def check_rows(rows: int, path: Path) -> None:
    """Refuse a client that has too few rows to train on."""
    if rows < MINIMUM:
        held = "no rows" if rows == 0 else "only one row"
        raise DataError(
            f"'{path}' has {held}; every client needs at least {MINIMUM}: add rows or leave the file out",
            code="too-few-rows",
        )
