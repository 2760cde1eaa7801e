"""Genomes as plain arrays: the genes of a whole population lie one after the other. A genome is a population of one.

Weights, biases and responses are float32, so that a genome travels in few bytes and arrives as it left; networks
compute in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

Ends = npt.NDArray[np.int64]
Names = npt.NDArray[np.uint64]
Reals = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

NODE_GENES = ("node", "bias", "response", "activation", "aggregation")
LINK_GENES = ("source", "target", "weight", "enabled")
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
    """Genome `g` has the nodes `node_ends[g]:node_ends[g + 1]`, its outputs first and in order, and the links
    (connections) `link_ends[g]:link_ends[g + 1]`. Inputs are not listed."""

    node_ends: Ends
    node: Names
    bias: Reals
    response: Reals
    activation: Codes
    aggregation: Codes
    link_ends: Ends
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
    def link_owner(self) -> Ends:
        """The genome of each link."""
        return np.repeat(np.arange(len(self)), np.diff(self.link_ends))

    def take(self, positions: Sequence[int] | Ends) -> Population:
        """The genomes at these positions, in this order; a position may come several times."""
        chosen = np.asarray(positions, np.int64)
        node_places, node_ends = spans(self.node_ends, chosen)
        link_places, link_ends = spans(self.link_ends, chosen)
        nodes = {name: getattr(self, name)[node_places] for name in NODE_GENES}
        links = {name: getattr(self, name)[link_places] for name in LINK_GENES}
        return Population(node_ends=node_ends, link_ends=link_ends, **nodes, **links)

    def to_plain(self) -> dict[str, Any]:
        """As it lies in a client's memory."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        return cls(**plain)


def spans(ends: Ends, chosen: Ends) -> tuple[Ends, Ends]:
    """Places of all genes of the chosen genomes, one genome after the other; and where each genome ends."""
    lengths = np.diff(ends)[chosen]
    new_ends: Ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    places = np.arange(new_ends[-1]) + np.repeat(ends[chosen] - new_ends[:-1], lengths)
    return places, new_ends


def joined(populations: Sequence[Population]) -> Population:
    """All genomes of several populations, one after the other."""
    parts = [population for population in populations if len(population)] or list(populations[:1])
    genes: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in (*NODE_GENES, *LINK_GENES)
    }
    for name in ("node_ends", "link_ends"):
        lengths = np.concatenate([np.diff(getattr(part, name)) for part in parts])
        genes[name] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Population(**genes)


def gathered(nodes: Sequence[Sequence[Sequence[Any]]], links: Sequence[Sequence[Sequence[Any]]]) -> Population:
    """A population from lists: for each genome its node rows (as NODE_GENES) and link rows (as LINK_GENES)."""
    genes: dict[str, Any] = {}
    for names, rows in ((NODE_GENES, nodes), (LINK_GENES, links)):
        flat = [row for genome in rows for row in genome]
        columns = list(zip(*flat, strict=True)) if flat else [()] * len(names)
        genes |= {name: np.array(column, TYPES[name]) for name, column in zip(names, columns, strict=True)}
    for name, genomes in (("node_ends", nodes), ("link_ends", links)):
        genes[name] = np.concatenate([[0], np.cumsum([len(genome) for genome in genomes])]).astype(np.int64)
    return Population(**genes)
