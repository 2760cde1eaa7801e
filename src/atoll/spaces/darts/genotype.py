"""Genotypes: the two edges of every node that a search keeps, and how they are read off a policy.

    {"normal": [["sep_conv_3x3", 0], ["skip_connect", 1], ... 8 pairs], "reduce": [...]}

Pairs are an operation and the state it takes (0 and 1 are the cell's inputs, 2 to 5 its nodes); pairs 2n and 2n + 1
belong to node n. All four nodes make up the cell's output, so the list of them that DARTS writes down is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from atoll.core.messages import Array
from atoll.errors import ArchitectureError, nearest
from atoll.spaces.darts.layers import EDGES, ENDS, INPUTS, KINDS, NODES, NONE, OPERATIONS, SKIP, edges_into

EDGES_PER_NODE = 2  # edges of a node
Genotype = dict[str, list[list[Any]]]


def genotype(normal: Array, reduce: Array) -> Genotype:
    """DARTS' derivation from the parameters (14, 8) of both kinds of cells, `none` left aside.

    Each node keeps the two edges whose best operation has the largest probability (softmax over all eight), and on
    each of them that operation. Of equal ones the earlier edge and the earlier operation are kept.
    """
    return {kind: _derived(alphas) for kind, alphas in zip(KINDS, (normal, reduce), strict=True)}


def random_genotype(rng: np.random.Generator) -> Genotype:
    """Two different edges for every node, any operation but `none` on each, all alike probable."""
    words = [word for word in OPERATIONS if word != OPERATIONS[NONE]]
    drawn: Genotype = {}
    for kind in KINDS:
        pairs = []
        for node in range(NODES):
            sources = sorted(int(source) for source in rng.choice(INPUTS + node, EDGES_PER_NODE, replace=False))
            pairs += [[words[int(rng.integers(len(words)))], source] for source in sources]
        drawn[kind] = pairs
    return drawn


def skip_share(cells: Mapping[str, Any]) -> float:
    """Which share of the edges is a skip connection: of a genotype's, or expected under probabilities (14, 8).

    DARTS' well-known collapse is a share that climbs towards one.
    """
    shares = []
    for kind in KINDS:
        edges = cells[kind]
        if isinstance(edges, list) and edges and isinstance(edges[0][0], str):
            shares.append(np.mean([word == OPERATIONS[SKIP] for word, _ in edges]))
        else:
            shares.append(np.mean(_rows(edges)[:, SKIP]))
    return float(np.mean(shares))


def check_genotype(value: Any) -> Genotype:
    """A genotype as plain lists, or an error that names what is wrong with it."""
    if not isinstance(value, Mapping) or set(value) != set(KINDS):
        raise ArchitectureError(
            "a genotype has the lists 'normal' and 'reduce' and nothing else", code="malformed-genotype"
        )
    return {kind: _checked(kind, value[kind]) for kind in KINDS}


def _checked(kind: str, pairs: Any) -> list[list[Any]]:
    if not isinstance(pairs, (list, tuple)) or len(pairs) != EDGES_PER_NODE * NODES:
        raise ArchitectureError(
            f"genotype.{kind}: give {EDGES_PER_NODE * NODES} pairs [operation, state], two for every node",
            code="malformed-genotype",
        )
    checked: list[list[Any]] = []
    for number, pair in enumerate(pairs):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise ArchitectureError(
                f"genotype.{kind}: {pair!r} is no pair [operation, state]", code="malformed-genotype"
            )
        word, source = pair
        if word not in OPERATIONS or word == OPERATIONS[NONE]:
            known = [name for name in OPERATIONS if name != OPERATIONS[NONE]]
            raise ArchitectureError(
                f"genotype.{kind}: unknown operation {word!r}; {nearest(str(word), known)}", code="unknown-operation"
            )
        node = number // EDGES_PER_NODE
        if not isinstance(source, int) or isinstance(source, bool) or not 0 <= source < INPUTS + node:
            raise ArchitectureError(
                f"genotype.{kind}: node {node} cannot take state {source!r}; give one from 0 to {INPUTS + node - 1}",
                code="unknown-state",
            )
        if number % EDGES_PER_NODE and source == checked[-1][1]:
            raise ArchitectureError(
                f"genotype.{kind}: node {node} takes state {source} twice; give two different ones",
                code="repeated-state",
            )
        checked.append([word, source])
    return checked


def _derived(alphas: Array) -> list[list[Any]]:
    values = _rows(alphas)
    exponents = np.exp(values - values.max(axis=1, keepdims=True))
    probabilities = exponents / exponents.sum(axis=1, keepdims=True)
    probabilities[:, NONE] = -1.0
    best = probabilities.argmax(axis=1)
    pairs = []
    for node in range(NODES):
        ranked = sorted(edges_into(node), key=lambda edge: -probabilities[edge, best[edge]])
        pairs += [[OPERATIONS[best[edge]], ENDS[edge][1]] for edge in ranked[:EDGES_PER_NODE]]
    return pairs


def _rows(values: Any) -> Array:
    rows = np.asarray(values, dtype=np.float64)
    if rows.shape != (EDGES, len(OPERATIONS)):
        raise ValueError(f"a policy of shape {rows.shape}: give {(EDGES, len(OPERATIONS))}, edges by operations")
    return rows
