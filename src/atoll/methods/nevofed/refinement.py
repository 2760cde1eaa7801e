"""Soft psi, the fitness of NEvoFed's refinement: measured by all clients, for a population on the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from atoll.algorithms.neat import scoring
from atoll.algorithms.neat.coding import encode
from atoll.algorithms.neat.expression import expressed
from atoll.algorithms.neat.polish import Polish
from atoll.algorithms.neat.population import Population
from atoll.algorithms.neat.scoring import Fitness, Readout
from atoll.algorithms.neat.settings import NeatSettings
from atoll.core import checks
from atoll.core.messages import TaskSize
from atoll.methods.base import Array, ClientInfo, Federation, Metrics, Payload, Task
from atoll.methods.nevofed.clients import SOFT
from atoll.methods.nevofed.settings import NEvoFedConfig


class Server(Protocol):
    """What is needed of the method."""

    @property
    def config(self) -> NEvoFedConfig: ...

    settings: NeatSettings
    reading: Readout
    fitness: Fitness

    def payload(self) -> Payload: ...

    def genome(self, code: Array) -> Population: ...


def soft_psi(
    server: Server, population: Population, clients: Sequence[ClientInfo], federation: Federation
) -> tuple[Array, Array]:
    """The mean over clients of each genome's fitness, of its probabilities, and all clients' counts together."""
    genomes = [population[place] for place in range(len(population))]
    codes = [encode(one, server.settings.inputs, server.settings.outputs) for one in genomes]
    payload = server.payload() | {"genomes": codes}
    shape = (len(codes), server.reading.classes, server.reading.classes)
    size = TaskSize(steps=1, population=len(codes))
    tasks = []
    for info in clients:
        rows = info.sizes["train"]
        returns = {"soft": checks.CountsUpTo(shape, rows * scoring.FIXED_POINT)}
        macs = len(population.source) * rows
        tasks.append(Task(f"soft:{info.name}", info.name, SOFT, payload, macs, returns, size=size))
    found = [reply.payload["soft"] for reply in federation.collect(tasks, what="soft counts")]
    return psi_of([server.fitness(counts) for counts in found], federation), np.sum(found, axis=0)


def psi_of(fitness: Sequence[Array] | Array, federation: Federation) -> Array:
    """Eq. of lines 18-20: the mean over clients, or their median (`robust.fitness`)."""
    return np.asarray(np.median(fitness, axis=0) if federation.median_fitness else np.mean(fitness, axis=0))


def soft_metrics(server: Server, phase: str, best: Population, psi: float, total: Array) -> Metrics:
    """Of a round: the best network so far. The error is that of probabilities, the lowest of this generation."""
    network = expressed(best)
    right = np.trace(total, axis1=1, axis2=2) / np.maximum(total.sum(axis=(1, 2)), 1)
    return {
        "phase": phase,
        "error": float(1.0 - right.max()),
        "psi": float(psi),
        "hidden": len(network.node) - server.settings.outputs,
        "connections": len(network.source),
    }


def tuning_of(server: Server, plan: Mapping[str, Any]) -> Polish:
    """The evolution strategy of a polish that is in progress: its genome, its seed and its history."""
    genome, size = expressed(server.genome(plan["genome"])), server.config.polish_population
    return Polish(genome, server.settings.bound, plan["seed"], plan["history"], size)
