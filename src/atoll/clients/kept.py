"""What clients keep of a measurement until the server asks for it: the server's half of the job `fetch`.

A measurement of many keys computes the batch norm statistics of all of them anyway, and only later the server knows
which networks it wants ready for use. So clients keep the statistics in their memory, and the server asks for those of
a few networks along with the next task: no second pass over the rows, no exchange of its own, and no unused
statistics. Test rows of the same networks are counted in the same task, for the report.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from atoll.clients import jobs
from atoll.clients.evaluation import reporting, statistics_check
from atoll.clients.training_round import Counted
from atoll.core.checks import CountsUpTo, is_finite, register
from atoll.core.messages import REPORT, Array, ClientInfo, Payload, Reply, Task, Tensors
from atoll.federation.base import Federation
from atoll.training import calibration


@register
@dataclass(frozen=True)
class KeptStatistics:
    """What a client's memory holds after it has kept the statistics of a measurement; see `shared_prefix`."""

    of: str

    def problem(self, value: Any) -> str | None:
        if not isinstance(value, dict) or value.keys() != {"of", "by_prefix"} or value["of"] != self.of:
            return f"schema: something else than the statistics of measurement {self.of!r}"
        sums = value["by_prefix"]
        if not isinstance(sums, dict) or not all(_sound(array) for array in sums.values()):
            return "schema: something else than sums of batch norm statistics"
        return None


def _sound(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == np.float64 and array.shape[:-1] == (3,) and is_finite(array)


@dataclass(frozen=True)
class Wanted:
    """A network of which something is asked. Its name tells it from the others."""

    name: str
    architecture: Mapping[str, Any]  # with its key
    weights: Tensors
    statistics: bool  # whether those of the last measurement are asked for
    tested: bool  # whether its test rows are


class Fetch:
    """Asks for what is wanted, and adds up what comes back."""

    def __init__(
        self,
        federation: Federation,
        architecture: Mapping[str, Any],
        measurement: str,
        holding: Collection[str],
        wanted: Sequence[Wanted],
    ) -> None:
        """`architecture` is the master's; the clients `holding` statistics have taken part in the `measurement` of this
        name."""
        self._architecture, self._measurement, self._holding = architecture, measurement, frozenset(holding)
        self.wanted = list(wanted)
        self._kept = [one for one in wanted if one.statistics and calibration.statistics_form(one.architecture)]
        self._tested = [one for one in wanted if one.tested]
        self._reporting = reporting(federation) if self._tested else frozenset()
        self._rows: dict[str, int] = {}  # of test data, by client
        self.counts = {one.name: Counted() for one in self._tested}  # of test rows
        self._sums: dict[str, Tensors] = {}

    def along(self, task: Task, info: ClientInfo) -> Task:
        """The task, which trains a part of the master, with what its client is also asked for."""
        payload, returns = self._asked(info)
        return replace(task, payload=task.payload | payload, returns={**task.returns, **returns}) if payload else task

    def alone(self, clients: Sequence[ClientInfo]) -> list[Task]:
        """Tasks for nothing else; none if no statistics are wanted: test rows can be counted without these clients."""
        asked = [(info, *self._asked(info)) for info in clients if info.name in self._holding and self._kept]
        whole: Payload = {"architecture": self._architecture}
        return [
            Task(f"fetch:{info.name}", info.name, jobs.FETCH, whole | payload, 0, returns)
            for info, payload, returns in asked
        ]

    def _asked(self, info: ClientInfo) -> tuple[Payload, Payload]:
        payload: Payload = {}
        returns: Payload = {}
        if self._kept and info.name in self._holding:
            keys = [list(one.architecture["key"]) for one in self._kept]
            payload["kept"] = {"of": self._measurement, "keys": keys}
            rows = info.sizes["validation"]
            returns["statistics"] = [statistics_check(dict(one.architecture), rows) for one in self._kept]
        if self._tested and info.name in self._reporting:
            self._rows[info.name] = info.sizes["test"]
            networks = [{"architecture": one.architecture, "weights": one.weights} for one in self._tested]
            payload[REPORT] = {jobs.NETWORKS: networks}
            returns[REPORT] = {jobs.NETWORKS: CountsUpTo((len(networks),), info.sizes["test"])}
        return payload, returns

    def add(self, reply: Reply) -> None:
        """What a good reply says, if it was asked."""
        for one, own in zip(self._kept, reply.payload.get("statistics", ()), strict=False):
            before = self._sums.get(one.name)
            self._sums[one.name] = own if before is None else calibration.pooled((before, own))
        found: Array = reply.payload.get(REPORT, {}).get(jobs.NETWORKS, ())
        for one, correct in zip(self._tested, found, strict=False):
            counted, client = self.counts[one.name], reply.task.client
            counted.add({"correct": int(correct)}, self._rows[client])
            counted.clients.append(client)

    @property
    def statistics(self) -> dict[str, Tensors]:
        """Those of the networks of which they are known, by name; empty ones of networks without batch norm."""
        kept = [one.name for one in self._kept]
        found = {one.name: Tensors({}) for one in self.wanted if one.name not in kept}
        return found | {name: own for name, own in self._sums.items() if _rows(own)}


def _rows(statistics: Tensors) -> float:
    """Whether they are of any rows: all layers of a network see all rows."""
    return next(float(array[0]) for name, array in statistics.items() if name.endswith(".count"))
