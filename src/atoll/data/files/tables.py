"""From tables of words to numbers, by declared rules that are the same for all clients.

A feature whose every value is a number in every file is a number; any other is text, which needs the setting
`categories`: `code` numbers its different values in alphabetical order, `onehot` makes one column of each.
An empty cell, NA, NaN, null, None or ? is a missing value: a gap among numbers (`missing` says how it is filled),
a category of its own among words. Missing values are refused unless `missing` is set.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from atoll.core.messages import Array
from atoll.data.source import Missing
from atoll.errors import DataError, nearest

if TYPE_CHECKING:
    from _csv import Reader


@dataclass(frozen=True)
class CsvTable:
    """Cells as text without surrounding blanks; `lines` says where in the file each row stands."""

    path: Path
    columns: list[str]
    rows: list[list[str]]
    lines: list[int]

    def column(self, name: str) -> list[str]:
        place = self.columns.index(name)
        return [row[place] for row in self.rows]


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


ABSENT = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
UNKNOWN = "(missing)"


@dataclass(frozen=True)
class Numbers:
    """All tables' features and labels, file after file."""

    x: npt.NDArray[np.float32]
    labels: Array
    features: list[str]


def to_numbers(
    tables: list[CsvTable], label: str, categories: str, missing: Missing, drop: str | None = None
) -> Numbers:
    """Features and labels of all tables; `drop` is a column that is neither (the client's name)."""
    features = _features(tables, label, drop)
    if missing == "refuse":
        _refuse_gaps(tables, features)
    blocks: list[npt.NDArray[np.float64]] = []
    names: list[str] = []
    for feature in features:
        pieces = [_as_numbers(table.column(feature)) for table in tables]
        if all(piece is not None for piece in pieces):
            blocks.append(np.concatenate([piece for piece in pieces if piece is not None])[:, None])
            names.append(feature)
            continue
        if categories == "refuse":
            raise DataError(_text_message(tables, feature), code="column-not-numeric")
        block, titles = _categories([word for table in tables for word in table.column(feature)], feature, categories)
        blocks.append(block)
        names += titles
    with np.errstate(over="ignore"):
        x = np.concatenate(blocks, axis=1).astype(np.float32)
    return Numbers(x, class_labels(tables, label), names)


def features_of(table: CsvTable, label: str) -> tuple[list[str], list[str]]:
    """The feature columns of one table, and those among them that are text."""
    features = _features([table], label, None)
    return features, [name for name in features if _as_numbers(table.column(name)) is None]


def words_of(table: CsvTable, feature: str) -> list[str]:
    """The different values of a text column, in alphabetical order."""
    found: list[str] = np.unique(np.array(_filled(table.column(feature)), dtype=np.str_)).tolist()
    return found


def one_table(
    table: CsvTable, label: str, features: list[str], known: Mapping[str, list[str]], categories: str, missing: Missing
) -> tuple[npt.NDArray[np.float32], list[str]]:
    """One client's features as `to_numbers` gives them, where columns and words of all clients are known already."""
    if missing == "refuse":
        _refuse_gaps([table], features)
    blocks: list[npt.NDArray[np.float64]] = []
    names: list[str] = []
    for feature in features:
        words = table.column(feature)
        numbers = None if feature in known else _as_numbers(words)
        if numbers is not None:
            blocks.append(numbers[:, None])
            names.append(feature)
            continue
        if categories == "refuse" or feature not in known:
            raise DataError(_text_message([table], feature), code="column-not-numeric")
        found = np.array(known[feature], dtype=np.str_)
        filled = np.array(_filled(words), dtype=np.str_)
        if not np.isin(filled, found).all():
            raise DataError(
                f"'{table.path}', column '{feature}': a word that was not there when the run began", code="data-changed"
            )
        block, titles = _coded(np.searchsorted(found, filled), found.tolist(), feature, categories)
        blocks.append(block)
        names += titles
    with np.errstate(over="ignore"):
        return np.concatenate(blocks, axis=1).astype(np.float32), names


def class_labels(tables: list[CsvTable], label: str) -> Array:
    """The labels of all tables: whole numbers if every one of them is, words otherwise."""
    words: list[str] = []
    for table in tables:
        column = table.column(label)
        for line, word in zip(table.lines, column, strict=True):
            if word.lower() in ABSENT:
                raise DataError(
                    f"'{table.path}' line {line} has no label in column '{label}'; add it or remove the row",
                    code="label-missing",
                )
        words += column
    numbers = _as_numbers(words)
    if numbers is not None and bool((numbers == np.floor(numbers)).all()) and bool((abs(numbers) < 2**53).all()):
        return numbers.astype(np.int64)
    return np.array(words, dtype=np.str_)


def _features(tables: list[CsvTable], label: str, drop: str | None) -> list[str]:
    """The feature columns, in the first file's order; every file must have the same ones."""
    first = tables[0]
    for table in tables:
        if label not in table.columns:
            raise DataError(
                f"'{table.path}' has no label column '{label}'; name the right one with data.label: "
                f"{nearest(label, table.columns)}",
                code="label-column-missing",
            )
        different = sorted(set(table.columns) ^ set(first.columns))
        if different:
            holder, other = (table, first) if different[0] in table.columns else (first, table)
            raise DataError(
                f"column '{different[0]}' is in '{holder.path}' but not in '{other.path}'; "
                "all clients need the same columns",
                code="columns-differ",
            )
    features = [name for name in first.columns if name not in (label, drop)]
    if not features:
        raise DataError(
            f"'{first.path}' has no column besides the label; a table needs at least one feature",
            code="no-feature-columns",
        )
    return features


def _refuse_gaps(tables: list[CsvTable], features: list[str]) -> None:
    for table in tables:
        for feature in features:
            for line, word in zip(table.lines, table.column(feature), strict=True):
                if word.lower() in ABSENT:
                    raise DataError(
                        f"'{table.path}' line {line}, column '{feature}': the value is missing; set data.missing to "
                        "'mean', 'median' or 'zero' to fill it, or remove the row",
                        code="missing-value",
                    )


def _as_numbers(words: list[str]) -> npt.NDArray[np.float64] | None:
    """The column as numbers with NaN for gaps, or None if one of them is text."""
    values = [_number(word) for word in words]
    return None if None in values else np.array(values, dtype=np.float64)


def _number(word: str) -> float | None:
    """A finite number, NaN for a missing value, None for text (infinity and 1_000 count as text)."""
    try:
        value = float(word)
    except ValueError:
        return math.nan if word.lower() in ABSENT else None
    return None if math.isinf(value) or "_" in word else value


def _text_message(tables: list[CsvTable], feature: str) -> str:
    for table in tables:
        for line, word in zip(table.lines, table.column(feature), strict=True):
            if _number(word) is None:
                return (
                    f"'{table.path}' line {line}, column '{feature}': '{word[:40]}' is not a finite number; set "
                    "data.categories to 'code' or 'onehot' to allow text, or remove the column"
                )
    raise AssertionError("a text column without text")


def _categories(words: list[str], feature: str, rule: str) -> tuple[npt.NDArray[np.float64], list[str]]:
    """One column of codes, or one column a category."""
    found, codes = np.unique(np.array(_filled(words), dtype=np.str_), return_inverse=True)
    return _coded(codes, found.tolist(), feature, rule)


def _filled(words: list[str]) -> list[str]:
    return [UNKNOWN if word.lower() in ABSENT else word for word in words]


def _coded(
    codes: npt.NDArray[np.int64], found: list[str], feature: str, rule: str
) -> tuple[npt.NDArray[np.float64], list[str]]:
    if rule == "code":
        return codes.astype(np.float64)[:, None], [feature]
    return np.eye(len(found))[codes], [f"{feature}={name}" for name in found]
