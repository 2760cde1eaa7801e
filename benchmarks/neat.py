"""How much faster than neat-python: evaluating genomes, and a whole generation. Ratios from one run, same genomes.

    python benchmarks/neat.py [--generations 15] [--repeats 5]

neat-python evolves a population first, so that the genomes are of its making; then both sides are timed on the same
genomes and rows, in turns: neat-python row by row through `activate`, as it comes; Atoll on the whole population.
"""

# ruff: noqa: E402 - the path is set before the imports

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# In place of this folder, in which this very file would be taken for neat-python.
sys.path[0] = str(Path(__file__).resolve().parent.parent / "tests")
import neat

from algorithms.neat.oracle import from_neat, neat_answers, neat_config
from atoll.algorithms.neat import scoring
from atoll.algorithms.neat.evaluation import outputs
from atoll.algorithms.neat.population import Population, joined
from atoll.algorithms.neat.reproduction import reproduce
from atoll.algorithms.neat.scoring import Readout
from atoll.algorithms.neat.settings import NeatSettings
from atoll.algorithms.neat.species import speciate
from atoll.rng import Generator, stream

Rows = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def made_rows(settings: NeatSettings, rows: int, rng: Generator) -> Rows:
    """A problem with something to learn: the classes depend on six of the features."""
    x = rng.standard_normal((rows, settings.inputs))
    rule = rng.standard_normal((6, settings.outputs))
    return x, (x[:, :6] @ rule).argmax(axis=1)


def converted(genomes: list[Any], settings: NeatSettings) -> Population:
    return joined([from_neat(genome, settings.outputs) for genome in genomes])


def evolved(settings: NeatSettings, data: Rows, generations: int, folder: Path) -> tuple[Any, Any]:
    """neat-python's own evolution. Its fitness is computed by us, only to save time here: it is the same."""
    config = neat_config(settings, folder)
    population = neat.Population(config)
    reading = Readout(settings.outputs)

    def fitness(genomes: list[tuple[int, Any]], _: Any) -> None:
        found = scoring.confusions(converted([one for _, one in genomes], settings), *data, reading)
        for (_, genome), value in zip(genomes, scoring.weighted_f1(found).tolist(), strict=True):
            genome.fitness = value

    population.run(fitness, generations)
    for genome in population.population.values():  # ours are float32: both shall compute with the same numbers
        for gene in (*genome.nodes.values(), *genome.connections.values()):
            for name in ("bias", "weight"):
                if hasattr(gene, name):
                    setattr(gene, name, float(np.float32(getattr(gene, name))))
    fitness(list(population.population.items()), config)
    return population, config


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """The median of several times."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def theirs_evaluated(genomes: list[Any], config: Any, x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    return [neat_answers(neat.nn.FeedForwardNetwork.create(genome, config), x) for genome in genomes]


def evaluation(generations: int, repeats: int, folder: Path) -> dict[str, float]:
    """200 genomes, 12 inputs, 1,000 rows."""
    settings = NeatSettings(inputs=12, outputs=2)
    data = made_rows(settings, 1000, stream(1, "benchmark"))
    population, config = evolved(settings, data, generations, folder)
    genomes = list(population.population.values())
    ours = converted(genomes, settings)
    difference = float(np.abs(outputs(ours, data[0], 2) - theirs_evaluated(genomes, config, data[0])).max())
    fast = seconds(lambda: outputs(ours, data[0], 2), repeats)
    slow = seconds(lambda: theirs_evaluated(genomes, config, data[0]), max(1, repeats // 2))
    return {
        "nodes_a_genome": len(ours.node) / len(ours),
        "links_a_genome": len(ours.source) / len(ours),
        "largest_difference": difference,
        "atoll_ms": fast * 1e3,
        "neat_python_ms": slow * 1e3,
        "ratio": slow / fast,
    }


def generation(generations: int, repeats: int, folder: Path) -> dict[str, float]:
    """A whole generation, 161 inputs, 7 classes, 1,000 rows: evaluation, reproduction, speciation."""
    settings = NeatSettings(inputs=161, outputs=7)
    data = made_rows(settings, 1000, stream(2, "benchmark"))
    population, config = evolved(settings, data, generations, folder)
    genomes = list(population.population.values())
    ours, reading, rng = converted(genomes, settings), Readout(7), stream(3, "benchmark")
    member, species = speciate(ours, None, 0, settings)

    def our_generation() -> None:
        fitness = scoring.weighted_f1(scoring.confusions(ours, *data, reading))
        children, left = reproduce(ours, fitness, member, species, 1, settings, rng)
        speciate(children, left, 2, settings)

    def their_generation() -> None:
        for genome in genomes:
            answers = neat_answers(neat.nn.FeedForwardNetwork.create(genome, config), data[0])
            found = np.bincount(data[1] * 7 + answers.argmax(axis=0), minlength=49).reshape(1, 7, 7)
            genome.fitness = float(scoring.weighted_f1(found)[0])
        children = population.reproduction.reproduce(config, population.species, 200, population.generation)
        population.species.speciate(config, children, population.generation + 1)

    fast = seconds(our_generation, repeats)
    slow = seconds(their_generation, 1)  # it changes its own species: once
    return {
        "nodes_a_genome": len(ours.node) / len(ours),
        "links_a_genome": len(ours.source) / len(ours),
        "atoll_ms": fast * 1e3,
        "neat_python_ms": slow * 1e3,
        "ratio": slow / fast,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--generations", type=int, default=15, help="evolved before timing")
    arguments.add_argument("--repeats", type=int, default=5)
    chosen = arguments.parse_args()
    warnings.filterwarnings("ignore", message="Innovation number collision")
    random.seed(1)  # neat-python draws from the global generator
    with tempfile.TemporaryDirectory() as folder:
        for name, measure in (("evaluation", evaluation), ("generation", generation)):
            found = measure(chosen.generations, chosen.repeats, Path(folder))
            print(json.dumps({"what": name} | {key: round(value, 15) for key, value in found.items()}))


if __name__ == "__main__":
    main()
