"""One client's population: its generations, migrants from other islands, and its best genome so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from atoll.algorithms.neat.population import Ends, Population, first_generation, joined
from atoll.algorithms.neat.reproduction import reproduce
from atoll.algorithms.neat.settings import NeatSettings
from atoll.algorithms.neat.species import Scores, Species, speciate
from atoll.algorithms.neat.variation import mutate_attributes, mutate_structure
from atoll.rng import Generator

Score = Callable[[Population], Scores]


@dataclass(frozen=True)
class Island:
    """A scored population. `member` holds the species number of each genome."""

    generation: int
    population: Population
    fitness: Scores
    member: Ends
    species: Species
    best: Population  # one genome
    best_fitness: float

    def to_plain(self) -> dict[str, Any]:
        """As plain data, for the client's memory."""
        return {
            "generation": self.generation,
            "population": self.population.to_plain(),
            "fitness": self.fitness,
            "member": self.member,
            "species": self.species.to_plain(),
            "best": self.best.to_plain(),
            "best_fitness": self.best_fitness,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Island:
        genomes = {name: Population.from_plain(plain[name]) for name in ("population", "best")}
        return cls(**{**plain, **genomes, "species": Species.from_plain(plain["species"])})


def new_island(settings: NeatSettings, score: Score, rng: Generator) -> Island:
    """A new island with a scored first generation."""
    population = first_generation(settings, rng)
    member, species = speciate(population, None, 1, settings)
    return _scored(1, population, score, member, species, None)


def settled_island(settlers: Population, settings: NeatSettings, score: Score, rng: Generator) -> Island:
    """A new island of these genomes, each once, and of their mutants, which make up the rest of the population."""
    places = np.resize(np.arange(len(settlers)), max(0, settings.population - len(settlers)))
    mutants = mutate_attributes(mutate_structure(settlers.take(places), settings, rng), settings, rng)
    population = joined([settlers, mutants]) if len(places) else settlers.take(np.arange(settings.population))
    member, species = speciate(population, None, 1, settings)
    return _scored(1, population, score, member, species, None)


def next_generation(island: Island, settings: NeatSettings, score: Score, rng: Generator) -> Island:
    """The island after reproduction, speciation and scoring."""
    population, species = reproduce(
        island.population, island.fitness, island.member, island.species, island.generation, settings, rng
    )
    generation = island.generation + 1
    member, species = speciate(population, species, generation, settings)
    return _scored(generation, population, score, member, species, island)


def accept_migrants(
    island: Island, migrants: Population, fitness: Scores, settings: NeatSettings, most: int | None = None
) -> tuple[Island, int]:
    """Replace residents by better migrants; returns the island and the number of accepted migrants.

    The best migrant replaces the worst resident, the second best the second worst, and so on while the migrant is
    strictly better. `fitness` is that of the migrants on this island's data. At most `most` are accepted.
    """
    places_left = len(island.population) if most is None else min(most, len(island.population))
    arriving = np.argsort(-fitness, kind="stable")[:places_left]
    leaving = np.argsort(island.fitness, kind="stable")[: len(arriving)]
    worse = fitness[arriving] <= island.fitness[leaving]
    accepted = int(worse.argmax()) if worse.any() else len(arriving)
    if not accepted:
        return island, 0
    everyone = joined([island.population, migrants])
    places = np.arange(len(island.population))
    places[leaving[:accepted]] = len(places) + arriving[:accepted]
    scores = np.concatenate([island.fitness, fitness])[places]
    population = everyone.take(places)
    member, species = speciate(population, island.species, island.generation, settings)
    mixed = replace(island, population=population, fitness=scores, member=member, species=species)
    return _with_best(mixed), accepted


def _scored(
    generation: int, population: Population, score: Score, member: Ends, species: Species, before: Island | None
) -> Island:
    fitness = score(population)
    best, best_fitness = (population[0], -np.inf) if before is None else (before.best, before.best_fitness)
    return _with_best(Island(generation, population, fitness, member, species, best, best_fitness))


def _with_best(island: Island) -> Island:
    """Update the best genome so far; ties go to the older one."""
    leader = int(island.fitness.argmax())
    value = float(island.fitness[leader])
    if value <= island.best_fitness:
        return island
    return replace(island, best=island.population[leader], best_fitness=value)
