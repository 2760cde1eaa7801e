"""What NEvoFed's clients do: generations of their own population, migrants, counts, and importances of features."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from atoll.algorithms.neat import scoring
from atoll.algorithms.neat.coding import GenomeLimits, decode, encode
from atoll.algorithms.neat.functions import ACTIVATIONS, AGGREGATIONS
from atoll.algorithms.neat.island import Island, Score, accept_migrants, new_island, next_generation
from atoll.algorithms.neat.population import NODE_GENES, TYPES, Population, joined
from atoll.algorithms.neat.scoring import Readout
from atoll.algorithms.neat.settings import NeatSettings
from atoll.clients import Client
from atoll.core import checks
from atoll.methods.base import Array, Part, Payload

UPDATE = f"{__name__}:update"
WELCOME = f"{__name__}:welcome"
EVALUATE = f"{__name__}:evaluate"
SOFT = f"{__name__}:soft"
IMPORTANCE = f"{__name__}:importance"
HOLDS = 0.5  # the share of its claimed fitness that a guest must reach, see `robust.confirm`


@checks.register
@dataclass(frozen=True)
class IslandMemory(GenomeLimits):
    """A client's memory: an island of this many genomes, each within the limits."""

    population: int

    def problem(self, value: Any) -> str | None:
        try:
            island = Island.from_plain(value["island"]) if value.keys() == {"island"} else None
        except (TypeError, KeyError, AttributeError, ValueError):
            island = None
        if island is None or type(island.generation) is not int or type(island.best_fitness) is not float:
            return "schema: something else where an island was expected"
        for genomes in (island.population, island.best, island.species.representatives):
            reason = self._genomes(genomes)
            if reason:
                return f"genome: {reason}"
        if len(island.population) != self.population or len(island.best) != 1:
            return f"genome: {len(island.population)} genomes where {self.population} were expected"
        scores = (island.fitness, np.array([island.best_fitness]))
        if any(array.dtype != np.float64 or not np.isfinite(array).all() for array in scores):
            return "nonfinite: a fitness that is not a finite number"
        if island.fitness.shape != (self.population,) or island.member.shape != (self.population,):
            return f"shape: scores of {island.fitness.shape} for {self.population} genomes"
        return None

    def _genomes(self, genomes: Population) -> str:
        """Why these cannot be networks; what is linear in their size only, because they stay on their client."""
        for name, kind in TYPES.items():
            array = getattr(genomes, name)
            ends = genomes.node_ends if name in NODE_GENES else genomes.connection_ends
            most = self.outputs + self.hidden if name in NODE_GENES else self.connections
            sound = isinstance(array, np.ndarray) and array.dtype == kind and array.ndim == 1
            if not sound or ends.ndim != 1 or not len(ends) or ends[0] != 0 or ends[-1] != len(array):
                return f"{name!r} does not fit the number of its genes"
            counts = np.diff(ends)
            if len(counts) and (counts.min() < 0 or counts.max() > most):
                return f"{int(counts.max())} entries in {name!r} of a genome, at most {most}"
        for name in ("bias", "response", "weight"):
            values = getattr(genomes, name)
            if not np.isfinite(values).all() or (np.abs(values) > self.bound).any():
                return f"a {name} is outside -{self.bound:g} to {self.bound:g}"
        functions = {"activation": ACTIVATIONS, "aggregation": AGGREGATIONS}
        wrong = [name for name, known in functions.items() if (getattr(genomes, name) >= len(known)).any()]
        return f"an unknown {wrong[0]} function" if wrong else ""


def island_check(settings: NeatSettings) -> IslandMemory:
    return IslandMemory(**asdict(GenomeLimits.of(settings)), population=settings.population)


def _rows(client: Client, part: Part) -> tuple[Array, Array]:
    x, y = client.data.part(part)
    if not np.isfinite(x).all():
        raise ValueError(
            "a feature is missing or infinite: set data.missing to 'mean', 'median' or 'zero' to fill gaps"
        )
    return x.reshape(len(x), -1), y


def _settings(payload: Payload) -> tuple[NeatSettings, Readout]:
    given = json.loads(payload["neat"]["settings"].tobytes())
    reading = {**given["reading"], "edges": tuple(given["reading"]["edges"])}
    return NeatSettings.from_plain(given["settings"]), Readout(**reading)


def _scorer(payload: Payload, reading: Readout, x: Array, y: Array) -> Score:
    fitness = scoring.find_fitness(payload["fitness"])
    return lambda population: fitness(scoring.confusions(population, x, y, reading))


def update(payload: Payload, client: Client) -> Payload:
    """Lines 27-33: generations on the client's own training rows; the best network so far."""
    settings, reading = _settings(payload)
    if client.size is not None and settings.population > client.size.population:
        raise ValueError(f"population {settings.population}: the task declares {client.size.population} to this site")
    x, y = _rows(client, "train")
    present = np.unique(y)
    if len(present) == 1 and payload["one_class"] == "refuse":
        raise ValueError(
            f"all training rows are of class {client.data.schema.classes[int(present[0])]!r}, so a network that always "
            "answers it is perfect here; leave this client out, or set nevofed.one_class to 'use'"
        )
    score = _scorer(payload, reading, x, y)
    island = Island.from_plain(client.memory["island"]) if "island" in client.memory else None
    for _ in range(payload["generations"]):
        if island is None:
            island = new_island(settings, score, client.rng)
        else:
            island = next_generation(island, settings, score, client.rng)
    assert island is not None
    client.memory["island"] = island.to_plain()
    return {
        "genome": encode(island.best, settings.inputs, settings.outputs),
        "confusion": scoring.confusions(island.best, x, y, reading)[0],
        "connections": len(island.population.source),
        "species": len(island.species.number),
        "constant": int((x == x[0]).all(axis=0).sum()),
    }


def welcome(payload: Payload, client: Client) -> Payload:
    """Lines 35-39: guests are scored on the client's own training rows and replace worse residents.

    With `claimed`, the fitness that its own client reports of each guest, a guest that reaches less than half of it
    here is refused. `most` guests are accepted at most.
    """
    settings, reading = _settings(payload)
    limits = GenomeLimits.of(settings)
    guests = joined([decode(payload["guests"][name], limits) for name in sorted(payload["guests"])])
    found = scoring.confusions(guests, *_rows(client, "train"), reading)
    fitness = scoring.find_fitness(payload["fitness"])(found)
    if "claimed" in payload:
        holds = fitness >= HOLDS * np.array([payload["claimed"][name] for name in sorted(payload["guests"])])
        fitness = np.where(holds, fitness, -np.inf)  # worse than every resident
    island = Island.from_plain(client.memory["island"])
    island, stayed = accept_migrants(island, guests, fitness, settings, payload.get("most"))
    client.memory["island"] = island.to_plain()
    return {"stayed": stayed, **({"confusions": found} if payload.get("counts") else {})}


def evaluate(payload: Payload, client: Client) -> Payload:
    """Lines 41-44."""
    settings, reading = _settings(payload)
    limits = GenomeLimits.of(settings)
    genomes = joined([decode(code, limits) for code in payload["genomes"]])
    return {"confusions": scoring.confusions(genomes, *_rows(client, payload["part"]), reading)}


def soft(payload: Payload, client: Client) -> Payload:
    """Soft counts of every genome on the client's training rows."""
    settings, reading = _settings(payload)
    if client.size is not None and len(payload["genomes"]) > client.size.population:
        raise ValueError(f"{len(payload['genomes'])} genomes: the task declares {client.size.population} to this site")
    limits = GenomeLimits.of(settings)
    genomes = joined([decode(code, limits) for code in payload["genomes"]])
    return {"soft": scoring.soft_confusions(genomes, *_rows(client, "train"), reading)}


def importance(payload: Payload, client: Client) -> Payload:
    """Counts as they are, and with the values of one feature at a time shuffled among the rows."""
    settings, reading = _settings(payload)
    genome = decode(payload["genome"], GenomeLimits.of(settings))
    x, y = _rows(client, "test")
    shuffled = []
    for feature in payload["features"]:
        total = np.zeros((reading.classes, reading.classes), np.int64)
        for _ in range(payload["repeats"]):
            order, other = client.rng.permutation(len(x)), x.copy()
            other[:, feature :: settings.inputs] = x[order, feature :: settings.inputs]  # in every step of time
            total += scoring.confusions(genome, other, y, reading)[0]
        shuffled.append(total)
    return {"confusions": np.array(shuffled), "confusion": scoring.confusions(genome, x, y, reading)[0]}


JOBS = {
    "update": update,
    "welcome": welcome,
    "evaluate": evaluate,
    "soft": soft,
    "importance": importance,
}
