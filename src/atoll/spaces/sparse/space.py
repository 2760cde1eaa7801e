"""Sparse networks (Zhu & Jin, Multi-objective Evolutionary Federated Learning, sections II-C and III-A).

    {"space": "sparse", "model": "mlp", "input": [784], "classes": 10, "hidden": [200, 200],
     "epsilon": 20, "graph": 1, "xi": 0.3, "lr": 0.1}

`mlp` and `cnn` are the fixed networks of these names (`filters`, `kernel` and `hidden` as there). Between fully
connected layers only the connections of a random graph exist: `epsilon` says how many (Eq. 5), `graph` which.
Convolutions and biases are dense. `xi` (removed before an upload) and `lr` are how the network is trained; the search
evolves them with the rest, so they stay with the network. Both may be left out: nothing is removed, and the run's
learning rate holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from atoll.core.messages import Array, Tensors
from atoll.errors import ArchitectureError, nearest
from atoll.spaces import fixed
from atoll.spaces.cost import Cost, measured_cost
from atoll.spaces.sparse.graph import masks, pack, unpack

__all__ = ["MODELS", "build", "connections", "cost", "initial", "masks", "matrices", "pack", "standard", "unpack"]

MODELS = ("mlp", "cnn")
OWN = frozenset({"epsilon", "graph", "xi", "lr"})


def build(arch: Mapping[str, Any]) -> nn.Module:
    """The network with whole matrices; outside the graph `initial` and training give zeros."""
    _check(arch)
    return fixed.build(_dense(arch))


def matrices(arch: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Names and shapes (after x before) of the fully connected matrices: those that get a graph."""
    with torch.device("meta"):
        module = build(arch)
    found = {}
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            found[f"{name}.weight"] = (layer.out_features, layer.in_features)
    return found


def initial(arch: Mapping[str, Any], rng: np.random.Generator) -> Tensors:
    """Initial weights inside the graph: He's rule for ReLU, uniform within sqrt(6 / fan-in), biases zero.

    The fan-in is what the graph leaves of it on average. With that of a full layer, signals of a thin network start out
    so small that the first rounds are spent on making them grow (measured in experiments/moefl).
    """
    with torch.device("meta"):
        shapes = {name: tuple(p.shape) for name, p in build(arch).named_parameters()}
    graphs = masks(arch)
    weights: dict[str, Array] = {}
    for name, shape in shapes.items():
        if len(shape) < 2:
            weights[name] = np.zeros(shape, np.float32)
            continue
        mask = graphs.get(name)
        held = math.prod(shape) if mask is None else int(np.count_nonzero(mask))
        bound = np.float32(math.sqrt(6 * shape[0] / max(held, 1)))
        values = (rng.random(shape, dtype=np.float32) * 2 - 1) * bound
        weights[name] = values if mask is None else values * mask
    return Tensors(weights)


def cost(arch: Mapping[str, Any]) -> Cost:
    """A sparse layer counts its connections, in multiply-accumulates as in parameters."""
    with torch.device("meta"):
        whole = measured_cost(build(arch), tuple(arch["input"]))
    missing = sum(mask.size - int(np.count_nonzero(mask)) for mask in masks(arch).values())
    params = whole.params - missing
    return Cost(whole.macs - missing, params, 4 * params)


def connections(arch: Mapping[str, Any], weights: Mapping[str, Array]) -> int:
    """Omega of one upload: the weights sent. Convolutions and biases always are; of a sparse matrix, what is left."""
    graphs = masks(arch)
    return sum(int(np.count_nonzero(array)) if name in graphs else array.size for name, array in weights.items())


def standard(arch: Mapping[str, Any]) -> dict[str, Any]:
    """The paper's fully connected network of the same kind, for the same data."""
    usual: dict[str, dict[str, Any]] = {
        "mlp": {"hidden": [200, 200]},
        "cnn": {"filters": [32, 64], "kernel": 3, "hidden": [128]},
    }
    model = arch["model"]
    return {"space": "fixed", "model": model, "input": arch["input"], "classes": arch["classes"], **usual[model]}


def _dense(arch: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in arch.items() if key not in OWN}, "space": "fixed"}


def _check(arch: Mapping[str, Any]) -> None:
    model = arch.get("model")
    if model not in MODELS:
        raise ArchitectureError(
            f"unknown model {model!r} of a sparse network; {nearest(str(model), MODELS)}", code="unknown-model"
        )
    epsilon, graph = arch.get("epsilon"), arch.get("graph")
    if not _whole(epsilon, 1):
        raise ArchitectureError(
            f"epsilon = {epsilon!r} of a sparse network: give a whole number of at least 1, such as 20",
            code="invalid-setting",
        )
    if not _whole(graph, 0):
        raise ArchitectureError(
            f"graph = {graph!r} of a sparse network: give the whole number that its graph is drawn from",
            code="invalid-setting",
        )
    xi, lr = arch.get("xi", 0.0), arch.get("lr", 0.1)
    if not _number(xi) or not 0 <= xi < 1:
        raise ArchitectureError(
            f"xi = {xi!r} of a sparse network: the removed share is from 0 to below 1, such as 0.3",
            code="invalid-setting",
        )
    if not _number(lr) or not 0 < lr < float("inf"):
        raise ArchitectureError(
            f"lr = {lr!r} of a sparse network: give a learning rate above 0, such as 0.1", code="invalid-setting"
        )


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
