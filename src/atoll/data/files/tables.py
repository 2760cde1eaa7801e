"""One client's rows in a CSV table, turned into numbers by declared rules that are the same for all clients.

A column whose values are numbers in every file is numeric; any other is text, which needs the setting `categories`:
`code` numbers its different values in alphabetical order, `onehot` makes one column of each.
An empty cell, NA, NaN, null, None or ? is a missing value: a gap in a numeric column (`missing` says how it is filled),
a category of its own in a text column. Missing values are refused unless `missing` is set.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from atoll.core.messages import Array
from atoll.data.files.agreement import Agreement, DataDescription, FileRows, Kind
from atoll.data.partition import check_rows
from atoll.data.settings import DataSettings
from atoll.errors import DataError, nearest

if TYPE_CHECKING:
    from _csv import Reader


ABSENT = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
UNKNOWN = "(missing)"

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CsvTable:
    """Cells as text without surrounding blanks; `lines` gives the line in the file of each row."""

    kind: ClassVar[Kind] = "csv"
    path: Path
    columns: list[str]
    rows: list[list[str]]
    lines: list[int]
    _parsed: dict[str, Doubles | None] = field(default_factory=dict, repr=False, compare=False)

    def column(self, name: str) -> list[str]:
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def describe(self, settings: DataSettings, as_text: Collection[str] = ()) -> DataDescription:
        features = self._features(settings)
        check_rows(len(self.rows), self.path)
        if (settings.missing or "refuse") == "refuse":
            self._refuse_gaps(features)
        text = [name for name in features if name in as_text or self._numbers(name) is None]
        if text and settings.categories == "refuse":
            raise DataError(self._not_numeric(text[0]), code="column-not-numeric")
        return DataDescription(
            kind=self.kind,
            features=features,
            text={name: np.unique(self._words(name)).tolist() for name in text},
            labels=np.unique(self._labels(settings.label, settings.label in as_text)).tolist(),
        )

    def read(self, agreement: Agreement, settings: DataSettings) -> FileRows:
        features = agreement.features or []
        if sorted(self._features(settings)) != sorted(features):
            raise DataError(
                f"'{self.path}': the columns are not those of the start of the run; restore the file",
                code="data-changed",
            )
        blocks: list[Doubles] = []
        names: list[str] = []
        for feature in features:
            block, titles = self._block(feature, agreement.text.get(feature), settings.categories)
            blocks.append(block)
            names += titles
        with np.errstate(over="ignore"):
            x = np.concatenate(blocks, axis=1).astype(np.float32)
        words = agreement.labels is not None and isinstance(agreement.labels[0], str)
        return FileRows(x, agreement.class_numbers(self._labels(settings.label, words), self.path), names)

    def _block(self, feature: str, categories: list[str] | None, rule: str) -> tuple[Doubles, list[str]]:
        """One column of numbers or codes, or one column per category; and their names."""
        if categories is None:
            numbers = self._numbers(feature)
            if numbers is None:
                raise DataError(self._not_numeric(feature), code="column-not-numeric")
            return numbers[:, None], [feature]
        known, words = np.array(categories, dtype=np.str_), self._words(feature)
        if not np.isin(words, known).all():
            raise DataError(
                f"'{self.path}', column '{feature}': a value was not there when the run started; restore the file",
                code="data-changed",
            )
        codes = np.searchsorted(known, words)
        if rule == "code":
            return codes.astype(np.float64)[:, None], [feature]
        return np.eye(len(known))[codes], [f"{feature}={name}" for name in categories]

    def _features(self, settings: DataSettings) -> list[str]:
        """All columns besides the label and the client's name."""
        if settings.label not in self.columns:
            raise DataError(
                f"'{self.path}' has no label column '{settings.label}'; name the right one with data.label: "
                f"{nearest(settings.label, self.columns)}",
                code="label-column-missing",
            )
        client = settings.client_column
        if client is not None and client not in self.columns:
            raise DataError(
                f"'{self.path}' has no client column '{client}'; {nearest(client, self.columns)}",
                code="client-column-missing",
            )
        features = [name for name in self.columns if name not in (settings.label, client)]
        if not features:
            raise DataError(
                f"'{self.path}' has no column besides the label; a table needs at least one feature",
                code="no-feature-columns",
            )
        return features

    def _labels(self, label: str, as_words: bool) -> Array:
        """Whole numbers if every label is one, words otherwise."""
        words = self.column(label)
        for line, word in zip(self.lines, words, strict=True):
            if word.lower() in ABSENT:
                raise DataError(
                    f"'{self.path}' line {line} has no label in column '{label}'; add it or remove the row",
                    code="label-missing",
                )
        numbers = None if as_words else self._numbers(label)
        if numbers is not None and bool((numbers == np.floor(numbers)).all()) and bool((abs(numbers) < 2**53).all()):
            return numbers.astype(np.int64)
        return np.array(words, dtype=np.str_)

    def _numbers(self, name: str) -> Doubles | None:
        """The column as numbers with NaN for gaps, or None if it holds text."""
        if name not in self._parsed:
            values = [_number(word) for word in self.column(name)]
            self._parsed[name] = None if None in values else np.array(values, dtype=np.float64)
        return self._parsed[name]

    def _words(self, name: str) -> npt.NDArray[np.str_]:
        """The column as categories."""
        return np.array([UNKNOWN if word.lower() in ABSENT else word for word in self.column(name)], dtype=np.str_)

    def _refuse_gaps(self, features: list[str]) -> None:
        for feature in features:
            for line, word in zip(self.lines, self.column(feature), strict=True):
                if word.lower() in ABSENT:
                    raise DataError(
                        f"'{self.path}' line {line}, column '{feature}': the value is missing; set data.missing to "
                        "'mean', 'median' or 'zero' to fill it, or remove the row",
                        code="missing-value",
                    )

    def _not_numeric(self, feature: str) -> str:
        line, word = next(
            (line, word) for line, word in zip(self.lines, self.column(feature), strict=True) if _number(word) is None
        )
        return (
            f"'{self.path}' line {line}, column '{feature}': '{word[:40]}' is not a finite number; set "
            "data.categories to 'code' or 'onehot' to allow text, or remove the column"
        )


def _number(word: str) -> float | None:
    """A finite number, NaN for a missing value, None for text (infinity and 1_000 count as text)."""
    try:
        value = float(word)
    except ValueError:
        return math.nan if word.lower() in ABSENT else None
    return None if math.isinf(value) or "_" in word else value


def read_csv(path: Path) -> CsvTable:
    """A UTF-8 file, separated by commas, with a header line. Blank lines are skipped."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, None)
            if not header:
                raise DataError(f"'{path}' is empty; the first line must name the columns", code="empty-file")
            columns = _check_header([name.strip() for name in header], path)
            rows, lines = _body(reader, len(columns), path)
    except UnicodeDecodeError as error:
        raise DataError(
            f"'{path}' is not UTF-8 text (byte {error.start}); save it as UTF-8", code="not-utf8-text"
        ) from None
    except csv.Error as error:
        raise DataError(
            f"'{path}' line {reader.line_num} is not readable as CSV ({error}); correct it", code="malformed-line"
        ) from None
    except OSError as error:
        raise DataError(
            f"'{path}' cannot be read ({error.strerror}); check the path and its permissions", code="file-unreadable"
        ) from None
    return CsvTable(path, columns, rows, lines)


def _body(reader: Reader, width: int, path: Path) -> tuple[list[list[str]], list[int]]:
    rows: list[list[str]] = []
    lines: list[int] = []
    for cells in reader:
        if not any(cell.strip() for cell in cells) and len(cells) <= 1:
            continue
        if len(cells) != width:
            raise DataError(
                f"'{path}' line {reader.line_num} has {len(cells)} values, but the header names {width} columns; "
                "every line needs one value a column",
                code="wrong-value-count",
            )
        rows.append([cell.strip() for cell in cells])
        lines.append(reader.line_num)
    return rows, lines


def _check_header(columns: list[str], path: Path) -> list[str]:
    if len(columns) == 1 and any(sign in columns[0] for sign in ";\t"):
        raise DataError(
            f"'{path}' seems to be separated by semicolons or tabs; save it with commas", code="wrong-separator"
        )
    for place, name in enumerate(columns):
        if not name:
            raise DataError(
                f"'{path}': column {place + 1} has no name; name every column in the first line", code="unnamed-column"
            )
        if name in columns[:place]:
            raise DataError(
                f"'{path}' has two columns named '{name}'; every column needs a name of its own",
                code="duplicate-column",
            )
    return columns
