"""Genomes as arrays: the genes of a whole population are concatenated. A single genome is a population of one.

Weights, biases and responses are float32, so that a genome is small and its encoding exact. Networks compute in
float64.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from atoll.algorithms.neat.functions import ACTIVATIONS, AGGREGATIONS
from atoll.algorithms.neat.settings import NeatSettings
from atoll.rng import Generator

OUTPUTS_FROM = 1 << 32  # inputs are named 0, 1, ... and outputs from here on
HIDDEN_FROM = 1 << 63  # hidden nodes have the highest bit set


def split_name(source: int, target: int, occurrence: int) -> int:
    """The name of the node that a connection's first (1), second (2), ... split creates.

    It is a 63-bit hash, so that all islands name equal splits equally; collisions are negligible.
    """
    digest = hashlib.blake2b(struct.pack("<QQQ", source, target, occurrence), digest_size=8).digest()
    return int.from_bytes(digest, "little") | HIDDEN_FROM


def is_hidden(name: int) -> bool:
    return name >= HIDDEN_FROM


def is_input(name: int) -> bool:
    return name < OUTPUTS_FROM


Ends = npt.NDArray[np.int64]
Names = npt.NDArray[np.uint64]
Reals = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

NODE_GENES = ("node", "bias", "response", "activation", "aggregation")
CONNECTION_GENES = ("source", "target", "weight", "enabled")
TYPES: dict[str, type[Any]] = {
    "node": np.uint64,
    "bias": np.float32,
    "response": np.float32,
    "activation": np.uint8,
    "aggregation": np.uint8,
    "source": np.uint64,
    "target": np.uint64,
    "weight": np.float32,
    "enabled": np.bool_,
}


@dataclass(frozen=True)
class Population:
    """The concatenated node and connection genes of all genomes.

    Genome `g` has the nodes `node_ends[g]:node_ends[g + 1]` and the connections
    `connection_ends[g]:connection_ends[g + 1]`. The first nodes of a genome are its outputs, in order. Inputs are not
    listed.
    """

    node_ends: Ends
    node: Names
    bias: Reals
    response: Reals
    activation: Codes
    aggregation: Codes
    connection_ends: Ends
    source: Names
    target: Names
    weight: Reals
    enabled: Flags

    def __len__(self) -> int:
        return len(self.node_ends) - 1

    def __getitem__(self, position: int) -> Population:
        """One genome."""
        return self.take([position])

    @property
    def node_owner(self) -> Ends:
        """The genome of each node."""
        return np.repeat(np.arange(len(self)), np.diff(self.node_ends))

    @property
    def connection_owner(self) -> Ends:
        """The genome of each connection."""
        return np.repeat(np.arange(len(self)), np.diff(self.connection_ends))

    def take(self, positions: Sequence[int] | Ends) -> Population:
        """The genomes at these positions, in this order; positions may repeat."""
        chosen = np.asarray(positions, np.int64)
        node_places, node_ends = spans(self.node_ends, chosen)
        connection_places, connection_ends = spans(self.connection_ends, chosen)
        nodes = {name: getattr(self, name)[node_places] for name in NODE_GENES}
        connections = {name: getattr(self, name)[connection_places] for name in CONNECTION_GENES}
        return Population(node_ends=node_ends, connection_ends=connection_ends, **nodes, **connections)

    def to_plain(self) -> dict[str, Any]:
        """As plain data, for the client's memory."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        return cls(**plain)


def spans(ends: Ends, chosen: Ends) -> tuple[Ends, Ends]:
    """Indices of all genes of the chosen genomes, genome by genome, and the new ends."""
    lengths = np.diff(ends)[chosen]
    new_ends: Ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.arange(new_ends[-1]) + np.repeat(ends[chosen] - new_ends[:-1], lengths)
    return places, new_ends


def joined(populations: Sequence[Population]) -> Population:
    """All genomes of several populations, concatenated."""
    parts = [population for population in populations if len(population)] or list(populations[:1])
    genes: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in (*NODE_GENES, *CONNECTION_GENES)
    }
    for name in ("node_ends", "connection_ends"):
        lengths = np.concatenate([np.diff(getattr(part, name)) for part in parts])
        genes[name] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Population(**genes)


def population_from_rows(
    nodes: Sequence[Sequence[Sequence[Any]]], connections: Sequence[Sequence[Sequence[Any]]]
) -> Population:
    """A population from lists: per genome, its node rows (as NODE_GENES) and connection rows (as CONNECTION_GENES)."""
    genes: dict[str, Any] = {}
    for names, rows in ((NODE_GENES, nodes), (CONNECTION_GENES, connections)):
        flat = [row for genome in rows for row in genome]
        columns = list(zip(*flat, strict=True)) if flat else [()] * len(names)
        genes |= {name: np.array(column, TYPES[name]) for name, column in zip(names, columns, strict=True)}
    for name, genomes in (("node_ends", nodes), ("connection_ends", connections)):
        genes[name] = np.concatenate([[0], np.cumsum([len(genome) for genome in genomes])]).astype(np.int64)
    return Population(**genes)


Table = npt.NDArray[np.int32]
MISSING = -1


@dataclass(frozen=True)
class GeneTable:
    """`place[g, i]` is the index of gene number `i` of genome `g` among the population's genes, or MISSING.

    `number` is the gene number of each of the population's genes.
    """

    number: Ends
    place: Table


@dataclass(frozen=True)
class Alignment:
    """The genes of a population, aligned by name."""

    nodes: GeneTable
    connections: GeneTable


def align(population: Population) -> Alignment:
    names, ranks = np.unique(
        np.concatenate([population.node, population.source, population.target]), return_inverse=True
    )
    nodes, connections = len(population.node), len(population.source)
    source, target = ranks[nodes : nodes + connections], ranks[nodes + connections :]
    return Alignment(
        _table(ranks[:nodes], population.node_owner, len(population)),
        _table(source * len(names) + target, population.connection_owner, len(population)),
    )


def _table(keys: Ends, owner: Ends, genomes: int) -> GeneTable:
    different, number = np.unique(keys, return_inverse=True)
    place = np.full((genomes, len(different)), MISSING, np.int32)
    place[owner, number] = np.arange(len(keys))
    return GeneTable(number, place)


def first_generation(settings: NeatSettings, rng: Generator) -> Population:
    """`settings.population` random genomes; `settings.start` decides which inputs are connected."""
    genomes, outputs = settings.population, settings.outputs
    nodes = genomes * outputs
    sources = _sources(settings, rng)  # genomes x inputs connected
    per_genome = sources.shape[1] * outputs
    connections = genomes * per_genome
    targets = np.tile(np.arange(outputs), genomes * sources.shape[1])
    return Population(
        node_ends=np.arange(genomes + 1) * outputs,
        node=np.tile(np.arange(outputs, dtype=np.uint64) + np.uint64(OUTPUTS_FROM), genomes),
        bias=normal(nodes, settings.bound, rng),
        response=np.ones(nodes, np.float32),
        activation=start_codes(nodes, settings.activation_start, ACTIVATIONS, settings.activations, rng),
        aggregation=start_codes(nodes, settings.aggregation_start, AGGREGATIONS, settings.aggregations, rng),
        connection_ends=np.arange(genomes + 1) * per_genome,
        source=np.repeat(sources.ravel(), outputs).astype(np.uint64),
        target=targets.astype(np.uint64) + np.uint64(OUTPUTS_FROM),
        weight=normal(connections, settings.bound, rng),
        enabled=np.ones(connections, np.bool_),
    )


def normal(count: int, bound: float, rng: Generator) -> Reals:
    """New weights: standard normal, clipped to the bound."""
    return np.clip(rng.standard_normal(count), -bound, bound).astype(np.float32)


def start_codes(count: int, start: str, known: tuple[str, ...], allowed: tuple[str, ...], rng: Generator) -> Codes:
    """Function codes of new nodes: all equal to `start`, or random among `allowed`."""
    if start != "random":
        return np.full(count, known.index(start), np.uint8)
    return allowed_codes(known, allowed)[rng.integers(0, len(allowed), count)]


def allowed_codes(known: tuple[str, ...], allowed: tuple[str, ...]) -> Codes:
    return np.array([known.index(function) for function in allowed], np.uint8)


def _sources(settings: NeatSettings, rng: Generator) -> Ends:
    genomes, inputs = settings.population, settings.inputs
    if settings.start == "full":
        return np.tile(np.arange(inputs), (genomes, 1))
    if settings.start == "unconnected":
        return np.zeros((genomes, 0), np.int64)
    return rng.integers(0, inputs, (genomes, 1))
