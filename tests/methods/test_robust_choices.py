"""What a search chooses is not one client's word: second groups, fresh clients, guests and rewards, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atoll
from atoll.algorithms.neat.island import Island
from atoll.clients import LocalTraining, fresh, train_models
from atoll.core.messages import Payload, Task, Tensors
from atoll.errors import ConfigError
from atoll.federation.local import local_federation
from atoll.federation.trust import RobustSettings, draw_checkers
from atoll.methods.nevofed.refinement import psi_of
from atoll.methods.offline import OfflineState
from atoll.rng import stream
from atoll.testing import ScriptedFederation, made_images, made_table
from methods import late_clients, narrow_nets, two_blocks
from methods.late_clients import make as fedrl
from methods.test_nevofed_round import method as nevofed
from methods.test_offline import offline
from outcomes import outcome
from refusals import refused

TWELVE = [narrow_nets.client(f"client-{number}") for number in range(12)]


def confirming(federation: Any, **settings: Any) -> Any:
    federation.robust = RobustSettings(**{"confirm": True, **settings})
    return federation


# -- decnas: a second group for every candidate --------------------------------------------------------------------


def test_a_second_group_tests_every_candidate_and_uploads_nothing() -> None:
    federation = confirming(narrow_nets.Script(TWELVE))
    method = narrow_nets.decnas()
    state, _ = narrow_nets.step(method, narrow_nets.begun(method, federation), federation)
    own, second = federation.sent("tune"), federation.sent("confirm")
    assert len(own) == len(second) == 12  # six candidates, two clients a group
    for unit in narrow_nets.UNITS:
        first = {task.client for task in own if task.payload["candidate"] == unit}
        other = {task.client for task in second if task.payload["candidate"] == unit}
        assert len(first) == len(other) == 2 and not first & other
    assert all("previous" in task.payload and "change" not in task.returns for task in second)
    assert all(task.macs == other.macs for task, other in zip(own, second, strict=True))
    assert state.previous == {}


@pytest.mark.parametrize("liars_say", [10, 0])
def test_one_liar_of_four_cannot_choose_or_drop_a_candidate(liars_say: int) -> None:
    """Every layer loses 0.1 but the last, which loses 0.5. One client of each candidate's own group lies."""
    honest = narrow_nets.by_candidate([7, 7, 7, 7, 7, 3])
    liars: dict[str, str] = {}

    def correct(task: Task) -> int:
        unit, lies = task.payload["candidate"], liars_say == 10 and task.payload["candidate"] == "layers.5"
        lies = lies or (liars_say == 0 and unit == "layers.0")
        if lies and task.job.endswith(":tune") and liars.setdefault(unit, task.client) == task.client:
            return liars_say
        return honest(task)

    federation = confirming(narrow_nets.Script(TWELVE, correct))
    method = narrow_nets.decnas(tune_rounds=[1])
    _, event = narrow_nets.step(method, narrow_nets.begun(method, federation), federation)
    # Layer 0 saves most for the same loss, so it is the right choice; layer 5 is the wrong one.
    assert event["chosen"] == "layers.0" and len(liars) == 1
    scores = event["candidates"]
    assert scores["layers.0"]["accuracy"] == pytest.approx(0.7) and scores["layers.0"]["accuracy_before"] == 0.8
    assert scores["layers.5"]["accuracy"] == pytest.approx(0.3)


def test_groups_of_one_client_cannot_confirm() -> None:
    six = narrow_nets.Script(TWELVE[:6])
    for settings in ({}, {"groups": 1}, {"grouping": False}):
        with refused(ConfigError, "too-few-clients", "robust.confirm", "6 clients"):
            narrow_nets.begun(narrow_nets.decnas(**settings), confirming(six))
    narrow_nets.begun(narrow_nets.decnas(groups=3), confirming(six))


# -- realtime and moefl: the final networks are measured by clients that measured nothing before ---------------------


def test_a_fifth_of_the_clients_checks_and_three_at_least() -> None:
    infos = [two_blocks.client(f"client-{number}") for number in range(20)]
    assert len(draw_checkers(infos, stream(1))) == 4 and len(draw_checkers(infos[:6], stream(1))) == 3
    assert draw_checkers(infos, stream(1)) == draw_checkers(infos[::-1], stream(1)) != draw_checkers(infos, stream(2))
    few = [*infos[:5], replace(infos[5], sizes={**infos[5].sizes, "validation": 0})]
    with refused(ConfigError, "too-few-clients", "robust.confirm", "5 clients", "6"):
        draw_checkers(few, stream(1))


def test_fresh_clients_decide_on_the_front() -> None:
    """The search believes that the network 00 has no error; the clients that check it find 0.9."""
    infos = [two_blocks.client(f"client-{number}") for number in range(6)]
    method = two_blocks.realtime(rounds=2)
    checkers = confirming(two_blocks.Script(infos)).draw_checkers(stream(7, "init"))

    def correct(task: Task) -> list[int]:
        right = {"00": 1, "11": 6} if task.client in checkers else {"00": 10, "11": 5}
        return [right.get("".join(map(str, key)), 0) for key in task.payload["keys"]]

    federation = confirming(two_blocks.Script(infos, correct=correct))
    before = replace(two_blocks.state(method, [[0, 0], [1, 1]]), checkers=checkers)
    after, metrics = two_blocks.step(method, before, federation)
    measured = {task.client for task in federation.sent("count_correct")}
    assert len(checkers) == 3 and measured == {info.name for info in infos} - set(checkers)
    assert after.checkers == checkers and metrics["high"]["key"] == "00" and metrics["high"]["error"] == 0.0
    assert {tuple(key) for key in after.parents} >= {(0, 0)}
    both = replace(after, parents=[[0, 0], [1, 1]], objectives=[[0.0, 1.0], [0.5, 2.0]])
    asked = len(federation.tasks)
    found = method._rechecked(both, federation)
    assert found.objectives == [[0.9, 1.0], [pytest.approx(0.4), 2.0]]
    assert {task.client for task in federation.tasks[asked:]} == set(checkers)
    assert method._picked(found)["high"] == [1, 1] and method._picked(both)["high"] == [0, 0]
    assert method._rechecked(replace(both, checkers=[]), federation).objectives == both.objectives


def test_enough_clients_must_measure_in_each_round() -> None:
    infos = [two_blocks.client(f"client-{number}") for number in range(10)]
    with refused(ConfigError, "too-few-clients", "robust.confirm", "4 clients a round", "needs 6"):
        two_blocks.realtime(fraction=0.4).init(confirming(two_blocks.Script(infos)), stream(1))


@pytest.mark.parametrize(("name", "settings"), [("moefl", {"rounds": 2, "fitness_rounds": 1, "population": 3})])
def test_final_errors_are_those_of_fresh_clients(name: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """On eight clients, with any number of workers: three of them check."""
    data = made_table(clients=8)
    run = atoll.search(name, data, out=tmp_path / "run", workers=0, settings={"robust": {"confirm": True}}, **settings)
    again = atoll.search(
        name, data, out=tmp_path / "again", workers=2, settings={"robust": {"confirm": True}}, **settings
    )
    assert [c["objectives"] for c in run.result["candidates"]] == [c["objectives"] for c in again.result["candidates"]]
    rows = {client: sizes["validation"] for client, sizes in run.manifest["clients"].items()}
    # Errors at the end are shares of the rows of three clients.
    shares = {sum(rows[client] for client in chosen) for chosen in _threes(sorted(rows))}
    for candidate in run.result["candidates"]:
        error = candidate["objectives"]["error"]
        assert any(abs(error * total - round(error * total)) < 1e-9 for total in shares)


def _threes(names: list[str]) -> list[tuple[str, str, str]]:
    return [(a, b, c) for i, a in enumerate(names) for j, b in enumerate(names[:i]) for c in names[:j]]


@pytest.mark.parametrize(
    ("name", "robust", "words"),
    [
        ("fedavg", {"confirm": True}, ["robust.confirm", "fedavg"]),
        ("fedavg", {"guests": 0.1}, ["robust.guests = 0.1", "fedavg"]),
        ("moefl", {"confirm": True}, ["robust.confirm", "moefl.fitness"]),
        ("nevofed", {"models": "median"}, ["robust.models = 'median'", "nevofed averages no models"]),
        ("nevofed", {"clip": 2.0}, ["robust.clip = 2.0", "nevofed averages no models"]),
    ],
)
def test_what_cannot_be_confirmed_is_refused(
    name: str, robust: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    settings = {"fitness": "test", "fitness_rounds": 1} if name == "moefl" else {}
    with refused(ConfigError, "inapplicable-setting", *words):
        atoll.search(
            name,
            made_table(clients=8),
            out=tmp_path / "run",
            workers=0,
            rounds=1,
            settings={"robust": robust},
            **settings,
        )
    assert not (tmp_path / "run").exists()


# -- nevofed: guests, and psi as a median ----------------------------------------------------------------------------


def round_of(**robust: Any) -> tuple[dict[str, Any], dict[str, Payload]]:
    """The metrics of a first round on six clients, and what the clients hold after it."""
    data = made_table(clients=6)
    server = nevofed(data, population=10)
    with local_federation(data, 1, 0) as federation:
        federation.robust = RobustSettings(**robust)
        federation.begin(1)
        _, metrics = server.step(server.init(federation, stream(1)), federation, stream(1, "round"))
        return metrics, federation.snapshot()["memory"]


def test_guests_replace_no_more_than_their_share() -> None:
    """Five guests visit each of six clients with ten residents: a tenth is one a client."""
    free, _ = round_of()
    bounded, memory = round_of(guests=0.1)
    assert free["stayed"] > 6 >= bounded["stayed"] > 0
    assert all(len(Island.from_plain(own["island"]).population) == 10 for own in memory.values())


def test_a_guest_must_reach_half_of_what_it_claims() -> None:
    free, _ = round_of()
    confirmed, _ = round_of(confirm=True)
    assert 0 < confirmed["stayed"] <= free["stayed"]
    data = made_table(clients=6)
    server = nevofed(data, population=10)
    from atoll.methods.nevofed import clients

    old, clients.HOLDS = clients.HOLDS, 1e9  # no guest can reach this much of its claim
    try:
        with local_federation(data, 1, 0) as federation:
            confirming(federation).begin(1)
            _, metrics = server.step(server.init(federation, stream(1)), federation, stream(1, "round"))
    finally:
        clients.HOLDS = old
    assert metrics["stayed"] == 0


def test_psi_may_be_a_median() -> None:
    """Two genomes on five clients, one of which lies: means are 0.60 and 0.58, medians 0.5 and 0.7."""
    fitness = [np.array(row) for row in ([0.5, 0.7], [0.5, 0.7], [0.5, 0.7], [0.5, 0.7], [1.0, 0.1])]
    federation = ScriptedFederation(["a"], lambda task: {})
    assert psi_of(fitness, federation).tolist() == pytest.approx([0.6, 0.58])
    federation.robust = RobustSettings(fitness="median")
    assert psi_of(fitness, federation).tolist() == pytest.approx([0.5, 0.7])


# -- fedrl: a reward is the median of three ---------------------------------------------------------------------------


def test_a_reward_is_the_median_of_its_client_and_two_others() -> None:
    """Client c claims 10 of 10; all clients find 2 of 10 on their validation rows, and a and b say so of theirs."""
    own = {"a": 2, "b": 2, "c": 10}
    gradients = late_clients.answering(dict.fromkeys(own, 0.0), own)

    def answer(task: Task) -> Payload:
        return {"correct": 2} if task.job.endswith(":count_correct") else gradients(task)

    method = late_clients.make()
    plain = late_clients.LateFederation(list(own), answer, late_clients.SCHEMA)
    robust = late_clients.LateFederation(list(own), answer, late_clients.SCHEMA)
    robust.robust = RobustSettings(fitness="median")
    _, before = late_clients.play(method, plain)
    after, metrics = late_clients.play(method, robust)
    assert before["accuracy"] == pytest.approx(14 / 30) and metrics["accuracy"] == pytest.approx(0.2)
    assert after.baseline == pytest.approx(0.99 * 0.2 + 0.01 * 0.5)
    asked = [task for task in robust.tasks if task.job.endswith(":count_correct")]
    assert len(asked) == 6 and len(robust.tasks) == 9
    for number, name in enumerate(own):
        witnesses = {task.client for task in asked if task.id.startswith(f"validation:{number}:")}
        assert witnesses == set(own) - {name}


def test_two_clients_cannot_give_a_median_reward() -> None:
    federation = late_clients.federation_of({"a": 0.0, "b": 0.0})
    federation.robust = RobustSettings(fitness="median")
    with refused(ConfigError, "too-few-clients", "robust.fitness", "2 clients", "3"):
        late_clients.make().init(federation, stream(1))


# -- whole runs --------------------------------------------------------------------------------------------------------

RUNS: dict[str, dict[str, Any]] = {
    "realtime": {"rounds": 4, "population": 3, "channels": [4, 8], "batch": 8, "finish": 0.5},
    "decnas": {"rounds": 3, "groups": 3, "model": "convnet", "widths": [4] * 6, "batch": 8, "step": 0.1},
    "nevofed": {"rounds": 3, "population": 10, "keep": "best", "refine": 0.34, "refine_population": 4},
    "fedrl": {"rounds": 3, "warmup": 1, "retrain": 0, "channels": 2, "cells": 1, "batch": 8},
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.deploy if name == "decnas" else pytest.mark.soak) for name in RUNS]
)
def test_a_robust_search_ends_and_its_workers_do_not_matter(name: str, tmp_path: Path) -> None:
    data = made_table(clients=8) if name == "nevofed" else made_images(clients=8, side=8, rows=24)
    robust: dict[str, Any] = {"fitness": "median", "confirm": name != "fedrl"}
    robust |= {"guests": 0.2} if name == "nevofed" else {}
    one, two = (
        atoll.search(name, data, out=tmp_path / str(n), workers=n, settings={"robust": robust}, **RUNS[name])
        for n in (0, 2)
    )
    assert outcome(one)["result"]["candidates"] == outcome(two)["result"]["candidates"]
    assert outcome(one)["weights"] == outcome(two)["weights"]
    assert all(account["replies"]["rejected"] == 0 for account in one.result["ledger"]["per_round"])


# -- what too few updates leave as it was ---------------------------------------------------------------------------

MEDIAN = RobustSettings(models="median")


def robust(federation: Any, settings: RobustSettings = MEDIAN) -> Any:
    federation.robust = settings
    return federation


@pytest.mark.parametrize("settings", [MEDIAN, RobustSettings(clip=2.0), RobustSettings(fitness="median")])
def test_groups_of_two_cannot_be_robust(settings: RobustSettings) -> None:
    federation = robust(narrow_nets.Script(TWELVE), settings)
    with refused(ConfigError, "too-few-clients", "robust.", "12 clients in 6 groups", "2.0 each", "decnas.groups"):
        narrow_nets.begun(narrow_nets.decnas(), federation)
    narrow_nets.begun(narrow_nets.decnas(groups=4), federation)


@pytest.mark.parametrize(("clients", "operations"), [(23, "2.9 clients an operation"), (24, "")])
def test_each_operation_needs_three_clients(clients: int, operations: str) -> None:
    federation, method = robust(late_clients.federation_of(dict.fromkeys(map(str, range(clients)), 1.0))), fedrl()
    if not operations:
        method.init(federation, stream(7, "init"))
        return
    with refused(ConfigError, "too-few-clients", "robust.models", f"{clients} clients", operations, "24"):
        method.init(federation, stream(7, "init"))


def test_a_candidate_with_two_updates_stays_as_it_was_and_the_event_says_so() -> None:
    """Every client adds 2; one of the three that tune the first candidate fails."""
    failed: list[str] = []

    def correct(task: Task) -> int:
        if task.payload["candidate"] == "layers.0" and not failed:
            failed.append(task.client)
            raise ValueError("asleep")
        return 5

    federation = robust(narrow_nets.Script(TWELVE, correct, lambda task, candidate: 2.0))
    method = narrow_nets.decnas(groups=4, dropping=False)
    state, _ = narrow_nets.step(method, narrow_nets.begun(method, federation), federation)
    sent = {task.payload["candidate"]: task.payload["weights"] for task in federation.sent("tune")}
    moved = {
        one["unit"]: float(max((one["weights"][name] - array).max() for name, array in sent[one["unit"]].items()))
        for one in state.candidates
    }
    assert failed and moved == {unit: 0.0 if unit == "layers.0" else 2.0 for unit in narrow_nets.UNITS}
    assert federation.unchanged.events() == {"unchanged": {"layers.0": 2}} and not federation.unchanged.events()


def test_one_model_of_a_round_with_two_updates_stays_as_it_was() -> None:
    def answer(task: Task) -> Payload:
        if task.id == "train:short:a":
            raise ValueError("asleep")
        return {"weights": Tensors({name: array + np.float32(1) for name, array in task.payload["weights"].items()})}

    federation = robust(ScriptedFederation(["a", "b", "c"], answer))
    dense = {"space": "fixed", "model": "mlp", "input": [2], "classes": 2, "hidden": [3]}
    models = [fresh(name, dense, stream(1, name)) for name in ("short", "whole")]
    short, whole = train_models(federation, models, federation.clients(), LocalTraining(epochs=1, batch=5), 0)
    assert short.weights is models[0].weights and federation.unchanged.events() == {"unchanged": {"short": 2}}
    assert all(np.array_equal(whole.weights[name], array + np.float32(1)) for name, array in models[1].weights.items())


def test_a_network_with_two_updates_counts_as_untrained_in_the_offline_search() -> None:
    def change(task: Task, number: int) -> float:
        if task.payload["key"] == [0, 1] and task.client == "client-0":
            raise RuntimeError("out of memory")
        return 1.0

    infos = [two_blocks.client(f"client-{number}") for number in range(3)]
    federation = robust(two_blocks.Script(infos, change))
    federation.begin(1)
    after, metrics = offline().step(OfflineState(0, [[1, 1], [0, 1]], [], {}), federation, stream(7, "test", 0))
    assert metrics["untrained"] == ["01"] and [0, 1] not in after.parents


def test_the_event_of_a_round_says_what_it_left_unchanged(tmp_path: Path) -> None:
    rule = {"kind": "dropout", "clients": ["client-00"], "last": 1}
    settings = {"robust": {"models": "median"}, "engine": {"workers": 0}, "faults": {"rule": [rule]}}
    run = atoll.search("fedavg", made_table(clients=3), out=tmp_path / "run", settings=settings, rounds=2, hidden=[4])
    assert [event.get("unchanged") for event in run.rounds] == [{"model": 2}, None]
