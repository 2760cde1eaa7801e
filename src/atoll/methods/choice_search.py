"""What the searches over choice keys have in common: breeding, tasks, objectives, and the final training.

`realtime` and `offline` derive from `ChoiceSearch` and add what sets them apart: which clients train which
individual, from which weights, and which individuals are measured.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from atoll import spaces
from atoll.algorithms import nsga2
from atoll.algorithms.genetic import breed
from atoll.algorithms.sampling import choose, participants
from atoll.clients import (
    Counted,
    FederatedModel,
    KeptStatistics,
    LocalTraining,
    count_correct,
    count_tests,
    jobs,
    round_macs,
    train_models,
    train_task,
)
from atoll.clients.evaluation import ReportCounts
from atoll.core.checks import CountArray, CountsUpTo
from atoll.errors import ConfigError, TooFewReplies
from atoll.methods.base import (
    Array,
    Candidate,
    ClientInfo,
    Federation,
    Generator,
    Method,
    Metrics,
    Part,
    Payload,
    Schema,
    StateT,
    Task,
    Tensors,
)
from atoll.methods.choice_config import POPULATION, ChoiceConfig
from atoll.spaces.choice import plan
from atoll.spaces.choice import space as choice
from atoll.training.metrics import Objective, objective_error

DRAWS = 200  # of a key at random until it is within `max_macs`; then the cheapest of them

Key = list[int]


class Measurement(NamedTuple):
    """What clients found of some keys."""

    errors: list[float]  # empty if no client, or too few, had or returned any
    clients: list[str]  # who measured
    problem: str  # why replies failed


class ChoiceSearch(Method[StateT]):
    """The server's side of what is shared. It holds settings only."""

    config: ChoiceConfig

    def __init__(self, config: ChoiceConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.population = config.population or POPULATION
        self.architecture = plan.architecture_for(
            schema, config.channels, config.widths, config.stem, config.expansion, config.norm
        )

    def first_parents(self, federation: Federation, rng: Generator) -> list[Key]:
        """Line 7: keys drawn at random. A federation without validation rows is refused here, and too few clients that
        evaluate networks in a round."""
        evaluating = participants(len(federation.clients()), self.config.fraction)
        federation.robust.refuse_fewer(evaluating, f"{evaluating} clients measure networks in a round", "fitness")
        if not any(info.sizes["validation"] for info in federation.clients()):
            raise ConfigError(
                "data.split: no client has validation rows, and the search evaluates networks on them; add some",
                code="no-validation-rows",
            )
        return self._drawn(rng)

    def participating(self, federation: Federation, rng: Generator) -> list[ClientInfo]:
        """Line 14: m = C * K clients."""
        infos = {info.name: info for info in federation.clients()}
        return [infos[name] for name in choose(list(infos), self.config.fraction, rng)]

    def offspring(self, parents: Sequence[Key], objectives: Sequence[Sequence[float]], rng: Generator) -> list[Key]:
        """Lines 10-12: bred on the keys' bits. Before anything is measured the tournament is a coin flip."""
        settings = self.config
        if settings.search == "random":
            return self._drawn(rng)
        rank, crowding = None, None
        if objectives:
            rank, crowding = nsga2.rank_and_crowding(objectives, self.excess(parents))
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

    def _drawn(self, rng: Generator) -> list[Key]:
        """A population of keys at random, each drawn again until it is within `max_macs`."""
        blocks, limit = choice.blocks(self.architecture), self.config.max_macs
        keys = [list(key) for key in choice.random_keys(self.population, blocks, rng)]
        if limit is None:
            return keys
        for place in range(len(keys)):
            for _ in range(DRAWS):
                if self.cost(keys[place]).macs <= limit:
                    break
                other = list(choice.random_keys(1, blocks, rng)[0])
                if other not in keys and self.cost(other).macs < self.cost(keys[place]).macs:
                    keys[place] = other
        return keys

    def excess(self, keys: Sequence[Key]) -> Array | None:
        """By which share each network exceeds `max_macs`: constraint domination, beyond the paper. None: no limit."""
        if self.config.max_macs is None:
            return None
        return np.array([max(0.0, self.cost(key).macs / self.config.max_macs - 1) for key in keys])

    def admissible(self, keys: Sequence[Key], objectives: Sequence[Sequence[float]]) -> list[Sequence[float]]:
        """The objectives of the networks within the limit."""
        excess = self.excess(keys)
        return [row for i, row in enumerate(objectives) if excess is None or excess[i] <= 0]

    def pickable(self, keys: Sequence[Key], objectives: Sequence[Sequence[float]]) -> list[list[float]]:
        """The objectives, not finite for networks beyond the limit: these come last wherever something is picked."""
        excess = self.excess(keys)
        rows = [list(row) for row in objectives]
        if excess is None or (excess > 0).all():
            return rows
        return [[math.inf] * len(row) if over > 0 else row for row, over in zip(rows, excess.tolist(), strict=True)]

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
            **settings.extras(),
        }
        return train_task(info, payload, key_name(key), self.cost(key))

    def errors(
        self,
        keys: Sequence[Key],
        weights: Tensors,
        holders: Sequence[ClientInfo],
        part: Part,
        federation: Federation,
        keep: str | None = None,
        tested: ReportCounts | None = None,
    ) -> Measurement:
        """The error of every key on this part of all holders.

        With `keep` each client keeps the batch norm statistics of all keys on these rows under this name, until the
        next measurement with `keep`; "" only ends that. On test rows the error is the share of wrong rows, whatever the
        search minimises, and `tested` gets what is counted.
        """
        objective: Objective = "error" if part == "test" else self.config.objective
        payload: Payload = {
            "architecture": self.architecture,
            "keys": [list(key) for key in keys],
            "weights": weights,
            "part": part,
            "batch": jobs.TEST_BATCH,
        }
        payload |= {} if keep is None else {"keep": keep}
        payload |= {"confusion": True} if objective != "error" else {}
        remembers = {jobs.KEPT: KeptStatistics(keep)} if keep else None
        macs, classes = choice.executed_macs(self.architecture, keys), int(self.architecture["classes"])
        sizes = {info.name: info.sizes[part] for info in holders if info.sizes[part]}
        tasks = []
        for name, size in sizes.items():
            returns: Payload = {"correct": CountsUpTo((len(keys),), size)}
            if objective != "error":
                returns = {"confusion": CountArray((len(keys), classes, classes), size, each=1)}
            task = Task(f"{part}:{name}", name, jobs.COUNT_CORRECT, payload, macs * size, returns, part == "test")
            tasks.append(replace(task, remembers=remembers))
        total: Array = np.zeros(len(keys) if objective == "error" else (len(keys), classes, classes), np.int64)
        rows, each, clients = 0, [], []
        replies = federation.collect(tasks, minimum=0)
        for reply in replies:
            found, client = reply.payload["correct" if objective == "error" else "confusion"], reply.task.client
            total += found
            rows += sizes[client]
            clients.append(client)
            if federation.median_fitness and part == "validation":
                each.append(_errors(found, sizes[client], objective))
            if tested is not None:
                tested.add(list(map(key_name, keys)), client, found)
        if not rows or not replies.enough:
            return Measurement([], [], replies.reasons)
        errors = np.median(each, axis=0).tolist() if each else _errors(total, rows, objective)
        return Measurement(errors, clients, replies.reasons)

    def test_errors(
        self, keys: Sequence[Key], weights: Tensors, federation: Federation, known: ReportCounts
    ) -> dict[str, float]:
        """The errors of these keys on test data by name, for the report; empty where there is none. Holders of which
        all counts are `known` are not asked; what the others count is added to it."""
        wanted, holders = {key_name(key): key for key in keys}, federation.test_holders()
        others = [info for info in holders if not known.complete(wanted, info.name)]
        if others:
            self.errors(list(wanted.values()), weights, others, "test", federation, tested=known)
        return known.errors(wanted, {info.name: info.sizes["test"] for info in holders})

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

    # -- the final training of networks that split off from the search ----------------------------------------------

    def train_finalists(
        self,
        models: Sequence[FederatedModel],
        training: LocalTraining,
        rounds_done: int,
        participating: Sequence[ClientInfo],
        federation: Federation,
        leave_out: Collection[str] = (),
        statistics: bool = False,
    ) -> tuple[list[FederatedModel], dict[str, list[float]], dict[str, Counted]]:
        """One round of federated averaging of each by all participating clients: the models, their objectives, and what
        was counted on validation rows, but those of clients to `leave_out`; see `count_finalists`."""
        trained = train_models(federation, models, participating, training, rounds_done)
        measuring = [info for info in participating if info.name not in leave_out]
        tested = self.test_is_due(federation.round)
        counted = self.count_finalists(trained, measuring, federation, tested, statistics)
        values = {
            name: self.values(found.error(self.config.objective), self.cost(key_from_name(name)), participating)
            for name, found in counted.items()
        }
        return trained, values, counted

    def count_finalists(
        self,
        models: Sequence[FederatedModel],
        clients: Sequence[ClientInfo],
        federation: Federation,
        tested: bool = False,
        statistics: bool = False,
    ) -> dict[str, Counted]:
        """The networks on these clients' validation rows; if `tested` also on their own test rows, for the report. With
        `statistics` also batch norm statistics of the validation rows."""
        counted = count_correct(
            federation,
            models,
            clients,
            "validation",
            statistics=statistics,
            confusion=self.config.objective != "error",
            tested=tested,
        )
        if not all(found.rows for found in counted.values()):
            raise TooFewReplies("no client returned validation counts", code="too-few-replies")
        return counted

    def test_finalists(
        self, models: Sequence[FederatedModel], federation: Federation, known: Mapping[str, Counted | None]
    ) -> dict[str, float]:
        """Their errors on test data, for the report; empty where there is none. See `count_tests`."""
        counted = count_tests(federation, models, known)
        return {name: found.error() for name, found in counted.items() if found.rows}

    def finalist(self, key: Key, weights: Tensors, velocity: Tensors | None = None) -> FederatedModel:
        arch = choice.sub_model(self.architecture, key)
        return FederatedModel(key_name(key), arch, weights, velocity=velocity or Tensors({}))

    def final_training(self, rounds: int, lr: float) -> LocalTraining:
        """As in the search, with a learning rate that falls to zero over these rounds."""
        settings = self.config
        own = LocalTraining(settings.epochs, settings.batch, lr, momentum=settings.momentum, cosine=rounds)
        return replace(own, server_momentum=settings.server_momentum, extras=settings.extras())

    def closing_macs(self, keys: Sequence[Key], federation: Federation) -> float:
        """What a round of that training takes the clients."""
        costs = [self.cost(key) for key in keys]
        return round_macs(costs, federation.clients(), self.config.fraction, self.config.epochs)

    def front_metrics(
        self,
        keys: Sequence[Key],
        objectives: Sequence[Sequence[float]],
        population: Sequence[Sequence[float]],
        federation: Federation,
    ) -> Metrics:
        """What every round's event reports of these networks: the lowest error, front, High and Knee; and the
        hypervolume of the `population`: the admissible objectives of the last round of the search."""
        values = np.array(self.pickable(keys, objectives))
        front = [[key_name(keys[i]), *objectives[i]] for i in front_of(keys, values)]
        reference = self.values(1.0, choice.cost(self.architecture), federation.clients())
        hypervolume = nsga2.hypervolume(np.array(population), reference) if population else 0.0
        metrics: Metrics = {"error": front[0][1], "hypervolume": hypervolume, "front": front}
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
            self._exceeded(cost),
        )

    def _exceeded(self, cost: spaces.Cost) -> dict[str, str]:
        """In words, what a network that is handed over has beyond the limit; empty within it."""
        limit = self.config.max_macs
        if limit is None or cost.macs <= limit:
            return {}
        return {"exceeds": f"{cost.macs:,} MACs, and max_macs = {limit:,}"}


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


def picked_after(keys: Sequence[Key], objectives: Sequence[Sequence[float]]) -> dict[str, Key]:
    """High and Knee of networks that were trained further, whichever they were before."""
    high, knee = nsga2.finished(np.array(objectives))
    return {"high": keys[high], "knee": keys[knee]}


def names_of(key: Key, picks: Mapping[str, Key]) -> list[str]:
    """The picks that fell on this key."""
    return [pick for pick, chosen in picks.items() if chosen == key]


def key_name(key: Sequence[int]) -> str:
    """A key as one word: its branch numbers."""
    return "".join(str(branch) for branch in key)


def key_from_name(name: str) -> Key:
    """The inverse of `key_name`."""
    return [int(branch) for branch in name]


def _errors(counts: Array, rows: int, objective: Objective) -> list[float]:
    """What the search minimises of each key, from correct rows or confusion matrices."""
    if objective == "error":
        return [1.0 - right / rows for right in counts.tolist()]
    return [objective_error(objective, confusion) for confusion in counts]
