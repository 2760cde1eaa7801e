"""One client's rows in a table: a CSV or Parquet file, or a DataFrame.

A column whose values are numbers in every file is numeric. One whose values are dates needs the setting `dates`, which
names the numbers that are made of it; any other is text, which needs the setting `categories`: `code` numbers its
different values in alphabetical order, `onehot` makes one input of each. A missing value (an empty cell, or one of the
`missing_words`) is a gap in a column of numbers or dates, which `missing` fills, and a category of its own in a text
column. In the label only an empty cell is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from atoll.core.messages import Array
from atoll.data.files.agreement import Agreement, DataDescription, FileRows, Kind, Problem, too_few_rows
from atoll.data.partition import MINIMUM
from atoll.data.settings import DataSettings
from atoll.errors import DataError, nearest
from atoll.preparation import tables as raw
from atoll.preparation.cells import MISSING, missing_cells, number_column, to_date, to_number
from atoll.preparation.tables import Dialect, Places, RawTable, RowError
from atoll.preparation.value import expanded

FEW = 20  # rows below which a table is too small to tell identifiers and continuous labels from classes
OTHER_ORDER = {"dmy": "mdy", "mdy": "dmy"}

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DataTable:
    """Cells by column; `lines` gives the line in the file, or the number, of each row."""

    kind: ClassVar[Kind] = "table"
    path: Path
    columns: list[str]
    cells: Mapping[str, list[Any]]
    lines: Sequence[int]
    dialect: Dialect | None = None  # of a text file
    _found: dict[tuple[object, ...], Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of_columns(cls, columns: Mapping[str, Any], path: Path) -> DataTable:
        """A table from columns: lists, arrays, or columns of a DataFrame."""
        table = raw.of_columns(columns)
        return cls(path, table.columns, table.cells, range(len(table.places)))

    @property
    def rows(self) -> int:
        return len(self.lines)

    @property
    def decimal(self) -> str:
        return self.dialect.decimal if self.dialect else "."

    def column(self, name: str) -> list[Any]:
        return self.cells[name]

    @property
    def places(self) -> Places:
        return Places(f"'{self.path}' {'line' if self.dialect else 'row'}", self.lines)

    def place(self, row: int) -> str:
        """Where a row is, for messages."""
        return str(self.places[row])

    def only(self, rows: Sequence[int]) -> DataTable:
        """The same table with some of its rows."""
        cells = {name: [values[row] for row in rows] for name, values in self.cells.items()}
        return DataTable(self.path, self.columns, cells, [self.lines[row] for row in rows], self.dialect)

    # -- description ---------------------------------------------------------------------------------------------------

    def problems(self, settings: DataSettings, as_text: Collection[str] = ()) -> list[Problem]:
        """Everything that keeps this table from being used."""
        found = self._wrong_columns(settings)
        if found:
            return found
        if settings.window is None:
            found += too_few_rows(self.path, self.path.stem, self.rows)
        else:
            found += self._too_few_windows(settings.window, settings.window_step or settings.window)
        for name in self.features(settings) if self.rows else ():
            found += self._column_problems(name, settings, as_text)
        return found + (self._label_problems(settings) if self.rows else [])

    def describe(self, settings: DataSettings, as_text: Collection[str] = ()) -> DataDescription:
        kinds = {name: self.column_kind(name, settings, as_text) for name in self.features(settings)}
        return DataDescription(
            kind=self.kind,
            features=list(kinds),
            text={name: sorted(self.words(name, settings)) for name in kinds if kinds[name] == "text"},
            dates={name: self._first_date(name, settings) for name in kinds if kinds[name] == "date"},
            labels=np.unique(self.labels(settings, settings.label in as_text)).tolist(),
        )

    def features(self, settings: DataSettings) -> list[str]:
        """All columns besides the label, the client's name and those that are left out."""
        others = {settings.label, settings.client_column, *(settings.drop or ())}
        return [name for name in self.columns if name not in others]

    def column_kind(self, name: str, settings: DataSettings, as_text: Collection[str] = ()) -> str:
        """`number`, `date` or `text`. A column that `dates` names is one of dates, whatever it holds."""
        if name in (settings.dates or {}):
            return "date"
        if name not in as_text:
            if self.numbers(name, settings) is not None:
                return "number"
            if self.dates(name, settings) is not None:
                return "date"
        return "text"

    def gaps(self, name: str, settings: DataSettings) -> npt.NDArray[np.bool_]:
        """Whether each value of a feature is missing."""
        words = settings.words_for_missing

        def look() -> npt.NDArray[np.bool_]:
            numbers = self.numbers(name, settings)
            return np.array(missing_cells(self.column(name), words), bool) if numbers is None else np.isnan(numbers)

        found: npt.NDArray[np.bool_] = self._once(("gaps", name, words), look)
        return found

    def numbers(self, name: str, settings: DataSettings) -> Doubles | None:
        """The column as numbers with NaN for gaps, or None if it holds something else."""
        words = settings.words_for_missing

        def parse() -> Doubles | None:
            values, wrong = number_column(self.column(name), words, self.decimal)
            return values if wrong is None else None

        found: Doubles | None = self._once(("numbers", name, words), parse)
        return found

    def dates(self, name: str, settings: DataSettings, order: str | None = None) -> list[Any] | None:
        """The column as dates with None for gaps, or None if it holds something else, or only gaps."""
        order = order or settings.date_order

        def parse() -> list[Any] | None:
            moments: list[Any] = []
            for cell, gap in zip(self.column(name), self.gaps(name, settings).tolist(), strict=True):
                moment = None if gap else to_date(cell, order)
                if moment is None and not gap:
                    return None
                moments.append(moment)
            return moments if any(moments) else None

        found: list[Any] | None = self._once(("dates", name, settings.words_for_missing, order), parse)
        return found

    def words(self, name: str, settings: DataSettings) -> frozenset[str]:
        """The different values of the column as categories."""

        def collect() -> frozenset[str]:
            gaps = self.gaps(name, settings).tolist()
            return frozenset(
                MISSING if gap else str(cell).strip() for cell, gap in zip(self.column(name), gaps, strict=True)
            )

        found: frozenset[str] = self._once(("words", name, settings.words_for_missing), collect)
        return found

    def labels(self, settings: DataSettings, as_words: bool) -> Array:
        """Whole numbers if every label is one, words otherwise."""
        numbers = None if as_words else self._label_numbers(settings)
        if numbers is not None and bool((numbers == np.floor(numbers)).all()) and bool((abs(numbers) < 2**53).all()):
            return numbers.astype(np.int64)
        return np.array([str(cell) for cell in self.column(settings.label)], dtype=np.str_)

    # -- rows ----------------------------------------------------------------------------------------------------------

    def read(self, agreement: Agreement, settings: DataSettings, unseen: bool = False) -> FileRows:
        preparation = agreement.preparation
        if sorted(self.features(settings)) != sorted(column.name for column in preparation.columns):
            raise DataError(
                f"'{self.path}': the columns are not those of the start of the run; restore the file",
                code="data-changed",
            )
        cells: dict[str, Any] = dict(self.cells)
        for column in preparation.columns:
            if column.kind == "number" and (numbers := self.numbers(column.name, settings)) is not None:
                cells[column.name] = numbers
        table = RawTable(self.columns, cells, self.places, self.decimal)
        unknown = "refuse" if not unseen else "zeros" if settings.categories == "onehot" else "missing"
        try:
            values = raw.table_values(preparation.plain(), table, unknown, extra_columns="ignore")
        except RowError as problem:
            if unseen and problem.code == "unknown-category":
                raise DataError(
                    f"{problem}; no client that trains has it: set data.categories to 'onehot', or leave the column "
                    "out with data.drop",
                    code=problem.code,
                ) from None
            raise DataError(
                f"{problem}: it was not so when the run started; restore the file", code="data-changed"
            ) from None
        labels = self.labels(settings, agreement.in_words)
        if preparation.window is not None:
            labels = labels[preparation.window.steps - 1 :: preparation.window.stride][: len(values)]
        return FileRows(expanded(preparation, values), agreement.class_numbers(labels, self.path))

    # -- what is wrong -------------------------------------------------------------------------------------------------

    def _wrong_columns(self, settings: DataSettings) -> list[Problem]:
        found = []
        if settings.label not in self.columns:
            same = [name for name in self.columns if name.lower() == settings.label.lower()]
            found.append(
                Problem(
                    "label-column-missing",
                    f"'{self.path}' has no label column '{settings.label}'; name the right one with data.label: "
                    f"{nearest(settings.label, self.columns)}",
                    ("label", same[0]) if same else None,
                )
            )
        client = settings.client_column
        if client is not None and client not in self.columns:
            found.append(
                Problem(
                    "client-column-missing",
                    f"'{self.path}' has no client column '{client}'; {nearest(client, self.columns)}",
                )
            )
        if not found and not self.features(settings):
            text = f"'{self.path}' has no column besides the label; a table needs at least one feature"
            found.append(Problem("no-feature-columns", text))
        return found

    def _too_few_windows(self, steps: int, stride: int) -> list[Problem]:
        windows = max(0, (self.rows - steps) // stride + 1)
        if windows >= MINIMUM:
            return []
        text = f"'{self.path}' has {self.rows} rows, enough for {windows} windows of {steps} (data.window)"
        hint = f"every client needs at least {MINIMUM}: add rows, or leave it out with data.exclude"
        return [Problem("series-too-short", f"{text}; {hint}", ("exclude", [self.path.stem]))]

    def _column_problems(self, name: str, settings: DataSettings, as_text: Collection[str]) -> list[Problem]:
        found = []
        gaps, kind = self.gaps(name, settings), self.column_kind(name, settings, as_text)
        if gaps.any() and (settings.missing or "refuse") == "refuse":
            found.append(
                Problem(
                    "missing-value",
                    f"{self.place(int(gaps.argmax()))}, column '{name}': the value is missing ({int(gaps.sum())} of "
                    f"{self.rows} rows); set data.missing to 'mean', 'median' or 'zero' to fill it, or remove the row",
                    ("missing", "mean"),
                    name,
                )
            )
        if kind == "date":
            found += self._date_problems(name, settings)
        elif kind == "text":
            found += self._text_problems(name, settings)
        return found

    def _date_problems(self, name: str, settings: DataSettings) -> list[Problem]:
        wanted = name in (settings.dates or {})
        if wanted and self.dates(name, settings) is None and not self.gaps(name, settings).all():
            row, cell = self._first(name, settings, lambda cell: to_date(cell, settings.date_order) is None)
            text = f"{self.place(row)}, column '{name}': '{str(cell)[:40]}' is not a date such as 2024-03-31"
            hint = "correct it, or leave the column out with data.drop"
            return [Problem("not-a-date", f"{text}; {hint}", ("drop", [name]), name)]
        if wanted:
            return []
        row, cell = self._first(name, settings, lambda cell: True)
        return [
            Problem(
                "date-column",
                f"{self.place(row)}, column '{name}': '{str(cell)[:40]}' is a date; say what to make of it with "
                f"data.dates.{name} = ['days'] (or month, weekday, hour), or leave it out with data.drop",
                (f"dates.{name}", ["days"]),
                name,
            )
        ]

    def _text_problems(self, name: str, settings: DataSettings) -> list[Problem]:
        if self.numbers(name, settings) is not None:
            return []  # text in another file, where it is reported
        row, cell = self._first(name, settings, lambda cell: to_number(cell, self.decimal) is None)
        where = f"{self.place(row)}, column '{name}': '{str(cell)[:40]}'"
        other = OTHER_ORDER[settings.date_order]
        if self.dates(name, settings) is None and self.dates(name, settings, other) is not None:
            order = "the month" if other == "mdy" else "the day"
            text = f"{where} is a date with {order} first; set data.date_order to '{other}'"
            return [Problem("date-order", text, ("date_order", other), name)]
        different = len(self.words(name, settings))
        if different > settings.max_categories:
            return [
                Problem(
                    "too-many-categories",
                    f"{where} is text, and the column has {different} different values in {self.rows} rows, more than "
                    f"data.max_categories = {settings.max_categories}; leave it out with data.drop, or raise the limit",
                    ("drop", [name]),
                    name,
                )
            ]
        if settings.categories != "refuse":
            return []
        identifies = different == self.rows >= FEW
        return [
            Problem(
                "column-not-numeric",
                f"{where} is not a finite number ({different} different values in {self.rows} rows); set "
                "data.categories to 'code' or 'onehot' to allow text, or leave the column out with data.drop",
                ("drop", [name]) if identifies else ("categories", "onehot"),
                name,
            )
        ]

    def _label_problems(self, settings: DataSettings) -> list[Problem]:
        label = settings.label
        gaps = missing_cells(self.column(label), ("",))
        if any(gaps):
            text = f"{self.place(gaps.index(True))} has no label in column '{label}'"
            return [Problem("label-missing", f"{text} ({sum(gaps)} of {self.rows} rows); add it or remove the row")]
        numbers = self._label_numbers(settings)
        if numbers is None:
            return []
        different = len(np.unique(numbers))
        fractions = numbers != np.floor(numbers)
        if fractions.any() or (self.rows >= FEW and different > self.rows / 2 and different > FEW):
            row = int(fractions.argmax())
            return [
                Problem(
                    "continuous-label",
                    f"{self.place(row)}: the label column '{label}' holds {self.column(label)[row]} and "
                    f"{different - 1} other numbers; Atoll finds classes and predicts no quantities: name a column of "
                    "classes with data.label, or cut the values into ranges",
                )
            ]
        return []

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _once(self, key: tuple[object, ...], compute: Callable[[], Any]) -> Any:
        """What has been computed before is not computed again; the key names the settings that matter."""
        if key not in self._found:
            self._found[key] = compute()
        return self._found[key]

    def _label_numbers(self, settings: DataSettings) -> Doubles | None:
        """The labels as numbers with NaN for gaps, or None if there are others; True and False are words."""

        def parse() -> Doubles | None:
            cells = self.column(settings.label)
            if any(isinstance(cell, (bool, np.bool_)) for cell in cells):
                return None
            values, wrong = number_column(cells, (), self.decimal)
            return values if wrong is None else None

        found: Doubles | None = self._once(("labels", settings.label), parse)
        return found

    def _first_date(self, name: str, settings: DataSettings) -> str:
        """The day of the earliest date; it leaves a site only where `days` are counted."""
        moments = [moment for moment in self.dates(name, settings) or () if moment is not None]
        counted = "days" in (settings.dates or {}).get(name, ())
        return min(moments).date().isoformat() if moments and counted else ""

    def _first(self, name: str, settings: DataSettings, wrong: Callable[[Any], bool]) -> tuple[int, Any]:
        """The first value that is not missing and for which `wrong` holds, else the first of all; and its row."""
        cells = self.column(name)
        known = np.flatnonzero(~self.gaps(name, settings)).tolist()
        row = next((row for row in known if wrong(cells[row])), known[0] if known else 0)
        return row, cells[row]


def read_table(path: Path, settings: DataSettings | None = None) -> DataTable:
    """A CSV file (its dialect is detected where the settings do not name it) or a Parquet file."""
    try:
        if path.suffix.lower() in (".parquet", ".pq"):
            return DataTable.of_columns(raw.read_parquet(path), path)
        given = (None, None, None) if settings is None else (settings.encoding, settings.separator, settings.decimal)
        found = raw.read_lines(path, *given)
    except RowError as problem:
        raise DataError(str(problem), code=problem.code) from None
    return DataTable(path, list(found.cells), found.cells, found.lines, found.dialect)
