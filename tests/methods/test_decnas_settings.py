"""What a user may set: start networks of any kind, given weights, budgets; and one line for what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import atoll
from atoll import spaces
from atoll.core.messages import Schema
from atoll.errors import ArchitectureError, ConfigError, DataError
from atoll.methods.decnas.search import Decnas
from atoll.methods.decnas.settings import DecnasConfig, parameter_shapes
from atoll.rng import stream
from atoll.spaces.pruned.start import user_module
from atoll.testing import made_images, made_table
from methods.narrow_nets import SCHEMA, Script, begun, client, decnas, step
from refusals import refused

IMAGES = Schema("image", (1, 8, 8), ("a", "b", "c"))
OWN = """
from torch import nn

class Small(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, 6, 3, padding=1), nn.Conv2d(6, 8, 3, padding=1)
        self.pool, self.last = nn.AdaptiveAvgPool2d(1), nn.Linear(8, classes)

    def forward(self, x):
        x = self.second(self.first(x).relu()).relu()
        return self.last(self.pool(x).flatten(1))

def network(shape, classes):
    return Small(shape[0], classes)

def wrong(shape, classes):
    return "a network"

def failing(shape, classes):
    raise KeyError("no such layer")

class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(64, 3)

    def forward(self, x):
        return self.last(x.flatten(1)) if x.sum() > 0 else self.last(-x.flatten(1))

def branching(shape, classes):
    return Branching()
"""


def fitted(schema: Schema = IMAGES, clients: int = 8, **settings: Any) -> DecnasConfig:
    return DecnasConfig(rounds=5, **settings).fitted(schema, clients)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    return file


def test_auto_is_a_convnet_for_images_and_an_mlp_for_tables() -> None:
    assert (fitted().model, fitted().widths) == ("convnet", [16, 16, 32, 32, 64, 64])
    assert fitted(SCHEMA).model == "mlp"
    assert fitted(model="resnet18", width=0.125).widths == [8, 16, 32, 64]
    assert fitted(Schema("image", (3, 32, 32), ("a", "b")), model="mobilenet", width=0.25).width is None
    with refused(ConfigError, "inapplicable-setting", "width = 0.5"):
        fitted(model="convnet", width=0.5, widths=[1] * 6)


def test_groups_are_ten_or_leave_two_clients_in_each() -> None:
    assert [fitted(clients=clients).groups for clients in (1, 3, 8, 60)] == [1, 1, 4, 10]
    assert fitted(groups=8).groups == 8
    with refused(ConfigError, "impossible-group-count", "groups = 9", "8 clients"):
        fitted(groups=9)
    assert fitted(groups=9, grouping=False).groups == 9  # nobody asks for groups


def test_a_budget_below_what_pruning_can_reach_is_said_before_a_run(tmp_path: Path) -> None:
    """One filter a layer: 2 + 5 + 2 = 9 MACs of 352, a share of 0.0256. In threes two of eight are left: 28 MACs."""
    decnas(resources={"macs": 9.0})
    with refused(ConfigError, "unreachable-budget", "resources.macs = 8", "9"):
        decnas(resources={"macs": 8.0})
    # Without the five hidden layers between equal ones, 2 + 2 MACs are left; a layer of a group may be among those.
    decnas(resources={"macs": 4.0}, depth=True, layer_groups=[["layers.0", "layers.1"]])
    with refused(ConfigError, "unreachable-budget", "resources.macs = 3", "4"):
        decnas(resources={"macs": 3.0}, depth=True)
    with refused(ConfigError, "unreachable-budget", "resources.macs = 0.05", "17.6", "28"):
        decnas(resources={"macs": 0.05}, multiple=3)
    with refused(ConfigError, "unreachable-budget", "resources.macs = 0.0001"):
        atoll.search("decnas", made_table(), out=tmp_path / "run", workers=0, resources={"macs": 0.0001})
    assert not (tmp_path / "run").exists()


def test_unknown_resources_and_devices() -> None:
    with refused(ConfigError, "unknown-resource", "'mac'", "'macs'"):
        fitted(resources={"mac": 0.5})
    with refused(ConfigError, "device-not-named", "'latency'"):
        fitted(resources={"latency": 0.5})
    with refused(ConfigError, "invalid-setting", "resources.macs = 0"):
        fitted(resources={"macs": 0.0})


def test_several_resources_at_once() -> None:
    """A candidate meets all targets; its saving is the mean of both shares."""
    method = decnas(resources={"macs": 0.5, "params": 0.6, "latency": 0.5}, device="phone")
    targets = method.config.schedule.targets(1, method.start, method.start, method.final)
    assert list(targets) == ["macs", "params", "latency"]
    federation = Script([client(f"client-{number}") for number in range(6)])
    _, event = step(method, begun(method, federation), federation)
    for row in event["candidates"].values():
        assert all(row["resources"][kind] <= targets[kind] for kind in targets)
        shares = [1 - row["resources"][kind] / method.start[kind] for kind in targets]
        assert row["saving"] == pytest.approx(sum(shares) / 3)


def test_a_resource_within_its_budget_does_not_count_as_saved() -> None:
    """All parameters may stay: only MACs are to be saved, 16 or 20 of 352."""
    method = decnas(resources={"macs": 0.5, "params": 1.0})
    federation = Script([client(f"client-{number}") for number in range(6)])
    _, event = step(method, begun(method, federation), federation)
    savings = [row["saving"] for row in event["candidates"].values()]
    assert savings == pytest.approx([20 / 352] + [16 / 352] * 4 + [20 / 352])


def test_layers_that_shrink_together() -> None:
    method = decnas(layer_groups=[["layers.0", "layers.1", "layers.2"]])
    names = [unit.name for unit, _ in method.prunings(method.architecture, 1)]
    assert names == ["layers.0+layers.1+layers.2", "layers.3", "layers.4", "layers.5"]


def test_the_search_ends_with_a_reason_when_no_layer_alone_can_go_on() -> None:
    """Half of all MACs in one step is more than any single layer has."""
    method = decnas(step=0.5)
    federation = Script([client(f"client-{number}") for number in range(6)])
    state = begun(method, federation)
    assert state.ended == "no layer alone can be pruned to the budget of iteration 1 (macs 176)"
    assert method.done(state)
    (kept,) = method.results(state, federation, stream(1, "results"))
    assert kept.id == "m0" and kept.about["ended"] == state.ended
    assert "'final' is the start network" in kept.about["stopped"]


def test_a_met_budget_ends_the_search() -> None:
    method = decnas(resources={"macs": 1.0})
    state = begun(method, Script([client("one")]))
    assert state.ended == "the final budget is met"


def test_no_validation_rows() -> None:
    with refused(DataError, "no-validation-rows", "data.split"):
        begun(decnas(groups=1), Script([client("one", validation=0)]))


# -- given weights ---------------------------------------------------------------------------------------------------


def weights_file(path: Path, config: DecnasConfig, schema: Schema, **changed: Any) -> dict[str, Any]:
    shapes = parameter_shapes(config.start(schema))
    arrays = {name: np.full(shape, 0.25, np.float32) for name, shape in shapes.items()}
    arrays |= changed
    save_file({name: array for name, array in arrays.items() if array is not None}, path)
    return arrays


def test_a_finished_run_stands_for_its_best_network(tmp_path: Path) -> None:
    trained = atoll.search(
        "central", made_images(clients=2), out=tmp_path / "start", rounds=1, workers=0, model="convnet", widths=[2] * 6
    )
    settings = fitted(model="convnet", widths=[2] * 6, weights=str(tmp_path / "start"))
    weights = settings.trained(IMAGES, settings.start(IMAGES))
    found = trained.load_model("high").weights
    assert weights is not None and all(np.array_equal(weights[name], found[name]) for name in found)
    (tmp_path / "start" / "result.json").unlink()
    with pytest.raises(ConfigError, match="start'"):
        fitted(model="convnet", widths=[2] * 6, weights=str(tmp_path / "start"))


def test_given_weights_are_the_start(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    method = decnas(weights=str(path))
    arrays = weights_file(path, method.config, SCHEMA)
    state = begun(method, Script([client("one")]))
    assert {name: array.tolist() for name, array in state.found[0]["weights"].items()} == {
        name: array.tolist() for name, array in arrays.items()
    }


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    config = DecnasConfig(rounds=5, model="mlp", hidden=[8, 8], weights=str(path))
    with pytest.raises(ConfigError, match=r"mine\.safetensors"):
        config.fitted(SCHEMA, 8)
    path.write_bytes(b"not tensors at all")
    with pytest.raises(ConfigError, match=r"mine\.safetensors"):
        config.fitted(SCHEMA, 8)
    weights_file(path, config, SCHEMA, **{"layers.1.bias": None})
    with pytest.raises(ConfigError, match=r"'layers\.1\.bias'"):
        config.fitted(SCHEMA, 8)
    weights_file(path, config, SCHEMA, **{"layers.1.bias": np.zeros(9, np.float32)})
    with pytest.raises(ConfigError, match=r"'layers\.1\.bias'.*\[9\].*\[8\]"):
        config.fitted(SCHEMA, 8)
    weights_file(path, config, SCHEMA, running_mean=np.zeros(3, np.float32))
    assert config.fitted(SCHEMA, 8).weights == str(path)  # what the network has no place for is left aside


# -- one's own network -----------------------------------------------------------------------------------------------


def test_a_network_of_one_s_own_shrinks(own: Path, tmp_path: Path) -> None:
    data = made_images(clients=4, rows=20)
    own_settings: dict[str, Any] = {"model": f"{own}:network", "resources": {"macs": 0.8}, "step": 0.1}
    run = atoll.search("decnas", data, out=tmp_path / "run", workers=0, rounds=20, start_rounds=1, **own_settings)
    first, *_, last = run.result["candidates"]
    assert first["architecture"]["space"] == "widths" and "first" in first["architecture"]["layers"]
    assert last["objectives"]["macs"] <= 0.8 * first["objectives"]["macs"]
    assert last["about"]["ended"] == "the final budget is met" and "stopped" not in last["about"]
    # Clients build the candidates from plain data: the user's file is not needed any more.
    own.unlink()
    assert spaces.build(last["architecture"]) is not None and run.model("final") is not None


@pytest.mark.parametrize(
    ("name", "code", "named"),
    [
        ("nothing", "not-importable", "'nothing'"),
        ("wrong", "not-a-module", "str"),
        ("failing", "model-function-failed", "KeyError: 'no such layer'"),
    ],
)
def test_a_function_that_gives_no_network(own: Path, name: str, code: str, named: str) -> None:
    with refused(ConfigError, code, f"{own}:{name}", named):
        fitted(model=f"{own}:{name}")


def test_a_network_that_cannot_be_followed(own: Path) -> None:
    with refused(ArchitectureError, "untraceable-forward", "Branching"):
        fitted(model=f"{own}:branching")


def test_the_weights_that_a_module_comes_with(own: Path) -> None:
    settings = fitted(model=f"{own}:network", weights="own")
    trained = settings.trained(IMAGES, settings.start(IMAGES))
    module = user_module(f"{own}:network", IMAGES)
    assert trained is not None and list(trained) == [name for name, _ in module.named_parameters()]
    with refused(ConfigError, "inapplicable-setting", "weights = 'own'", "'convnet'"):
        fitted(weights="own")


def test_a_file_that_is_not_there() -> None:
    with refused(ConfigError, "not-importable", "'nowhere.py:network'"):
        fitted(model="nowhere.py:network")
    with refused(ConfigError, "not-importable", "'nowhere:network'"):
        fitted(model="nowhere:network")
    with refused(ConfigError, "inapplicable-setting", "widths = [1]", "'nowhere:network'"):
        fitted(model="nowhere:network", widths=[1])


def test_settings_are_complete_after_fitting() -> None:
    """A run's directory holds everything: fitting it again changes nothing."""
    once = fitted()
    assert once.fitted(IMAGES, 8) == once
    assert Decnas(once, IMAGES).architecture == once.start(IMAGES)
