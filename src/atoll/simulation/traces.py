"""Bandwidth over time: constant, or as a log of it says, repeated when the log is over.

A log is a CSV file with the columns `bandwidth_kbps`, `duration_ms` and, if there is one, `latency_ms`, one stretch of
time a row. Stretches without any bandwidth are legal: time passes.
"""

from __future__ import annotations

import csv
import hashlib
import math
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from atoll.errors import DataError

Floats = npt.NDArray[np.float64]
BYTES = 125.0  # per second, in a thousand bits per second
LARGEST = 1e12  # of any value: beyond it sums are no numbers any more
LEAST = 1.0  # bytes that a log must carry before it repeats
REQUIRED = ("bandwidth_kbps", "duration_ms")


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
    """`report_bus_0001.csv` was made on a bus."""
    return re.sub(r"[_-]*\d*$", "", path.stem.removeprefix("report_")) or path.stem


def read_logs(place: Path) -> list[Log]:
    """The log of this file, or all logs of this folder, by name."""
    if place.is_dir():
        files = sorted(place.glob("*.csv"))
        if not files:
            raise DataError(
                f"simulation.traces: the folder '{place}' has no .csv file; put bandwidth logs there",
                code="no-trace-files",
            )
    elif place.is_file():
        files = [place]
    else:
        raise DataError(
            f"simulation.traces: there is no file or folder '{place}'; name one with bandwidth logs (.csv)",
            code="no-such-traces",
        )
    return [read_log(path) for path in files]


def read_log(path: Path) -> Log:
    """One log, every row checked."""
    try:
        content = path.read_bytes()
        header, *rows = list(csv.reader(content.decode("utf-8-sig").splitlines())) or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise DataError(
            f"{path}: cannot be read ({problem}); it must be a CSV file in UTF-8", code="trace-unreadable"
        ) from None
    names = [name.strip() for name in header]
    for name in REQUIRED:
        if name not in names:
            raise DataError(
                f"{path}, line 1: no column {name}; a bandwidth log has bandwidth_kbps and duration_ms",
                code="trace-column-missing",
            )
        if names.count(name) > 1:
            raise DataError(
                f"{path}, line 1: {names.count(name)} columns are called {name}; leave one", code="trace-column-twice"
            )
    values = [_row(path, number, names, row) for number, row in enumerate(rows, 2) if any(cell.strip() for cell in row)]
    if not values:
        raise DataError(f"{path}: no rows below its header; a bandwidth log needs at least one", code="trace-empty")
    bandwidth, duration, latency = np.array(values, dtype=np.float64).T
    carried = float(np.sum(bandwidth * BYTES * duration / 1000))
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
    kept = duration > 0
    trace = Trace(duration[kept] / 1000, bandwidth[kept] * BYTES, latency[kept] / 1000)
    return Log(path.name, means_of(path), trace, hashlib.sha256(content).hexdigest())


def _row(path: Path, number: int, names: list[str], row: list[str]) -> tuple[float, float, float]:
    found = dict(zip(names, row, strict=False))
    bandwidth, duration = (_number(path, number, name, found.get(name)) for name in REQUIRED)
    return bandwidth, duration, _number(path, number, "latency_ms", found.get("latency_ms", "0"))


def _number(path: Path, line: int, name: str, text: str | None) -> float:
    if text is None:
        raise DataError(
            f"{path}, line {line}: {name} is missing; every row needs as many values as the header",
            code="trace-value-missing",
        )
    try:
        value = float(text)
    except ValueError:
        raise DataError(
            f"{path}, line {line}: {name} = {text.strip()!r} is not a number", code="trace-not-a-number"
        ) from None
    if not 0 <= value <= LARGEST:
        raise DataError(
            f"{path}, line {line}: {name} = {text.strip()}: must be from zero to {LARGEST:g}", code="trace-value-range"
        )
    return value
