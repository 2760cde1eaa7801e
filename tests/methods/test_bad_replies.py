"""Replies that break a rule, in exchanges of every method: none is used, and no run is stopped by who sends them.

Each method plays its golden run on five clients. Every exchange of it is then repeated with one client's replies
spoiled, and the whole run with a client that spoils them all. `make soak` does so 5,000 times.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll.config import resolve
from atoll.core.messages import Payload, Task
from atoll.federation.base import Federation
from atoll.federation.local import local_federation
from atoll.federation.transport import Envelope, Outcome, Transport
from atoll.methods import find_method
from atoll.rng import stream
from atoll.run.loop import Loop
from atoll.run.reader import load
from atoll.store import RunDirectory
from atoll.testing import ScriptedFederation, made_images, made_table
from bad_replies import spoiled
from methods.test_golden import IMAGES, SETTINGS

METHODS = [name for name in SETTINGS if not find_method(name).centralised]
SOAK = 5000  # replies, over all methods
Exchange = tuple[list[Task], dict[str, Payload]]  # and what was replied to each of them


def made(method: str) -> Any:
    return made_images(clients=5, **IMAGES[method]) if method in IMAGES else made_table(clients=5)


class Spy(Transport):
    """Notes what comes back, and spoils the replies of one client if it is told to."""

    def __init__(self, inner: Transport, bad: str | None = None, silent: bool = False) -> None:
        self.inner, self.window, self.bad, self.silent = inner, inner.window, bad, silent
        self.envelopes: dict[int, Envelope] = {}
        self.payloads: dict[int, Payload] = {}
        self.spoiled = 0

    def start(self, envelope: Envelope) -> None:
        self.envelopes[envelope.order] = envelope
        self.inner.start(envelope)

    def poll(self, timeout: float | None) -> list[Outcome]:
        return [self._seen(outcome) for outcome in self.inner.poll(timeout)]

    def _seen(self, outcome: Outcome) -> Outcome:
        envelope = self.envelopes[outcome.order]
        assert outcome.payload is not None, outcome.error
        self.payloads[outcome.order] = outcome.payload
        if envelope.task.client != self.bad or envelope.task.test_evaluation:
            return outcome
        self.spoiled += 1
        if self.silent:
            return Outcome(outcome.order, error="asleep")
        rng = stream(1, "spoiled", outcome.order)
        # With one client out of five and groups of two or three there may be nobody to compare with.
        bad = spoiled(outcome.payload, envelope.task.returns, rng, compared=False)
        return Outcome(outcome.order, bad, outcome.memory, outcome.size)

    def abandon(self, order: int) -> None:
        self.inner.abandon(order)

    def close(self) -> None:
        self.inner.close()


def played(method: str, folder: Path, bad: str | None = None, silent: bool = False) -> tuple[Spy, list[list[int]], Any]:
    """A golden run on five clients: what was replied, the orders of the tasks of each exchange, and the run."""
    data, exchanges = made(method), []
    experiment = resolve({"method": method, "data": {"name": "in-memory"}, method: SETTINGS[method]})
    config = experiment.settings.fitted(data.schema, len(data.names))
    with (
        local_federation(data, 1, 0) as federation,
        RunDirectory.create(folder, "", {}, data.preparation) as directory,
    ):
        spy = Spy(federation.transport, bad, silent)
        federation.transport = spy
        federation.robust = federation.robust.model_copy(update={"strikes": 0})
        collect = federation.collect

        def noted(tasks: Sequence[Task], *given: Any, **named: Any) -> Any:
            first = federation._dispatcher._orders
            exchanges.append(list(range(first, first + len(tasks))))
            return collect(tasks, *given, **named)

        federation.collect = noted  # type: ignore[method-assign]
        chosen = find_method(method)(config, data.schema)
        Loop(chosen, lambda _: data.preparation, 1, config.rounds, 3, federation, directory).run()
    return spy, exchanges, load(folder)


def replayed(spy: Spy, orders: Sequence[int], seed: int) -> int:
    """One exchange again, in which one client breaks a rule in all of its replies; how many those are."""
    tasks = [spy.envelopes[order].task for order in orders]
    rng = stream(2, "replayed", seed, *orders)
    bad = str(rng.choice(sorted({task.client for task in tasks})))
    others = {task.client for task in tasks} - {bad}
    answers = {order: spy.payloads[order] for order in orders}
    queue = list(orders)  # tasks are done in the order in which they were sent

    def answer(task: Task) -> Payload:
        order = next(place for place in queue if spy.envelopes[place].task is task)
        queue.remove(order)
        if task.client != bad:
            return answers[order]
        found: Payload = spoiled(answers[order], task.returns, rng, compared=len(others) >= 3)
        return found

    federation: Federation = ScriptedFederation(sorted({*others, bad}), answer)
    federation.begin(1)
    replies = federation.collect(tasks, minimum=0)
    used = [reply.task.client for reply in replies]
    wrong = [reply for reply in replies.failures if reply.task.client == bad]
    assert bad not in used, (bad, tasks[0].job)
    assert len(wrong) == sum(task.client == bad for task in tasks)
    assert all(str(reply.error).startswith("rejected, ") for reply in wrong), wrong[0].error
    assert len(used) + len(wrong) == len(tasks)  # the honest are not rejected with it
    return len(wrong)


def usable(spy: Spy, exchanges: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """The exchanges that count, with several clients."""
    found = []
    for orders in exchanges:
        tasks = [spy.envelopes[order].task for order in orders if order in spy.envelopes]
        if len({task.client for task in tasks}) > 1 and not any(task.test_evaluation for task in tasks):
            found.append(orders)
    return found


@pytest.mark.parametrize("method", ["fedavg", "nevofed"])
def test_some_bad_replies(method: str, tmp_path: Path) -> None:
    spy, exchanges, _ = played(method, tmp_path / "run")
    assert sum(replayed(spy, orders, seed) for seed in range(10) for orders in usable(spy, exchanges)) >= 30


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[] if name == "fedavg" else pytest.mark.soak) for name in METHODS]
)
def test_a_run_with_a_client_that_breaks_every_rule(method: str, tmp_path: Path) -> None:
    """It ends with the bits of a run in which this client says nothing."""
    check_run(method, tmp_path)
    _, _, silent = played(method, tmp_path / "silent", made(method).names[2], silent=True)
    assert found(silent) == found(load(tmp_path / "run"))


def found(run: Any) -> Any:
    """Metrics, without the reasons why clients failed, and the bits of the networks."""
    metrics = [{key: value for key, value in event["metrics"].items() if key != "failed"} for event in run.rounds]
    weights = [run.load_model(candidate["id"]).weights.whole_digest() for candidate in run.result["candidates"]]
    return metrics, weights


def check_run(method: str, folder: Path) -> int:
    bad = made(method).names[2]
    spy, _, run = played(method, folder / "run", bad)
    assert run.finished and not any("failed" in event for event in run.history)
    account = run.result["clients"][bad]
    assert spy.spoiled > 0 and account["used"] == 0
    assert sum(account["rejected"].values()) > 0 and "failed" not in account
    for candidate in run.result["candidates"]:
        assert all(np.isfinite(array).all() for array in run.load_model(candidate["id"]).weights.values())
    return spy.spoiled


@pytest.mark.soak
def test_five_thousand_bad_replies(tmp_path: Path) -> None:
    counts = {}
    for method in METHODS:
        whole = check_run(method, tmp_path / f"{method}-bad")
        spy, exchanges, _ = played(method, tmp_path / method)
        found, seed = 0, 0
        while found < SOAK / len(METHODS):
            found += sum(replayed(spy, orders, seed) for orders in usable(spy, exchanges))
            seed += 1
        counts[method] = found + whole
    print(counts, sum(counts.values()))
    assert sum(counts.values()) >= SOAK
