"""`fedrl`: the contract of all methods, and its phases on real clients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import atoll
from atoll.clients.jobs import JOBS
from atoll.data import Federated
from atoll.testing import MethodContract, made_images
from atoll.training.networks import network

SMALL = {"channels": 2, "cells": 3, "batch": 8, "policy_lr": 0.1, "lr": 0.1}


class TestFedRL(MethodContract):
    method = "fedrl"
    settings = {"rounds": 4, **SMALL, "cells": 1, "test_every": 2}  # noqa: RUF012

    def data(self) -> Federated:
        return made_images(side=6)


def test_phases_candidates_and_what_is_derived(tmp_path: Path) -> None:
    data = made_images(side=6)
    run = atoll.search("fedrl", data, out=tmp_path / "run", workers=0, rounds=6, warmup=2, retrain=2, **SMALL)
    assert [event["metrics"]["phase"] for event in run.rounds] == ["warmup"] * 2 + ["search"] * 2 + ["final"] * 2
    best, path = run.result["candidates"]
    assert (best["id"], best["picks"], path["id"], path["picks"]) == ("best", ["high"], "path", [])
    assert best["architecture"] == path["about"]["derived"] and best["architecture"]["form"] == "genotype"
    assert 0 not in path["architecture"]["key"]["normal"]  # never `none`
    last = run.rounds[3]["metrics"]
    assert 0 < last["entropy"] <= np.log(8) and 0 <= last["skip_share"] <= 1 and 0.1 < last["skip_expected"] < 0.15
    assert 0.05 < last["size_share"] < 0.5 and 0.05 < last["size_expected"] < 0.5


def test_without_retraining_the_best_is_derived_from_the_path(tmp_path: Path) -> None:
    from atoll.run.retrain import assemble_retraining

    data = made_images(side=6)
    run = atoll.search("fedrl", data, out=tmp_path / "run", workers=0, rounds=2, warmup=1, retrain=0, **SMALL)
    (path,) = run.result["candidates"]
    assert path["picks"] == ["high", "best"]
    raw = assemble_retraining(run, ["best"], {"rounds": 3})
    assert raw["retrain"]["networks"]["best"] == path["about"]["derived"]
    assert (raw["retrain"]["lr"], raw["retrain"]["momentum"]) == (0.1, 0.5) and "epochs" in raw["retrain"]


def test_local_epochs_instead_of_one_gradient(tmp_path: Path) -> None:
    """The same sub-models in round 1; every row twice instead of once."""
    data = made_images(side=6)
    plans = {"epochs": {"epochs": 2}, "batch": {"batch": 1000}}
    runs = {
        name: atoll.search("fedrl", data, out=tmp_path / name, workers=0, rounds=1, retrain=0, **{**SMALL, **plan})
        for name, plan in plans.items()
    }
    macs = {name: run.rounds[0]["ledger"]["client_macs"] for name, run in runs.items()}
    assert macs["epochs"] == 2 * macs["batch"] > 0
    weights = {name: run.load_model("path").weights.whole_digest() for name, run in runs.items()}
    assert weights["epochs"] != weights["batch"]


def test_a_longer_run_goes_on_searching(tmp_path: Path) -> None:
    """More rounds come before the found network's training, which starts anew."""
    data = made_images(side=6)
    out = tmp_path / "run"
    atoll.search("fedrl", data, out=out, workers=0, rounds=4, warmup=1, retrain=1, **SMALL)
    run = atoll.resume(out, data=data, rounds=7)
    assert [event["metrics"]["phase"] for event in run.rounds][4:] == ["search", "search", "final"]
    best, path = run.result["candidates"]
    assert best["architecture"] == path["about"]["derived"]  # not what was found before


@pytest.mark.soak
def test_a_run_that_is_longer_by_less_than_a_search_goes_on_training_what_it_found(tmp_path: Path) -> None:
    """In one sitting or in two; nothing is trained from scratch a second time."""
    data, plan = made_images(side=6), {"rounds": 6, "warmup": 1, "retrain": 3, **SMALL}
    runs = {}
    for name, sittings in {"once": [9], "twice": [8, 9]}.items():
        atoll.search("fedrl", data, out=tmp_path / name, workers=0, **plan)
        for rounds in sittings:
            runs[name] = atoll.resume(tmp_path / name, data=data, rounds=rounds)
    phases = [event["metrics"]["phase"] for event in runs["once"].rounds]
    assert phases == ["warmup"] + ["search"] * 2 + ["final"] * 6
    once, twice = (run.load_model("best").weights.whole_digest() for run in runs.values())
    assert once == twice


def test_the_job_sends_the_gradient_of_the_rows_it_drew() -> None:
    """All rows in one batch: the same rows whatever their order, so the gradient is that of a plain backward pass."""
    import torch
    from torch.nn import functional

    from atoll import spaces
    from atoll.rng import stream
    from atoll.spaces.darts import space as darts
    from atoll.training.client import Client

    data = made_images(clients=2, side=6)
    supernet = darts.architecture_for(data.schema, 2, 3)
    key = {kind: stream(1, kind).integers(0, 8, 14) for kind in darts.KINDS}
    arch = darts.sub_model(supernet, key)
    weights = spaces.initial(supernet, stream(1, "weights")).slice(darts.names(arch))
    client = data.client(data.names[0])
    x, y = client.part("train")
    payload = {"architecture": arch, "weights": weights, "batch": 1000, "epochs": 0, "lr": 1.0}
    answer = JOBS["gradient"](payload, Client(client, {}, stream(1, "client")))
    module = network(arch)
    for name, parameter in module.named_parameters():
        parameter.data.copy_(torch.tensor(weights[name]))
    logits = module(torch.tensor(x))
    loss = functional.cross_entropy(logits, torch.tensor(y))
    wanted = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True, materialize_grads=True)
    for (name, _), gradient in zip(module.named_parameters(), wanted, strict=True):
        assert np.allclose(answer["gradient"][name], gradient.numpy(), atol=1e-5), name
    assert answer["correct"] == int((logits.argmax(1).numpy() == y).sum())
    one = {**payload, "epochs": 1, "lr": 0.25}
    change = JOBS["gradient"](one, Client(client, {}, stream(1, "client")))
    for name, gradient in answer[
        "gradient"
    ].items():  # one epoch of one batch: the same gradient, by way of the weights
        assert np.allclose(change["gradient"][name], gradient, atol=1e-5), name
