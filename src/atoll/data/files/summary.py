"""What own data holds, whether or not it can be used yet: clients, columns and classes, and what one should know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atoll.core.messages import Array
from atoll.data.files.agreement import ClientFiles, DataDescription, Problem
from atoll.data.files.archives import Archive
from atoll.data.files.folder import Examination, clients_within
from atoll.data.files.tables import FEW, DataTable
from atoll.data.loading import AssignedRows
from atoll.data.settings import DataSettings
from atoll.data.source import channel_first_shape
from atoll.errors import DataError
from atoll.preparation.cells import missing_cells
from atoll.preparation.tables import Dialect

SEPARATOR_NAMES = {"\t": "tabs", " ": "blanks"}


@dataclass(frozen=True)
class ClientSummary:
    """Rows in all and by class; `missing` is the share of empty cells among the features."""

    name: str
    rows: int
    classes: dict[str, int]
    missing: float


@dataclass(frozen=True)
class ColumnSummary:
    """`least` and `most` are numbers or days; of text, `different` counts the values."""

    name: str
    kind: str  # number, date, text
    unit: str
    missing: float
    least: float | str | None = None
    most: float | str | None = None
    different: int | None = None


@dataclass(frozen=True)
class DataSummary:
    """The data of all clients. Images have no columns."""

    form: str
    clients: list[ClientSummary]
    columns: list[ColumnSummary]

    @property
    def rows(self) -> int:
        return sum(client.rows for client in self.clients)

    @property
    def classes(self) -> dict[str, int]:
        """Rows by class over all clients."""
        total: Counter[str] = Counter()
        for client in self.clients:
            total.update(client.classes)
        return dict(sorted(total.items()))

    @property
    def baseline_error(self) -> float | None:
        """The error of a network that always answers the most frequent class."""
        counts = self.classes.values()
        return 1 - max(counts) / sum(counts) if counts else None


def summarise(found: Examination) -> DataSummary:
    """What can be read of own data, with problems or without."""
    clients = [one for name, files in found.clients.items() for one in _clients(name, files, found)]
    tables = [files for files in found.clients.values() if isinstance(files, DataTable)]
    columns = _table_columns(tables, found)
    archives = [files.arrays["x"] for files in found.clients.values() if isinstance(files, Archive)]
    flat = [x for x in archives if x.ndim == 2 and x.dtype.kind in "buif" and x.shape[1:] == archives[0].shape[1:]]
    if flat:
        names = next(iter(found.descriptions.values())).features if found.descriptions else None
        columns = _number_columns(np.concatenate(flat), names or (), found.settings.units or {})
    return DataSummary(_form(found, columns), clients, columns)


def summarise_source(assigned: AssignedRows) -> DataSummary:
    """The same for a data set of the catalogue, by the clients that hold its rows."""
    source, clients = assigned.source, []
    for place, name in enumerate(assigned.names):
        own = assigned.partition.client(place)
        counts = zip(source.schema.classes, np.bincount(source.y[own]).tolist(), strict=False)
        gaps = np.isnan(source.x[own]).mean() if source.schema.kind == "table" and source.x.dtype.kind == "f" else 0.0
        clients.append(ClientSummary(name, len(own), {word: count for word, count in counts if count}, float(gaps)))
    shape = source.schema.shape
    if source.schema.kind == "image":
        return DataSummary(f"images of {' x '.join(map(str, shape))}", clients, [])
    return DataSummary(f"{shape[0]} columns", clients, _number_columns(source.x, source.schema.features, {}))


def _form(found: Examination, columns: Sequence[ColumnSummary]) -> str:
    if columns:
        return f"{len(columns)} columns"
    described = next(iter(found.descriptions.values()), None)
    if described is None:
        return "images"
    shape = channel_first_shape(described.shape)
    if described.kind == "images":
        width, height = described.shape
        shape = (1 if all(one.grey for one in found.descriptions.values()) else 3, height, width)
    return f"images of {' x '.join(map(str, shape))}"


def _clients(name: str, files: ClientFiles, found: Examination) -> Iterable[ClientSummary]:
    """A client's file, or the clients of a single file that names them."""
    settings = found.settings
    labels, gaps, width = _labels_and_gaps(files, settings, settings.label in found.as_text)
    try:
        groups, names = clients_within(files, found.opened.place, settings)
    except (DataError, KeyError):  # a problem that is reported elsewhere
        groups, names = None, []
    if groups is None or len(groups) != len(labels):
        groups, names = np.zeros(len(labels), np.int64), [name]
    for place, client in enumerate(names):
        own = groups == place
        rows = int(own.sum())
        words, counts = np.unique(labels[own & (labels != "")], return_counts=True)
        classes = dict(zip(map(str, words.tolist()), counts.tolist(), strict=True))
        yield ClientSummary(client, rows, classes, float(gaps[own].sum()) / max(rows * width, 1))


def _labels_and_gaps(files: ClientFiles, settings: DataSettings, in_words: bool) -> tuple[Array, Array, int]:
    """The label of every row in words ("": it has none), its number of empty cells, and the number of its cells."""
    if isinstance(files, DataTable):
        labels = np.full(files.rows, "", dtype=object)
        if settings.label in files.columns:
            empty = np.array(missing_cells(files.column(settings.label), ("",)), bool)
            labels[~empty] = [str(label) for label in files.labels(settings, in_words)[~empty].tolist()]
        features = files.features(settings)
        gaps = np.zeros(files.rows, np.int64)
        for name in features:
            gaps += files.gaps(name, settings)
        return labels, gaps, len(features)
    if isinstance(files, Archive):
        x, y = files.arrays["x"], files.arrays["y"]
        if len(x) != len(y) or y.ndim != 1:
            return np.zeros(0, object), np.zeros(0, np.int64), 1
        names = files.arrays.get("class_names")
        known = names is not None and y.dtype.kind in "ui" and len(y) and y.min() >= 0 and y.max() < len(names)
        words = [str(label) for label in (names[y] if known and names is not None else y).tolist()]
        flat = x.reshape(len(x), -1)
        empty = np.isnan(flat).sum(axis=1) if x.dtype.kind == "f" else np.zeros(len(x), np.int64)
        return np.array(words, dtype=object), empty, flat.shape[1]
    labels = np.array([image.parent.name for image in getattr(files, "images", ())], dtype=object)
    return labels, np.zeros(len(labels), np.int64), 1


def _table_columns(tables: Sequence[DataTable], found: Examination) -> list[ColumnSummary]:
    settings = found.settings
    names = dict.fromkeys(name for table in tables for name in table.features(settings))
    return [_table_column(name, [one for one in tables if name in one.columns], found) for name in names]


def _table_column(name: str, tables: Sequence[DataTable], found: Examination) -> ColumnSummary:
    settings = found.settings
    kinds = {table.column_kind(name, settings, found.as_text) for table in tables}
    kind = kinds.pop() if len(kinds) == 1 else "text"
    rows = sum(table.rows for table in tables)
    missing = sum(int(table.gaps(name, settings).sum()) for table in tables) / max(rows, 1)
    unit = (settings.units or {}).get(name, "")
    if kind == "text":
        words = {word for table in tables for word in table.words(name, settings)}
        return ColumnSummary(name, kind, unit, missing, different=len(words))
    values: list[Any] = []
    for table in tables:
        if kind == "date":
            moments = [moment for moment in table.dates(name, settings) or () if moment is not None]
            values += [min(moments).date().isoformat(), max(moments).date().isoformat()] if moments else []
        elif (numbers := table.numbers(name, settings)) is not None and not np.isnan(numbers).all():
            values += [float(np.nanmin(numbers)), float(np.nanmax(numbers))]
    return ColumnSummary(name, kind, unit, missing, min(values, default=None), max(values, default=None))


def _number_columns(x: Array, names: Sequence[str], units: Mapping[str, str]) -> list[ColumnSummary]:
    columns = []
    for place in range(x.shape[1]):
        values = x[:, place].astype(np.float64)
        known = values[~np.isnan(values)]
        name = names[place] if place < len(names) else f"x{place}"
        ends = (float(known.min()), float(known.max())) if len(known) else (None, None)
        columns.append(ColumnSummary(name, "number", units.get(name, ""), 1 - len(known) / max(len(values), 1), *ends))
    return columns


# -- what one should know ----------------------------------------------------------------------------------------------


def notes_on(found: Examination, summary: DataSummary, held_out: Sequence[str] = ()) -> list[Problem]:
    """What a person should know although the data can be used."""
    tables = {name: files for name, files in found.clients.items() if isinstance(files, DataTable)}
    return [
        *_identifiers(list(tables.values()), found.settings),
        *_constants(summary),
        *_labels_like_gaps(summary, found.settings),
        *_small_clients(summary),
        *_dialects({name: table.dialect for name, table in tables.items() if table.dialect is not None}),
        *_overlaps(found.settings),
        *_unseen_words(found, held_out),
    ]


def _identifiers(tables: Sequence[DataTable], settings: DataSettings) -> list[Problem]:
    """Columns with another value in every row of every file that is large enough to tell."""
    found = []
    large = [table for table in tables if table.rows >= FEW]
    for name in dict.fromkeys(name for table in large for name in table.features(settings)):
        if all(_all_different(table, name, settings) for table in large if name in table.columns):
            text = f"column '{name}' has another value in every row, as an identifier has"
            hint = "a network learns it by heart: leave it out with data.drop unless it is a measurement"
            found.append(Problem("identifier-column", f"{text}; {hint}", ("drop", [name]), name))
    return found


def _all_different(table: DataTable, name: str, settings: DataSettings) -> bool:
    """Of numbers, only whole ones can be identifiers; dates cannot."""
    if table.gaps(name, settings).any():
        return False
    numbers = table.numbers(name, settings)
    if numbers is not None:
        return len(np.unique(numbers)) == table.rows and bool((numbers == np.floor(numbers)).all())
    return table.column_kind(name, settings) == "text" and len(table.words(name, settings)) == table.rows


def _constants(summary: DataSummary) -> list[Problem]:
    found = []
    for one in summary.columns if summary.rows > 1 else ():
        if one.missing == 1:
            text = f"column '{one.name}' has no value at all"
        elif one.missing == 0 and (one.different == 1 or (one.least is not None and one.least == one.most)):
            text = f"column '{one.name}' has the same value in all rows of all clients"
        else:
            continue
        found.append(Problem("constant-column", f"{text}; leave it out with data.drop", ("drop", [one.name]), one.name))
    return found


def _labels_like_gaps(summary: DataSummary, settings: DataSettings) -> list[Problem]:
    words = [word for word in summary.classes if word.lower() in settings.words_for_missing]
    return [
        Problem("label-like-missing", f"the label '{word}' counts as a class of this name, not as a missing value")
        for word in words
    ]


def _small_clients(summary: DataSummary) -> list[Problem]:
    found = []
    for client in summary.clients:
        if client.rows < FEW:
            text = f"client '{client.name}' has {client.rows} rows; what it is tested on says little"
            found.append(Problem("few-rows", text))
        if len(client.classes) == 1 and len(summary.classes) > 1:
            text = f"client '{client.name}' has rows of one class only, '{next(iter(client.classes))}'"
            found.append(Problem("one-class-client", text))
    return found


def _dialects(dialects: Mapping[str, Dialect]) -> list[Problem]:
    """Files that are written in another way than most."""
    if len(set(dialects.values())) < 2:
        return []
    usual, _ = Counter(dialects.values()).most_common(1)[0]
    return [
        Problem("dialects-differ", f"the file of '{name}' is {in_words(one)}, most files are {in_words(usual)}")
        for name, one in dialects.items()
        if one != usual
    ]


def in_words(dialect: Dialect) -> str:
    between = SEPARATOR_NAMES.get(dialect.separator, f"'{dialect.separator}'")
    return f"{dialect.encoding} with {between} between columns and '{dialect.decimal}' in numbers"


def _overlaps(settings: DataSettings) -> list[Problem]:
    if settings.window is None or (settings.window_step or settings.window) >= settings.window:
        return []
    if settings.blocks == "contiguous":
        return []
    text = "data.window_step is below data.window: windows overlap, so test rows are also in training windows"
    return [Problem("windows-overlap", f"{text}; set data.blocks to 'contiguous'", ("blocks", "contiguous"))]


def _unseen_words(found: Examination, held_out: Sequence[str]) -> list[Problem]:
    """Words of text columns that only test rows have."""
    settings = found.settings
    if settings.categories == "refuse":
        return []
    known: dict[str, set[str]] = {}
    tested: dict[str, DataDescription] = {}
    for name, one in found.descriptions.items():
        if name in held_out:
            tested[name] = one
        else:
            for column, words in one.text.items():
                known.setdefault(column, set()).update(words)
    if not found.problems:
        tested |= {str(files.path): files.describe(settings, found.as_text) for files in found.opened.test}
    problems = []
    for name, one in tested.items():
        for column, words in one.text.items():
            if others := sorted(set(words) - known.get(column, set())):
                means = "no value of the column" if settings.categories == "onehot" else "a missing value"
                text = f"'{name}', column '{column}': '{others[0]}' occurs in test rows only and counts as {means}"
                problems.append(Problem("unseen-category", text, None, column))
    return problems
