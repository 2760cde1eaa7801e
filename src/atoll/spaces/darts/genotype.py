"""Genotypes: the two edges per node that a search selects, and how they are derived from a policy.

    {"normal": [["sep_conv_3x3", 0], ["skip_connect", 1], ... 8 pairs], "reduce": [...]}

A pair is an operation and the state it reads (0 and 1 are the cell's inputs, 2 to 5 its nodes); pairs 2n and 2n + 1
belong to node n. All four nodes form the cell's output, so DARTS' list of output nodes is omitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from atoll.core.messages import Array
from atoll.errors import ArchitectureError, nearest
from atoll.spaces.darts.layers import EDGES, ENDS, INPUTS, KINDS, NODES, NONE, OPERATIONS, SKIP, edges_into

EDGES_PER_NODE = 2
Genotype = dict[str, list[list[Any]]]


def genotype(normal: Array, reduce: Array) -> Genotype:
    """DARTS' derivation from the parameters (14, 8) of both kinds of cells, ignoring `none`.

    Each node gets the two edges whose best operation has the highest probability (softmax over all eight), with that
    operation. Ties go to the earlier edge and the earlier operation.
    """
    return {kind: _derived(alphas) for kind, alphas in zip(KINDS, (normal, reduce), strict=True)}


def random_genotype(rng: np.random.Generator) -> Genotype:
    """Two distinct edges per node with any operation but `none`, all uniformly distributed."""
    names = [name for name in OPERATIONS if name != OPERATIONS[NONE]]
    drawn: Genotype = {}
    for kind in KINDS:
        pairs = []
        for node in range(NODES):
            sources = sorted(int(source) for source in rng.choice(INPUTS + node, EDGES_PER_NODE, replace=False))
            pairs += [[names[int(rng.integers(len(names)))], source] for source in sources]
        drawn[kind] = pairs
    return drawn


def sampled_genotype(normal: Array, reduce: Array, rng: np.random.Generator) -> Genotype:
    """Drawn from the policy: an operation for every edge, never `none`, and for each node the two edges whose operation
    is the likeliest."""
    drawn: Genotype = {}
    for kind, alphas in zip(KINDS, (normal, reduce), strict=True):
        probabilities = _probabilities(alphas)
        probabilities[:, NONE] = 0.0
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        chosen = np.array([rng.choice(len(OPERATIONS), p=row) for row in probabilities])
        drawn[kind] = _two_of_each(probabilities, chosen)
    return drawn


def path_key(cells: Genotype) -> dict[str, list[int]]:
    """The key of the sub-model that has the operations of a genotype, and `none` on the other edges."""
    keys = {}
    for kind in KINDS:
        key = [NONE] * EDGES
        for number, (name, source) in enumerate(cells[kind]):
            edge = next(one for one in edges_into(number // EDGES_PER_NODE) if ENDS[one][1] == source)
            key[edge] = OPERATIONS.index(name)
        keys[kind] = key
    return keys


def skip_share(cells: Mapping[str, Any]) -> float:
    """The share of skip connections among the edges of a genotype, or its expectation under probabilities (14, 8).

    In the well-known collapse of DARTS this share approaches one.
    """
    shares = []
    for kind in KINDS:
        edges = cells[kind]
        if isinstance(edges, list) and edges and isinstance(edges[0][0], str):
            shares.append(np.mean([name == OPERATIONS[SKIP] for name, _ in edges]))
        else:
            shares.append(np.mean(_rows(edges)[:, SKIP]))
    return float(np.mean(shares))


def check_genotype(value: Any) -> Genotype:
    """A genotype as plain lists. Raises an `ArchitectureError` with the reason if it is invalid."""
    if not isinstance(value, Mapping) or set(value) != set(KINDS):
        raise ArchitectureError(
            "a genotype must have exactly the lists 'normal' and 'reduce'", code="malformed-genotype"
        )
    return {kind: _checked(kind, value[kind]) for kind in KINDS}


def _checked(kind: str, pairs: Any) -> list[list[Any]]:
    if not isinstance(pairs, (list, tuple)) or len(pairs) != EDGES_PER_NODE * NODES:
        raise ArchitectureError(
            f"genotype.{kind}: give {EDGES_PER_NODE * NODES} pairs [operation, state], two per node",
            code="malformed-genotype",
        )
    checked: list[list[Any]] = []
    for number, pair in enumerate(pairs):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise ArchitectureError(
                f"genotype.{kind}: {pair!r} is not a pair [operation, state]", code="malformed-genotype"
            )
        name, source = pair
        if name not in OPERATIONS or name == OPERATIONS[NONE]:
            known = [name for name in OPERATIONS if name != OPERATIONS[NONE]]
            raise ArchitectureError(
                f"genotype.{kind}: unknown operation {name!r}; {nearest(str(name), known)}", code="unknown-operation"
            )
        node = number // EDGES_PER_NODE
        if not isinstance(source, int) or isinstance(source, bool) or not 0 <= source < INPUTS + node:
            raise ArchitectureError(
                f"genotype.{kind}: node {node} cannot read state {source!r}; give one from 0 to {INPUTS + node - 1}",
                code="unknown-state",
            )
        if number % EDGES_PER_NODE and source == checked[-1][1]:
            raise ArchitectureError(
                f"genotype.{kind}: node {node} reads state {source} twice; give two different states",
                code="repeated-state",
            )
        checked.append([name, source])
    return checked


def _derived(alphas: Array) -> list[list[Any]]:
    probabilities = _probabilities(alphas)
    probabilities[:, NONE] = -1.0
    return _two_of_each(probabilities, probabilities.argmax(axis=1))


def _probabilities(alphas: Array) -> Array:
    values = _rows(alphas)
    exponents = np.exp(values - values.max(axis=1, keepdims=True))
    shares: Array = exponents / exponents.sum(axis=1, keepdims=True)
    return shares


def _two_of_each(probabilities: Array, chosen: Array) -> list[list[Any]]:
    """For each node the two edges whose chosen operation has the highest probability."""
    pairs = []
    for node in range(NODES):
        ranked = sorted(edges_into(node), key=lambda edge: -probabilities[edge, chosen[edge]])
        pairs += [[OPERATIONS[chosen[edge]], ENDS[edge][1]] for edge in ranked[:EDGES_PER_NODE]]
    return pairs


def _rows(values: Any) -> Array:
    rows = np.asarray(values, dtype=np.float64)
    if rows.shape != (EDGES, len(OPERATIONS)):
        raise ValueError(f"policy has shape {rows.shape}: give {(EDGES, len(OPERATIONS))}, edges by operations")
    return rows
