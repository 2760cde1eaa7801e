"""Cells of tables: whether one is missing, and the number or the date that it holds. See `tables.py` for what this file
may import."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np

MISSING_WORDS = ("", "na", "n/a", "nan", "null", "none", "?")
MISSING = "(missing)"  # the category of a missing word
LARGEST = 3.4e38  # 1e39 is infinite in single precision


def is_missing(cell: Any, words: Iterable[str] = MISSING_WORDS) -> bool:
    """Whether a cell holds no value: None, NaN, or one of the words (in lower case) for a missing value."""
    if isinstance(cell, str):
        return cell.strip().lower() in words
    if isinstance(cell, (float, np.floating)):
        return math.isnan(cell)
    return cell is None or (not isinstance(cell, int) and str(cell) in ("NaT", "<NA>"))


def to_number(cell: Any, decimal: str = ".") -> float | None:
    """A finite number, or None. Infinity, 1_000 and numbers beyond single precision are none."""
    if isinstance(cell, str):
        word = cell.strip()
        if decimal == ",":
            if "." in word:
                return None
            word = word.replace(",", ".")
        if "_" in word:
            return None
        cell = word
    elif isinstance(cell, (datetime, date)):
        return None
    try:
        value = float(cell)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if abs(value) <= LARGEST else None


def missing_cells(cells: Iterable[Any], words: Iterable[str]) -> list[bool]:
    """Whether each cell holds no value, as `is_missing` says."""
    known = frozenset(words)
    return [cell.strip().lower() in known if type(cell) is str else is_missing(cell, known) for cell in cells]


def number_column(cells: Sequence[Any], words: Iterable[str], decimal: str = ".") -> tuple[Any, int | None]:
    """The cells as numbers, NaN where one of the words for a missing value is, and the row of the first cell that is
    neither, if there is one. Single cells are looked at only where the column is no plain list of numbers."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "f":
        return cells, next(iter(np.flatnonzero(np.abs(cells) > LARGEST).tolist()), None)
    known = frozenset(words)
    if all(to_number(word, decimal) is None for word in known):
        values = _all_numbers(cells, decimal)
        if values is not None:
            return values, None
    gaps = np.array(missing_cells(cells, known), bool)
    rows = np.flatnonzero(~gaps)
    held = [cells[row] for row in rows.tolist()]
    values = np.full(len(cells), np.nan)
    numbers = _all_numbers(held, decimal)
    if numbers is None:
        return values, next(row for row in rows.tolist() if to_number(cells[row], decimal) is None)
    values[rows] = numbers
    return values, None


def _all_numbers(cells: Sequence[Any], decimal: str) -> Any | None:
    """The cells as numbers by the rule of `to_number`, or None if there is another cell among them."""
    try:
        words = "".join(cells)
    except TypeError:  # not all of them are text
        words = "".join(cell for cell in cells if isinstance(cell, str))
    if "_" in words or (decimal == "," and "." in words):
        return None
    if decimal == "," and "," in words:
        cells = [cell.replace(",", ".") if isinstance(cell, str) else cell for cell in cells]
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except (TypeError, ValueError, OverflowError):
        return None
    return values if bool((np.abs(values) <= LARGEST).all()) else None


ISO = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})")
OTHER = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})")
TIME = re.compile(r"[T ]+(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?")


def to_date(cell: Any, order: str = "dmy") -> datetime | None:
    """A day with an optional time: 2024-03-31, 2024/03/31, 31.3.2024, 31/03/2024; with order mdy, 03/31/2024. Zones
    are ignored."""
    if isinstance(cell, datetime):
        return cell.replace(tzinfo=None)
    if isinstance(cell, date):
        return datetime(cell.year, cell.month, cell.day)
    if not isinstance(cell, str):
        return None
    word = cell.strip()
    if found := ISO.match(word):
        year, month, day = (int(found[place]) for place in (1, 3, 4))
    elif found := OTHER.match(word):
        first, sign, second, last = found.groups()
        year, month, day = int(last), int(second), int(first)
        if order == "mdy" and sign != ".":
            month, day = day, month
    else:
        return None
    rest = word[found.end() :]
    clock = TIME.fullmatch(rest) if rest else None
    if rest and clock is None:
        return None
    hour, minute, second_ = (int(part or 0) for part in clock.groups()) if clock else (0, 0, 0)
    try:
        return datetime(year, month, day, hour, minute, second_)
    except ValueError:
        return None


DATE_PARTS: dict[str, Callable[[datetime, datetime], float]] = {
    "days": lambda moment, origin: (moment - origin).total_seconds() / 86400,
    "month": lambda moment, origin: float(moment.month),
    "weekday": lambda moment, origin: float(moment.weekday()),  # Monday is 0
    "hour": lambda moment, origin: moment.hour + moment.minute / 60,
}
