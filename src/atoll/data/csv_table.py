"""One CSV file as a table of words, checked for shape."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.errors import DataError

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
