"""What happened when, round by round, for the round's event: `report/figures/timeline.py` draws it."""

from __future__ import annotations

from typing import Any

from atoll.core.ledger import Fate
from atoll.core.messages import Payload, Reply
from atoll.simulation.links import Journey

FATE = 6  # its place in a row
DIGITS = 4  # tenths of milliseconds: a day of seconds stays short in the file


class Timeline:
    """The tasks whose fate was decided in this round, also those that were sent in earlier ones.

    A row: client, round it was sent in, began, downloaded, computed, arrived (all in virtual seconds), fate. A task
    that never got an answer has no times between its beginning and its end. If a staleness mix held the reply back, the
    moment when it was let through comes last.
    """

    def __init__(self) -> None:
        self._start = 0.0
        self._rows: dict[int, list[Any]] = {}

    def open(self, at: float) -> None:
        """A round begins."""
        self._start, self._rows = at, {}

    def add(self, order: int, reply: Reply, journey: Journey, fate: Fate, held_until: float | None = None) -> None:
        times = [journey.began, journey.downloaded, journey.computed, journey.arrived]
        row = [reply.task.client, reply.round, *(round(time, DIGITS) for time in times), fate]
        self._rows[order] = row if held_until is None else [*row, round(held_until, DIGITS)]

    def silent(self, order: int, reply: Reply, sent: float, until: float) -> None:
        """No answer came: the server gave up."""
        times = [round(sent, DIGITS), None, None, round(until, DIGITS)]
        self._rows[order] = [reply.task.client, reply.round, *times, "failed"]

    def forget(self, reply: Reply) -> None:
        """A late reply was thrown away as stale: of those of its client and round the one that came last."""
        for row in reversed(self._rows.values()):
            if row[:2] == [reply.task.client, reply.round] and row[FATE] in ("used", "late"):
                row[FATE] = "stale"
                return

    def engine_events(self, now: float) -> Payload:
        # By the number of the task, not in the order in which the engine happened to do them.
        rows = [self._rows[order] for order in sorted(self._rows)]
        return {"from": round(self._start, DIGITS), "to": round(now, DIGITS), "tasks": rows}
