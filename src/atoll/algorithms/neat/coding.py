"""Compact binary codec for genomes. For any bytes, `decode` returns a valid genome or raises an error with the reason.

version, flags                     1 byte each
hidden nodes, connections          2 bytes each: their numbers
names of the hidden nodes          8 bytes each; output names are implied
biases of all nodes                4 bytes each, outputs first
responses                          4 bytes each, only if one of them is not 1 (flag)
functions                          1 byte each: activation + 16 * aggregation
sources, targets of connections    2 bytes each: index among inputs, outputs, hidden nodes
weights of connections             4 bytes each
enabled flags of connections       1 bit each
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from atoll.algorithms.neat.functions import ACTIVATIONS, AGGREGATIONS
from atoll.algorithms.neat.population import HIDDEN_FROM, OUTPUTS_FROM, Codes, Ends, Names, Population
from atoll.algorithms.neat.settings import NeatSettings
from atoll.core import checks, wire


@dataclass(frozen=True)
class GenomeLimits:
    """The sizes and value range that a genome must not exceed."""

    inputs: int
    outputs: int
    hidden: int
    connections: int
    bound: float
    recurrent: bool

    @classmethod
    def of(cls, settings: NeatSettings) -> Self:
        return cls(
            settings.inputs,
            settings.outputs,
            settings.max_hidden,
            settings.max_connections,
            settings.bound,
            settings.recurrent,
        )


def problem_of(genome: Population, limits: GenomeLimits) -> str:
    """Why this genome is invalid, or an empty string. Time is linear in the size of the genome."""
    hidden = genome.node[limits.outputs :]
    if len(hidden) > limits.hidden or len(genome.source) > limits.connections:
        found = f"{len(hidden)} hidden nodes and {len(genome.source)} connections"
        return f"{found}, at most {limits.hidden} and {limits.connections}"
    wanted = np.arange(limits.outputs, dtype=np.uint64) + np.uint64(OUTPUTS_FROM)
    if not np.array_equal(genome.node[: limits.outputs], wanted):
        return f"the first nodes must be the {limits.outputs} outputs"
    if (hidden < HIDDEN_FROM).any() or len(np.unique(hidden)) != len(hidden):
        return "the name of a hidden node is invalid or occurs twice"
    return _values(genome, limits) or _connections(genome, hidden, limits)


def _values(genome: Population, limits: GenomeLimits) -> str:
    for what in ("bias", "response", "weight"):
        values: npt.NDArray[np.float32] = getattr(genome, what)
        if not np.isfinite(values).all():
            return f"a {what} is not a finite number"
        if len(values) and float(np.abs(values).max()) > limits.bound:
            return f"a {what} is outside +-{limits.bound:g}"
    if (genome.activation >= len(ACTIVATIONS)).any() or (genome.aggregation >= len(AGGREGATIONS)).any():
        return "a node has an unknown activation or aggregation"
    return ""


def _connections(genome: Population, hidden: npt.NDArray[np.uint64], limits: GenomeLimits) -> str:
    source, target = genome.source, genome.target
    if not (np.isin(source, hidden) | (source < limits.inputs)).all():
        return "a connection starts at a missing node or at an output"
    if not np.isin(target, genome.node).all():
        return "a connection ends at a missing node"
    pairs = set(zip(source.tolist(), target.tolist(), strict=True))
    if len(pairs) != len(source):
        return "two connections join the same nodes"
    if not limits.recurrent and has_cycle(pairs):
        return "its connections form a cycle, but the network is feed-forward"
    return ""


def has_cycle(pairs: set[tuple[int, int]]) -> bool:
    """Kahn's algorithm: remove nodes without incoming connections until none is left."""
    entering: dict[int, int] = {}
    after: dict[int, list[int]] = {}
    for source, target in pairs:
        entering[target] = entering.get(target, 0) + 1
        after.setdefault(source, []).append(target)
    free = [name for name in after if name not in entering]
    removed = 0
    while free:
        for name in after.get(free.pop(), ()):
            removed += 1
            entering[name] -= 1
            if not entering[name]:
                free.append(name)
    return removed != len(pairs)


VERSION = 1
RESPONSES = 1  # flag: the code contains responses
HEAD = 6


def encode(genome: Population, inputs: int, outputs: int) -> Codes:
    """The bytes of one genome."""
    hidden = genome.node[outputs:]
    plain = bool((genome.response == 1).all())
    head = np.array([len(hidden), len(genome.source)], "<u2")
    order = np.argsort(hidden, kind="stable")
    parts = [
        np.array([VERSION, 0 if plain else RESPONSES], np.uint8),
        head,
        hidden.astype("<u8"),
        genome.bias.astype("<f4"),
        np.zeros(0, "<f4") if plain else genome.response.astype("<f4"),
        genome.activation | genome.aggregation << np.uint8(4),
        _places(genome.source, hidden, order, inputs, outputs),
        _places(genome.target, hidden, order, inputs, outputs),
        genome.weight.astype("<f4"),
        np.packbits(genome.enabled),
    ]
    return np.frombuffer(b"".join(part.tobytes() for part in parts), np.uint8).copy()


def decode(code: Codes, limits: GenomeLimits) -> Population:
    """The genome of these bytes. Raises a `ValueError` with the reason if they are invalid."""
    reason, genome = read(code, limits)
    if genome is None:
        raise ValueError(reason)
    return genome


def read(code: Codes, limits: GenomeLimits) -> tuple[str, Population | None]:
    """A reason and None, or an empty reason and the genome. Sizes are checked before anything is allocated."""
    data = code.tobytes()
    if len(data) < HEAD or data[0] != VERSION or data[1] not in (0, RESPONSES):
        return f"not a genome of version {VERSION}", None
    hidden, connections = (int(count) for count in np.frombuffer(data, "<u2", 2, 2))
    if hidden > limits.hidden or connections > limits.connections:
        return (
            f"{hidden} hidden nodes and {connections} connections, at most {limits.hidden} and {limits.connections}",
            None,
        )
    nodes = hidden + limits.outputs
    responses = nodes if data[1] == RESPONSES else 0
    counts = [("<u8", hidden), ("<f4", nodes), ("<f4", responses), ("|u1", nodes)]
    counts += [("<u2", connections), ("<u2", connections), ("<f4", connections), ("|u1", (connections + 7) // 8)]
    if len(data) != HEAD + sum(np.dtype(kind).itemsize * count for kind, count in counts):
        return f"{len(data)} bytes do not match {hidden} hidden nodes and {connections} connections", None
    pieces, start = [], HEAD
    for kind, count in counts:
        pieces.append(np.frombuffer(data, kind, count, start))
        start += pieces[-1].nbytes
    names, bias, response, functions, source, target, weight, flags = pieces
    ports = limits.inputs + limits.outputs + hidden
    if connections and max(int(source.max()), int(target.max())) >= ports:
        return (
            f"a connection refers to node {max(int(source.max()), int(target.max()))}, but there are only {ports}",
            None,
        )
    everyone = _ports(names.astype(np.uint64), limits)
    genome = Population(
        node_ends=np.array([0, nodes]),
        node=everyone[limits.inputs :],
        bias=bias.astype(np.float32),
        response=response.astype(np.float32) if responses else np.ones(nodes, np.float32),
        activation=functions & np.uint8(15),
        aggregation=functions >> np.uint8(4),
        connection_ends=np.array([0, connections]),
        source=everyone[source],
        target=everyone[target],
        weight=weight.astype(np.float32),
        enabled=np.unpackbits(flags, count=connections).astype(np.bool_),
    )
    reason = problem_of(genome, limits)
    return (reason, None) if reason else ("", genome)


@checks.register
@dataclass(frozen=True)
class GenomeBytes(GenomeLimits):
    """The bytes of one sound genome within these limits: what a reply must hold."""

    def limits(self) -> wire.FrameLimits:
        return wire.FrameLimits(checks.ARRAY, HEAD + 17 * (self.hidden + self.outputs) + 9 * self.connections)

    def problem(self, value: Any) -> str | None:
        if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.ndim != 1:
            return "schema: something else where the bytes of a genome were expected"
        reason, _ = read(value, self)
        return f"genome: {reason}" if reason else None


def to_json(genome: Population) -> str:
    """The genome as compact JSON: the size of a readable encoding, for comparison."""
    nodes = zip(genome.node.tolist(), genome.bias, genome.response, genome.activation, genome.aggregation, strict=True)
    connections = zip(
        genome.source.tolist(), genome.target.tolist(), genome.weight, genome.enabled.tolist(), strict=True
    )
    table = {
        "nodes": [
            {
                "name": name,
                "bias": float(str(bias)),
                "response": float(str(response)),
                "activation": ACTIVATIONS[activation],
                "aggregation": AGGREGATIONS[aggregation],
            }
            for name, bias, response, activation, aggregation in nodes
        ],
        "connections": [
            {"source": source, "target": target, "weight": float(str(weight)), "enabled": enabled}
            for source, target, weight, enabled in connections
        ],
    }
    return json.dumps(table, separators=(",", ":"))


def _places(names: Names, hidden: Names, order: Ends, inputs: int, outputs: int) -> Codes | Ends:
    """The index of each name among inputs, outputs and hidden nodes."""
    places = np.where(names < OUTPUTS_FROM, names, names - np.uint64(OUTPUTS_FROM) + np.uint64(inputs))
    if len(hidden):
        found = order[np.minimum(np.searchsorted(hidden[order], names), len(hidden) - 1)]
        places = np.where(names >= 1 << 63, found + inputs + outputs, places.astype(np.int64))
    return places.astype("<u2")


def _ports(hidden: Names, limits: GenomeLimits) -> Names:
    inputs = np.arange(limits.inputs, dtype=np.uint64)
    outputs = np.arange(limits.outputs, dtype=np.uint64) + np.uint64(OUTPUTS_FROM)
    return np.concatenate([inputs, outputs, hidden])
