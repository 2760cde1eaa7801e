"""`fednas`: the contract of all methods, its means by hand, and what it costs beside `fedrl`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import atoll
from atoll.core.messages import Payload, Schema, Task, Tensors
from atoll.data import Federated
from atoll.errors import ConfigError, TooFewReplies
from atoll.methods.fednas import FedNAS, FedNASConfig, FedNASState
from atoll.rng import stream
from atoll.spaces.darts import space as darts
from atoll.testing import MethodContract, ScriptedFederation, made_images
from refusals import refused

SMALL: dict[str, Any] = {"channels": 2, "cells": 1, "batch": 100}
SCHEMA = Schema("image", (1, 6, 6), ("a", "b"))


class TestFedNAS(MethodContract):
    method = "fednas"
    settings = {"rounds": 4, "retrain": 1, **SMALL}  # noqa: RUF012

    def data(self) -> Federated:
        return made_images(clients=2, side=6)  # a supernet takes its time


def play(
    values: dict[str, float | None], rows: dict[str, int], **settings: Any
) -> tuple[FedNASState, Any, ScriptedFederation]:
    """One round in which each client returns a supernet filled with its number, or fails."""

    def answer(task: Task) -> Payload:
        value = values[task.client]
        if value is None:
            raise ValueError("broken")
        supernet = task.payload["supernet"]
        filled = Tensors({name: np.full_like(array, value) for name, array in supernet.items()})
        return {"supernet": filled, "correct": rows[task.client] // 2}

    federation = ScriptedFederation(list(values), answer, SCHEMA)
    for info in federation.clients():
        info.sizes["train"] = rows[info.name]  # type: ignore[index]
    # A clip this large allows any update: the numbers are not those of a training.
    method = FedNAS(FedNASConfig(rounds=3, retrain=0, clip=1e6, **SMALL, **settings).fitted(SCHEMA, 2), SCHEMA)
    federation.begin(1)
    state, metrics = method.step(method.init(federation, stream(1, "init")), federation, stream(1, "step"))
    return state, metrics, federation


def test_weights_and_alphas_are_averaged_by_rows() -> None:
    """(10 * 2 + 30 * 4) / 40 = 3.5."""
    state, metrics, federation = play({"one": 2.0, "two": 4.0}, {"one": 10, "two": 30})
    assert set(darts.ALPHAS) < set(state.supernet)
    assert all(np.all(array == np.float32(3.5)) for array in state.supernet.values())
    assert metrics["accuracy"] == 0.5 and metrics["size_share"] == 1.0
    supernet = federation.tasks[0].payload["architecture"]
    assert federation.tasks[0].macs == 6 * darts.cost(supernet).macs * 10


def test_a_fraction_of_the_clients_takes_part() -> None:
    names = list("abcdefgh")
    _, _, federation = play(dict.fromkeys(names, 1.0), dict.fromkeys(names, 10), fraction=0.25)
    assert len({task.client for task in federation.tasks}) == len(federation.tasks) == 2


def test_a_client_that_fails_is_left_out() -> None:
    state, _, _ = play({"one": 2.0, "two": None}, {"one": 10, "two": 30})
    assert all(np.all(array == 2.0) for array in state.supernet.values())
    with refused(TooFewReplies, "too-few-replies", "2 clients", "2 x ValueError: broken"):
        play({"one": None, "two": None}, {"one": 10, "two": 30})


def test_clients_without_validation_rows_are_refused(tmp_path: Path) -> None:
    data = made_images(clients=2, side=6, split=(1.0, 0.0, 0.0))
    with refused(ConfigError, "no-validation-rows", "data.split"):
        atoll.search("fednas", data, out=tmp_path / "run", workers=0, rounds=2, **SMALL)
    atoll.search("fedavg", made_images(clients=2, side=6), out=tmp_path / "run", workers=0, rounds=1)  # it is free


def test_it_learns_alphas_and_sends_the_whole_supernet(tmp_path: Path) -> None:
    """A round of `fedrl` sends less than a third of its bytes, on the same data and supernet."""
    data = made_images(side=6)
    options: dict[str, Any] = {"workers": 0, "rounds": 2, "retrain": 0, **SMALL}
    runs = {name: atoll.search(name, data, out=tmp_path / name, **options) for name in ("fednas", "fedrl")}
    sent = {name: run.rounds[0]["ledger"]["bytes_down"] for name, run in runs.items()}
    assert sent["fedrl"] < sent["fednas"] / 3
    entropies = [event["metrics"]["entropy"] for event in runs["fednas"].rounds]
    assert entropies[1] != entropies[0]
    (supernet,) = runs["fednas"].result["candidates"]
    assert supernet["id"] == "supernet" and supernet["picks"] == ["high", "best"]
    assert supernet["about"]["derived"]["form"] == "genotype"
