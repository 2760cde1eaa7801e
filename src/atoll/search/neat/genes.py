"""Which genes of which genomes are the same gene: the base of crossover and of distances.

Genes are the same if their names are; names are compared whole, never by a hash of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from atoll.search.neat.population import Ends, Population

Table = npt.NDArray[np.int32]
NOWHERE = -1


@dataclass(frozen=True)
class GeneTable:
    """`place[g, i]` is where genome `g` keeps gene number `i` among the population's genes, or NOWHERE; `number`
    gives each of the population's genes its number."""

    number: Ends
    place: Table


@dataclass(frozen=True)
class Alignment:
    """The genes of a population lined up."""

    nodes: GeneTable
    links: GeneTable


def align(population: Population) -> Alignment:
    names, ranks = np.unique(
        np.concatenate([population.node, population.source, population.target]), return_inverse=True
    )
    nodes, links = len(population.node), len(population.source)
    source, target = ranks[nodes : nodes + links], ranks[nodes + links :]
    return Alignment(
        _table(ranks[:nodes], population.node_owner, len(population)),
        _table(source * len(names) + target, population.link_owner, len(population)),
    )


def _table(keys: Ends, owner: Ends, genomes: int) -> GeneTable:
    different, number = np.unique(keys, return_inverse=True)
    place = np.full((genomes, len(different)), NOWHERE, np.int32)
    place[owner, number] = np.arange(len(keys))
    return GeneTable(number, place)
