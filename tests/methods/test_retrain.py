"""Retraining: any method's networks, from scratch, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from atoll import spaces
from atoll.api import retrain, search
from atoll.config import resolve
from atoll.core.messages import Payload, Task, Tensors
from atoll.data import Federated
from atoll.errors import AtollError, ConfigError, UserError
from atoll.methods.retrain import Retrain, RetrainConfig
from atoll.rng import stream
from atoll.run.reader import Run, load
from atoll.testing import MethodContract, ScriptedFederation, made_images, made_table
from methods.two_blocks import Script, client
from refusals import refused

SPARSE: dict[str, Any] = {
    "space": "sparse",
    "model": "mlp",
    "hidden": [20],
    "epsilon": 3,
    "xi": 0.2,
    "lr": 0.2,
    "graph": 7,
}
FIXED: dict[str, Any] = {"space": "fixed", "model": "mlp", "hidden": [10]}
QUICK: dict[str, Any] = {"rounds": 2, "epochs": 1, "batch": 8}


class TestRetrain(MethodContract):
    method = "retrain"
    settings: ClassVar[dict[str, Any]] = {
        "rounds": 4,
        "networks": {"thin": SPARSE, "full": FIXED},
        "client_accuracy": True,
    }

    def test_every_network_has_its_figures_in_every_round(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        run = self.baseline(tmp_path_factory)
        for event in run.rounds:
            for row in event["metrics"]["networks"].values():
                assert {"error", "test_error", "connections", "client_accuracy"} <= row.keys()
            # Test rows decide nothing, neither a stop rule nor a plateau.
            assert event["metrics"]["error"] == min(row["error"] for row in event["metrics"]["networks"].values())
        last = run.rounds[-1]["metrics"]["networks"]
        assert last["full"]["connections"] == 6 * 10 + 10 + 10 * 3 + 3
        assert last["thin"]["connections"] < 6 * 20 + 20 + 20 * 3 + 3

    def test_a_network_does_not_depend_on_its_company(
        self, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        """It starts the same; only the clients' streams are shared, so the first task of each client is equal. What it
        gives is measured in the second round."""
        both = self.baseline(tmp_path_factory)
        alone = search("retrain", made_table(), out=tmp_path / "alone", workers=0, rounds=4, networks={"thin": SPARSE})
        one, two = (run.rounds[1]["metrics"]["networks"]["thin"] for run in (both, alone))
        assert one["error"] == two["error"]


def test_the_best_round_by_validation_is_handed_over_too() -> None:
    """Of ten rows 9 are right after round 1, 5 after round 2, and 4 after the last: round 1 was the best."""
    right = iter([1, 9, 5])  # before rounds 1, 2 and 3

    def answer(task: Task) -> Payload:
        if "part" in task.payload:
            return {"correct": 9 if task.id.startswith("validation:one-best") else 4}
        weights = Tensors({name: array + 1 for name, array in task.payload["weights"].items()})
        return {"weights": weights, "before": {"validation": {"correct": next(right)}}}

    federation = ScriptedFederation(["a"], answer)
    method = Retrain(RetrainConfig(rounds=3, networks={"one": FIXED}, test_every=0), federation.clients()[0].schema)
    states = [method.init(federation, stream(1, "init"))]
    for number in range(3):
        federation.begin(number + 1)
        states.append(method.step(states[-1], federation, stream(1, "step", number))[0])
    last, best = method.results(states[-1], federation, stream(1, "results"))
    assert (last.id, last.picks, best.id, best.picks) == ("one", ["one"], "one-best", ["one-best", "high"])
    assert best.weights.whole_digest() == states[1].networks["one"].whole_digest()
    assert best.objectives["error"] == pytest.approx(0.1) and last.objectives["error"] == pytest.approx(0.6)


@pytest.mark.parametrize(("with_validation", "high"), [(False, "two"), (True, "one")])
def test_test_rows_choose_no_network(with_validation: bool, high: str) -> None:
    """The second network is right on more rows; without validation rows nothing is known of it that may choose."""
    federation = Script([client("a", test=10)], correct=lambda task: [9 if ":two:" in task.id else 4])
    config = RetrainConfig(rounds=1, networks={"one": FIXED, "two": FIXED}, with_validation=with_validation)
    method = Retrain(config, federation.clients()[0].schema)
    found = method.results(method.init(federation, stream(1, "init")), federation, stream(1, "results"))
    assert [one.id for one in found if "high" in one.picks] == [high]
    assert all("test_error" in one.objectives for one in found)


def searched(method: str, data: Federated, folder: Path, **settings: Any) -> Run:
    return search(method, data, out=folder, workers=0, **settings)


def test_networks_of_every_kind_of_search(tmp_path: Path) -> None:
    """Choice networks with batch norm, a fixed network, and sparse ones beside their standard."""
    table, images = made_table(), made_images()
    runs = {
        "fedavg": (searched("fedavg", table, tmp_path / "f", **QUICK), "high", table),
        "realtime": (searched("realtime", images, tmp_path / "r", **QUICK, population=2), "high,knee", images),
        "moefl": (
            searched("moefl", table, tmp_path / "m", **QUICK, fitness_rounds=2, population=4),
            "high1,knee1,high1:0.3,standard,standard:0.3",
            table,
        ),
    }
    for name, (run, picks, data) in runs.items():
        found = retrain(run.path, picks, out=tmp_path / f"{name}-again", rounds=2, workers=0, data=data)
        last = [one for one in found.result["candidates"] if not one["id"].endswith("-best")]
        assert [one["id"] for one in last] == picks.split(",")
        for candidate in last:
            assert found.model(candidate["id"]) is not None
            pick, _, rate = candidate["id"].partition(":")
            if pick != "standard":
                own = {"lr": float(rate)} if rate else {}
                assert candidate["architecture"] == run.load_model(pick).architecture | own
    again = load(tmp_path / "moefl-again")
    for one in again.result["candidates"]:
        full = one["architecture"] | {"epsilon": 10**9}
        assert one["objectives"]["executed_macs"] == spaces.cost(full).macs >= one["objectives"]["macs"]
    standard = again.load_model("standard").architecture
    full = {"space": "sparse", "epsilon": 10**9, "graph": 0}
    assert standard == full | {"model": "mlp", "input": [6], "classes": 3, "hidden": [200, 200]}


def test_what_cannot_be_retrained_is_named(tmp_path: Path) -> None:
    run = searched("fedavg", made_table(), tmp_path / "f", **QUICK)
    for pick, named in (
        ("knee", "'knee'.* best, cnn, convnet, final, high"),
        ("standard", "--pick standard"),
        ("high:0.3", "--pick high:0.3: only sparse"),
        (",", "--pick"),
    ):
        with pytest.raises(AtollError, match=named):
            retrain(run.path, pick, out=tmp_path / "g", rounds=1, workers=0, data=made_table())
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize(
    ("networks", "code", "named"),
    [
        ({"": FIXED}, "empty-name", ["networks"]),
        ({"thin": {**SPARSE, "xi": 1}}, "invalid-setting", ["networks.thin", "xi = 1"]),
        ({"thin": {**SPARSE, "epsilon": 0}}, "invalid-setting", ["networks.thin", "epsilon = 0"]),
        ({"thin": {**SPARSE, "hidden": [0]}}, "invalid-setting", ["networks.thin", "hidden = [0]"]),
        ({"odd": {"space": "spars"}}, "unknown-space", ["networks.odd", "'spars'", "'sparse'"]),
    ],
)
def test_networks_that_cannot_be(networks: dict[str, Any], code: str, named: list[str]) -> None:
    with refused(UserError, code, *named):
        experiment = resolve({"method": "retrain", "data": {"name": "digits"}, "retrain": {"networks": networks}})
        experiment.settings.fitted(made_table().schema, 4)


def test_at_least_one_network_is_given() -> None:
    with pytest.raises(ConfigError, match="networks"):
        resolve({"method": "retrain", "data": {"name": "digits"}, "retrain": {"networks": {}}})


def test_validation_rows_can_be_trained_on(tmp_path: Path) -> None:
    """A pass of training counts three times its rows, one of measuring once."""
    data = made_table(clients=2, rows=120)
    macs = {}
    for whole in (False, True):
        settings: dict[str, Any] = {"networks": {"full": FIXED}, "with_validation": whole, **QUICK}
        run = search("retrain", data, out=tmp_path / str(whole), workers=0, **settings)
        network = run.result["candidates"][0]["objectives"]["macs"]
        macs[whole] = [event["ledger"]["client_macs"] / network for event in run.rounds]
        assert ("best" in str([c["id"] for c in run.result["candidates"]])) in ((False,) if whole else (False, True))
    rows = {part: sum(data.info(name).sizes[part] for name in data.names) for part in ("train", "validation")}
    assert macs[True] == [3 * (rows["train"] + rows["validation"])] * 2, "and nothing is measured on them"
    assert macs[False] == [3 * rows["train"] + rows["validation"]] * 2
