"""Axes: where a value stands between two ends, which values get a mark, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

Form = Callable[[float], str]
SPACE = "\u202f"  # between a number and its unit: no line breaks there
LETTERS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
BYTES = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
SAME = 1e-9  # values that differ by less are drawn as equal
WIDE = 30  # positive values that differ by more than this factor get a logarithmic axis


@dataclass(frozen=True)
class Scale:
    """From a value to its share of an axis: 0 at its beginning, 1 at its end."""

    low: float
    high: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            value, low, high = math.log10(max(value, 1e-300)), math.log10(low), math.log10(high)
        return min(1.05, max(-0.05, (value - low) / (high - low)))

    def ticks(self, most: int = 5) -> list[float]:
        """Round numbers between the ends, at most about `most` of them."""
        return _powers(self.low, self.high, most) if self.logarithmic else _round_numbers(self.low, self.high, most)


def linear(values: Iterable[float], *, zero: bool = False, room: float = 0.06, floor: float | None = None) -> Scale:
    """A scale over these values with some room; with `zero` it begins at zero. `floor`: it does not begin below."""
    known = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(known), max(known)
    if zero:
        low = min(0.0, low)
    if high - low < SAME * max(1.0, abs(high)):
        spread = abs(high) * 0.1 if abs(high) > SAME else 1.0
        low, high = (low if zero and low == 0 else low - spread), high + spread
    gap = room * (high - low)
    low, high = (low if zero and low == 0 else low - gap), high + gap
    if floor is not None and low < floor:
        low = floor
    return Scale(low, high)


def fitting(values: Sequence[float], *, zero: bool = False, wide: float = WIDE) -> Scale:
    """A logarithmic scale if the values are positive and differ by more than a factor of `wide`, else a linear one."""
    if values and min(values) > 0 and max(values) > wide * min(values):
        factor = (max(values) / min(values)) ** 0.06
        return Scale(min(values) / factor, max(values) * factor, True)
    return linear(values, zero=zero)


def whole(first: float, last: float) -> Scale:
    """An axis of rounds."""
    return Scale(first - 0.5, first + 0.5) if last <= first else Scale(first, last)


def _round_numbers(low: float, high: float, most: int) -> list[float]:
    raw = (high - low) / max(1, most)
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= raw * 0.999999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(place * step, 12) for place in range(first, last + 1)]


def _powers(low: float, high: float, most: int) -> list[float]:
    """Powers of ten; where these are few, also their halves or thirds of a decade."""
    for steps in ((1, 2, 5), (1, 3), (1,)):
        found = [
            factor * 10.0**power
            for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for factor in steps
            if low * 0.9999 <= factor * 10.0**power <= high * 1.0001
        ]
        if len(found) <= most:
            break
    return found[:: math.ceil(len(found) / most)] if len(found) > most else found


# -- numbers in words ------------------------------------------------------------------------------------------------


def plain(value: float) -> str:
    """A number with the digits that it needs: 12,000, 0.25, 3e-05."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) >= 1e-4 else f"{value:.2g}"


def count(value: float) -> str:
    """934,080 is 934 k."""
    return _scaled(value, LETTERS)


def amount(value: float) -> str:
    """A number of bytes with its unit."""
    return _scaled(value, BYTES) if abs(value) >= 1000 else f"{value:.0f}{SPACE}B"


def percent(share: float) -> str:
    """0.1234 is 12.3 %; whole numbers have no fraction."""
    value = round(100 * share, 2)
    digits = f"{value:.0f}" if value == int(value) else f"{value:.3g}" if abs(value) >= 0.1 else f"{value:.2g}"
    return f"{digits}{SPACE}%"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever is readable."""
    if seconds < 100:
        return f"{seconds:.3g}{SPACE}s"
    if seconds < 6000:
        return f"{seconds / 60:.3g}{SPACE}min"
    return f"{seconds / 3600:.3g}{SPACE}h" if seconds < 360_000 else f"{seconds / 86400:.3g}{SPACE}days"


def _scaled(value: float, units: Sequence[tuple[float, str]]) -> str:
    for factor, unit in units:
        if abs(value) >= factor * 0.9995:
            return f"{value / factor:.3g}{SPACE}{unit}"
    return f"{value:.3g}" if value != int(value) else f"{int(value)}"
