"""A folder of own data: a federation whose sites are files. One table (CSV, Parquet), one NPZ archive or one folder of
images per client.

A single file may hold all clients: their names are in a column (table) or an array `client` (NPZ), or the rows are
partitioned. Files are opened once; what is wrong with them depends on the settings and is found by `judge`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from atoll.core.messages import Array
from atoll.data.files.agreement import (
    Agreement,
    ClientFiles,
    DataDescription,
    Problem,
    agree,
    difference,
    differences,
    joint_problems,
    too_few_rows,
    usual_form,
)
from atoll.data.files.archives import Archive
from atoll.data.files.images import ImageFolder, hidden
from atoll.data.files.tables import DataTable, read_table
from atoll.data.naming import group_by_id
from atoll.data.partition import MINIMUM, Indices
from atoll.data.settings import DataSettings
from atoll.data.source import Source, make_source
from atoll.errors import DataError, nearest
from atoll.preparation.cells import is_missing

TABLES = (".csv", ".tsv", ".parquet", ".pq")
OPENERS: dict[str, Callable[[Path, DataSettings], ClientFiles]] = {
    **dict.fromkeys(TABLES, read_table),
    ".npz": lambda path, settings: Archive.open(path),
}


# How people name the column of the class, the most telling names first.
LABEL_NAMES = ("class", "target", "outcome", "diagnosis", "category", "result", "response", "activity", "disease", "y")
MOST_LIKELY_CLASSES = 20


@dataclass(frozen=True)
class OpenedFiles:
    """Own data whose files have been opened, in the order of the clients' names; nothing is decided yet."""

    place: Path
    clients: dict[str, ClientFiles]
    closed: dict[str, Problem] = field(default_factory=dict)  # the clients whose file cannot be opened, and why
    test: tuple[ClientFiles, ...] = ()  # the files of data.test
    test_problems: tuple[Problem, ...] = ()

    @property
    def one_file(self) -> bool:
        return len(self.clients) + len(self.closed) == 1


@dataclass(frozen=True)
class Examination:
    """Own data as it was found by these settings: what can be read, and everything that is wrong."""

    opened: OpenedFiles
    settings: DataSettings
    clients: dict[str, ClientFiles]  # without those that are left out
    problems: list[Problem]
    as_text: frozenset[str]  # columns that are text in one file, and thus in all
    descriptions: dict[str, DataDescription]  # of the clients without problems of their own
    label: str  # the column of the label, or the one that is most likely it


def open_folder(settings: DataSettings) -> OpenedFiles:
    """The files that the settings name. Raises only what leaves nothing to look at."""
    if settings.folder is None:
        raise ValueError("settings without a folder")
    place = Path(settings.folder).expanduser()
    found, folders = _client_files(place, settings)
    clients: dict[str, ClientFiles] = {folder.path.name: folder for folder in folders}
    closed: dict[str, Problem] = {}
    for path in found:
        try:
            clients[path.stem] = open_file(path, settings)
        except DataError as problem:
            closed[path.stem] = Problem(problem.code, str(problem), ("exclude", [path.stem]))
    test, wrong = _open_test(settings) if settings.test is not None else ([], [])
    return OpenedFiles(place, clients, closed, tuple(test), tuple(wrong))


def open_frame(frame: Any, settings: DataSettings, test: Any = None) -> OpenedFiles:
    """A DataFrame (pandas, polars, or a dict of columns), which has a column of clients, and one of test rows."""
    tested, wrong = _open_test(settings) if settings.test is not None else ([], [])
    if test is not None:
        tested.append(_frame_table(test, "test"))
    return OpenedFiles(
        Path("DataFrame"), {"DataFrame": _frame_table(frame, "DataFrame")}, {}, tuple(tested), tuple(wrong)
    )


def _frame_table(frame: Any, name: str) -> DataTable:
    columns = frame.columns if hasattr(frame, "columns") else frame.keys()
    return DataTable.of_columns({str(column): frame[column] for column in columns}, Path(name))


def data_files(place: Path) -> list[Path]:
    """The tables and archives of a folder, or the file itself."""
    # Sorted by stem, not by file name: the sites of a federation are in the order of their names too.
    candidates = [place] if place.is_file() else sorted(place.iterdir(), key=lambda path: (path.stem, path.name))
    return [path for path in candidates if path.suffix.lower() in OPENERS and path.is_file() and not hidden(path)]


def open_file(path: Path, settings: DataSettings) -> ClientFiles:
    return OPENERS[path.suffix.lower()](path, settings)


def _client_files(place: Path, settings: DataSettings) -> tuple[list[Path], list[ImageFolder]]:
    """One file per client, or one folder of images per client."""
    if not place.exists():
        raise DataError(
            f"data.folder = '{place}' does not exist; name a folder with one CSV, Parquet or NPZ file per client",
            code="no-such-data-folder",
        )
    found = data_files(place)
    kinds = {"table" if path.suffix.lower() in TABLES else "npz" for path in found}
    if len(kinds) > 1:
        raise DataError(
            f"'{place}' holds tables and NPZ files; keep one kind, one file per client", code="mixed-file-kinds"
        )
    if settings.client_column is not None and (len(found) != 1 or kinds != {"table"}):
        raise DataError(
            f"data.client_column = '{settings.client_column}' is for one table with all clients, but '{place}' "
            f"holds {len(found)} {'NPZ files' if 'npz' in kinds else 'tables'}; leave it out or name the file",
            code="inapplicable-setting",
        )
    twice = [name for name, count in Counter(path.stem for path in found).items() if count > 1]
    if twice:
        raise DataError(f"'{place}' has two files for the client '{twice[0]}'; keep one", code="duplicate-client-name")
    folders = [] if found else [path for path in sorted(place.glob("*")) if not hidden(path)]
    images = [folder for folder in map(ImageFolder.open, folders) if folder.images]
    if not found and not images:
        raise DataError(
            f"'{place}' holds no data: put one CSV, Parquet or NPZ (x, y) file per client there, or images as "
            "client/class/name.png",
            code="no-data-files",
        )
    return found, images


def _open_test(settings: DataSettings) -> tuple[list[ClientFiles], list[Problem]]:
    """The files of `data.test`, which belong to no client, and what is wrong with those that cannot be opened."""
    place = Path(settings.test or "").expanduser()
    if not place.exists():
        raise DataError(
            f"data.test = '{place}' does not exist; name a file or folder of rows", code="no-such-data-folder"
        )
    found: list[ClientFiles] = []
    wrong = []
    for path in data_files(place):
        try:
            found.append(open_file(path, settings))
        except DataError as problem:
            wrong.append(Problem(problem.code, f"data.test: {problem}"))
    folder = ImageFolder.open(place)
    if not found and not wrong and folder.images:
        found = [folder]
    if not found and not wrong:
        raise DataError(
            f"data.test = '{place}' holds no data; put rows there in the form of the clients' data",
            code="no-data-files",
        )
    return found, wrong


# -- what is wrong -----------------------------------------------------------------------------------------------------


def judge(opened: OpenedFiles, settings: DataSettings) -> Examination:
    """Everything that keeps the files from being used with these settings.

    Where no file has the column of the label, the other problems are those with the most likely column.
    """
    clients, problems = _chosen(opened, settings)
    likely = _likely_label(clients.values(), settings)
    if likely is not None:
        others = judge(opened, settings.model_copy(update={"label": likely}))
        first, more = next(iter(clients.values())), len(clients) - 1
        which = f"'{first.path}' and {more} more have" if more else f"'{first.path}' has"
        text = f"{which} no label column '{settings.label}'; name the right one with data.label: is it '{likely}'?"
        unnamed = Problem("label-column-missing", text, ("label", likely))
        return replace(others, settings=settings, problems=[unnamed, *others.problems], label=likely)
    as_text = _text_columns(clients.values(), settings)
    problems += _unknown_columns([*opened.clients.values(), *opened.test], settings)
    own: list[tuple[str, Problem]] = []
    described: dict[str, DataDescription] = {}
    for name, files in clients.items():
        wrong = files.problems(settings, as_text)
        own += [(name, problem) for problem in wrong]
        if not wrong:
            described[name] = files.describe(settings, as_text)
    by_path = {str(clients[name].path): one for name, one in described.items()}
    different = differences(by_path, settings.classes, word="")
    names = dict(zip(by_path, described, strict=True))
    own += [(names[path], wrong._replace(text=f"'{path}': {wrong.text}")) for path, wrong in different.items()]
    problems += _with_way_out(own, opened, clients)
    same = {path: one for path, one in by_path.items() if path not in different}
    together = joint_problems(same, settings, word="") if same else []
    # With clients left to correct, it is not known yet which classes there are.
    problems += [one for one in together if not problems or one.code != "single-class"]
    if not problems:
        problems += _inner_problems(clients, opened.place, settings)
    problems += _test_problems(opened, settings, as_text, by_path)
    return Examination(opened, settings, clients, problems, frozenset(as_text), described, settings.label)


def _chosen(opened: OpenedFiles, settings: DataSettings) -> tuple[dict[str, ClientFiles], list[Problem]]:
    """The clients that are not left out, and what is wrong with those whose file cannot be opened."""
    excluded = settings.exclude or ()
    if opened.one_file:
        problems = [problem._replace(setting=None) for problem in opened.closed.values()]
        return {name: _without(files, opened, settings) for name, files in opened.clients.items()}, problems
    _check_excluded(excluded, [*opened.clients, *opened.closed])
    clients = {name: files for name, files in opened.clients.items() if name not in excluded}
    return clients, [problem for name, problem in opened.closed.items() if name not in excluded]


def _without(files: ClientFiles, opened: OpenedFiles, settings: DataSettings) -> ClientFiles:
    """A single file that names the client of every row, without the rows of those that are left out."""
    if not settings.exclude or (isinstance(files, DataTable) and settings.client_column not in (None, *files.columns)):
        return files
    groups, names = clients_within(files, opened.place, settings)
    if groups is None or not isinstance(files, (DataTable, Archive)):
        raise DataError("data.exclude: this data has no natural clients; leave it out", code="no-natural-clients")
    _check_excluded(settings.exclude, names)
    left_out = [names.index(name) for name in settings.exclude]
    return files.only(np.flatnonzero(~np.isin(groups, left_out)).tolist())


def _check_excluded(excluded: Sequence[str], known: Sequence[str]) -> None:
    for name in excluded:
        if name not in known:
            raise DataError(f"data.exclude: there is no client '{name}'; {nearest(name, known)}", code="unknown-client")
    if set(known) <= set(excluded):
        raise DataError("data.exclude leaves out every client; name fewer", code="no-client-named")


def _likely_label(clients: Collection[ClientFiles], settings: DataSettings) -> str | None:
    """Where no table has the column of the label: one that is usually named so, else the last text column with few
    different values. None if there is no such column, or no need for one."""
    tables = [files for files in clients if isinstance(files, DataTable)]
    if not tables or any(settings.label in table.columns for table in tables):
        return None
    others = {settings.client_column, *(settings.drop or ()), *(settings.dates or ())}
    common = [
        name for name in tables[0].columns if name not in others and all(name in table.columns for table in tables)
    ]
    for word in (settings.label.lower(), *LABEL_NAMES):
        for name in common:
            if name.lower() == word:
                return name
    for name in reversed(common):
        words = {str(cell).strip() for table in tables for cell in table.column(name)}
        text = any(table.column_kind(name, settings) == "text" for table in tables)
        if text and 2 <= len(words) <= MOST_LIKELY_CLASSES:
            return name
    return None


def _text_columns(clients: Collection[ClientFiles], settings: DataSettings) -> set[str]:
    """A column that is text in one file is text in all. Only a folder can decide this, since it sees every file: a
    site's description has no values of numeric columns."""
    tables = [files for files in clients if isinstance(files, DataTable) and settings.label in files.columns]
    text = {
        name for table in tables for name in table.features(settings) if table.column_kind(name, settings) == "text"
    }
    if any(table.labels(settings, False).dtype.kind == "U" for table in tables):
        text.add(settings.label)
    return text


def _unknown_columns(clients: Collection[ClientFiles], settings: DataSettings) -> list[Problem]:
    """Names in settings that no file has. A column that some files have may be dropped, also if only clients have it
    that are left out."""
    known = {name for files in clients if isinstance(files, DataTable) for name in files.columns}
    found = []
    for setting, names in (("drop", settings.drop), ("dates", settings.dates), ("units", settings.units)):
        for name in names or () if known else ():
            if name not in known:
                text = f"data.{setting}: no file has a column '{name}'; {nearest(name, known)}"
                found.append(Problem("unknown-column", text))
    return found


def _with_way_out(own: Sequence[tuple[str, Problem]], opened: OpenedFiles, clients: Collection[str]) -> list[Problem]:
    """A problem that no other setting solves is solved by leaving the client out, if it is one of few."""
    counts = Counter(code for code, _ in {(problem.code, name) for name, problem in own})
    found = []
    for name, problem in own:
        if opened.one_file and problem.setting is not None and problem.setting[0] == "exclude":
            problem = problem._replace(setting=None)
        elif not opened.one_file and problem.setting is None and 2 * counts[problem.code] < len(clients):
            problem = problem._replace(setting=("exclude", [name]))
        found.append(problem)
    return found


def _inner_problems(clients: Mapping[str, ClientFiles], place: Path, settings: DataSettings) -> list[Problem]:
    """What is wrong with the clients of a single file that names them."""
    first = next(iter(clients.values()))
    try:
        groups, names = clients_within(first, place, settings)
    except DataError as problem:
        return [Problem(problem.code, str(problem))]
    if groups is None or (settings.partition or "natural") != "natural":
        return []
    found = []
    for name, rows in zip(names, np.bincount(groups).tolist(), strict=True):
        wrong = too_few_rows(first.path, name, rows) if name in (settings.only or names) else []
        found += [one._replace(text=f"client '{name}': {one.text}") for one in wrong]
    return found


def _test_problems(
    opened: OpenedFiles, settings: DataSettings, as_text: Collection[str], described: Mapping[str, DataDescription]
) -> list[Problem]:
    """What is wrong with the rows of `data.test`, which need the form and the classes of the clients' rows."""
    found = list(opened.test_problems)
    usual = usual_form(described)
    classes = {label for one in described.values() for label in one.labels}
    for files in opened.test:
        wrong = [one for one in files.problems(settings, as_text) if one.code != "too-few-rows"]
        for one in wrong:
            usable = one.setting is not None and one.setting[0] not in ("exclude", "label")
            found.append(one._replace(text=f"data.test: {one.text}", setting=one.setting if usable else None))
        if wrong or not described or not files.rows:
            continue
        own = files.describe(settings, as_text)
        if own.form() != described[usual].form():
            differs = difference(own, described[usual], f"'{usual}'")
            found.append(Problem(differs.code, f"data.test: '{files.path}': {differs.text}"))
        elif unknown := sorted(map(str, set(own.labels) - classes)):
            text = f"data.test: '{files.path}' has the class '{unknown[0]}', of which no client has a row"
            found.append(Problem("untrained-class", f"{text}; remove these rows, or give some to a client"))
    if opened.test and sum(files.rows for files in opened.test) < MINIMUM:
        found.append(Problem("too-few-rows", f"data.test = '{settings.test}' has too few rows; it needs {MINIMUM}"))
    return found


# -- rows --------------------------------------------------------------------------------------------------------------


def agreement_of(found: Examination, outside: Collection[str] = ()) -> Agreement:
    """The form of the rows, as decided by the clients that are not `outside`."""
    settings = found.settings
    if found.opened.one_file and outside:
        ((name, files),) = found.clients.items()
        groups, names = clients_within(files, found.opened.place, settings)
        if groups is not None and isinstance(files, (DataTable, Archive)):
            kept = ~np.isin(groups, [place for place, name in enumerate(names) if name in outside])
            others = files.only(np.flatnonzero(kept).tolist())
            return agree({name: others.describe(settings, found.as_text)}, settings, word="")
    inside = {name: one for name, one in found.descriptions.items() if name not in outside}
    return agree(inside, settings, word="")


def source_of(found: Examination, agreement: Agreement, outside: Collection[str] = ()) -> Source:
    """The rows of all clients in one form; those `outside` had no part in it."""
    settings, one_file = found.settings, found.opened.one_file
    rows = [
        files.read(agreement, settings, unseen=bool(outside) and (one_file or name in outside))
        for name, files in found.clients.items()
    ]
    groups: Indices | None = np.repeat(np.arange(len(rows)), [len(one.y) for one in rows])
    names = list(found.clients)
    if found.opened.place.is_file() or settings.client_column is not None:
        groups, names = clients_within(next(iter(found.clients.values())), found.opened.place, settings)
    tested = [files.read(agreement, settings, unseen=True) for files in found.opened.test]
    return make_source(
        np.concatenate([one.x for one in rows]),
        np.concatenate([one.y for one in rows]),
        class_names=agreement.classes,
        preparation=agreement.preparation,
        groups=groups,
        group_names=names,
        test=(np.concatenate([one.x for one in tested]), np.concatenate([one.y for one in tested])) if tested else None,
        what=f"'{found.opened.place}'",
    )


def clients_within(files: ClientFiles, place: Path, settings: DataSettings) -> tuple[Indices | None, list[str]]:
    """The clients of a single file that is all of the data, if it names them."""
    if isinstance(files, DataTable) and settings.client_column is not None:
        return group_by_id(_client_ids(files, settings.client_column), "client")
    if isinstance(files, Archive) and "client" in files.arrays and place.is_file():
        groups, names = group_by_id(files.arrays["client"], "client")
        if len(groups) != len(files.arrays["y"]):
            raise DataError(
                f"'{files.path}' has {len(groups)} client ids for {len(files.arrays['y'])} rows; give one per row",
                code="client-ids-mismatch",
            )
        return groups, names
    return None, []


def _client_ids(table: DataTable, column: str) -> Array:
    words = ["" if is_missing(cell, ("",)) else str(cell) for cell in table.column(column)]
    for row, word in enumerate(words):
        if not word:
            raise DataError(
                f"{table.place(row)} has no client in column '{column}'; name it or remove the row",
                code="row-without-client",
            )
    if all(word.isdecimal() and len(word) < 18 for word in words):
        return np.array([int(word) for word in words], dtype=np.int64)
    return np.array(words, dtype=np.str_)
