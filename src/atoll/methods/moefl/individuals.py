"""What `moefl` evolves: a chromosome with the network that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from atoll.clients import FederatedModel
from atoll.methods.base import Generator, Schema
from atoll.spaces.sparse import genes as sparse_genes
from atoll.spaces.sparse import space as sparse
from atoll.spaces.sparse.genes import Chromosome

Pair = tuple[float, float]
Table = npt.NDArray[np.float64]  # error, Omega


@dataclass(frozen=True)
class Individual:
    """A chromosome, its network as far as it is trained, and its objectives once they are measured."""

    chromosome: Chromosome
    model: FederatedModel
    objectives: Pair | None = None

    def to_plain(self) -> dict[str, Any]:
        return {
            "name": self.model.name,
            "bits": "".join("1" if bit else "0" for bit in self.chromosome.bits),
            "reals": list(self.chromosome.reals),
            "architecture": self.model.architecture,
            "weights": self.model.weights,
            "connections": self.model.connections,
            "diverged": self.model.diverged,
            "objectives": list(self.objectives) if self.objectives else None,
            **({"velocity": self.model.velocity} if self.model.velocity else {}),
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Individual:
        names = ("name", "architecture", "weights", "connections", "diverged", "velocity")
        bits = np.array([sign == "1" for sign in plain["bits"]])
        measured = plain["objectives"]
        return cls(
            Chromosome(bits, tuple(plain["reals"])),
            FederatedModel(**{name: plain[name] for name in names if name in plain}),
            (measured[0], measured[1]) if measured else None,
        )


def inherited(child: FederatedModel, parents: Sequence[Individual], rng: Generator) -> FederatedModel:
    """The child with the weights of one of these, drawn at random, wherever both have a connection.

    Layers are matched by name from the input on; of layers of different widths the common units.
    """
    parent = parents[int(rng.integers(len(parents)))].model.whole()
    own, mixed = child.whole(), {}
    for name, weights in own.items():
        if name not in parent or parent[name].ndim != weights.ndim:
            continue
        common = tuple(slice(min(a, b)) for a, b in zip(weights.shape, parent[name].shape, strict=True))
        values, there = weights.copy(), parent[name][common]
        both = (there != 0) & (weights[common] != 0)
        values[common][both] = there[both]
        mixed[name] = values
    return replace(child, weights=sparse.pack(child.architecture, own.replaced(mixed)))


def architecture_of(model: str, schema: Schema, chromosome: Chromosome, graph: int) -> dict[str, Any]:
    data = {"input": list(schema.shape), "classes": schema.outputs}
    return {"space": "sparse", "model": model, **data, **sparse_genes.decode(model, chromosome), "graph": graph}


def table_of(individuals: Sequence[Individual]) -> Table:
    return np.array([one.objectives for one in individuals], np.float64)
