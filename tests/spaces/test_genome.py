"""Evolved networks as torch modules: the same outputs as during evolution."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from atoll import spaces
from atoll.algorithms.neat.evaluation import outputs, recurrent_outputs
from atoll.algorithms.neat.expression import expressed, structure
from atoll.algorithms.neat.population import Population, first_generation
from atoll.algorithms.neat.scoring import predicted_classes
from atoll.algorithms.neat.settings import NeatSettings
from atoll.algorithms.neat.variation import mutate_attributes, mutate_structure
from atoll.core.messages import Tensors
from atoll.errors import ArchitectureError
from atoll.rng import stream
from atoll.spaces.genome import weights_of
from atoll.training.networks import load
from refusals import refused


def genomes(told: NeatSettings) -> Population:
    rng = stream(5, "genomes")
    population = first_generation(told, rng)
    for _ in range(12):
        population = mutate_attributes(mutate_structure(population, told, rng), told, rng)
    return population


def architecture(network: Population, told: NeatSettings, **more: Any) -> dict[str, Any]:
    head = {"space": "genome", "input": [told.inputs], "classes": told.outputs, "recurrent": told.recurrent}
    return head | more | structure(network)


def module_of(network: Population, arch: dict[str, Any]) -> torch.nn.Module:
    module = spaces.build(arch)
    load(module, weights_of(network))
    return module


def test_feed_forward_networks_have_the_outputs_of_evolution() -> None:
    told = NeatSettings(inputs=4, outputs=3, population=30)
    population = genomes(told)
    x = stream(6, "rows").standard_normal((9, 4)).astype(np.float32)
    wanted = outputs(population, x, 3)
    for place in range(30):
        network = expressed(population[place])
        assert np.array_equal(outputs(network, x, 3)[0], wanted[place]), "genes without effect have none"
        found = module_of(network, architecture(network, told))(torch.tensor(x)).detach().numpy().T
        np.testing.assert_allclose(found, wanted[place], rtol=1e-12, atol=1e-12)


def test_recurrent_networks_have_the_outputs_of_evolution() -> None:
    told = NeatSettings(inputs=2, outputs=2, population=30, recurrent=True)
    population = genomes(told)
    x = stream(6, "rows").standard_normal((5, 6)).astype(np.float32)
    wanted = recurrent_outputs(population, np.repeat(x.reshape(5, 3, 2), 2, axis=1), 2)
    for place in range(30):
        network = expressed(population[place])
        arch = architecture(network, told, input=[6], steps=3, passes=2)
        found = module_of(network, arch)(torch.tensor(x)).detach().numpy().T
        np.testing.assert_allclose(found, wanted[place], rtol=1e-9, atol=1e-9)


def test_one_value_is_cut_into_classes() -> None:
    told = NeatSettings(inputs=2, outputs=1, population=20)
    population, edges = genomes(told), [-0.5, 0.25, 0.75]
    x = stream(6, "rows").standard_normal((40, 2)).astype(np.float32)
    for place in range(20):
        network = expressed(population[place])
        found = module_of(network, architecture(network, told, classes=4, edges=edges))(torch.tensor(x))
        assert found.shape == (40, 4)
        wanted = predicted_classes(outputs(population[place], x, 1), edges)[0]
        assert found.argmax(1).tolist() == wanted.tolist()


def sound() -> dict[str, Any]:
    hidden = "h8000000000000001"
    return {
        "space": "genome",
        "input": [3],
        "classes": 2,
        "nodes": [["o0", "sigmoid", "sum"], ["o1", "relu", "product"], [hidden, "tanh", "sum"]],
        "connections": [["i0", "o0"], ["i2", hidden], [hidden, "o1"]],
    }


def test_costs_by_hand() -> None:
    cost = spaces.cost(sound())
    assert (cost.macs, cost.params, cost.bytes) == (3, 3 + 2 * 3, 36)
    weights = spaces.initial(sound(), stream(1, "weights"))
    assert {name: array.shape for name, array in weights.items()} == {"weight": (3,), "bias": (3,), "response": (3,)}


BAD: list[tuple[str, int, list[str], str, list[str]]] = [
    ("nodes", 0, ["o0", "sigmoyd", "sum"], "unreadable-architecture", ["'sigmoyd'", "'sigmoid'"]),
    ("nodes", 0, ["o0", "sigmoid", "mean"], "unreadable-architecture", ["'mean'"]),
    ("nodes", 0, ["o1", "sigmoid", "sum"], "unusable-genome", ["2 outputs"]),
    ("nodes", 2, ["h1", "tanh", "sum"], "unreadable-architecture", ["'h1'"]),
    ("connections", 0, ["i3", "o0"], "unusable-genome", ["connection"]),
    ("connections", 0, ["i0", "h8000000000000009"], "unusable-genome", ["connection"]),
    ("connections", 0, ["h8000000000000001", "h8000000000000001"], "unusable-genome", ["cycle"]),
    ("connections", 0, ["i0"], "unreadable-architecture", []),
]


@pytest.mark.parametrize(("key", "place", "value", "code", "named"), BAD)
def test_an_invalid_genome_is_refused(key: str, place: int, value: list[str], code: str, named: list[str]) -> None:
    arch = copy.deepcopy(sound())
    arch[key][place] = value
    with refused(ArchitectureError, code, *named):
        spaces.build(arch)


def test_an_unknown_key_names_the_nearest() -> None:
    with refused(ArchitectureError, "unknown-setting", "'connection'", "'connections'"):
        spaces.build({**sound(), "connection": []})


def test_weights_are_sent_as_float32() -> None:
    told = NeatSettings(inputs=4, outputs=3, population=2)
    assert all(array.dtype == np.float32 for array in Tensors(weights_of(genomes(told)[0])).values())
