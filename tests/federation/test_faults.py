"""Faults on purpose: what each kind does to a reply, and what becomes of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atoll
from atoll.config import resolve
from atoll.core.checks import Count, CountArray, CountsUpTo, TensorsLike
from atoll.core.messages import Payload, Reply, Task, Tensors
from atoll.errors import ConfigError, Paused
from atoll.federation.executor import find_job
from atoll.federation.faults import KINDS, ON_CLIENT, FaultRule, FaultSettings, InjectedFaults, Kind, struck_clients
from atoll.run import launch
from atoll.run.reader import load
from atoll.testing import ScriptedFederation, made_table
from atoll.training.client import Client
from refusals import refused

SENT = Tensors({"w": np.full(4, 10, np.float32)})
NAMES = ["a", "b", "c", "d", "bad"]
RETURNS = {
    "weights": TensorsLike.of(SENT, "values"),
    "correct": Count(7),
    "each": CountsUpTo((2,), 7),
    "confusion": CountArray((2, 2), 7),
    "report": {"test": {"correct": Count(7)}},
}


def answer(task: Task) -> Payload:
    """Weights one higher than before, and three of seven rows right."""
    weights = Tensors({name: array + 1 for name, array in task.payload["weights"].items()})
    confusion = np.array([[2, 1], [3, 1]])
    report = {"test": {"correct": 3}}
    return {"weights": weights, "correct": 3, "each": np.array([3, 4]), "confusion": confusion, "report": report}


def exchange(*rules: FaultRule) -> dict[str, Reply]:
    federation = ScriptedFederation(NAMES, answer)
    federation.transport = InjectedFaults(federation.transport, FaultSettings(rule=list(rules)), NAMES, 1)
    federation.begin(1)
    tasks = [Task(name, name, "job", {"weights": SENT}, returns=RETURNS) for name in NAMES]
    replies = federation.collect(tasks, minimum=0)
    found = {reply.task.client: reply for reply in replies}
    return found | {reply.task.client: reply for reply in replies.failures}


def rule(kind: Kind, **settings: Any) -> FaultRule:
    return FaultRule(kind=kind, clients=["bad"], **settings)


@pytest.mark.parametrize(
    ("kind", "factor", "weight"), [("flip", 5.0, 5.0), ("scale", 5.0, 15.0), ("flip", 1.0, 9.0), ("scale", 0.0, 10.0)]
)
def test_what_an_attack_sends_by_hand(kind: Kind, factor: float, weight: float) -> None:
    """An honest update is +1 on weights of 10."""
    found = exchange(rule(kind, factor=factor))
    assert found["bad"].payload["weights"]["w"].tolist() == [weight] * 4
    assert all(found[name].payload["weights"]["w"].tolist() == [11.0] * 4 for name in NAMES[:4])


def test_a_lie_passes_every_check() -> None:
    payload = exchange(rule("lie"))["bad"].payload
    assert payload["correct"] == 7 and payload["each"].tolist() == [7, 7]
    assert payload["confusion"].tolist() == [[3, 0], [0, 4]] and payload["weights"]["w"][0] == 11
    assert payload["report"] == {"test": {"correct": 3}}, "the report says what is true"


@pytest.mark.parametrize(
    ("kind", "reason"), [("nan", "rejected, nonfinite"), ("huge", "rejected, norm"), ("dropout", "made to drop out")]
)
def test_what_is_always_stopped(kind: Kind, reason: str) -> None:
    found = exchange(rule(kind))
    assert str(found["bad"].error).startswith(reason) and all(found[name].ok for name in NAMES[:4])


def test_noise_is_as_strong_as_it_is_asked_to_be() -> None:
    found = exchange(rule("noise", factor=0.01))["bad"].payload["weights"]["w"]
    assert not np.any(found == 11) and np.abs(found - 11).max() < 0.1


def test_corruption_is_rejected_or_harmless() -> None:
    """Bytes may hit a weight and leave it plausible; then it is one update among others."""
    for seed in range(20):
        federation = ScriptedFederation(NAMES, answer)
        settings = FaultSettings(rule=[FaultRule(kind="corrupt", clients=1.0)])
        federation.transport = InjectedFaults(federation.transport, settings, NAMES, seed)
        federation.begin(1)
        tasks = [Task(name, name, "job", {"weights": SENT}, returns=RETURNS) for name in NAMES]
        replies = federation.collect(tasks, minimum=0)
        assert all(np.isfinite(reply.payload["weights"]["w"]).all() for reply in replies)
        assert all(str(reply.error).startswith("rejected, ") for reply in replies.failures)


def test_a_delay_lasts_and_nothing_is_lost() -> None:
    start = time.monotonic()
    found = exchange(rule("delay", factor=0.3))
    assert 0.3 <= time.monotonic() - start < 5 and all(reply.ok for reply in found.values())


def test_delays_pass_side_by_side() -> None:
    """Five clients, one of which works at a time: the delay of one does not keep the next from working."""
    start = time.monotonic()
    found = exchange(FaultRule(kind="delay", clients=1.0, factor=0.5))
    assert 0.5 <= time.monotonic() - start < 2 and all(reply.ok for reply in found.values())


def test_rules_strike_in_their_rounds_and_by_their_probability() -> None:
    assert exchange(rule("nan", first=2))["bad"].ok and exchange(rule("nan", probability=0.0))["bad"].ok
    assert not exchange(rule("nan", last=1))["bad"].ok


def test_a_share_of_clients_is_drawn_by_the_seed() -> None:
    names = [str(number) for number in range(50)]
    drawn = struck_clients(FaultRule(kind="nan", clients=0.2), 0, names, 1)
    assert len(drawn) == 10 and drawn == struck_clients(FaultRule(kind="nan", clients=0.2), 0, names[::-1], 1)
    assert drawn != struck_clients(FaultRule(kind="nan", clients=0.2), 0, names, 2)
    with refused(ConfigError, "unknown-client", "'x'"):
        struck_clients(FaultRule(kind="nan", clients=["x"]), 0, names, 1)
    with refused(ConfigError, "invalid-setting", "1.5"):
        struck_clients(FaultRule(kind="nan", clients=1.5), 0, names, 1)


def test_a_rule_that_strikes_nobody_is_refused() -> None:
    assert struck_clients(FaultRule(kind="nan", clients=0.0), 0, NAMES, 1) == frozenset()
    with refused(ConfigError, "invalid-setting", "clients = 0.1", "5 clients", "0.2"):
        struck_clients(FaultRule(kind="nan", clients=0.1), 0, NAMES, 1)
    with refused(ConfigError, "invalid-setting", "first = 5", "last = 2"):
        struck_clients(FaultRule(kind="nan", first=5, last=2), 0, NAMES, 1)


def test_a_run_with_faults_of_all_kinds_ends_and_a_resumed_one_meets_the_same(tmp_path: Path) -> None:
    data = made_table(clients=6)
    rules = [{"kind": kind, "clients": 0.34, "probability": 0.4} for kind in KINDS if kind not in ("delay", "crash")]
    raw = {"method": "fedavg", "data": {"name": "in-memory"}, "engine": {"workers": 0}, "faults": {"rule": rules}}
    experiment = resolve({**raw, "fedavg": {"rounds": 4}})

    def outcome(path: Path) -> Any:
        run = load(path)
        return [event["metrics"] for event in run.rounds], run.clients, run.result["candidates"]

    launch.start(experiment, tmp_path / "whole", data=data)
    with refused(Paused, "run-stopped"):
        launch.start(experiment, tmp_path / "two", data=data, stop=lambda: len(load(tmp_path / "two").rounds) >= 2)
    atoll.resume(tmp_path / "two", data=data)
    assert outcome(tmp_path / "two") == outcome(tmp_path / "whole")
    assert any(account.get("rejected") for account in load(tmp_path / "whole").clients.values())


def trained(kind: str | None, folder: Path, workers: int, clients: float | list[str] = 0.2) -> atoll.Run:
    rules = [] if kind is None else [{"kind": kind, "clients": clients}]
    settings: dict[str, Any] = {"faults": {"rule": rules}}
    return atoll.search("fedavg", made_table(clients=5), out=folder, rounds=2, workers=workers, settings=settings)


@pytest.mark.soak
def test_a_client_whose_process_dies_fails_and_the_others_are_not_disturbed(tmp_path: Path) -> None:
    """Every task of one of five clients ends its worker, twice; the run is that of one whose client drops out."""
    crashed, dropped = (trained(kind, tmp_path / kind, workers=2) for kind in ("crash", "dropout"))
    (struck,) = struck_clients(FaultRule(kind="crash"), 0, sorted(crashed.clients), crashed.result["seed"])
    failures = crashed.clients[struck]["failed"]
    assert list(failures) == ["the worker process died twice on this task"] and crashed.clients[struck]["used"] == 0
    assert [event["metrics"]["error"] for event in crashed.rounds] == [
        event["metrics"]["error"] for event in dropped.rounds
    ]


def test_no_process_ends_itself(tmp_path: Path) -> None:
    with refused(ConfigError, "inapplicable-setting", "'crash'", "engine.workers = 0"):
        trained("crash", tmp_path / "run", workers=0)
    sites = resolve({"method": "fedavg", "data": {"name": "in-memory"}, "engine": {"name": "flower"}})
    for kind in ON_CLIENT:
        faults = FaultSettings(rule=[FaultRule(kind=kind)])
        with refused(ConfigError, "inapplicable-setting", repr(kind), "sites"):
            launch.start(sites.model_copy(update={"faults": faults}), tmp_path / "sites")


def test_flipped_labels_by_hand() -> None:
    """Of three classes the first and the last change places; validation rows are left alone."""
    data = made_table(clients=1, rows=30)
    seen: dict[str, Any] = {}
    flipped = find_job("atoll.federation.faults:label_flip")
    client = Client(data.client(data.names[0]), {}, np.random.default_rng(1))
    flipped({"job": "odd_jobs:labels", "payload": {"into": seen}}, client)
    assert len(data.schema.classes) == 3
    assert seen["train"].tolist() == (2 - client.data.part("train")[1]).tolist()
    assert seen["validation"].tolist() == client.data.part("validation")[1].tolist()


@pytest.mark.soak
def test_training_on_wrong_labels_changes_updates_only_of_those_who_do(tmp_path: Path) -> None:
    """All clients do: the network learns the wrong classes, and measures so on rows with the right ones."""
    honest, wrong = trained(None, tmp_path / "h", 0), trained("label_flip", tmp_path / "w", 0, clients=1.0)
    again = trained("label_flip", tmp_path / "a", 2, clients=1.0)
    errors = [run.candidate("high")["test"]["test_error"] for run in (honest, wrong, again)]
    assert errors[1] > errors[0] + 0.2 and errors[2] == errors[1]
    assert all(account["used"] == account["asked"] for account in wrong.clients.values())
