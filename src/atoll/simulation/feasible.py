"""What no client of the virtual network can do in time, before it is tried: in the first round, with the numbers.

A task's way takes at least the download, the work and the upload of a reply that is as short as it may be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atoll.core.checks import OnGraph, TensorsLike
from atoll.errors import ConfigError
from atoll.federation.exchange import ExchangeRules
from atoll.simulation.links import Link
from atoll.simulation.traces import Trace

HELD = 0.25  # of values that may be zero, so that they do not travel: gradients, weights that were removed


@dataclass(frozen=True)
class Trip:
    """A task that is about to be sent: the bytes to its client, the work, and the description of its reply."""

    client: str
    link: Link
    bytes_down: int
    macs: int
    returns: Any

    @property
    def bytes_up(self) -> int:
        """Of its reply, at least."""
        return least_bytes(self.returns)

    def arrives(self, start: float) -> float:
        """When its reply is there at the earliest."""
        return self.link.journey(start, self.bytes_down, self.macs, self.bytes_up).arrived

    def refuse_short_log(self) -> None:
        """A log that is over before the task has arrived, or its reply."""
        self._refuse(self.link.down, self.bytes_down, "its first task has")
        self._refuse(self.link.up, self.bytes_up, "the reply to its first task at least")

    def _refuse(self, trace: Trace | None, size: int, what: str) -> None:
        if trace is not None and len(trace.rates) > 1 and size > trace.carries:
            raise ConfigError(
                f"simulation.traces: the log of client {self.client!r} carries {trace.carries:,.0f} bytes in "
                f"{trace.length:.3g} s, and {what} {size:,}; use a longer log, or repeat its rows",
                code="trace-too-short",
            )


def least_bytes(returns: Any) -> int:
    """What a reply to this description has at least, as far as arrays of known form are in it. Trained weights are not
    zero; gradients and the weights of sparse layers may be."""
    if isinstance(returns, (Mapping, list)):
        return sum(map(least_bytes, returns.values() if isinstance(returns, Mapping) else returns))
    if not isinstance(returns, TensorsLike):
        return 0
    sparse = returns.connections if isinstance(returns, OnGraph) else ()
    sizes = {name: np.dtype(kind).itemsize * math.prod(shape) for name, (kind, shape) in returns.model.items()}
    certain = returns.update == "values"
    return int(sum(size * (1 if certain and name not in sparse else HELD) for name, size in sizes.items()))


def refuse_impossible(
    trips: Sequence[Trip], rules: ExchangeRules, takes_late: bool, now: float, free: Mapping[str, float]
) -> None:
    """A deadline, or a quorum with it, that too few clients can meet. Each does its tasks one after the other, from
    when it is `free`."""
    if rules.limit == math.inf or not trips or (takes_late and rules.rounds_late is None):
        return
    at, needs = dict(free), []  # seconds for each task
    for trip in trips:
        at[trip.client] = trip.arrives(max(now, at.get(trip.client, 0.0)))
        needs.append((at[trip.client] - now, trip.client))
    seconds, fastest = min(needs)
    allowed = rules.limit * (1 + (rules.rounds_late or 0)) if takes_late else rules.limit
    if seconds > allowed:
        late = f", and a reply counts up to {rules.rounds_late} rounds late, for {allowed:g} s" if takes_late else ""
        raise ConfigError(
            f"engine.deadline = {rules.limit:g}: even the fastest client, {fastest!r}, needs {seconds:.3g} s for its "
            f"first task{late}; set a longer deadline",
            code="impossible-deadline",
        )
    if takes_late:
        return
    if rules.quorum < 1:
        whole = sorted(at[name] - now for name in {trip.client for trip in trips})
        _refuse_few(whole, rules.needed(len(whole)), "quorum", rules.quorum, rules.limit)
    _refuse_few(sorted(own for own, _ in needs), rules.least(len(needs)), "minimum", rules.minimum, rules.limit)


def _refuse_few(needs: Sequence[float], needed: int, setting: str, value: float, limit: float) -> None:
    able = sum(seconds <= limit for seconds in needs)
    if able >= needed:
        return
    what, verb = ("clients", "waits for") if setting == "quorum" else ("replies", "needs")
    raise ConfigError(
        f"engine.{setting} = {value:g}: an exchange {verb} {needed} of {len(needs)} {what}, of which {able} can be "
        f"there within engine.deadline = {limit:g}; the {needed} fastest need {needs[needed - 1]:.3g} s; set a longer "
        "deadline",
        code="impossible-quorum",
    )
