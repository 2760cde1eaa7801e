"""The `[simulation]` table of an experiment file: the virtual network between the server and its clients.

[simulation]
traces = "lte"               # bandwidth logs: the 4G/LTE ones of the data folder, or a folder or CSV file of one's own
transport = ["bus", "car"]   # by which means clients travel: "all", a list, or how many go by each
speed = [1e9, 8e9]           # multiply-accumulates per second, drawn for each client
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

MIXES: dict[str, tuple[float, ...]] = {"heavy": (30, 40, 20, 10), "light": (90, 9, 0.9, 0.1)}  # the paper's two
LTE = "lte"
# Limits far outside of any device or line, within which sums of times and bytes stay numbers.
SLOWEST, FASTEST, LONGEST = 1.0, 1e18, 1e9


# Bytes per second of each unit, and what a column of time may hold.
BANDWIDTH_UNITS = {"kbps": 125.0, "mbps": 125_000.0, "bps": 0.125, "bytes_per_second": 1.0}
TIME_UNITS = ("duration_ms", "duration_s", "stamp_ms", "stamp_s", "stamp_date")


class LogFormat(BaseModel):
    """How bandwidth logs are written, where their headers do not say it: `[simulation.log]`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    separator: Literal[",", ";", "\t", " "] | None = None  # None: as the header shows; a blank stands for any number
    bandwidth: str | None = None  # the column of the bandwidth; without a header its number, "1" for the first
    unit: Literal["kbps", "mbps", "bps", "bytes_per_second"] | None = None
    time: str | None = None  # the column of durations or time stamps
    time_unit: Literal["duration_ms", "duration_s", "stamp_ms", "stamp_s", "stamp_date"] | None = None


class SimulationSettings(BaseModel):
    """How long tasks and replies travel, and which never arrive. Nothing set: all is instant and all answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    traces: str | None = Field(default=None, min_length=1)  # "lte", or a folder or CSV file of bandwidth logs
    log: LogFormat = LogFormat()  # how own logs are written, where their headers do not say it
    transport: Literal["all"] | list[str] | dict[str, int] = "all"  # means of transport; with numbers: clients of each
    bandwidth: float | None = Field(default=None, ge=SLOWEST, le=FASTEST)  # bytes per second, instead of traces
    latency: float | None = Field(default=None, ge=0, le=LONGEST)  # seconds on top of each transfer; None: the traces'
    speed: float | list[float] | None = None  # multiply-accumulates per second; two: drawn in between, log-uniform
    device: str | None = None  # phone, board or a file: speed, and bandwidth unless it is given
    dropout: float = Field(default=0.0, ge=0, le=1)  # probability that a task gets no answer
    staleness: Literal["heavy", "light"] | list[float] | None = None  # shares of replies 0, 1, 2, ... rounds late
    staleness_after: int = Field(default=0, ge=0)  # rounds at the start without it, for instance a warm-up

    # Before pydantic looks: of a value that fits none of several kinds it would say what is wrong with the first kind.

    @field_validator("transport", mode="before")
    @classmethod
    def _someone_travels(cls, value: Any) -> Any:
        if isinstance(value, str) and value != "all":
            value = [value]
        words = isinstance(value, (list, dict)) and bool(value) and all(isinstance(means, str) for means in value)
        counts = value.values() if isinstance(value, dict) else ()
        if value != "all" and (not words or any(type(count) is not int or count < 1 for count in counts)):
            raise ValueError('must be "all", a list such as ["bus", "car"], or clients of each, { bus = 4, car = 6 }')
        return value

    @field_validator("speed", mode="before")
    @classmethod
    def _speed_is_possible(cls, value: Any) -> Any:
        speeds = value if isinstance(value, list) else [value]
        known = all(_is_number(speed) and SLOWEST <= speed <= FASTEST for speed in speeds)
        if value is not None and (not known or (isinstance(value, list) and (len(value) != 2 or value[0] > value[1]))):
            raise ValueError("must be MACs per second, 1 to 1e18, one number or [lowest, highest]")
        return value

    @field_validator("staleness", mode="before")
    @classmethod
    def _shares_are_possible(cls, value: Any) -> Any:
        shares = value if isinstance(value, list) else [-1]
        possible = all(_is_number(share) and 0 <= share <= FASTEST for share in shares) and sum(shares) > 0
        if value is not None and not possible and value not in list(MIXES):
            raise ValueError('must be "heavy", "light", or shares of replies 0, 1, 2, ... rounds late: [60, 30, 10]')
        return value

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if self.traces is not None and self.bandwidth is not None:
            raise ValueError("simulation.traces and simulation.bandwidth are both given; leave one of them out")
        if self.device is not None and self.speed is not None:
            raise ValueError("simulation.device and simulation.speed are both given; leave one of them out")
        if self.transport != "all" and self.traces is None:
            raise ValueError(
                'simulation.transport chooses among traces, and there are none; set simulation.traces = "lte"'
            )
        return self

    def settled(self) -> Self:
        """The same with the places of files made absolute: a run may be resumed from another folder."""
        own = {}
        if self.traces is not None and self.traces != LTE:
            own["traces"] = str(Path(self.traces).expanduser().resolve())
        if self.device is not None and self.device.endswith(".toml"):
            own["device"] = str(Path(self.device).expanduser().resolve())
        return self.model_copy(update=own)

    def shares(self) -> Sequence[float] | None:
        """Probabilities of a reply being 0, 1, 2, ... rounds late; None: no such mix."""
        if self.staleness is None:
            return None
        parts = MIXES[self.staleness] if isinstance(self.staleness, str) else self.staleness
        return [part / math.fsum(parts) for part in parts]


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))
