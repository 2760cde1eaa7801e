"""Sparse networks (Zhu & Jin, Multi-objective Evolutionary Federated Learning, sections II-C and III-A).

    {"space": "sparse", "model": "mlp", "input": [784], "classes": 10, "hidden": [200, 200],
     "epsilon": 20, "graph": 1, "xi": 0.3, "lr": 0.1}

`mlp` and `cnn` are the fixed networks of these names, with their settings `filters`, `kernel` and `hidden`. Fully
connected layers have only the connections of a random graph: `epsilon` controls their number (Eq. 5), `graph` is the
seed. Convolutions and biases are dense. `xi` (the fraction of weights removed before an upload) and `lr` are training
parameters; the search evolves them, so they belong to the architecture. Without `xi` nothing is removed, without `lr`
the run's learning rate applies.
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

__all__ = [
    "MODELS",
    "build",
    "connections",
    "cost",
    "executed_macs",
    "initial",
    "masks",
    "matrices",
    "pack",
    "standard",
    "unpack",
    "upload_bytes",
]

MODELS = ("mlp", "cnn")
FULL = 10**9  # an epsilon that leaves no connection of any matrix out
OWN = frozenset({"epsilon", "graph", "xi", "lr"})


def build(arch: Mapping[str, Any]) -> nn.Module:
    """The network with whole matrices; `initial` and training keep zeros outside the graph."""
    _check(arch)
    return fixed.build(_dense(arch))


def matrices(arch: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Names and shapes (after x before) of the fully connected matrices, which have a graph."""
    with torch.device("meta"):
        module = build(arch)
    found = {}
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            found[f"{name}.weight"] = (layer.out_features, layer.in_features)
    return found


def initial(arch: Mapping[str, Any], rng: np.random.Generator) -> Tensors:
    """Initial weights inside the graph: He's rule for ReLU, uniform within sqrt(6 / fan-in), biases zero.

    The fan-in is the mean number of inputs in the graph. With the fan-in of a full layer, the signals of a sparse
    network start so small that the first rounds only make them grow (measured in experiments/moefl).
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
        count = math.prod(shape) if mask is None else int(np.count_nonzero(mask))
        bound = np.float32(math.sqrt(6 * shape[0] / max(count, 1)))
        values = (rng.random(shape, dtype=np.float32) * 2 - 1) * bound
        weights[name] = values if mask is None else values * mask
    return Tensors(weights)


def cost(arch: Mapping[str, Any]) -> Cost:
    """The cost of the connections that exist, in multiply-accumulates and parameters."""
    with torch.device("meta"):
        whole = measured_cost(build(arch), tuple(arch["input"]))
    missing = sum(mask.size - int(np.count_nonzero(mask)) for mask in masks(arch).values())
    params = whole.params - missing
    return Cost(whole.macs - missing, params, 4 * params)


def connections(arch: Mapping[str, Any], weights: Mapping[str, Array]) -> int:
    """The number of weights in one upload (Omega in the paper): non-zeros of sparse matrices, all other weights."""
    graphs = masks(arch)
    return sum(int(np.count_nonzero(array)) if name in graphs else array.size for name, array in weights.items())


def uploaded(arch: Mapping[str, Any]) -> int:
    """What `connections` counts of an upload, known before training: of each graph the smallest weights are removed."""
    share = float(arch.get("xi", 0.0))
    removed = sum(math.floor(share * int(np.count_nonzero(mask)) + 1e-9) for mask in masks(arch).values())
    return cost(arch).params - removed


def upload_bytes(arch: Mapping[str, Any], connections: float) -> int:
    """Bytes of an upload with this many weights: single precision, and a bit for every connection of a graph from which
    some are removed."""
    graph = sum(int(np.count_nonzero(mask)) for mask in masks(arch).values()) if arch.get("xi") else 0
    return round(4 * connections) + math.ceil(graph / 8)


def executed_macs(arch: Mapping[str, Any]) -> int:
    """What a client computes for one sample: whole matrices, in which missing connections are zeros."""
    with torch.device("meta"):
        return measured_cost(build(arch), tuple(arch["input"])).macs


def standard(arch: Mapping[str, Any]) -> dict[str, Any]:
    """The paper's fully connected network of the same kind for the same data: a sparse one with all connections, which
    starts by the same rule."""
    usual: dict[str, dict[str, Any]] = {
        "mlp": {"hidden": [200, 200]},
        "cnn": {"filters": [32, 64], "kernel": 3, "hidden": [128]},
    }
    model = arch["model"]
    data = {"input": arch["input"], "classes": arch["classes"]}
    return {"space": "sparse", "model": model, **data, **usual[model], "epsilon": FULL, "graph": 0}


def _dense(arch: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in arch.items() if key not in OWN}, "space": "fixed"}


def _check(arch: Mapping[str, Any]) -> None:
    model = arch.get("model")
    if model not in MODELS:
        raise ArchitectureError(
            f"sparse network: unknown model {model!r}; {nearest(str(model), MODELS)}", code="unknown-model"
        )
    epsilon, graph = arch.get("epsilon"), arch.get("graph")
    if not _whole(epsilon, 1):
        raise ArchitectureError(
            f"sparse network: epsilon = {epsilon!r}: give a whole number of at least 1, such as 20",
            code="invalid-setting",
        )
    if not _whole(graph, 0):
        raise ArchitectureError(
            f"sparse network: graph = {graph!r}: give a whole number of at least 0, the seed of its graph",
            code="invalid-setting",
        )
    xi, lr = arch.get("xi", 0.0), arch.get("lr", 0.1)
    if not _number(xi) or not 0 <= xi < 1:
        raise ArchitectureError(
            f"sparse network: xi = {xi!r}: the removed fraction must be at least 0 and below 1, such as 0.3",
            code="invalid-setting",
        )
    if not _number(lr) or not 0 < lr < float("inf"):
        raise ArchitectureError(
            f"sparse network: lr = {lr!r}: give a learning rate above 0, such as 0.1", code="invalid-setting"
        )


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
