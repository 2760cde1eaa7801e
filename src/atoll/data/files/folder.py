"""A folder of own data: a federation whose sites are files. One CSV or NPZ file, or one folder of images, per client.

A single file may hold all clients: their names are in a column (CSV) or an array `client` (NPZ), or the rows are
partitioned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from atoll.core.messages import Array
from atoll.data.files.agreement import ClientFiles, DataDescription, agree
from atoll.data.files.archives import Archive
from atoll.data.files.images import ImageFolder, hidden
from atoll.data.files.tables import CsvTable, read_csv
from atoll.data.naming import group_by_id
from atoll.data.partition import Indices
from atoll.data.settings import DataSettings
from atoll.data.source import Source, make_source
from atoll.errors import DataError

OPENERS: dict[str, Callable[[Path], ClientFiles]] = {".csv": read_csv, ".npz": Archive.open}


def read_folder(settings: DataSettings) -> Source:
    """The own data the settings point to. A file's name without its suffix is the client's name."""
    if settings.folder is None:
        raise ValueError("settings without a folder")
    place = Path(settings.folder).expanduser()
    clients = _open(place, settings)
    agreement = agree(_describe(clients, settings), settings.classes, word="")
    rows = [files.read(agreement, settings) for files in clients]
    groups: Indices | None = np.repeat(np.arange(len(rows)), [len(one.y) for one in rows])
    names = [files.path.name if files.kind == "images" else files.path.stem for files in clients]
    if place.is_file() or settings.client_column is not None:
        place = clients[0].path
        groups, names = _clients_within(clients[0], settings)
    return make_source(
        np.concatenate([one.x for one in rows]),
        np.concatenate([one.y for one in rows]),
        class_names=agreement.classes,
        feature_names=rows[0].features,
        groups=groups,
        group_names=names,
        what=f"'{place}'",
    )


def data_files(place: Path) -> list[Path]:
    """The CSV and NPZ files of a folder, or the file itself."""
    # Sorted by stem, not by file name: the sites of a federation are in the order of their names too.
    candidates = [place] if place.is_file() else sorted(place.iterdir(), key=lambda path: (path.stem, path.name))
    return [path for path in candidates if path.suffix.lower() in OPENERS and path.is_file() and not hidden(path)]


def open_file(path: Path) -> ClientFiles:
    return OPENERS[path.suffix.lower()](path)


def _open(place: Path, settings: DataSettings) -> list[ClientFiles]:
    """Each client's files, in the order of the clients' names."""
    if not place.exists():
        raise DataError(
            f"data.folder = '{place}' does not exist; name a folder with one CSV or NPZ file per client",
            code="no-such-data-folder",
        )
    found = data_files(place)
    kinds = {path.suffix.lower() for path in found}
    if len(kinds) > 1:
        raise DataError(
            f"'{place}' holds CSV and NPZ files; keep one kind, one file per client", code="mixed-file-kinds"
        )
    if settings.client_column is not None and (len(found) != 1 or kinds != {".csv"}):
        raise DataError(
            f"data.client_column = '{settings.client_column}' is for one CSV file with all clients, but '{place}' "
            f"holds {len(found)} {'NPZ' if '.npz' in kinds else 'CSV'} files; leave it out or name the file",
            code="inapplicable-setting",
        )
    if found:
        return [open_file(path) for path in found]
    folders = [ImageFolder.open(path) for path in sorted(place.glob("*")) if not hidden(path)]
    images: list[ClientFiles] = [folder for folder in folders if folder.images]
    if not images:
        raise DataError(
            f"'{place}' holds no data: put one CSV or NPZ (x, y) file per client there, or images as "
            "client/class/name.png",
            code="no-data-files",
        )
    return images


def _describe(clients: Sequence[ClientFiles], settings: DataSettings) -> dict[str, DataDescription]:
    """A column that is text in one file is text in all. Only a folder can decide this, since it sees every file: a
    site's description has no values of numeric columns."""
    found = {str(files.path): files.describe(settings) for files in clients}
    text = {name for one in found.values() for name in one.text}
    if any(one.kind == "csv" and not one.numbered for one in found.values()):
        text.add(settings.label)
    if all(one.form() == found[str(clients[0].path)].form() for one in found.values()):
        return found
    return {str(files.path): files.describe(settings, text) for files in clients}


def _clients_within(files: ClientFiles, settings: DataSettings) -> tuple[Indices | None, list[str]]:
    """The clients of a single file, if it names them."""
    if isinstance(files, CsvTable) and settings.client_column is not None:
        return group_by_id(_client_ids(files, settings.client_column), "client")
    if isinstance(files, Archive) and "client" in files.arrays:
        groups, names = group_by_id(files.arrays["client"], "client")
        if len(groups) != len(files.arrays["y"]):
            raise DataError(
                f"'{files.path}' has {len(groups)} client ids for {len(files.arrays['y'])} rows; give one per row",
                code="client-ids-mismatch",
            )
        return groups, names
    return None, []


def _client_ids(table: CsvTable, column: str) -> Array:
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
