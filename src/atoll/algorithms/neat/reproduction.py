"""The next generation: stagnation, offspring per species, elites and parents, by neat-python's rules."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from atoll.algorithms.neat.population import Ends, Population, align, joined
from atoll.algorithms.neat.settings import NeatSettings
from atoll.algorithms.neat.species import Scores, Species
from atoll.algorithms.neat.variation import cross, mutate_attributes, mutate_structure
from atoll.rng import Generator


def reproduce(
    population: Population,
    fitness: Scores,
    member: Ends,
    species: Species,
    generation: int,
    settings: NeatSettings,
    rng: Generator,
) -> tuple[Population, Species]:
    """The next generation before speciation, elites first, and the surviving species."""
    species = with_peak_fitness(species, member, fitness, generation)
    alive = surviving_species(species, member, fitness, generation, settings)
    species = species.take(alive)
    elites, pairs = _parents(fitness, member, species, settings, rng)
    children = cross(population, align(population), pairs[:, 0], pairs[:, 1], rng)
    children = mutate_attributes(mutate_structure(children, settings, rng), settings, rng)
    return joined([population.take(elites), children]), species


def with_peak_fitness(species: Species, member: Ends, fitness: Scores, generation: int) -> Species:
    """The species with their peak fitness and the generation of its last improvement updated."""
    best = np.array([fitness[member == number].max() for number in species.number.tolist()])
    rose = best > species.peak
    return replace(
        species, peak=np.where(rose, best, species.peak), improved=np.where(rose, generation, species.improved)
    )


def surviving_species(species: Species, member: Ends, fitness: Scores, generation: int, settings: NeatSettings) -> Ends:
    """Rows of the surviving species, ascending.

    A species survives if it is not stagnant or is among the best `species_elitism`, up to the number of species that
    the population can hold.
    """
    best = np.array([fitness[member == number].max() for number in species.number.tolist()])
    order = np.argsort(best, kind="stable")
    stagnant = generation - species.improved[order] >= settings.stagnation
    stagnant[len(order) - settings.species_elitism :] = False
    surviving = order[~stagnant]
    most = max(1, settings.population // _minimum_size(settings))
    return np.sort(surviving[-most:])


def offspring_counts(means: Scores, sizes: Ends, settings: NeatSettings) -> list[int]:
    """The size of each species in the next generation; the sum is `settings.population`.

    A size moves halfway from the present size to the share by fitness, but not below the minimum. `means` are the mean
    fitness values of the species, scaled to start at 0.
    """
    least, total = _minimum_size(settings), float(means.sum())
    wanted = [max(least, value / total * settings.population) if total > 0 else least for value in means.tolist()]
    counts = []
    for want, size in zip(wanted, sizes.tolist(), strict=True):
        half = (want - size) * 0.5
        step = round(half)
        counts.append(size + (step or int(np.sign(half))))
    scale = settings.population / sum(counts)
    counts = [max(least, round(count * scale)) for count in counts]
    return _exactly(counts, settings.population, least)


def _exactly(counts: list[int], population: int, least: int) -> list[int]:
    """Add to small species or take from large ones, one genome at a time, until the sum is `population`."""
    missing = population - sum(counts)
    order = sorted(range(len(counts)), key=lambda row: counts[row], reverse=missing < 0)
    step = 1 if missing > 0 else -1
    while missing:
        for row in order:
            if missing and (step > 0 or counts[row] > least):
                counts[row] += step
                missing -= step
    return counts


def _minimum_size(settings: NeatSettings) -> int:
    return max(settings.species_size, settings.elitism, 1)


def _parents(
    fitness: Scores, member: Ends, species: Species, settings: NeatSettings, rng: Generator
) -> tuple[Ends, Ends]:
    """Positions of the elites, and one pair of parent positions per child, the fitter parent first."""
    members = [np.flatnonzero(member == number) for number in species.number.tolist()]
    everyone = fitness[np.concatenate(members)]
    span = max(1.0, float(everyone.max() - everyone.min()))
    means = np.array([(float(fitness[own].mean()) - float(everyone.min())) / span for own in members])
    counts = offspring_counts(means, np.array([len(own) for own in members]), settings)
    elites, pairs = [], []
    for own, count in zip(members, counts, strict=True):
        ranked = own[np.lexsort((-own, -fitness[own]))]  # ties: the newest first
        elite = ranked[: min(settings.elitism, count)]
        able = ranked[: max(math.ceil(settings.survival * len(ranked)), 2)]
        elites.append(elite)
        pairs.append(able[rng.integers(0, len(able), (count - len(elite), 2))])
    chosen = np.concatenate(pairs)
    first_is_fitter = fitness[chosen[:, 0]] > fitness[chosen[:, 1]]
    return np.concatenate(elites), np.where(first_is_fitter[:, None], chosen, chosen[:, ::-1])
