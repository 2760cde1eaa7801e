"""Genetic distance and speciation, by neat-python's rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from atoll.algorithms.neat.population import MISSING, Alignment, Ends, Population, align, joined
from atoll.algorithms.neat.settings import NeatSettings

Distances = npt.NDArray[np.float64]


def distances(
    population: Population, alignment: Alignment, one: int, others: Ends, settings: NeatSettings
) -> Distances:
    """Genetic distances from the genome at `one` to each of `others`."""
    nodes, connections = (
        _part(population.node_ends, alignment.nodes.number, alignment.nodes.place, one, others),
        _part(population.connection_ends, alignment.connections.number, alignment.connections.place, one, others),
    )
    total: Distances = np.zeros(len(others))
    for part, difference in ((nodes, _node_difference), (connections, _connection_difference)):
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
    shared = theirs != MISSING
    return own, theirs, shared, np.diff(ends)[others], len(own)


def _node_difference(population: Population, own: Ends, theirs: Ends) -> Distances:
    value = _apart(population.bias, own, theirs) + _apart(population.response, own, theirs)
    value += population.activation[own] != population.activation[theirs]
    value += population.aggregation[own] != population.aggregation[theirs]
    return value


def _connection_difference(population: Population, own: Ends, theirs: Ends) -> Distances:
    value = _apart(population.weight, own, theirs)
    value += population.enabled[own] != population.enabled[theirs]
    return value


def _apart(values: npt.NDArray[np.float32], own: Ends, theirs: Ends) -> Distances:
    wide = values.astype(np.float64)
    return np.abs(wide[own] - wide[theirs])


Scores = npt.NDArray[np.float64]
UNASSIGNED = -1


@dataclass(frozen=True)
class Species:
    """All species of a population; row `i` of every column describes species `number[i]`, ascending."""

    number: Ends
    improved: Ends  # the generation of its last improvement
    peak: Scores  # its best fitness so far; minus infinity before the first evaluation
    representatives: Population
    next_number: int

    def to_plain(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "improved": self.improved,
            "peak": self.peak,
            "representatives": self.representatives.to_plain(),
            "next_number": self.next_number,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Species:
        return cls(**{**plain, "representatives": Population.from_plain(plain["representatives"])})

    def take(self, rows: Ends) -> Species:
        """The species in these rows."""
        representatives = self.representatives.take(rows)
        return Species(self.number[rows], self.improved[rows], self.peak[rows], representatives, self.next_number)


def speciate(
    population: Population, before: Species | None, generation: int, settings: NeatSettings
) -> tuple[Ends, Species]:
    """The species number of each genome, and the non-empty species.

    The genome nearest to a surviving species' old representative leads it. Every other genome, in order, joins the
    nearest leader within the threshold or founds a new species.
    """
    everyone = population if before is None else joined([population, before.representatives])
    alignment = align(everyone)
    genomes = np.arange(len(population))
    member = np.full(len(population), UNASSIGNED, np.int64)
    leaders: list[int] = []
    for row in range(0 if before is None else min(len(before.number), len(population))):
        apart = distances(everyone, alignment, len(population) + row, genomes, settings)
        leader = int(np.where(member == UNASSIGNED, apart, np.inf).argmin())
        member[leader] = row
        leaders.append(leader)
    _join(member, leaders, everyone, alignment, settings)
    return _renumbered(member, leaders, population, before, generation)


def _join(member: Ends, leaders: list[int], everyone: Population, alignment: Alignment, settings: NeatSettings) -> None:
    """Assign all remaining genomes in `member` to rows of `leaders`; new leaders are appended."""
    genomes = np.arange(len(member))
    nearest = np.full(len(member), settings.threshold)
    closest = np.full(len(member), UNASSIGNED, np.int64)

    def consider(row: int) -> None:
        apart = distances(everyone, alignment, leaders[row], genomes, settings)
        better = apart < nearest
        nearest[better], closest[better] = apart[better], row

    for row in range(len(leaders)):
        consider(row)
    start = 0
    while True:
        alone = np.flatnonzero((member[start:] == UNASSIGNED) & (closest[start:] == UNASSIGNED))
        stop = start + int(alone[0]) if len(alone) else len(member)
        # Genomes before the next founder are final: they cannot join species founded later.
        free = member[start:stop] == UNASSIGNED
        member[start:stop][free] = closest[start:stop][free]
        if stop == len(member):
            return
        leaders.append(stop)
        member[stop] = len(leaders) - 1
        consider(len(leaders) - 1)
        start = stop + 1


def _renumbered(
    member: Ends, leaders: list[int], population: Population, before: Species | None, generation: int
) -> tuple[Ends, Species]:
    old = 0 if before is None else min(len(before.number), len(leaders))
    fresh = len(leaders) - old
    first = 1 if before is None else before.next_number
    numbers = np.arange(first, first + fresh)
    improved, peak = np.full(fresh, generation), np.full(fresh, -np.inf)
    if before is not None:
        numbers = np.concatenate([before.number[:old], numbers])
        improved = np.concatenate([before.improved[:old], improved])
        peak = np.concatenate([before.peak[:old], peak])
    species = Species(numbers, improved, peak, population.take(leaders), first + fresh)
    return numbers[member], species
