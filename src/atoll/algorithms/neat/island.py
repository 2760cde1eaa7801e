"""One client's population: a generation after the other, guests from other islands, and its best so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from atoll.algorithms.neat.population import Ends, Population, first_generation, joined
from atoll.algorithms.neat.reproduction import reproduce
from atoll.algorithms.neat.settings import NeatSettings
from atoll.algorithms.neat.species import Scores, Species, speciate
from atoll.rng import Generator

Score = Callable[[Population], Scores]


@dataclass(frozen=True)
class Island:
    """A population that has been scored. `member` is each genome's species."""

    generation: int
    population: Population
    fitness: Scores
    member: Ends
    species: Species
    best: Population  # one genome
    best_fitness: float

    def to_plain(self) -> dict[str, Any]:
        """As it lies in a client's memory."""
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
    """A new island: its first generation, scored."""
    population = first_generation(settings, rng)
    member, species = speciate(population, None, 1, settings)
    return _scored(1, population, score, member, species, None)


def next_generation(island: Island, settings: NeatSettings, score: Score, rng: Generator) -> Island:
    """Reproduction, speciation, scoring."""
    population, species = reproduce(
        island.population, island.fitness, island.member, island.species, island.generation, settings, rng
    )
    generation = island.generation + 1
    member, species = speciate(population, species, generation, settings)
    return _scored(generation, population, score, member, species, island)


def accept_migrants(island: Island, guests: Population, fitness: Scores, settings: NeatSettings) -> tuple[Island, int]:
    """The best guest takes the place of the worst resident, the second best that of the second worst, as long as the
    guest is strictly better; and how many stay. `fitness` is what the guests reach on this island's data."""
    arriving = np.argsort(-fitness, kind="stable")[: len(island.population)]
    leaving = np.argsort(island.fitness, kind="stable")[: len(arriving)]
    worse = fitness[arriving] <= island.fitness[leaving]
    stay = int(worse.argmax()) if worse.any() else len(arriving)
    if not stay:
        return island, 0
    everyone = joined([island.population, guests])
    places = np.arange(len(island.population))
    places[leaving[:stay]] = len(places) + arriving[:stay]
    scores = np.concatenate([island.fitness, fitness])[places]
    population = everyone.take(places)
    member, species = speciate(population, island.species, island.generation, settings)
    mixed = replace(island, population=population, fitness=scores, member=member, species=species)
    return _with_best(mixed), stay


def _scored(
    generation: int, population: Population, score: Score, member: Ends, species: Species, before: Island | None
) -> Island:
    fitness = score(population)
    best, best_fitness = (population[0], -np.inf) if before is None else (before.best, before.best_fitness)
    return _with_best(Island(generation, population, fitness, member, species, best, best_fitness))


def _with_best(island: Island) -> Island:
    """The best so far, the older one if the newer is only as good."""
    leader = int(island.fitness.argmax())
    value = float(island.fitness[leader])
    if value <= island.best_fitness:
        return island
    return replace(island, best=island.population[leader], best_fitness=value)
