"""Own data without code: a folder with one CSV or NPZ file a client, or client/class/*.png, or one file for all."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from atoll.data.archives import read_archives
from atoll.data.columns import to_numbers
from atoll.data.csv_table import CsvTable, read_csv
from atoll.data.images import pictures, read_images
from atoll.data.naming import group_by_id
from atoll.data.partition import MINIMUM
from atoll.data.settings import DataSettings
from atoll.data.source import Source, make_source
from atoll.errors import DataError, nearest


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
