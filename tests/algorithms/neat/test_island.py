"""Migrants, elites and the best so far."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from atoll.algorithms.neat.island import Island, accept_migrants, new_island, next_generation
from atoll.algorithms.neat.population import Population
from atoll.algorithms.neat.reproduction import offspring_counts, surviving_species
from atoll.algorithms.neat.scoring import Readout, confusions, weighted_f1
from atoll.algorithms.neat.settings import NeatSettings
from atoll.algorithms.neat.species import Species
from atoll.core import wire
from atoll.rng import stream

TOLD = NeatSettings(inputs=3, outputs=2, population=20)


def score(population: Population) -> np.ndarray:  # type: ignore[type-arg]
    rng = stream(1, "rows")
    x = rng.standard_normal((50, 3))
    return weighted_f1(confusions(population, x, (x[:, 0] * x[:, 1] > 0).astype(np.int64), Readout(2)))


def island(generations: int, seed: int = 1) -> Island:
    found = new_island(TOLD, score, stream(seed, "start"))
    for number in range(generations):
        found = next_generation(found, TOLD, score, stream(seed, number))
    return found


def test_the_best_never_gets_worse_and_is_what_it_says() -> None:
    found = [island(generations) for generations in range(6)]
    values = [one.best_fitness for one in found]
    assert values == sorted(values) and values[-1] > values[0]
    for one in found:
        assert score(one.best)[0] == one.best_fitness
        assert len(one.population) == TOLD.population and one.fitness.max() <= one.best_fitness
        assert set(one.member.tolist()) == set(one.species.number.tolist())


def test_an_island_survives_being_put_aside() -> None:
    one = island(3)
    again = Island.from_plain(wire.decode(wire.encode(one.to_plain(), digests=False)))
    rngs = stream(9, "next"), stream(9, "next")
    left, right = (next_generation(i, TOLD, score, rng) for i, rng in zip((one, again), rngs, strict=True))
    assert wire.encode(left.to_plain(), digests=False) == wire.encode(right.to_plain(), digests=False)


def test_migrants_replace_worse_residents_in_order_while_strictly_better() -> None:
    home = island(0)
    fitness = np.linspace(0.10, 0.29, 20)  # residents 0, 1, 2, ... are the worst
    home = replace(home, fitness=fitness, best_fitness=0.29, best=home.population[19])
    guests = island(4, seed=2).population.take([0, 1, 2, 3])
    mixed, stayed = accept_migrants(home, guests, np.array([0.115, 0.90, 0.12, 0.05]), TOLD)
    # Sorted guests .90, .12, .115, .05 meet the worst residents .10, .11, .12, .13: two are better, the third is not.
    assert stayed == 2
    assert mixed.fitness[:4].tolist() == [0.90, 0.12, fitness[2], fitness[3]]
    assert np.array_equal(mixed.population[0].weight, guests[1].weight)
    assert mixed.best_fitness == 0.90 and np.array_equal(mixed.best.weight, guests[1].weight)
    same, none = accept_migrants(home, guests, np.full(4, 0.10), TOLD)
    assert none == 0 and same is home


def test_a_stagnant_species_dies_unless_it_is_the_best() -> None:
    representatives = island(0).population.take([0, 1, 2])
    species = Species(np.array([1, 2, 3]), np.array([0, 0, 5]), np.array([0.9, 0.1, 0.2]), representatives, 4)
    member, fitness = np.array([1, 2, 3]), np.array([0.9, 0.1, 0.2])
    assert surviving_species(species, member, fitness, 9, TOLD).tolist() == [0, 1, 2]
    assert surviving_species(species, member, fitness, 10, TOLD).tolist() == [0, 2]


def test_offspring_add_up_and_fit_species_grow() -> None:
    counts = offspring_counts(np.array([0.1, 0.9]), np.array([10, 10]), TOLD)
    assert sum(counts) == 20 and counts[1] > counts[0] >= 2


def test_same_stream_same_evolution() -> None:
    assert np.array_equal(island(4).population.weight, island(4).population.weight)
    assert not np.array_equal(island(1).population.weight, island(1, seed=3).population.weight)
