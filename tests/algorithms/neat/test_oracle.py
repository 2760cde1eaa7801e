"""neat-python computes the same outputs and distances."""

from __future__ import annotations

from pathlib import Path

import neat
import numpy as np
import pytest

from algorithms.neat.oracle import from_neat, neat_answers, neat_config, numbers, random_genomes, to_neat
from atoll.algorithms.neat.evaluation import outputs, recurrent_outputs
from atoll.algorithms.neat.functions import RELU_LIMIT
from atoll.algorithms.neat.population import align
from atoll.algorithms.neat.reproduction import offspring_counts
from atoll.algorithms.neat.settings import NeatSettings
from atoll.algorithms.neat.species import distances, speciate
from atoll.rng import stream


def test_200_feed_forward_genomes_have_equal_outputs(tmp_path: Path) -> None:
    settings = NeatSettings(inputs=7, outputs=3, population=200)
    rng = stream(1, "oracle")
    genomes = random_genomes(settings, 20, rng)
    assert len(genomes.node) / 200 > 6, "the genomes have hidden nodes"
    x = rng.normal(0, 1, (11, 7))
    ours = outputs(genomes, x, 3)
    config, table = neat_config(settings, tmp_path), numbers(genomes)
    for place in range(200):
        network = neat.nn.FeedForwardNetwork.create(to_neat(genomes[place], place, table), config)
        theirs = neat_answers(network, x)
        assert np.abs(theirs).max() < RELU_LIMIT
        np.testing.assert_allclose(ours[place], theirs, rtol=1e-12, atol=1e-12)


def test_recurrent_genomes_have_equal_outputs_over_a_few_steps(tmp_path: Path) -> None:
    settings = NeatSettings(inputs=4, outputs=2, population=100, recurrent=True)
    rng = stream(2, "oracle")
    genomes = random_genomes(settings, 15, rng)
    x = rng.normal(0, 1, (5, 3, 4))  # five sequences of three steps
    ours = recurrent_outputs(genomes, x, 2)
    config, table = neat_config(settings, tmp_path), numbers(genomes)
    loops = genomes.source == genomes.target
    assert loops.any(), "some nodes feed themselves"
    for place in range(100):
        network = neat.nn.RecurrentNetwork.create(to_neat(genomes[place], place, table), config)
        for sequence in range(5):
            network.reset()
            theirs = [network.activate(step) for step in x[sequence].tolist()][-1]
            np.testing.assert_allclose(ours[place, :, sequence], theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("recurrent", [False, True])
def test_distances_are_equal(tmp_path: Path, recurrent: bool) -> None:
    settings = NeatSettings(inputs=5, outputs=2, population=40, recurrent=recurrent)
    genomes = random_genomes(settings, 12, stream(3, "oracle"))
    config, table, alignment = neat_config(settings, tmp_path).genome_config, numbers(genomes), align(genomes)
    theirs = [to_neat(genomes[place], place, table) for place in range(40)]
    for one in range(40):
        wanted = [theirs[one].distance(other, config) for other in theirs]
        np.testing.assert_allclose(distances(genomes, alignment, one, np.arange(40), settings), wanted, rtol=1e-12)


def test_species_are_the_same(tmp_path: Path) -> None:
    """From nothing, and from the species of a generation before."""
    settings = NeatSettings(inputs=5, outputs=2, population=60, threshold=3.0)
    rng = stream(4, "oracle")
    first, second = random_genomes(settings, 4, rng), random_genomes(settings, 8, rng)
    config = neat_config(settings, tmp_path)
    species_set = neat.DefaultSpeciesSet(config.species_set_config, neat.reporting.ReporterSet())
    table = numbers(first) | {}
    table = {name: place for place, name in enumerate(sorted({*first.node.tolist(), *second.node.tolist()}))}
    before = None
    for generation, population in enumerate((first, second)):
        members = {place: to_neat(population[place], place + 1000 * generation, table) for place in range(60)}
        species_set.speciate(config, {genome.key: genome for genome in members.values()}, generation)
        member, before = speciate(population, before, generation, settings)
        theirs = [species_set.get_species_id(place + 1000 * generation) for place in range(60)]
        assert member.tolist() == theirs
        assert len(set(theirs)) > 3


def test_offspring_counts_are_the_same() -> None:
    rng = stream(5, "oracle")
    reproduction = neat.DefaultReproduction
    for _ in range(200):
        species = int(rng.integers(1, 12))
        settings = NeatSettings(inputs=2, outputs=2, population=60)
        means, sizes = rng.random(species), rng.integers(1, 20, species)
        theirs = reproduction.compute_spawn(means.tolist(), sizes.tolist(), 60, 2)
        theirs = reproduction._adjust_spawn_exact(None, theirs, 60, 2)
        assert offspring_counts(means, sizes, settings) == theirs


def test_a_genome_survives_the_way_there_and_back() -> None:
    settings = NeatSettings(inputs=3, outputs=2, population=20)
    rng = stream(6, "oracle")
    genomes = random_genomes(settings, 10, rng)
    table, x = numbers(genomes), rng.normal(0, 1, (6, 3))
    for place in range(20):
        back = from_neat(to_neat(genomes[place], place, table), 2)
        # The order of connections, hence of sums, may differ.
        np.testing.assert_allclose(outputs(back, x, 2), outputs(genomes[place], x, 2), rtol=1e-12, atol=1e-12)
