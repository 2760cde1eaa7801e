"""What the searches over choice keys have in common: settings, breeding, tasks and objectives.

`realtime` and `offline` derive from `ChoiceSearch` and add what sets them apart: which clients train which
individual, from which weights, and which individuals are measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Self

import numpy as np
from pydantic import Field, field_validator

from atoll import spaces
from atoll.algorithms import nsga2
from atoll.algorithms.genetic import Duplicates, breed
from atoll.algorithms.sampling import choose
from atoll.clients import jobs, train_task
from atoll.core.checks import CountsUpTo
from atoll.errors import ConfigError, nearest
from atoll.methods.base import (
    Array,
    Candidate,
    ClientInfo,
    Federation,
    Generator,
    Method,
    MethodConfig,
    Metrics,
    Part,
    Payload,
    Schema,
    StateT,
    Task,
    Tensors,
)
from atoll.spaces.choice import plan
from atoll.spaces.choice import space as choice

POPULATION = 10  # the paper's N
COSTS = ("macs", "params", "upload_bytes", "latency")

Key = list[int]


class ChoiceConfig(MethodConfig):
    """Tables I and II of the paper, and what they leave open. None: decided by the data at the start."""

    population: int | None = Field(default=None, ge=2)  # N
    channels: list[int] | None = None  # of the choice blocks, for images
    widths: list[int] | None = None  # of the choice blocks, for tables
    stem: int | None = Field(default=None, ge=1)  # default: as the first block
    expansion: int = Field(default=6, ge=1)  # of the inverted residual
    fraction: float = Field(default=1.0, gt=0, le=1)  # C
    epochs: int = Field(default=1, ge=1)  # E
    batch: int = Field(default=50, ge=2)  # B
    lr: float = Field(default=0.1, gt=0)
    decay: float = Field(default=0.995, gt=0, le=1)
    momentum: float = Field(default=0.5, ge=0, lt=1)
    crossover: float = Field(default=0.9, ge=0, le=1)
    mutation: float = Field(default=0.1, ge=0, le=1)  # per bit
    duplicates: Duplicates = "mutate"  # an offspring equal to a parent or sibling is mutated again; or keep
    search: Literal["evolution", "random"] = "evolution"  # random: offspring are drawn, not bred
    objectives: list[str] = Field(default=["error", "macs"])  # error first, then one or two of COSTS
    device_speed: float = Field(default=5e9, gt=0)  # latency: MACs a second of a client that does not say
    device_bandwidth: float = Field(default=1.25e6, gt=0)  # latency: bytes a second of a client that does not say
    test_every: int = Field(default=1, ge=0)  # rounds between test evaluations, for the report; 0: only at the end

    @field_validator("objectives")
    @classmethod
    def _known_objectives(cls, value: list[str]) -> list[str]:
        if len(value) not in (2, 3) or value[0] != "error" or len(set(value)) != len(value):
            raise ConfigError(
                f"objectives = {value}: write error first, then one or two of {', '.join(COSTS)}",
                code="invalid-setting",
            )
        for name in value[1:]:
            if name not in COSTS:
                raise ConfigError(f"objectives: {name!r} is unknown; {nearest(name, COSTS)}", code="unknown-objective")
        return value

    def fitted(self, schema: Schema, clients: int) -> Self:
        arch = plan.architecture_for(schema, self.channels, self.widths, self.stem, self.expansion)
        chosen = {name: arch.get(name) for name in ("channels", "widths", "stem")}
        return self.model_copy(update={"population": self.population or POPULATION, **chosen})


class ChoiceSearch(Method[StateT]):
    """The server's side of what is shared. It holds settings only."""

    config: ChoiceConfig

    def __init__(self, config: ChoiceConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.population = config.population or POPULATION
        self.architecture = plan.architecture_for(schema, config.channels, config.widths, config.stem, config.expansion)

    def first_parents(self, federation: Federation, rng: Generator) -> list[Key]:
        """Line 7: keys drawn at random. A federation without validation rows is refused here."""
        if not any(info.sizes["validation"] for info in federation.clients()):
            raise ConfigError(
                "data.split: no client has validation rows, and the search evaluates networks on them; add some",
                code="no-validation-rows",
            )
        return [list(key) for key in choice.random_keys(self.population, choice.blocks(self.architecture), rng)]

    def participating(self, federation: Federation, rng: Generator) -> list[ClientInfo]:
        """Line 14: m = C * K clients."""
        infos = {info.name: info for info in federation.clients()}
        return [infos[name] for name in choose(list(infos), self.config.fraction, rng)]

    def offspring(self, parents: Sequence[Key], objectives: Sequence[Sequence[float]], rng: Generator) -> list[Key]:
        """Lines 10-12: bred on the keys' bits. Before anything is measured the tournament is a coin flip."""
        settings = self.config
        if settings.search == "random":
            return [list(key) for key in choice.random_keys(self.population, len(parents[0]), rng)]
        rank, crowding = nsga2.rank_and_crowding(objectives) if objectives else (None, None)
        bits = breed(
            [choice.to_bits(key) for key in parents],
            rank,
            crowding,
            self.population,
            rng,
            duplicates=settings.duplicates,
            crossover=settings.crossover,
            mutation=settings.mutation,
        )
        return [list(choice.from_bits(row)) for row in bits]

    def train_task(self, key: Key, weights: Tensors, rounds_done: int, info: ClientInfo) -> Task:
        """One client trains one sub-network; the learning rate has decayed for `rounds_done` rounds."""
        settings = self.config
        payload: Payload = {
            "architecture": self.architecture,
            "key": key,
            "weights": weights,
            "epochs": settings.epochs,
            "batch": settings.batch,
            "lr": settings.lr * settings.decay**rounds_done,
            "momentum": settings.momentum,
        }
        return train_task(info, payload, key_name(key), self.cost(key))

    def count(
        self,
        keys: Sequence[Key],
        weights: Tensors,
        holders: Sequence[ClientInfo],
        part: Part,
        federation: Federation,
    ) -> tuple[Array, int, str]:
        """Correct rows of every key over all holders of this part, how many rows those are, and failure reasons."""
        payload: Payload = {
            "architecture": self.architecture,
            "keys": [list(key) for key in keys],
            "weights": weights,
            "part": part,
            "batch": jobs.TEST_BATCH,
        }
        macs = choice.executed_macs(self.architecture, keys)
        sizes = {info.name: info.sizes[part] for info in holders if info.sizes[part]}
        tasks = [
            Task(
                f"{part}:{name}",
                name,
                jobs.COUNT_CORRECT,
                payload,
                macs * size,
                {"correct": CountsUpTo((len(keys),), size)},
                test_evaluation=part == "test",
            )
            for name, size in sizes.items()
        ]
        correct, rows = np.zeros(len(keys), np.int64), 0
        replies = federation.collect(tasks, minimum=0)
        for reply in replies:
            correct += reply.payload["correct"]
            rows += sizes[reply.task.client]
        return correct, rows, replies.reasons

    def cost(self, key: Key) -> spaces.Cost:
        return choice.cost(choice.sub_model(self.architecture, key))

    def values(self, error: float, cost: spaces.Cost, clients: Sequence[ClientInfo]) -> list[float]:
        """A row of objectives, in the order of the settings."""
        others: dict[str, float] = {"macs": cost.macs, "params": cost.params, "upload_bytes": cost.bytes}
        if "latency" in self.config.objectives:
            others["latency"] = self._latency(cost, clients)
        return [error, *(float(others[name]) for name in self.config.objectives[1:])]

    def _latency(self, cost: spaces.Cost, clients: Sequence[ClientInfo]) -> float:
        """Seconds that a round's training and upload take the clients, on average."""
        settings, seconds = self.config, 0.0
        for info in clients:
            work = spaces.training_macs(cost, info.sizes["train"], settings.epochs)
            seconds += work / (info.speed or settings.device_speed)
            seconds += cost.bytes / (info.bandwidth or settings.device_bandwidth)
        return seconds / len(clients)

    def front_metrics(
        self,
        keys: Sequence[Key],
        objectives: Sequence[Sequence[float]],
        federation: Federation,
    ) -> Metrics:
        """What every round's event reports of these networks: the lowest error, hypervolume, front, High and Knee."""
        values = np.array(objectives)
        whole = choice.cost(self.architecture)
        reference = self.values(1.0, whole, federation.clients())
        front = [[key_name(keys[i]), *objectives[i]] for i in front_of(keys, values)]
        metrics: Metrics = {"error": front[0][1], "hypervolume": nsga2.hypervolume(values, reference), "front": front}
        for pick, i in picked(values).items():
            metrics[pick] = self.network_metrics(keys[i], objectives[i][0])
        return metrics

    def network_metrics(self, key: Key, error: float, test_error: float | None = None) -> Metrics:
        """One network in an event."""
        test = {} if test_error is None else {"test_error": test_error}
        return {"key": key_name(key), "error": error, "macs": self.cost(key).macs, **test}

    def test_is_due(self, rounds_done: int) -> bool:
        every = self.config.test_every
        return bool(every) and (rounds_done % every == 0 or rounds_done >= self.config.rounds)

    def candidate(
        self,
        key: Key,
        values: Sequence[float],
        picks: list[str],
        weights: Tensors,
        statistics: Tensors,
        test_error: float | None = None,
    ) -> Candidate:
        """A network ready for use, with the search's objectives and what it costs."""
        cost = self.cost(key)
        objectives = {"error": values[0]} | ({} if test_error is None else {"test_error": test_error})
        objectives |= {"macs": cost.macs, "params": cost.params, "upload_bytes": cost.bytes}
        for name, value in zip(self.config.objectives[1:], values[1:], strict=True):
            objectives.setdefault(name, value)
        return Candidate(
            key_name(key),
            choice.sub_model(self.architecture, key),
            objectives,
            picks,
            weights,
            statistics,
        )


def picked(objectives: Array) -> dict[str, int]:
    """The paper's two choices from the front: positions of High and Knee."""
    return {"high": nsga2.high(objectives), "knee": nsga2.knee(objectives)}


def front_of(keys: Sequence[Key], objectives: Array) -> list[int]:
    """Positions of the first front, lowest error first, each key once: a population may hold copies."""
    first: dict[str, int] = {}
    for i in nsga2.by_error(objectives).tolist():
        first.setdefault(key_name(keys[i]), i)
    return list(first.values())


def picked_keys(keys: Sequence[Key], objectives: Sequence[Sequence[float]]) -> dict[str, Key]:
    """High and Knee, which may be the same network."""
    return {pick: keys[i] for pick, i in picked(np.array(objectives)).items()}


def names_of(key: Key, picks: Mapping[str, Key]) -> list[str]:
    """The picks that fell on this key."""
    return [pick for pick, chosen in picks.items() if chosen == key]


def key_name(key: Sequence[int]) -> str:
    """A key as one word: its branch numbers."""
    return "".join(str(branch) for branch in key)
