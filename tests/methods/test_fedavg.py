"""FedAvg: the contract of all methods, and its averages by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atoll
from atoll import spaces
from atoll.core.messages import Payload, Schema, Task, Tensors
from atoll.data import Federated
from atoll.errors import ArchitectureError, ConfigError, TooFewReplies
from atoll.federation.local import local_federation
from atoll.federation.trust import ClientWeights, RobustSettings
from atoll.methods.fedavg import FedAvg, FedAvgConfig, FedAvgState
from atoll.rng import stream
from atoll.testing import MethodContract, ScriptedFederation, made_images, made_table
from methods.late_clients import LateFederation
from refusals import refused

SCHEMA = Schema("table", (2,), ("a", "b"), ("first", "second"))


class TestFedAvg(MethodContract):
    method = "fedavg"


class TestFedAvgOnImages(MethodContract):
    """With batch norm: what is taken away has been calibrated by the clients."""

    method = "fedavg"
    settings = {"rounds": 4, "model": "convnet", "widths": [2, 2, 4, 4, 4, 4], "batch": 7, "fraction": 0.5}  # noqa: RUF012

    def data(self) -> Federated:
        return made_images()


class TestCentral(MethodContract):
    method = "central"


def _method(**settings: Any) -> FedAvg:
    return FedAvg(FedAvgConfig(rounds=3, model="mlp", hidden=[1], **settings).fitted(SCHEMA, 2), SCHEMA)


def _counts(wrong: int = 0) -> Payload:
    """What a client with ten validation rows says of the model that came."""
    return {"validation": {"confusion": np.array([[10 - wrong, wrong], [0, 0]]), "loss": 1.0}}


def _step(
    method: FedAvg, answers: dict[str, float | None], rows: dict[str, int], weights: ClientWeights = "capped"
) -> FedAvgState:
    """One round in which each client returns a model filled with its number, or fails."""

    def answer(task: Task) -> Payload:
        value = answers[task.client]
        if value is None:
            raise ValueError("broken")
        sent = task.payload["weights"]
        weights = Tensors({name: np.full_like(array, value) for name, array in sent.items()})
        return {"weights": weights, "before": _counts()}

    federation = ScriptedFederation(list(answers), answer, SCHEMA)
    federation.robust = RobustSettings(client_weights=weights)
    for info in federation.clients():
        info.sizes["train"] = rows[info.name]  # type: ignore[index]
        info.sizes["validation"] = 10  # type: ignore[index]
    federation.begin(1)
    state, _ = method.step(method.init(federation, stream(1, "init")), federation, stream(1, "step"))
    return state


@pytest.mark.parametrize(("weights", "mean"), [("rows", 3.5), ("capped", 3.5), ("equal", 3.0)])
def test_the_mean_by_hand(weights: ClientWeights, mean: float) -> None:
    """Models of 2s (10 rows) and of 4s (30 rows): (10 * 2 + 30 * 4) / 40 = 3.5, and (2 + 4) / 2 = 3."""
    state = _step(_method(), {"one": 2.0, "two": 4.0}, {"one": 10, "two": 30}, weights)
    assert state.round == 1
    assert all(np.all(array == np.float32(mean)) for array in state.weights.values())


def test_a_client_that_claims_a_million_rows_counts_for_ten_times_the_median() -> None:
    """2s, 2s and 4s of 10, 10 and 10^6 rows: (10 * 2 + 10 * 2 + 100 * 4) / 120."""
    state = _step(_method(), {"one": 2.0, "two": 2.0, "big": 4.0}, {"one": 10, "two": 10, "big": 10**6})
    assert all(np.all(array == np.float32(440 / 120)) for array in state.weights.values())


def test_an_update_out_of_all_proportion_is_not_averaged() -> None:
    """One of five clients sends 3e38: the mean is that of the four others."""
    values: dict[str, float | None] = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "bad": 3e38}
    state = _step(_method(), values, dict.fromkeys(values, 10))
    assert all(np.all(array == 2.5) for array in state.weights.values())


def test_a_client_that_fails_is_left_out_of_the_mean() -> None:
    state = _step(_method(), {"one": 2.0, "two": None}, {"one": 10, "two": 30})
    assert all(np.all(array == 2.0) for array in state.weights.values())


def test_a_round_without_any_model_changes_nothing() -> None:
    with refused(TooFewReplies, "too-few-replies", "2 clients", "2 x ValueError: broken"):
        _step(_method(), {"one": None, "two": None}, {"one": 10, "two": 30})


def test_a_round_ends_by_quorum_and_a_late_model_is_dropped() -> None:
    """Two of three are enough: the mean of 2 and 4. The third is not asked again before it has answered."""
    values = {"one": 2.0, "two": 4.0, "late": 100.0}
    asked: list[list[str]] = [[], [], [], []]

    def answer(task: Task) -> Payload:
        asked[federation.round].append(task.client)
        sent = task.payload["weights"]
        weights = Tensors({name: np.full_like(array, values[task.client]) for name, array in sent.items()})
        return {"weights": weights, "before": _counts()}

    federation = LateFederation(list(values), answer, SCHEMA, late="drop", quorum=0.6)
    federation.robust = RobustSettings(client_weights="equal")
    method = _method()
    state = method.init(federation, stream(1, "init"))
    means, fates = [], []
    for number in (1, 2, 3):
        federation.held = {"late"} if number == 1 else set()
        federation.begin(number)
        state, metrics = method.step(state, federation, stream(1, number))
        means.append({float(value) for array in state.weights.values() for value in array.ravel()})
        fates.append((metrics["clients"], federation.ledger.current.replies["stale"]))
    assert asked[1:] == [["one", "two", "late"], ["one", "two"], ["one", "two", "late"]]
    assert means == [{3.0}, {3.0}, {float(np.float32(106 / 3))}]
    assert fates == [(2, 0), (2, 1), (3, 0)]


def test_the_learning_rate_decays_by_the_round_and_macs_follow_the_rule() -> None:
    """By hand: 2-1-2 has 2 + 2 = 4 MACs; 10 rows, 2 epochs, a training pass counting three: 240. And 10 validation rows
    once: 40."""
    seen: list[Task] = []

    def answer(task: Task) -> Payload:
        seen.append(task)
        return {"weights": task.payload["weights"], "before": _counts()}

    method = _method(lr=0.5, decay=0.5, epochs=2)
    federation = ScriptedFederation(["one"], answer, SCHEMA)
    state = method.init(federation, stream(1, "init"))
    for number in (1, 2, 3):
        federation.begin(number)
        state, metrics = method.step(state, federation, stream(1, number))
    assert [task.payload["lr"] for task in seen] == [0.5, 0.25, 0.125]
    assert {task.macs for task in seen} == {240 + 40}
    assert metrics["error"] == 0.0 and method.done(state)


def test_a_fraction_of_the_clients_takes_part() -> None:
    names = [f"client-{number}" for number in range(10)]
    asked: list[str] = []

    def answer(task: Task) -> Payload:
        asked.append(task.client)
        return {"weights": task.payload["weights"], "before": _counts()}

    federation = ScriptedFederation(names, answer, SCHEMA)
    method = _method(fraction=0.3)
    federation.begin(1)
    method.step(method.init(federation, stream(1, "init")), federation, stream(1, "step"))
    assert len(set(asked)) == len(asked) == 3  # one task each


def test_the_metrics_of_a_round_are_those_of_the_model_that_was_sent() -> None:
    """Rounds give models of 1s, 2s, 3s. Errors: 0.9 (untrained), 0.2, 0.1, and 0.4 of the last one: 2s are the best."""
    wrong = {0.0: 9, 1.0: 2, 2.0: 1, 3.0: 4}

    def answer(task: Task) -> Payload:
        sent = task.payload["weights"]
        name = next(name for name in sent if name.endswith("bias"))
        value = float(sent[name].ravel()[0])
        if not task.job.endswith(":train"):
            return _counts(wrong[value])["validation"]
        weights = Tensors({name: np.full_like(array, value + 1) for name, array in sent.items()})
        return {"weights": weights, "before": _counts(wrong[value])}

    method = _method()
    federation = ScriptedFederation(["one", "two"], answer, SCHEMA)
    state = method.init(federation, stream(1, "init"))
    state = replace(state, weights=Tensors({name: np.zeros_like(array) for name, array in state.weights.items()}))
    errors = []
    for number in (1, 2, 3):
        federation.begin(number)
        state, metrics = method.step(state, federation, stream(1, number))
        errors.append(round(metrics["error"], 9))
    assert errors == [0.9, 0.2, 0.1] and (state.best_round, state.round) == (2, 3)
    federation.begin(4)
    found = {one.id: one for one in method.results(state, federation, stream(1, "results"))}
    assert {name: one.objectives["error"] for name, one in found.items()} == pytest.approx({"final": 0.4, "best": 0.1})
    assert {name: one.picks for name, one in found.items()} == {"final": ["final"], "best": ["high", "best"]}
    assert {float(value) for array in found["best"].weights.values() for value in array.ravel()} == {2.0}
    assert [one.about for one in found.values()] == [{"round": 3}, {"round": 2}]


def test_a_round_asks_each_client_once_and_every_holder_of_test_rows_counts(tmp_path: Path) -> None:
    """Those that train count in the same task; only a holder that does not train gets a task of its own. What tests
    cost is not charged."""
    data = made_table(clients=4)
    all_train, half = ({"rounds": 2, "hidden": [2], "fraction": fraction} for fraction in (1.0, 0.5))
    ledgers = {}
    for name, settings in {"all": all_train, "half": half, "untested": all_train | {"test_every": 0}}.items():
        run = atoll.search("fedavg", data, out=tmp_path / name, workers=0, **settings)
        ledgers[name] = [account | {"bytes_up": 0} for account in run.result["ledger"]["per_round"]]
        # A loss travels as text of its own length; besides, a reply is the same with and without a test.
        assert ("test_error" in run.rounds[-1]["metrics"]) == (name != "untested")
    assert [account["tasks"] for account in ledgers["all"][:2]] == [4, 4]
    assert [account["tasks"] for account in ledgers["half"][:2]] == [2, 2]
    assert ledgers["all"] == ledgers["untested"]


def test_nan_weights_are_rejected_before_the_mean() -> None:
    state = _step(_method(), {"one": 2.0, "two": float("nan")}, {"one": 10, "two": 30})
    assert all(np.all(array == 2.0) for array in state.weights.values())


def test_a_last_batch_of_one_row_never_breaks_batch_norm() -> None:
    """13 training rows in batches of 4: the last row joins the batch before it; 1x1 images after the pools."""
    data = made_images(clients=2, rows=21, split=(0.62, 0.19, 0.19))
    assert data.sizes(data.names[0])["train"] % 4 == 1
    settings = FedAvgConfig(rounds=1, model="convnet", widths=[2] * 6, batch=4)
    method = FedAvg(settings.fitted(data.schema, 2), data.schema)
    with local_federation(data, 1, 0) as federation:
        federation.begin(1)
        state, metrics = method.step(method.init(federation, stream(1, "init")), federation, stream(1, "step"))
    assert metrics["clients"] == 2 and state.round == 1


def test_auto_fits_the_data() -> None:
    table = FedAvgConfig(rounds=1).fitted(made_table().schema, 4)
    assert (table.model, table.hidden, table.widths) == ("mlp", [64, 32], None)
    logistic = FedAvgConfig(rounds=1, hidden=[]).fitted(SCHEMA, 2)
    network = FedAvg(logistic, SCHEMA).architecture
    assert logistic.hidden == [] and spaces.cost(network).params == (SCHEMA.shape[0] + 1) * SCHEMA.outputs
    images = FedAvgConfig(rounds=1).fitted(made_images(side=16).schema, 4)
    assert (images.model, images.hidden) == ("convnet", None) and len(images.widths or []) == 6


def test_what_was_set_and_does_not_fit_is_an_error() -> None:
    with refused(ArchitectureError, "images-required", "resnet18"):
        FedAvgConfig(rounds=1, model="resnet18").fitted(SCHEMA, 2)
    with refused(ConfigError, "inapplicable-setting", "widths = [4]", "'mlp'"):
        FedAvgConfig(rounds=1, model="mlp", widths=[4]).fitted(SCHEMA, 2)
