"""The first generation: no hidden nodes."""

from __future__ import annotations

import numpy as np

from atoll.rng import Generator
from atoll.search.neat.functions import ACTIVATIONS, AGGREGATIONS
from atoll.search.neat.names import OUTPUTS_FROM
from atoll.search.neat.population import Codes, Ends, Population, Reals
from atoll.search.neat.settings import NeatSettings


def first_generation(settings: NeatSettings, rng: Generator) -> Population:
    """`settings.population` genomes that differ in weights, biases and, by the kind of start, in what is connected."""
    genomes, outputs = settings.population, settings.outputs
    nodes = genomes * outputs
    sources = _sources(settings, rng)  # genomes x inputs connected
    per_genome = sources.shape[1] * outputs
    links = genomes * per_genome
    targets = np.tile(np.arange(outputs), genomes * sources.shape[1])
    return Population(
        node_ends=np.arange(genomes + 1) * outputs,
        node=np.tile(np.arange(outputs, dtype=np.uint64) + np.uint64(OUTPUTS_FROM), genomes),
        bias=normal(nodes, settings.bound, rng),
        response=np.ones(nodes, np.float32),
        activation=start_codes(nodes, settings.activation_start, ACTIVATIONS, settings.activations, rng),
        aggregation=start_codes(nodes, settings.aggregation_start, AGGREGATIONS, settings.aggregations, rng),
        link_ends=np.arange(genomes + 1) * per_genome,
        source=np.repeat(sources.ravel(), outputs).astype(np.uint64),
        target=targets.astype(np.uint64) + np.uint64(OUTPUTS_FROM),
        weight=normal(links, settings.bound, rng),
        enabled=np.ones(links, np.bool_),
    )


def normal(count: int, bound: float, rng: Generator) -> Reals:
    """Fresh weights: standard normal, within the bound."""
    return np.clip(rng.standard_normal(count), -bound, bound).astype(np.float32)


def start_codes(count: int, start: str, known: tuple[str, ...], allowed: tuple[str, ...], rng: Generator) -> Codes:
    """Function codes of new nodes: all the same one, or any of those allowed."""
    if start != "random":
        return np.full(count, known.index(start), np.uint8)
    return allowed_codes(known, allowed)[rng.integers(0, len(allowed), count)]


def allowed_codes(known: tuple[str, ...], allowed: tuple[str, ...]) -> Codes:
    return np.array([known.index(word) for word in allowed], np.uint8)


def _sources(settings: NeatSettings, rng: Generator) -> Ends:
    genomes, inputs = settings.population, settings.inputs
    if settings.start == "full":
        return np.tile(np.arange(inputs), (genomes, 1))
    if settings.start == "unconnected":
        return np.zeros((genomes, 0), np.int64)
    return rng.integers(0, inputs, (genomes, 1))
