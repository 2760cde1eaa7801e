"""Real-time federated evolutionary neural architecture search.

H. Zhu and Y. Jin, "Real-time Federated Evolutionary Neural Architecture Search": Algorithm 4 with its model aggregation,
Algorithm 3. Sub-networks of one master are evolved by NSGA-II while the federation trains them; a generation is a
communication round, and the best networks of each round are ready for use. In the order of Algorithm 4's lines:

     3      initialise the master                            Realtime.init
     7      sample parents' choice keys                      Realtime.init
    10-12   breed offspring on the keys' bits                Realtime._offspring
    14      m = C * K clients take part                      Realtime.step
    15-26   round 1: parents train, one group each           Realtime._train
    28-41   offspring train, weights inherited               Realtime._train
    43-49   all 2N keys measured on all m clients            Realtime._measure
    50-53   non-dominated sorting and selection              Realtime.step
    57-68   client: train one sub-network                    _train_job

Readings that differ from the paper's letter are in docs/papers.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, field_validator

from atoll.errors import ConfigError, TooFewReplies, nearest
from atoll.federation.base import Federation
from atoll.federation.guard import CountsUpTo, TensorsLike
from atoll.learning.client import Client
from atoll.learning.networks import network
from atoll.learning.prefix import evaluate_keys
from atoll.learning.settings import TrainSettings
from atoll.learning.training import train
from atoll.messages import Array, ClientInfo, Part, Payload, Schema, Task, Tensors
from atoll.methods.base import Candidate, MethodConfig, Metrics
from atoll.methods.measure import TEST_BATCH, calibrated, what_went_wrong
from atoll.rng import Generator
from atoll.search import pareto
from atoll.search.averaging import Average, PartialMean
from atoll.search.genetic import Duplicates, breed
from atoll.search.sampling import choose, groups, participants
from atoll.spaces import choice
from atoll.spaces.choice_fitting import architecture_for
from atoll.spaces.cost import Cost

TRAIN, EVALUATE = "atoll.methods.realtime:train", "atoll.methods.realtime:evaluate"
POPULATION = 10  # the paper's N; fewer where fewer clients take part
COSTS = ("macs", "params", "upload_bytes", "latency")

Key = list[int]


class RealtimeConfig(MethodConfig):
    """Table I and II of the paper, and what they leave open. None: decided by the data at the start."""

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
    average: Average = "all"  # n of Algorithm 3: all clients of the round, or those that trained the parameter
    search: Literal["evolution", "random"] = "evolution"  # random: offspring are drawn, not bred
    objectives: list[str] = ["error", "macs"]  # error first, then one or two of macs, params, upload_bytes, latency
    device_speed: float = Field(default=5e9, gt=0)  # latency: MACs a second of a client that does not say
    device_bandwidth: float = Field(default=1.25e6, gt=0)  # latency: bytes a second of a client that does not say
    offer: bool = True  # after each round the run directory holds the current High and Knee, ready for use
    test_every: int = Field(default=1, ge=0)  # rounds between looks at the test data, for the report; 0: only at the end

    @field_validator("objectives")
    @classmethod
    def _known_objectives(cls, value: list[str]) -> list[str]:
        if len(value) not in (2, 3) or value[0] != "error" or len(set(value)) != len(value):
            raise ConfigError(f"objectives = {value}: write error first, then one or two of {', '.join(COSTS)}")
        for name in value[1:]:
            if name not in COSTS:
                raise ConfigError(f"objectives: {name!r} is unknown; {nearest(name, COSTS)}")
        return value

    def fitted(self, schema: Schema, clients: int) -> Self:
        taking_part = participants(clients, self.fraction)
        population = self.population if self.population is not None else min(POPULATION, taking_part)
        if population > taking_part:
            raise ConfigError(
                f"population = {population}: only {taking_part} clients take part in a round and each individual needs "
                f"one; use at most {taking_part}, or more clients",
            )
        if population < 2:
            raise ConfigError("clients = 1: a population of two needs two clients or more in a round; raise --clients")
        arch = architecture_for(schema, self.channels, self.widths, self.stem, self.expansion)
        chosen = {name: arch.get(name) for name in ("channels", "widths", "stem")}
        return self.model_copy(update={"population": population, **chosen})


@dataclass(frozen=True)
class RealtimeState:
    round: int
    master: Tensors
    parents: list[Key]
    objectives: list[list[float]]  # of the parents, measured last round; empty before the first
    ready: dict[str, Any]  # pick -> fixed batch norm statistics of the networks on offer


class Realtime:
    """The server's side."""

    name: ClassVar[str] = "realtime"
    summary: ClassVar[str] = "evolve sub-networks of a shared master while the federation trains; usable at every round"
    Config: ClassVar[type[RealtimeConfig]] = RealtimeConfig
    State: ClassVar[type[RealtimeState]] = RealtimeState
    pooled: ClassVar[bool] = False

    def __init__(self, config: RealtimeConfig, schema: Schema) -> None:
        self.config = config
        self.population = config.population or POPULATION
        self.architecture = architecture_for(schema, config.channels, config.widths, config.stem, config.expansion)

    def init(self, federation: Federation, rng: Generator) -> RealtimeState:
        if not any(info.sizes["validation"] for info in federation.clients()):
            raise ConfigError("data.split: no client has validation rows, and the search judges networks by them; add some")
        parents = choice.random_keys(self.population, choice.blocks(self.architecture), rng)
        return RealtimeState(0, choice.initial(self.architecture, rng), [list(key) for key in parents], [], {})

    def step(self, state: RealtimeState, federation: Federation, rng: Generator) -> tuple[RealtimeState, Metrics]:
        offspring = self._offspring(state, rng)
        infos = {info.name: info for info in federation.clients()}
        taking_part = [infos[name] for name in choose(list(infos), self.config.fraction, rng)]
        master, untrained = state.master, []
        if state.round == 0:
            master, left_out = self._train(master, state.parents, state.round, taking_part, federation, rng)
            untrained += left_out
        master, left_out = self._train(master, offspring, state.round, taking_part, federation, rng)
        untrained += left_out

        keys = [*state.parents, *offspring]
        objectives = self._measure(master, keys, taking_part, federation)
        survivors = pareto.select(objectives, self.population)
        parents, values = [keys[i] for i in survivors], objectives[survivors]
        picks = _picks(values)
        ready = self._prepare_offers(master, parents, picks, taking_part, federation)
        new = RealtimeState(state.round + 1, master, parents, values.tolist(), ready)
        return new, self._metrics(new, picks, untrained, federation)

    def done(self, state: RealtimeState) -> bool:
        return state.round >= self.config.rounds

    def offers(self, state: RealtimeState) -> list[Candidate]:
        """High and Knee as they are now."""
        if not state.ready:
            return []
        return [
            self._candidate(state, i, [pick], None, Tensors(state.ready[pick]))
            for pick, i in _picks(np.array(state.objectives)).items()
        ]

    def results(self, state: RealtimeState, federation: Federation, rng: Generator) -> list[Candidate]:
        """The first front, each network with its test error and fixed statistics from all clients' training data."""
        values = np.array(state.objectives)
        front = [int(i) for i in pareto.by_error(values)]
        picks = _picks(values)
        errors = self._test_errors(state, front, federation)
        found = []
        for i in front:
            arch = choice.sub_model(self.architecture, state.parents[i])
            weights = state.master.slice(choice.names(arch))
            statistics = calibrated(federation, federation.clients(), arch, weights)
            names = [pick for pick, picked in picks.items() if picked == i]
            found.append(self._candidate(state, i, names, errors.get(i), statistics))
        return found

    # -- Algorithm 4, lines 10-12: breeding --------------------------------------------------------------------------

    def _offspring(self, state: RealtimeState, rng: Generator) -> list[Key]:
        if self.config.search == "random":
            return [list(key) for key in choice.random_keys(self.population, len(state.parents[0]), rng)]
        # Before the first round nothing is measured: the tournament is then a coin flip.
        rank, crowding = pareto.rank_and_crowding(state.objectives) if state.objectives else (None, None)
        bits = breed(
            [choice.to_bits(key) for key in state.parents],
            rank,
            crowding,
            self.population,
            rng,
            duplicates=self.config.duplicates,
            crossover=self.config.crossover,
            mutation=self.config.mutation,
        )
        return [list(choice.from_bits(row)) for row in bits]

    # -- lines 15-41 and Algorithm 3: double sampling, training, aggregation -------------------------------------------

    def _train(
        self,
        master: Tensors,
        keys: Sequence[Key],
        rounds_done: int,
        taking_part: Sequence[ClientInfo],
        federation: Federation,
        rng: Generator,
    ) -> tuple[Tensors, list[str]]:
        """Each key is trained by its own group of clients; the new master, and the keys that nobody trained."""
        infos = {info.name: info for info in taking_part}
        tasks = [
            self._train_task(master, key, rounds_done, infos[name])
            for key, group in zip(keys, groups(list(infos), len(keys), rng), strict=True)
            for name in group
        ]
        mean, trained, errors = PartialMean(master, self.config.average), set(), []
        for reply in federation.map(tasks):
            if reply.ok:
                mean.add(reply.payload["weights"], infos[reply.task.client].sizes["train"])
                trained.add(_name(reply.task.payload["key"]))
            else:
                errors.append(reply.error)
        if not trained:
            raise TooFewReplies(f"none of {len(tasks)} clients returned a usable sub-model ({what_went_wrong(errors)})")
        return mean.result(), [_name(key) for key in keys if _name(key) not in trained]

    def _train_task(self, master: Tensors, key: Key, rounds_done: int, info: ClientInfo) -> Task:
        arch = choice.sub_model(self.architecture, key)
        weights = master.slice(choice.names(arch))
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
        macs = 3 * settings.epochs * choice.cost(arch).macs * info.sizes["train"]
        task = f"train:{_name(key)}:{info.name}"
        return Task(task, info.name, TRAIN, payload, macs, {"weights": TensorsLike.of(weights)})

    # -- lines 43-49: objectives of all 2N keys ------------------------------------------------------------------------

    def _measure(
        self,
        master: Tensors,
        keys: Sequence[Key],
        taking_part: Sequence[ClientInfo],
        federation: Federation,
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        correct, rows, problem = self._count(master, keys, taking_part, "validation", federation)
        if not rows:
            raise TooFewReplies(f"no client answered with its validation counts ({problem})")
        costs = [self._costs(choice.cost(choice.sub_model(self.architecture, key)), taking_part) for key in keys]
        return np.array(
            [
                [1.0 - right / rows, *(cost[name] for name in self.config.objectives[1:])]
                for right, cost in zip(correct.tolist(), costs, strict=True)
            ],
        )

    def _count(
        self,
        master: Tensors,
        keys: Sequence[Key],
        holders: Sequence[ClientInfo],
        part: Part,
        federation: Federation,
    ) -> tuple[Array, int, str]:
        """Correct rows of every key over all holders of this part, how many rows those are, and what went wrong."""
        payload: Payload = {
            "architecture": self.architecture,
            "keys": [list(key) for key in keys],
            "weights": master,
            "part": part,
            "batch": TEST_BATCH,
        }
        macs = choice.executed_macs(self.architecture, keys)
        tasks = [
            Task(
                f"{part}:{info.name}",
                info.name,
                EVALUATE,
                payload,
                macs * info.sizes[part],
                {"correct": CountsUpTo((len(keys),), info.sizes[part])},
                audit=part == "test",
            )
            for info in holders
            if info.sizes[part]
        ]
        sizes = {info.name: info.sizes[part] for info in holders}
        correct, rows, errors = np.zeros(len(keys), np.int64), 0, []
        for reply in federation.map(tasks):
            if reply.ok:
                correct += reply.payload["correct"]
                rows += sizes[reply.task.client]
            else:
                errors.append(reply.error)
        return correct, rows, what_went_wrong(errors)

    def _costs(self, cost: Cost, clients: Sequence[ClientInfo]) -> dict[str, float]:
        """The other objectives. Latency: what a round of training and upload takes the clients, on average, in seconds."""
        settings = self.config
        seconds = 0.0
        if "latency" in settings.objectives:
            for info in clients:
                work = 3 * settings.epochs * cost.macs * info.sizes["train"]
                seconds += work / (info.speed or settings.device_speed)
                seconds += cost.bytes / (info.bandwidth or settings.device_bandwidth)
        latency = seconds / len(clients)
        return {"macs": cost.macs, "params": cost.params, "upload_bytes": cost.bytes, "latency": latency}

    # -- ready at every round, and what the report shows -----------------------------------------------------------------

    def _prepare_offers(
        self,
        master: Tensors,
        parents: Sequence[Key],
        picks: dict[str, int],
        taking_part: Sequence[ClientInfo],
        federation: Federation,
    ) -> dict[str, Any]:
        """Fixed statistics for High and Knee, from validation rows: the clients hold the master already."""
        if not self.config.offer:
            return {}
        ready: dict[str, Any] = {}
        known: dict[int, Tensors] = {}
        for pick, i in picks.items():
            if i not in known:
                arch = choice.sub_model(self.architecture, parents[i])
                weights = master.slice(choice.names(arch))
                known[i] = calibrated(federation, taking_part, arch, weights, "validation")
            ready[pick] = known[i]
        return ready

    def _metrics(
        self,
        state: RealtimeState,
        picks: dict[str, int],
        untrained: list[str],
        federation: Federation,
    ) -> Metrics:
        values = np.array(state.objectives)
        front = [int(i) for i in pareto.by_error(values)]
        whole = self._costs(choice.cost(self.architecture), federation.clients())
        reference = [1.0, *(whole[name] for name in self.config.objectives[1:])]
        metrics: Metrics = {
            "error": float(values[picks["high"], 0]),
            "hypervolume": pareto.hypervolume(values, reference),
            "front": [[_name(state.parents[i]), *state.objectives[i]] for i in front],
            "untrained": untrained,
        }
        every = self.config.test_every
        tested = bool(every) and (state.round % every == 0 or self.done(state))
        errors = self._test_errors(state, sorted(set(picks.values())), federation) if tested else {}
        for pick, i in picks.items():
            cost = choice.cost(choice.sub_model(self.architecture, state.parents[i]))
            metrics[pick] = {"key": _name(state.parents[i]), "error": float(values[i, 0]), "macs": cost.macs}
            if i in errors:
                metrics[pick]["test_error"] = errors[i]
        return metrics

    def _test_errors(self, state: RealtimeState, positions: Sequence[int], federation: Federation) -> dict[int, float]:
        """Errors on test data of the parents at these positions; empty where there is no test data."""
        keys = [state.parents[i] for i in positions]
        correct, rows, _ = self._count(state.master, keys, federation.auditors(), "test", federation)
        return {i: 1.0 - int(right) / rows for i, right in zip(positions, correct, strict=True)} if rows else {}

    def _candidate(
        self,
        state: RealtimeState,
        i: int,
        picks: list[str],
        test_error: float | None,
        statistics: Tensors,
    ) -> Candidate:
        arch = choice.sub_model(self.architecture, state.parents[i])
        cost = choice.cost(arch)
        objectives = {"error": state.objectives[i][0]}
        if test_error is not None:
            objectives["test_error"] = test_error
        objectives |= {"macs": cost.macs, "params": cost.params, "upload_bytes": cost.bytes}
        objectives |= dict(zip(self.config.objectives[1:], state.objectives[i][1:], strict=True))
        weights = state.master.slice(choice.names(arch))
        return Candidate(_name(state.parents[i]), arch, objectives, picks, weights, statistics)


def _picks(objectives: Array) -> dict[str, int]:
    """The paper's two choices from the front: positions of High and Knee."""
    return {"high": pareto.high(objectives), "knee": pareto.knee(objectives)}


def _name(key: Sequence[int]) -> str:
    """A key as one word: its branch numbers."""
    return "".join(str(branch) for branch in key)


# -- the clients' side: lines 57-68 and 44-48 ------------------------------------------------------------------------------


def _train_job(payload: Payload, client: Client) -> Payload:
    """Train one path of the master; only its weights come and go."""
    x, y = client.data.part("train")
    module = network(payload["architecture"], client.device)
    key = payload["key"]
    settings = TrainSettings(payload["epochs"], payload["batch"], payload["lr"], payload["momentum"])
    outcome = train(
        module,
        payload["weights"],
        x,
        y,
        settings,
        client.rng,
        forward=lambda rows: module(rows, key),
        device=client.device,
    )
    return {"weights": outcome.weights}


def _evaluate_job(payload: Payload, client: Client) -> Payload:
    """Correct rows of every key, common prefixes computed once."""
    x, y = client.data.part(payload["part"])
    module: Any = network(payload["architecture"], client.device)
    counts = evaluate_keys(module, payload["weights"], payload["keys"], x, y, payload["batch"], device=client.device)
    return {"correct": np.array([count.correct for count in counts], np.int64)}


JOBS: dict[str, Any] = {"train": _train_job, "evaluate": _evaluate_job}
