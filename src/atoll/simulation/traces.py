"""Bandwidth over time: constant, or as a log of it says, repeated when the log is over.

A log is a text file, one stretch of time a row: a column of bandwidth and one of durations or time stamps, and maybe
one of latency. Columns are recognised by their names in the header (`COLUMNS`), or named by `[simulation.log]`, without
a header by their numbers; values are separated by commas, semicolons, tabs or blanks, and may be in double quotes.
Stretches without any bandwidth are legal: time passes. Files of a folder that have no such columns are no logs.
"""

from __future__ import annotations

import csv
import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from atoll.errors import DataError
from atoll.simulation.settings import BANDWIDTH_UNITS, TIME_UNITS, LogFormat

Floats = npt.NDArray[np.float64]
LARGEST = 1e12  # of any value: beyond it sums are no numbers any more
LEAST = 1.0  # bytes that a log must carry before it repeats
FILES = (".csv", ".tsv", ".txt", ".log")
OTHER = "other"  # the means of transport of a log whose name does not say one
MILLISECONDS = 1e11  # from here on a time stamp whose unit nothing says is in milliseconds: seconds from 1970 are fewer
QUOTED = re.compile(r'"([^"]*)"|(\S+)')
NO_LOG = ("trace-column-missing", "trace-no-header")  # faults of a file that is no log
# Names by which columns are recognised, as `_plain` writes them, and their units.
COLUMNS: dict[str, dict[str, str]] = {
    "bandwidth": {
        **dict.fromkeys(("bandwidth_kbps", "throughput_kbps", "kbps", "kbit_s", "dl_bitrate"), "kbps"),
        **dict.fromkeys(("bandwidth_mbps", "throughput_mbps", "mbps", "mbit_s"), "mbps"),
        **dict.fromkeys(("bandwidth_bps", "bps", "bits_per_second"), "bps"),
        **dict.fromkeys(("bytes_per_second", "bytes_s", "bandwidth_bytes"), "bytes_per_second"),
    },
    "time": {
        "duration_ms": "duration_ms",
        **dict.fromkeys(("duration_s", "duration_seconds", "seconds"), "duration_s"),
        **dict.fromkeys(("timestamp_ms", "time_ms"), "stamp_ms"),
        **dict.fromkeys(("timestamp_s", "time_s"), "stamp_s"),
        **dict.fromkeys(("timestamp", "time", "datetime", "date_time"), "stamp"),  # the unit is seen by the values
    },
    "latency": {"latency_ms": "ms", "latency_s": "s"},
}
EXAMPLES = {"bandwidth": "bandwidth_kbps or bytes_per_second", "time": "duration_ms or timestamp_s"}


@dataclass(frozen=True)
class Trace:
    """Bandwidth in bytes per second, stretch by stretch; after the last one the first follows again."""

    seconds: Floats  # length of each stretch
    rates: Floats
    latencies: Floats  # seconds that a message takes on top, whatever its size

    @classmethod
    def constant(cls, rate: float, latency: float = 0.0) -> Trace:
        return cls(np.ones(1), np.array([rate]), np.array([latency]))

    @cached_property
    def _edges(self) -> Floats:
        return np.concatenate(([0.0], np.cumsum(self.seconds)))

    @cached_property
    def _carried(self) -> Floats:
        """Bytes that have gone through at each edge."""
        return np.concatenate(([0.0], np.cumsum(self.seconds * self.rates)))

    @property
    def length(self) -> float:
        """Seconds until it repeats."""
        return float(self._edges[-1])

    @property
    def carries(self) -> float:
        """Bytes until it repeats."""
        return float(self._carried[-1])

    def rate(self, at: float) -> float:
        """Bytes per second at this moment."""
        return float(self.rates[self._place(at)[1]])

    def latency(self, at: float) -> float:
        return float(self.latencies[self._place(at)[1]])

    def end(self, start: float, size: float) -> float:
        """When `size` bytes that set out at `start` are through: the integral of the bandwidth from there is `size`."""
        if size <= 0:
            return start
        within, stretch = self._place(start)
        before = self._carried[stretch] + self.rates[stretch] * (within - self._edges[stretch])
        repeats, rest = divmod(before + size, self._carried[-1])
        if rest == 0:  # exactly at the end of a repeat: not after the silence with which the next may begin
            repeats, rest = repeats - 1, self._carried[-1]
        last = int(np.searchsorted(self._carried, rest, side="left")) - 1
        finish = self._edges[last] + (rest - self._carried[last]) / self.rates[last]
        return max(start, float(start + (finish - within) + repeats * self.length))

    def _place(self, at: float) -> tuple[float, int]:
        """Where this moment is within the log: seconds from its beginning, and the number of the stretch."""
        within = math.fmod(at, self.length)
        return within, min(int(np.searchsorted(self._edges, within, side="right")) - 1, len(self.rates) - 1)


@dataclass(frozen=True)
class Log:
    """A trace, and where it is from."""

    name: str
    means: str  # of transport, by the file's name
    trace: Trace
    digest: str


def means_of(path: Path) -> str:
    """`report_bus_0001.csv` was made on a bus: a word and a number. Logs of other names are of one kind."""
    found = re.fullmatch(r"(?:report[_-])?([A-Za-z][A-Za-z_-]*?)[_-]*\d+", path.stem)
    return found[1] if found else OTHER


def read_logs(place: Path, form: LogFormat | None = None) -> tuple[list[Log], list[str]]:
    """The log of this file, or all logs of this folder, by name; and the names of the folder's files that are none."""
    form = form or LogFormat()
    if place.is_file():
        return [read_log(place, form)], []
    if not place.is_dir():
        raise DataError(
            f"simulation.traces: there is no file or folder '{place}'; name one with bandwidth logs",
            code="no-such-traces",
        )
    logs: list[Log] = []
    others: dict[str, str] = {}
    for path in sorted(path for path in place.iterdir() if path.suffix.lower() in FILES and path.is_file()):
        if path.name.startswith("."):
            continue
        try:
            logs.append(read_log(path, form))
        except DataError as problem:
            if problem.code not in NO_LOG:
                raise
            others[path.name] = str(problem)
    if not logs:
        why = f"none of its {len(others)} files is one: {next(iter(others.values()))}" if others else "put some there"
        raise DataError(
            f"simulation.traces: the folder '{place}' has no bandwidth log ({', '.join(FILES)}); {why}",
            code="no-trace-files",
        )
    return logs, list(others)


class _Column(NamedTuple):
    place: int
    name: str
    unit: str


def read_log(path: Path, form: LogFormat | None = None) -> Log:
    """One log, every row checked."""
    form = form or LogFormat()
    try:
        content = path.read_bytes()
        lines = content.decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(
            f"{path}: cannot be read ({problem}); it must be a text file in UTF-8", code="trace-unreadable"
        ) from None
    separator = form.separator or _separator(lines[0] if lines else "")
    rows = [_cells(line, separator) for line in lines]
    filled = [(number, row) for number, row in enumerate(rows, 1) if any(row)]
    header = filled[0][1] if filled else []
    if header and all(_is_number(cell) or _moment(cell) is not None for cell in header if cell):  # there is none
        header = [str(number) for number in range(1, len(header) + 1)]
        if not {form.bandwidth, form.time} <= set(header):
            raise DataError(
                f"{path}, line 1: no header, and {len(header)} columns of numbers; name two of them by number: "
                'simulation.log.bandwidth = "2", simulation.log.time = "1", with their unit and time_unit',
                code="trace-no-header",
            )
    else:
        filled = filled[1:]
    bandwidth, time = (_column(path, header, role, form) for role in ("bandwidth", "time"))
    if not filled:
        raise DataError(f"{path}: no rows below its header; a bandwidth log needs at least one", code="trace-empty")
    rates = _numbers(path, filled, bandwidth) * BANDWIDTH_UNITS[bandwidth.unit]
    seconds = _durations(path, filled, time)
    latencies = np.zeros(len(filled))
    if any(_plain(name) in COLUMNS["latency"] for name in header):
        latency = _column(path, header, "latency", form)
        latencies = _numbers(path, filled, latency) * (1e-3 if latency.unit == "ms" else 1.0)
    carried = float(np.sum(rates * seconds))
    if carried == 0:
        raise DataError(
            f"{path}: the bandwidth is zero throughout, nothing would ever arrive; leave this log out",
            code="trace-all-zero",
        )
    if carried < LEAST:
        raise DataError(
            f"{path}: it carries {carried:g} bytes before it repeats; a log must carry at least one",
            code="trace-too-slow",
        )
    kept = seconds > 0
    trace = Trace(seconds[kept], rates[kept], latencies[kept])
    return Log(path.name, means_of(path), trace, hashlib.sha256(content).hexdigest())


def _separator(header: str) -> str:
    return next((sign for sign in (",", ";", "\t") if sign in header), " ")


def _cells(line: str, separator: str) -> list[str]:
    if separator == " ":
        return [quoted or plain for quoted, plain in QUOTED.findall(line)]
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]
    except csv.Error:  # a cell of more than 128 kB: no log
        return [line]


def _plain(name: str) -> str:
    """`Bandwidth (kbps)` as `bandwidth_kbps`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _column(path: Path, header: Sequence[str], role: str, form: LogFormat) -> _Column:
    """The column of this role: the one that the settings name, or the only one that is recognised."""
    known = COLUMNS[role]
    named, unit = {"bandwidth": (form.bandwidth, form.unit), "time": (form.time, form.time_unit)}.get(
        role, (None, None)
    )
    found = [place for place, name in enumerate(header) if (name == named if named else _plain(name) in known)]
    if not found:
        wanted = f"'{named}'" if named else EXAMPLES[role]
        raise DataError(
            f"{path}, line 1: no column of {role} ({wanted}) among {', '.join(header) or 'none'}; name it with "
            f"simulation.log.{role}",
            code="trace-column-missing",
        )
    if len(found) > 1:
        names = ", ".join(header[place] for place in found)
        raise DataError(
            f"{path}, line 1: {len(found)} columns of {role} ({names}); leave one, or name it with "
            f"simulation.log.{role}",
            code="trace-column-twice",
        )
    name = header[found[0]]
    kind = unit or known.get(_plain(name))
    if kind is None:
        setting = "unit" if role == "bandwidth" else "time_unit"
        units = BANDWIDTH_UNITS if role == "bandwidth" else TIME_UNITS
        raise DataError(
            f"{path}: the unit of column '{name}' is not known; set simulation.log.{setting} to {', '.join(units)}",
            code="trace-unit-unknown",
        )
    return _Column(found[0], name, kind)


def _durations(path: Path, rows: Sequence[tuple[int, list[str]]], column: _Column) -> Floats:
    """Seconds of each row; with time stamps the row lasts until the next one, the last as long as most."""
    kind, _, unit = column.unit.partition("_")
    unit = unit or _unit_of_stamps(rows, column)
    if unit == "date":
        seconds = np.array([_seconds_of_date(path, line, column, cells) for line, cells in rows])
    else:
        seconds = _numbers(path, rows, column) * (1e-3 if unit == "ms" else 1.0)
    if kind == "duration":
        return seconds
    steps = np.diff(seconds)
    backwards = np.flatnonzero(steps < 0)
    if len(backwards):
        number, cells = rows[int(backwards[0]) + 1]
        raise DataError(
            f"{path}, line {number}: {column.name} = {cells[column.place]} is before the line above; sort the log by "
            "time",
            code="trace-not-in-order",
        )
    return np.append(steps, float(np.median(steps)) if len(steps) else 1.0)


def _unit_of_stamps(rows: Sequence[tuple[int, list[str]]], column: _Column) -> str:
    """Of time stamps whose unit nothing says, by the first one."""
    first = rows[0][1][column.place] if column.place < len(rows[0][1]) else ""
    if _moment(first) is not None and not _is_number(first):
        return "date"
    return "ms" if _is_number(first) and float(first) >= MILLISECONDS else "s"


def _moment(text: str) -> float | None:
    """Seconds of a date and time by ISO 8601, or written as 2018.01.27_13.58.11; None if it is not one."""
    for read in (datetime.fromisoformat, lambda text: datetime.strptime(text, "%Y.%m.%d_%H.%M.%S")):
        try:
            found = read(text)
        except ValueError:
            continue
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(path: Path, rows: Sequence[tuple[int, list[str]]], column: _Column) -> Floats:
    largest = math.inf if column.unit.startswith("stamp") else LARGEST
    return np.array([_number(path, line, column, cells, largest) for line, cells in rows], np.float64)


def _cell(path: Path, line: int, column: _Column, cells: Sequence[str]) -> str:
    if column.place >= len(cells):
        raise DataError(
            f"{path}, line {line}: {column.name} is missing; every row needs as many values as the header",
            code="trace-value-missing",
        )
    return cells[column.place]


def _seconds_of_date(path: Path, line: int, column: _Column, cells: Sequence[str]) -> float:
    text = _cell(path, line, column, cells)
    found = _moment(text)
    if found is None:
        raise DataError(
            f"{path}, line {line}: {column.name} = {text!r} is no date with time; write it as 2024-03-01T12:00:00",
            code="trace-not-a-date",
        )
    return found


def _number(path: Path, line: int, column: _Column, cells: Sequence[str], largest: float) -> float:
    text = _cell(path, line, column, cells)
    try:
        value = float(text)
    except ValueError:
        raise DataError(
            f"{path}, line {line}: {column.name} = {text!r} is not a number", code="trace-not-a-number"
        ) from None
    if not (0 <= value <= largest and math.isfinite(value)):
        raise DataError(
            f"{path}, line {line}: {column.name} = {text}: must be from zero to {LARGEST:g}", code="trace-value-range"
        )
    return value
