"""Erdos-Renyi graphs between fully connected layers (Zhu & Jin, Eq. 5), and weights packed along them.

A graph is drawn from a random stream named by the architecture, so server and clients derive the same graph without
sending it. A packed weight matrix is a vector: the weights of its connections, row by row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from atoll.core.messages import Array, Tensors
from atoll.rng import stream
from atoll.spaces.cost import canonical

Mask = npt.NDArray[np.bool_]


def probability(epsilon: float, before: int, after: int) -> float:
    """Eq. 5: epsilon (n_in + n_out) / (n_in n_out), at most 1 (fully connected)."""
    return min(1.0, epsilon * (before + after) / (before * after))


def expected_connections(epsilon: float, before: int, after: int) -> float:
    """The expected number of connections by Eq. 5."""
    return probability(epsilon, before, after) * before * after


def draw(graph: int, layer: str, epsilon: float, shape: tuple[int, int]) -> Mask:
    """The connections of one matrix (after x before), each drawn independently with the probability of Eq. 5."""
    after, before = shape
    chance = probability(epsilon, before, after)
    if chance >= 1:
        return np.ones(shape, np.bool_)
    return stream(graph, "graph", layer).random(shape) < chance


def masks(arch: Mapping[str, Any]) -> Mapping[str, Mask]:
    """The graph of every fully connected matrix of a sparse network; empty for networks of other spaces."""
    return _masks(canonical(arch)) if arch.get("space") == "sparse" else {}


@lru_cache(maxsize=64)
def _masks(description: str) -> Mapping[str, Mask]:
    from atoll.spaces.sparse import space as sparse

    arch = json.loads(description)
    found = {}
    for name, shape in sparse.matrices(arch).items():
        mask = draw(arch["graph"], name, arch["epsilon"], shape)
        mask.flags.writeable = False
        found[name] = mask
    return found


def pack(arch: Mapping[str, Any], weights: Mapping[str, Array]) -> Tensors:
    """Weights for transmission: each sparse matrix as the vector of its connections, other tensors unchanged."""
    graphs = masks(arch)
    return Tensors({name: array[graphs[name]] if name in graphs else array for name, array in weights.items()})


def unpack(arch: Mapping[str, Any], weights: Mapping[str, Array]) -> Tensors:
    """The inverse of `pack`: whole matrices, zero where there is no connection."""
    graphs = masks(arch)
    return Tensors({name: _placed(array, graphs.get(name)) for name, array in weights.items()})


def _placed(values: Array, mask: Mask | None) -> Array:
    if mask is None:
        return values
    whole = np.zeros(mask.shape, values.dtype)
    whole[mask] = values
    return whole


def remove_smallest(weights: Array, fraction: float) -> Array:
    """The weights with the floor(fraction x non-zeros) smallest non-zero ones, by magnitude, set to zero.

    Ties: the first are removed.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"fraction = {fraction}: the removed fraction must be at least 0 and below 1")
    nonzero = np.flatnonzero(weights)
    count = math.floor(fraction * len(nonzero) + 1e-9)  # 0.29 x 100 is 28.999999999999996 in floats
    if count == 0:
        return weights
    sizes = np.abs(weights.ravel()[nonzero])
    bound = np.partition(sizes, count - 1)[count - 1]
    below = nonzero[sizes < bound]
    ties = nonzero[sizes == bound][: count - len(below)]
    left = weights.copy()
    flat = left.reshape(-1)
    flat[below] = 0
    flat[ties] = 0
    return left
