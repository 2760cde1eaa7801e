"""Raw tables: read files and other forms of rows, and turn their cells into the numbers that a network takes.

This file and its neighbours `cells.py`, `images.py` and `answers.py` need Python's library and numpy only: `atoll
export` writes them, joined, beside an exported network. What they read is the preparation in its plain form, a table of
plain values that `value.py` describes. What is done with the numbers (filling gaps, logarithm, scaling) is part of the
network.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from atoll.preparation.cells import DATE_PARTS, MISSING, is_missing, number_column, to_date

SEPARATORS = (",", ";", "\t", "|")
SAMPLE, SAMPLE_LINES = 100_000, 50  # characters and lines from which the separator is detected
AT_ONCE = 200  # rows of a text file that are divided into columns at once
WITH_COMMA = re.compile(r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?")
WITH_POINT = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")
CHOICES = {"unknown_category": ("refuse", "missing", "zeros"), "extra_columns": ("refuse", "ignore")}


class RowError(ValueError):
    """Rows that cannot be used: one line that names the place, the value and the rule. `code` is short and stable."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


# -- tables ------------------------------------------------------------------------------------------------------------


class Dialect(NamedTuple):
    """How a text file is written."""

    encoding: str
    separator: str
    decimal: str


class Places(Sequence[str]):
    """Where each row comes from, for messages: a word and the row's number, put together when it is needed."""

    def __init__(self, what: str, numbers: Sequence[int]) -> None:
        self.what, self.numbers = what, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, row: Any) -> Any:
        return f"{self.what} {self.numbers[row]}"


class RawTable(NamedTuple):
    """Cells by column. `places[row]` is where a row comes from, for messages: "'new.csv' line 7"."""

    columns: list[str]
    cells: dict[str, list[Any]]
    places: Sequence[str]
    decimal: str = "."


class Lines(NamedTuple):
    """A text table as read: the cells of every column without surrounding blanks, and each row's line in the file."""

    cells: dict[str, list[str]]
    lines: list[int]
    dialect: Dialect


def read_lines(
    path: Path, encoding: str | None = None, separator: str | None = None, decimal: str | None = None
) -> Lines:
    """A CSV file with a header line. What is not given is detected. Blank lines are skipped."""
    text, encoding = _decoded(path, encoding)
    if not text[: text.find("\n") + 1 or None].strip():
        raise RowError(f"'{path}' is empty; the first line must name the columns", "empty-file")
    separator = separator or _separator(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    lines: list[int] = []
    try:
        columns = _checked_header([name.strip() for name in next(reader)], path)
        found: dict[str, list[str]] = {name: [] for name in columns}
        rows: list[list[str]] = []  # a few at a time: many short lists are slow
        for cells in reader:
            if len(cells) <= 1 and not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(columns):
                raise RowError(
                    f"'{path}' line {reader.line_num} has {len(cells)} values, but the header names {len(columns)} "
                    "columns; every line needs one value a column",
                    "wrong-value-count",
                )
            rows.append(cells)
            lines.append(reader.line_num)
            if len(rows) == AT_ONCE:
                _append(found, rows)
        _append(found, rows)
    except csv.Error as error:
        raise RowError(
            f"'{path}' line {reader.line_num} is not readable as CSV ({error}); correct it", "malformed-line"
        ) from None
    decimal = decimal or _decimal_sign(found.values(), separator)
    return Lines(found, lines, Dialect(encoding, separator, decimal))


def _append(found: Mapping[str, list[str]], rows: list[list[str]]) -> None:
    """Move rows to the columns."""
    for column, cells in zip(found.values(), zip(*rows, strict=True), strict=bool(rows)):
        column.extend(map(str.strip, cells))
    rows.clear()


def _decoded(path: Path, encoding: str | None) -> tuple[str, str]:
    """The text of a file and its encoding: that of its byte-order mark, else UTF-8, else Windows-1252."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RowError(
            f"'{path}' cannot be read ({error.strerror}); check the path and its permissions", "file-unreadable"
        ) from None
    marked = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    for one in [encoding] if encoding else [marked, "cp1252"]:
        try:
            text = data.decode(one)
        except (UnicodeDecodeError, LookupError):
            continue
        if "\0" not in text:
            return text, "utf-8" if one == "utf-8-sig" else one
    tried = f"in the encoding {encoding}" if encoding else "in UTF-8 or Windows-1252"
    raise RowError(f"'{path}' is not text {tried}; save it as UTF-8", "not-text")


def _separator(text: str) -> str:
    """The separator that divides most of the first records into as many cells as the header, which must be several;
    in doubt, the one that is most frequent in the header."""
    start = io.StringIO(text[:SAMPLE], newline="").readlines()[:SAMPLE_LINES]
    scores = {}
    for one in SEPARATORS:
        try:
            counts = [len(cells) for cells in csv.reader(start, delimiter=one) if cells]
        except csv.Error:
            counts = [1]
        scores[one] = (counts.count(counts[0]) if counts[0] > 1 else 0, counts[0])
    return max(SEPARATORS, key=scores.__getitem__)


def _decimal_sign(columns: Iterable[Iterable[str]], separator: str) -> str:
    """A comma if numbers such as 1,5 are more frequent than 1.5; a file separated by commas has points."""
    if separator == ",":
        return "."
    cells = [cell for column in columns for cell in column if "," in cell or "." in cell]
    commas, points = (sum(map(bool, map(pattern.fullmatch, cells))) for pattern in (WITH_COMMA, WITH_POINT))
    return "," if commas > points else "."


def _checked_header(columns: list[str], path: Path) -> list[str]:
    for place, name in enumerate(columns):
        if not name:
            raise RowError(
                f"'{path}': column {place + 1} has no name; name every column in the first line", "unnamed-column"
            )
        if name in columns[:place]:
            raise RowError(
                f"'{path}' has two columns named '{name}'; every column needs a name of its own", "duplicate-column"
            )
    return columns


def read_table(path: Path, text_format: Mapping[str, str | None]) -> RawTable:
    """A CSV file, or a Parquet file if pyarrow is installed."""
    if path.suffix.lower() in (".parquet", ".pq"):
        return of_columns(read_parquet(path), str(path))
    found = read_lines(path, **text_format)
    return RawTable(list(found.cells), dict(found.cells), Places(f"'{path}' line", found.lines), found.dialect.decimal)


def read_parquet(path: Path) -> dict[str, list[Any]]:
    """The columns of a Parquet file, as Python values."""
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise RowError(
            f"'{path}': reading Parquet needs pyarrow; install it (pip install 'atoll[parquet]'), or save CSV",
            "parquet-not-installed",
        ) from None
    try:
        found: dict[str, list[Any]] = parquet.read_table(path).to_pydict()
    except (OSError, ValueError) as error:
        text = str(error).splitlines()[0][:100]
        raise RowError(f"'{path}' is not a readable Parquet file ({text}); write it again", "file-damaged") from None
    return found


def of_columns(columns: Mapping[str, Any], what: str = "rows") -> RawTable:
    """A table from columns: lists, arrays, or columns of a DataFrame."""
    cells = {str(name): listed(values) for name, values in columns.items()}
    rows = len(next(iter(cells.values()), []))
    return RawTable(list(cells), cells, Places(f"{what}, row", range(rows)))


def as_table(rows: Any, names: Sequence[str], text_format: Mapping[str, str | None]) -> RawTable:
    """Rows of any kind that is accepted: a path, a DataFrame, a dict or a list of them, an array (its columns are
    `names`, in this order)."""
    if isinstance(rows, (str, Path)):
        return read_table(Path(rows), text_format)
    if hasattr(rows, "columns") and hasattr(rows, "__getitem__"):  # pandas and polars
        return of_columns({name: rows[name] for name in rows.columns})
    if isinstance(rows, Mapping):
        if all(isinstance(value, (list, tuple, np.ndarray)) for value in rows.values()):
            return of_columns(rows)
        rows = [rows]
    if isinstance(rows, Sequence) and rows and all(isinstance(row, Mapping) for row in rows):
        return _of_records(rows)
    values = np.asarray(rows)
    if values.ndim == 1 and values.size == len(names):
        values = values[None]
    if values.ndim != 2 or values.shape[1] != len(names):
        raise RowError(
            f"rows of shape {values.shape}: give {len(names)} values a row, in the order of the network's columns",
            "row-shapes-differ",
        )
    return of_columns({name: values[:, place].tolist() for place, name in enumerate(names)})


def listed(column: Any) -> list[Any]:
    """A column as Python values."""
    if isinstance(column, np.ndarray) and column.dtype.kind == "M":
        column = column.astype("datetime64[us]")  # nanoseconds would become whole numbers
    return list(column.tolist() if hasattr(column, "tolist") else column)


def _of_records(rows: Sequence[Mapping[str, Any]]) -> RawTable:
    columns = list(dict.fromkeys(str(name) for row in rows for name in row))
    for number, row in enumerate(rows):
        for name in columns:
            if name not in row:
                raise RowError(f"rows, row {number} has no '{name}', which other rows have; add it", "columns-differ")
    return of_columns({name: [row[name] for row in rows] for name in columns})


# -- from cells to numbers ---------------------------------------------------------------------------------------------


USUAL_COLUMN = {"kind": "number", "coding": "code", "origin": "1970-01-01", "order": "dmy"}


def table_values(
    preparation: Mapping[str, Any], table: RawTable, unknown_category: str = "refuse", extra_columns: str = "refuse"
) -> Any:
    """(rows, values) in single precision: one value for each number, category (its code) and part of a date.

    A gap is NaN, an unknown category that is allowed is -1. Columns may be in any order; the label may be among them.
    """
    _check_columns(preparation, table, extra_columns)
    if not table.places:
        raise RowError("the table has no rows; a network needs at least one", "no-rows")
    blocks: list[Any] = []
    for given in preparation["columns"]:
        column = {**USUAL_COLUMN, **given}
        cells = table.cells[column["name"]]
        convert = _CONVERTERS[column["kind"]]
        blocks += convert(column, cells, table, preparation, unknown_category)
    values = np.stack(blocks, axis=1).astype(np.float32)
    return _windows(values, preparation["window"]) if preparation["window"] else values


def _check_columns(preparation: Mapping[str, Any], table: RawTable, extra: str) -> None:
    needed = [column["name"] for column in preparation["columns"]]
    missing = [name for name in needed if name not in table.cells]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise RowError(
            f"the rows have no column '{missing[0]}'{more}; the network needs {len(needed)} columns", "column-missing"
        )
    others = [name for name in table.columns if name not in needed and name not in preparation["ignored"]]
    if others and extra == "refuse":
        raise RowError(
            f"the rows have a column '{others[0]}', which the network does not use; remove it, or ignore such columns "
            "with extra_columns='ignore' (--extra-columns ignore)",
            "unknown-column",
        )


def _numbers(
    column: Mapping[str, Any], cells: Sequence[Any], table: RawTable, preparation: Mapping[str, Any], unknown: str
) -> list[Any]:
    values, wrong = number_column(cells, preparation["missing_words"], table.decimal)
    if wrong is not None:
        raise RowError(
            f"{table.places[wrong]}, column '{column['name']}': {str(cells[wrong])[:40]!r} is not a finite number",
            "column-not-numeric",
        )
    for row in np.flatnonzero(np.isnan(values))[:1].tolist():
        _gap(column["name"], table.places[row], preparation)
    return [values]


def _gap(name: str, place: str, preparation: Mapping[str, Any]) -> float:
    if preparation["statistics"] is not None and preparation["statistics"]["fill"] is None:
        raise RowError(
            f"{place}, column '{name}': the value is missing, and the network has no value to fill it with; complete "
            "the row",
            "missing-value",
        )
    return math.nan


def _codes(
    column: Mapping[str, Any], cells: Sequence[Any], table: RawTable, preparation: Mapping[str, Any], unknown: str
) -> list[list[float]]:
    number = {word: float(code) for code, word in enumerate(column["words"])}
    codes = []
    for row, cell in enumerate(cells):
        gap = is_missing(cell, preparation["missing_words"])
        word = MISSING if gap else str(cell).strip()
        if word not in number and not gap and unknown == "missing" and MISSING in number:
            word = MISSING
        if word in number:
            codes.append(number[word])
        elif unknown == "zeros" and column["coding"] == "onehot":
            codes.append(-1.0)
        else:
            what = "the value is missing" if gap else f"{word[:40]!r} is unknown"
            known = ", ".join(column["words"][:6]) + (", ..." if len(column["words"]) > 6 else "")
            raise RowError(
                f"{table.places[row]}, column '{column['name']}': {what}; the network knows {known} "
                f"(unknown_category = {' or '.join(CHOICES['unknown_category'][1:])} allows others where it can)",
                "unknown-category",
            )
    return [codes]


def _dates(
    column: Mapping[str, Any], cells: Sequence[Any], table: RawTable, preparation: Mapping[str, Any], unknown: str
) -> list[list[float]]:
    origin = datetime.fromisoformat(column["origin"])
    blocks: list[list[float]] = [[] for _ in column["parts"]]
    for row, cell in enumerate(cells):
        if is_missing(cell, preparation["missing_words"]):
            gap = _gap(column["name"], table.places[row], preparation)
            numbers = [gap for _ in column["parts"]]
        elif (moment := to_date(cell, column["order"])) is not None:
            numbers = [DATE_PARTS[part](moment, origin) for part in column["parts"]]
        else:
            raise RowError(
                f"{table.places[row]}, column '{column['name']}': {str(cell)[:40]!r} is not a date such as 2024-03-31",
                "not-a-date",
            )
        for block, number in zip(blocks, numbers, strict=True):
            block.append(number)
    return blocks


_CONVERTERS = {"number": _numbers, "category": _codes, "date": _dates}


def _windows(values: Any, window: Mapping[str, int]) -> Any:
    """Rows of a series joined to windows: one row for every `steps` consecutive ones, `stride` rows apart."""
    steps, stride = window["steps"], window["stride"]
    starts = range(0, len(values) - steps + 1, stride)
    if not starts:
        raise RowError(
            f"{len(values)} rows: the network takes {steps} consecutive rows of a series at once", "series-too-short"
        )
    return np.stack([values[start : start + steps].reshape(-1) for start in starts])
