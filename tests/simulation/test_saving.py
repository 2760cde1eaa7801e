"""The contract of all engines; snapshots with replies in flight; any number of workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from atoll.federation.base import Federation
from atoll.simulation.links import Link
from atoll.simulation.traces import Trace
from atoll.testing import EngineContract, made_table
from paced_clients import DATA, A, B, C, network, now, paced, task, times, values


class TestWithoutDelays(EngineContract):
    """The contract of all engines, on a network where nothing takes time."""

    def federation(self, data: Any, seed: int, deadline: float | None = None) -> Federation:
        return network(data, seed=seed, deadline=deadline)


class TestWithoutDelaysOnWorkers(EngineContract):
    processes = True

    def federation(self, data: Any, seed: int, deadline: float | None = None) -> Federation:
        return network(data, 2, seed, deadline=deadline)


def play(federation: Federation, numbers: range) -> list[Any]:
    """Rounds with a quorum of one: replies are always in flight between them."""
    seen: list[Any] = []
    for number in numbers:
        federation.begin(number)
        federation.send([task(name, macs=7 + number, job="remember") for name in DATA.names])
        replies = federation.receive(at_least=1)
        seen += [[reply.task.client, reply.round, reply.payload.get("calls"), reply.error] for reply in replies]
        seen += [federation.engine_events(), now(federation), [info.bandwidth for info in federation.clients()]]
    return seen


@pytest.mark.parametrize(
    "settings", [{}, {"staleness": "heavy"}, {"dropout": 0.4}, {"dropout": 0.3, "staleness": [1, 1]}]
)
def test_a_snapshot_with_replies_in_flight_goes_on_alike(settings: dict[str, Any]) -> None:
    line = Trace(np.array([1.0, 2.0]), np.array([500.0, 50.0]), np.array([0.01, 0.02]))
    links = {
        name: Link(line, line, offset, speed) for name, offset, speed in ((A, 0.0, 1.0), (B, 0.7, 9.0), (C, 2.0, 2.0))
    }
    with paced({}, links, **settings) as federation:
        first = play(federation, range(1, 6))
        saved = federation.snapshot()
        assert settings or saved["clock"]["travelling"]
        rest = play(federation, range(6, 12))
    with paced({}, links, **settings) as other:
        other.restore(saved)
        assert play(other, range(6, 12)) == rest
    with paced({}, links, **settings) as whole:
        assert play(whole, range(1, 12)) == first + rest


def test_work_that_was_not_done_yet_arrives_at_the_same_time() -> None:
    """Saved between `send` and `receive`: the clock of the task is that of its sending."""
    with paced({A: 1, B: 10, C: 2}) as federation:
        federation.begin(1)
        list(federation.map([task(B)]))
        federation.send([task(A), task(B)])
        saved = federation.snapshot()
    with paced({A: 1, B: 10, C: 2}) as other:
        other.restore(saved)
        other.begin(2)
        other.send([task(C, macs=40)])  # 1 to 21
        assert values(other.receive()) == [A, B, C] and [row[5] for row in times(other)] == [11, 2, 21]


def test_the_same_for_any_number_of_workers() -> None:
    data = made_table(clients=6)
    settings = {"bandwidth": 300.0, "speed": [1.0, 50.0], "dropout": 0.2, "deadline": 40.0}
    found = []
    for workers in (0, 1, 3):
        with network(data, workers, **settings) as federation:
            seen: list[Any] = []
            for number in (1, 2, 3):
                federation.begin(number)
                federation.send([task(name, job="remember") for name in data.names])
                seen += [(reply.task.client, reply.round, reply.error) for reply in federation.receive(at_least=3)]
                seen += values(list(federation.map([task(name) for name in data.names])))
                seen += [federation.engine_events(), now(federation), federation.ledger.to_plain()]
            found.append(seen)
    assert found[0] == found[1] == found[2]
