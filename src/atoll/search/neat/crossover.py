"""Children before mutation: genes that both parents have are mixed, all others come from the fitter parent."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from atoll.rng import Generator
from atoll.search.neat.genes import NOWHERE, Alignment, GeneTable
from atoll.search.neat.population import LINK_GENES, Ends, Population, spans

STAYS_DISABLED = 0.75  # a link that is disabled in either parent, in the child


def cross(population: Population, alignment: Alignment, fitter: Ends, other: Ends, rng: Generator) -> Population:
    """One child for each pair of positions. Its structure is the fitter parent's; every attribute of a gene that both
    have is either one's by the toss of a coin."""
    node_places, node_ends = spans(population.node_ends, fitter)
    link_places, link_ends = spans(population.link_ends, fitter)
    node_match = _matches(alignment.nodes, node_places, np.repeat(other, np.diff(node_ends)))
    link_match = _matches(alignment.links, link_places, np.repeat(other, np.diff(link_ends)))

    def mixed(name: str) -> npt.NDArray[Any]:
        own, match = (link_places, link_match) if name in LINK_GENES else (node_places, node_match)
        values: npt.NDArray[Any] = getattr(population, name)
        return values[np.where(rng.random(len(own)) < 0.5, own, match)]

    enabled = mixed("enabled")
    both = population.enabled[link_places] & population.enabled[link_match]
    enabled &= both | (rng.random(len(both)) >= STAYS_DISABLED)
    return Population(
        node_ends=node_ends,
        node=population.node[node_places],
        bias=mixed("bias"),
        response=mixed("response"),
        activation=mixed("activation"),
        aggregation=mixed("aggregation"),
        link_ends=link_ends,
        source=population.source[link_places],
        target=population.target[link_places],
        weight=mixed("weight"),
        enabled=enabled,
    )


def _matches(table: GeneTable, places: Ends, other: Ends) -> Ends:
    """Where the other parent keeps each of these genes; where it lacks it, the gene itself."""
    match = table.place[other, table.number[places]].astype(np.int64)
    return np.where(match == NOWHERE, places, match)
