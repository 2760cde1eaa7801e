"""Server momentum (FedAvgM) by hand in every method that has it, and after a cut.

Clients add 1 to every weight, with a momentum of a half: v is 1, 1.5, 1.75, and the weights rise by that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atoll
from atoll.core.messages import Payload, Task, Tensors
from atoll.methods.fedavg import FedAvg, FedAvgConfig
from atoll.methods.personal import Personal, PersonalConfig
from atoll.methods.retrain import Retrain, RetrainConfig
from atoll.rng import stream
from atoll.spaces.choice import space as choice
from atoll.testing import ScriptedFederation, made_table
from atoll.testing.scripted import SCHEMA
from methods.two_blocks import Script, client, realtime, state, step
from outcomes import outcome

RISE = [1.0, 2.5, 4.25]
NETWORK: dict[str, Any] = {"space": "fixed", "model": "mlp", "hidden": [2]}


def answer(task: Task) -> Payload:
    payload: Payload = {"weights": Tensors({name: array + 1 for name, array in task.payload["weights"].items()})}
    if "before" in task.payload:
        kind = task.payload["before"]["validation"]
        counts: Payload = {"correct": 5}
        if kind == "evaluate":
            counts = {"confusion": np.array([[5, 5], [0, 0]]), "loss": 1.0}
        payload["before"] = {"validation": counts}
    return payload


@pytest.mark.parametrize("name", ["fedavg", "retrain", "personal"])
def test_by_hand(name: str) -> None:
    common: dict[str, Any] = {"rounds": 4, "server_momentum": 0.5, "test_every": 0}
    method: Any = {
        "fedavg": lambda: FedAvg(FedAvgConfig(model="mlp", hidden=[2], **common), SCHEMA),
        "retrain": lambda: Retrain(RetrainConfig(networks={"one": NETWORK}, **common), SCHEMA),
        "personal": lambda: Personal(PersonalConfig(model="mlp", hidden=[2], shared=3, **common), SCHEMA),
    }[name]()
    read: Any = {
        "fedavg": lambda state: state.weights,
        "retrain": lambda state: state.networks["one"],
        "personal": lambda state: state.shared,
    }[name]
    federation = ScriptedFederation(["a", "b"], answer)
    now = method.init(federation, stream(1, "init"))
    first = read(now)
    for number, rise in enumerate(RISE):
        federation.begin(number + 1)
        now, _ = method.step(now, federation, stream(1, "step", number))
        for tensor, array in read(now).items():
            np.testing.assert_allclose(array, first[tensor] + rise, atol=1e-6)
    if name == "personal":  # alone nothing is averaged, and nothing has a momentum
        now, _ = method.step(now, federation, stream(1, "step", 3))
        for tensor, array in now.own["a"].items():
            np.testing.assert_allclose(array, first[tensor] + RISE[-1] + 1, atol=1e-6)


def test_the_master_of_the_real_time_search_by_hand() -> None:
    """Only the stem and the head are trained by all; branch 1 of block 1 by none, so that it stays."""
    federation = Script([client("a"), client("b")], lambda task, number: 1.0)
    method = realtime(server_momentum=0.5, crossover=0.0, mutation=0.0, duplicates="keep")
    now = state(method, [[0, 2], [0, 2]], [[0.5, 16.0], [0.5, 16.0]])
    stem = next(name for name in choice.names(choice.sub_model(method.architecture, [0, 0])))
    for rise in RISE:
        now, _ = step(method, now, federation)
        assert np.all(now.master[stem] == 1 + rise)
    own = set(choice.names(choice.sub_model(method.architecture, [1, 2])))
    untouched = own - set(choice.names(choice.sub_model(method.architecture, [0, 2])))
    assert untouched and all(np.all(now.master[name] == 1) for name in untouched)


class Cut:
    def round_done(self, number: int, *_: Any) -> None:
        if number == 2:
            raise KeyboardInterrupt

    def round_failed(self, *_: Any) -> None: ...


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedavg", {"hidden": [4]}),
        ("retrain", {"networks": {"one": NETWORK}}),
        ("realtime", {"widths": [4, 4], "population": 2, "finish": 0.0}),
        ("realtime", {"widths": [4, 4], "population": 2, "finish": 0.75}),
        ("offline", {"widths": [4, 4], "population": 2, "generations": 1}),
        ("moefl", {"population": 2, "fitness_rounds": 4, "finish": 0.0, "epochs": 1}),
        ("decnas", {"hidden": [4], "start_rounds": 3, "tune_rounds": [1], "groups": 1}),
    ],
)
def test_a_cut_run_has_the_same_velocity(method: str, settings: dict[str, Any], tmp_path: Path) -> None:
    data, options = made_table(clients=2, rows=16), {"rounds": 4, "server_momentum": 0.9, "workers": 0, **settings}
    whole = atoll.search(method, data, out=tmp_path / "whole", **options)
    plain = atoll.search(method, data, out=tmp_path / "plain", **options | {"server_momentum": 0.0})
    assert outcome(whole)["weights"] != outcome(plain)["weights"]
    with pytest.raises(KeyboardInterrupt):
        atoll.search(method, data, out=tmp_path / "cut", watcher=Cut(), **options)
    assert outcome(atoll.resume(tmp_path / "cut", data=data)) == outcome(whole)
