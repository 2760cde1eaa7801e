"""What cannot be met is refused in the first round, with the numbers: A takes 10 s for a task, B 1 s, C 5 s."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll import search
from atoll.core.checks import Count, OnGraph, TensorsLike
from atoll.core.messages import Task, Tensors
from atoll.errors import ConfigError
from atoll.federation.exchange import ExchangeRules
from atoll.simulation.feasible import least_bytes
from atoll.simulation.links import Link
from atoll.simulation.traces import Trace
from atoll.testing import made_images, made_table
from paced_clients import A, B, C, now, paced, task
from refusals import refused

SPEEDS = {A: 1.0, B: 10.0, C: 2.0}
WEIGHTS = Tensors({"w": np.arange(1, 1001, dtype=np.float32)})


def returning(client: str, weights: Tensors = WEIGHTS) -> Task:
    """Nothing is sent, and these weights come back."""
    returns = {"weights": TensorsLike.of(weights, "values")}
    return Task(f"weights:{client}", client, "atoll.testing.jobs:weights", {"weights": Tensors({})}, 0, returns)


def exchange(rules: ExchangeRules, tasks: list[Task], round_number: int = 1, **options: Any) -> None:
    with paced(SPEEDS, rules=rules) as federation:
        federation.begin(round_number)
        list(federation.collect(tasks, minimum=0, **options))


def test_a_deadline_that_no_client_can_meet() -> None:
    with refused(ConfigError, "impossible-deadline", "engine.deadline = 0.5", repr(B), "needs 1 s", "longer deadline"):
        exchange(ExchangeRules(deadline=0.5), [task(name) for name in (A, B, C)])
    exchange(ExchangeRules(deadline=1.0), [task(name) for name in (A, B, C)])


def test_a_quorum_that_cannot_answer_in_time() -> None:
    words = ["engine.quorum = 0.6", "2 of 3 clients", "of which 1 can", "engine.deadline = 2", "2 fastest need 5 s"]
    with refused(ConfigError, "impossible-quorum", *words):
        exchange(ExchangeRules(quorum=0.6, deadline=2.0), [task(name) for name in (A, B, C)])


def test_of_several_tasks_a_quorum_needs_the_last_one() -> None:
    """C needs 5 s for the first of its tasks and 10 s for both."""
    tasks = [task(name, value=model) for model in range(2) for name in (A, B, C)]
    with refused(ConfigError, "impossible-quorum", "2 of 3 clients", "2 fastest need 10 s"):
        exchange(ExchangeRules(quorum=0.6, deadline=6.0), tasks)
    exchange(ExchangeRules(quorum=0.6, deadline=10.0), tasks)


def test_fewer_replies_than_an_exchange_needs_at_least() -> None:
    """Without a quorum all are waited for, until the deadline, and half of them must be there."""
    words = ["engine.minimum = 0.5", "needs 2 of 3 replies", "of which 1 can", "2 fastest need 5 s"]
    with refused(ConfigError, "impossible-quorum", *words):
        exchange(ExchangeRules(minimum=0.5, deadline=2.0), [task(name) for name in (A, B, C)])
    exchange(ExchangeRules(minimum=0.25, deadline=2.0), [task(name) for name in (A, B, C)])


def test_late_replies_count_for_as_many_deadlines_as_rounds_that_they_may_be_late() -> None:
    """A alone needs 10 s: that is three deadlines of 3 s too late, and within four."""
    words = ["engine.deadline = 3", repr(A), "needs 10 s", "up to 2 rounds late, for 9 s"]
    with refused(ConfigError, "impossible-deadline", *words):
        exchange(ExchangeRules(deadline=3.0, late="use", rounds_late=2), [task(A)], takes_late=True)
    exchange(ExchangeRules(deadline=3.0, late="use", rounds_late=3), [task(A)], takes_late=True)
    exchange(ExchangeRules(deadline=3.0, late="use"), [task(A)], takes_late=True)
    with refused(ConfigError, "impossible-deadline", "needs 10 s for its first task; set"):
        exchange(ExchangeRules(deadline=3.0, late="use", rounds_late=3), [task(A)])


def test_the_reply_has_to_travel_too() -> None:
    """1,000 weights of 4 bytes take 4 s upwards."""
    up = Trace.constant(1000.0)
    with paced({B: 10, C: 2}, {A: Link(up=up)}, rules=ExchangeRules(deadline=3.9)) as federation:
        federation.begin(1)
        with refused(ConfigError, "impossible-deadline", repr(A), "needs 4 s"):
            list(federation.collect([returning(A)]))


def test_every_exchange_of_the_first_round_is_looked_at_and_none_of_a_later_one() -> None:
    tasks = [task(name, macs=30) for name in (A, B, C)]
    rules = ExchangeRules(deadline=2.0)
    for number in (1, 2):
        with paced(SPEEDS, rules=rules) as federation:
            federation.begin(number)
            list(federation.collect([task(name) for name in (A, B, C)], minimum=0))
            assert now(federation) == 2
            if number == 2:
                assert not list(federation.collect(tasks, minimum=0))
                continue
            with refused(ConfigError, "impossible-deadline", "needs 3 s"):
                list(federation.collect(tasks, minimum=0))


def test_a_log_that_ends_before_the_first_task_or_its_reply_has_arrived() -> None:
    log = Trace(np.array([1.0, 2.0]), np.array([1000.0, 500.0]), np.zeros(2))
    with paced({}, {A: Link(log, log)}) as federation:
        federation.begin(1)
        sent = task(A, weights=WEIGHTS)
        with refused(ConfigError, "trace-too-short", repr(A), "2,000 bytes in 3 s", "its first task has 4,"):
            federation.send([sent])
    with paced({}, {A: Link(None, log)}) as federation:
        federation.begin(1)
        with refused(ConfigError, "trace-too-short", "the reply to its first task at least 4,000; use a longer log"):
            federation.send([returning(A)])


def test_what_a_reply_has_at_least() -> None:
    """Weights travel whole. Of gradients and of sparse layers a quarter is counted: the rest may be zero."""
    model = {"w": np.zeros((10, 10), np.float32), "b": np.zeros(10, np.float64)}
    assert least_bytes({"weights": TensorsLike.of(model, "values"), "correct": Count(9)}) == 480
    assert least_bytes([TensorsLike.of(model, "change"), TensorsLike.of(model)]) == 240
    assert least_bytes(OnGraph({"w": ("<f8", (10,))}, {"w": 10}, update="values")) == 20
    assert least_bytes(None) == 0


@pytest.mark.parametrize(
    ("method", "tables", "words"),
    [
        ("fedavg", {"simulation": {"bandwidth": 1000.0}, "engine": {"deadline": 1.0}}, ["even the fastest client"]),
        (
            "fedrl",
            {"simulation": {"speed": 1e3}, "engine": {"deadline": 1.0}, "fedrl": {"threshold": 3}},
            ["even the fastest client", "up to 3 rounds late, for 4 s"],
        ),
    ],
)
def test_before_anything_is_written(tmp_path: Path, method: str, tables: dict[str, Any], words: list[str]) -> None:
    data = made_table() if method == "fedavg" else made_images(side=8)
    with refused(ConfigError, "impossible-deadline", *words):
        search(method, data, out=tmp_path / "run", workers=0, settings=tables)
    assert not (tmp_path / "run").exists()
