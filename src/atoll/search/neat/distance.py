"""How different genomes are: the compatibility distance of NEAT, in neat-python's form.

For nodes and for links alike: differences of shared genes, plus a coefficient for each gene that only one of the two
has, over the number of genes of the larger one; the two parts are added.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from atoll.search.neat.genes import NOWHERE, Alignment
from atoll.search.neat.population import Ends, Population
from atoll.search.neat.settings import NeatSettings

Distances = npt.NDArray[np.float64]


def distances(
    population: Population, alignment: Alignment, one: int, others: Ends, settings: NeatSettings
) -> Distances:
    """From the genome at `one` to each of `others`."""
    nodes, links = (
        _part(population.node_ends, alignment.nodes.number, alignment.nodes.place, one, others),
        _part(population.link_ends, alignment.links.number, alignment.links.place, one, others),
    )
    total: Distances = np.zeros(len(others))
    for part, difference in ((nodes, _node_difference), (links, _link_difference)):
        own, theirs, shared, sizes, size = part
        values = difference(population, own, theirs)
        common = np.where(shared, values, 0.0).sum(axis=1) * settings.weight_coefficient
        apart = size + sizes - 2 * shared.sum(axis=1)
        largest = np.maximum(sizes, size)
        value = common + settings.disjoint_coefficient * apart
        total += np.divide(value, largest, out=np.zeros_like(value), where=largest > 0)
    return total


def _part(
    ends: Ends, number: Ends, place: npt.NDArray[np.int32], one: int, others: Ends
) -> tuple[Ends, Ends, npt.NDArray[np.bool_], Ends, int]:
    own = np.arange(ends[one], ends[one + 1])
    theirs = place[np.ix_(others, number[own])].astype(np.int64)
    shared = theirs != NOWHERE
    return own, theirs, shared, np.diff(ends)[others], len(own)


def _node_difference(population: Population, own: Ends, theirs: Ends) -> Distances:
    value = _apart(population.bias, own, theirs) + _apart(population.response, own, theirs)
    value += population.activation[own] != population.activation[theirs]
    value += population.aggregation[own] != population.aggregation[theirs]
    return value


def _link_difference(population: Population, own: Ends, theirs: Ends) -> Distances:
    value = _apart(population.weight, own, theirs)
    value += population.enabled[own] != population.enabled[theirs]
    return value


def _apart(values: npt.NDArray[np.float32], own: Ends, theirs: Ends) -> Distances:
    wide = values.astype(np.float64)
    return np.abs(wide[own] - wide[theirs])
