"""A round of federated averaging of several models side by side: the server's half of the job `train`.

One call of `train_models` is one communication round for all models in training: every client gets a task for each, and
all tasks go out together, so that workers are busy whatever the models' sizes. Sparse models are trained by modified
SET (Zhu & Jin, "Multi-objective Evolutionary Federated Learning", Algorithms 2 and 4). In the order of Algorithm 4's
lines:

     2      a graph by Eq. 5, weights inside it          spaces/sparse/space.py
     4      m = C * K clients participate                the method's step
     7-10   E epochs of mini-batch SGD in the graph      jobs.train
    11      remove the fraction xi of the smallest       jobs.train, once per upload (docs/papers.md)
    13      theta <- sum over k of (n_k / n) theta_k     train_models, Mean
    14-15   Omega <- sum over k of (n_k / n) Omega_k     train_models
    18      accuracy of theta                            count_correct

A model of any other space is trained as it is: nothing is removed, all its weights travel.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from atoll import spaces
from atoll.algorithms.aggregation import Mean, with_momentum
from atoll.algorithms.robust import RobustMean
from atoll.algorithms.sampling import participants
from atoll.clients import jobs
from atoll.clients.evaluation import Measure, measured_parts, measuring, reporting, statistics_check
from atoll.core.checks import Count, CountArray, OnGraph, TensorsLike
from atoll.core.messages import REPORT, ClientInfo, Part, Payload, Reply, Task, Tensors
from atoll.errors import TooFewReplies
from atoll.federation.base import Federation
from atoll.federation.replies import mostly_nonfinite
from atoll.rng import Generator
from atoll.spaces.cost import training_macs
from atoll.spaces.sparse import space as sparse
from atoll.training import calibration, sgd
from atoll.training.metrics import Confusion, Objective, objective_error

Own = Mapping[str, Sequence[ClientInfo]]  # model -> its group of clients; models without one use all


@dataclass(frozen=True)
class FederatedModel:
    """A network in federated training. Weights of a sparse one are held along its graph, as they travel."""

    name: str
    architecture: dict[str, Any]
    weights: Tensors
    connections: float = 0.0  # Omega of the last round
    client_correct: int = 0  # of the clients' own training rows, after their own training, if it was asked for
    client_rows: int = 0
    diverged: bool = False  # no client could return finite weights: there is nothing left to train
    # Of the model as it was sent in the last round, by the part of the clients' rows, if it was asked for.
    counts: Mapping[Part, Counted] = field(default_factory=dict)
    velocity: Tensors = field(default_factory=lambda: Tensors({}))  # of `LocalTraining.server_momentum`

    def whole(self) -> Tensors:
        """The weights as the network's own parameters."""
        return sparse.unpack(self.architecture, self.weights)


@dataclass(frozen=True)
class LocalTraining:
    """How clients train in a round, and what the server adds. `lr` is for models that do not have their own."""

    epochs: int = 5
    batch: int = 50
    lr: float = 0.1
    decay: float = 1.0  # of the learning rate, per round
    momentum: float = 0.0
    weight_decay: float = 0.0
    client_accuracy: bool = False  # clients also count what their own trained network gets right on their own rows
    server_momentum: float = 0.0  # of what the server makes of the replies, see `with_momentum`
    cosine: int = 0  # rounds of a cosine from the full learning rate down to zero; 0: the decay instead
    extras: Payload = field(default_factory=dict)  # what else a task carries, such as augmentation and clipping

    def rate(self, lr: float, rounds_done: int) -> float:
        """The learning rate of the next round."""
        if self.cosine:
            return lr * 0.5 * (1 + math.cos(math.pi * min(rounds_done / self.cosine, 1.0)))
        return lr * self.decay**rounds_done


def fresh(name: str, architecture: dict[str, Any], rng: Generator) -> FederatedModel:
    """A model with initial weights."""
    return resumed(name, architecture, spaces.initial(architecture, rng))


def resumed(name: str, architecture: dict[str, Any], weights: Tensors) -> FederatedModel:
    """A model that starts from trained weights."""
    return FederatedModel(name, architecture, sparse.pack(architecture, weights))


def train_task(
    info: ClientInfo,
    payload: Payload,
    name: str = "",
    cost: spaces.Cost | None = None,
    job: str = jobs.TRAIN,
    parts: Sequence[Part] = (),
    measure: Measure = "evaluate",
) -> Task:
    """The task of a training payload (see `jobs.train`) for one client: its MACs, and what may come back.

    `name` tells several models of a round apart. `cost` is that of the network's trained part if it is not the whole
    network. `job` is `jobs.train` or one with the same payload and reply. The client also measures the network as it
    came, before it trains, on these `parts` of its rows; test rows are for the report.
    """
    architecture, rows = payload["architecture"], trained_rows(info, payload)
    graphs = {matrix: int(np.count_nonzero(mask)) for matrix, mask in sparse.masks(architecture).items()}
    weights = TensorsLike.of(payload["weights"], "values", None if graphs else _longest_update(payload, rows))
    returns: dict[str, Any] = {"weights": OnGraph(weights.model, graphs, update="values") if graphs else weights}
    counted = bool(payload.get("client_accuracy"))
    if counted:
        returns["correct"] = Count(rows)
    cost = cost or spaces.cost(architecture)
    macs = training_macs(cost, rows, payload["epochs"], extra_passes=counted)
    if parts:
        asked, described = measuring(info, architecture, parts, measure)
        payload, returns = payload | asked, returns | described
        macs += cost.macs * sum(info.sizes[part] for part in asked.get("before", ()))
    words = ("train", name, info.name) if name else ("train", info.name)
    return Task(":".join(words), info.name, job, payload, macs, returns)


def round_macs(
    costs: Sequence[spaces.Cost], clients: Sequence[ClientInfo], fraction: float, epochs: int, counted: bool = True
) -> float:
    """What a round of federated averaging of these networks takes this fraction of the clients on average, which count
    correct validation rows in it, too."""
    each = [
        training_macs(cost, info.sizes["train"], epochs) + counted * cost.macs * info.sizes["validation"]
        for cost in costs
        for info in clients
    ]
    return sum(each) * participants(len(clients), fraction) / len(clients)


def _longest_update(payload: Payload, rows: int) -> float | None:
    """Of a network whose weights are not removed, which clipping does not limit."""
    if payload.get("clip") is None:
        return None
    fields = sgd.TrainSettings.__dataclass_fields__
    settings = sgd.TrainSettings(**{name: payload[name] for name in fields if name in payload})
    return settings.longest_update(rows, payload["weights"])


def trained_rows(info: ClientInfo, payload: Payload) -> int:
    """The rows that a training payload is trained on by this client."""
    return info.sizes["train"] + (info.sizes["validation"] if payload.get("with_validation") else 0)


def train_models(
    federation: Federation,
    models: Sequence[FederatedModel],
    clients: Sequence[ClientInfo],
    training: LocalTraining,
    rounds_done: int,
    own: Own | None = None,
    parts: Sequence[Part] = (),
) -> list[FederatedModel]:
    """All models after one more round on these clients, or each on its `own`; their `counts` say what they got right on
    these `parts` before it.

    A model with too few usable replies (`engine.minimum`) stays as it was; if most clients' weights left the finite
    numbers, it has diverged. If all models stay as they were, that is `TooFewReplies`.
    """
    running = {model.name: model for model in models if not model.diverged}
    if not running:
        return [_nothing_right(model, (own or {}).get(model.name, clients), parts) for model in models]
    # Model by model, not client by client: neighbours in the queue are then different clients and can work at once.
    asked = {name: (own or {}).get(name, clients) for name in running}
    infos = {info.name: info for group in asked.values() for info in group}
    own_parts = {
        name: [part for part in measured_parts(federation, info, "test" in parts) if part in parts]
        for name, info in infos.items()
    }
    tasks = [
        _train_task(running[name], info, training, rounds_done, own_parts[info.name])
        for name in asked
        for info in asked[name]
    ]
    owner = dict(zip((task.id for task in tasks), (name for name in asked for _ in asked[name]), strict=True))
    sums = {
        name: _Sum(federation.mean(one.weights, name), len(asked[name]), median=federation.median_fitness)
        for name, one in running.items()
    }
    replies = federation.collect(tasks, minimum=0)
    for reply in replies:
        name = owner[reply.task.id]
        info = infos[reply.task.client]
        trained = trained_rows(info, training.extras)
        sums[name].add(running[name].architecture, reply.payload, trained, federation.weight(info.name, trained))
        sums[name].count(reply.payload, info)
    for failure in replies.failures:
        sums[owner[failure.task.id]].errors.append(failure.error or "")
        sums[owner[failure.task.id]].asked -= not failure.asked
    for name, total in sums.items():
        total.enough = total.mean.weight > 0 and total.good >= federation.rules.least(total.asked)
        if not total.enough and not total.diverged:
            federation.unchanged.of_model(name)(total.good)
    if not any(total.enough or total.diverged for total in sums.values()):
        good = sum(total.good for total in sums.values()) or "none"
        raise TooFewReplies(
            f"{good} of {len(tasks)} tasks returned a usable model, too few for each ({replies.reasons})",
            code="too-few-replies",
        )
    momentum = training.server_momentum
    after = [sums[model.name].applied(model, momentum) if model.name in sums else model for model in models]
    return [
        _nothing_right(model, (own or {}).get(model.name, clients), parts) if model.diverged else model
        for model in after
    ]


def _nothing_right(model: FederatedModel, clients: Sequence[ClientInfo], parts: Sequence[Part]) -> FederatedModel:
    """A diverged model, counted on all these clients' validation rows, if it was asked for."""
    if "validation" not in parts:
        return model
    return replace(model, counts={"validation": Counted(rows=sum(info.sizes["validation"] for info in clients))})


@dataclass
class Counted:
    """What a model gets right on one part of the clients' rows, added up over the clients."""

    correct: int = 0
    rows: int = 0
    confusion: Confusion | None = None  # if it was asked for
    statistics: Tensors = field(default_factory=lambda: Tensors({}))  # of batch norm, if they were asked for
    median: bool = False  # the error is the median of the clients' own, see `robust.fitness`
    each: list[Counted] = field(default_factory=list)  # the clients' own counts, if the median is asked for
    clients: list[str] = field(default_factory=list)  # who counted, where that is known
    test: Counted | None = None  # what it gets right on the same clients' own test rows, if it was asked for

    def error(self, objective: Objective = "error") -> float:
        """What a search minimises; 1 without rows, and for a model that has diverged."""
        if self.each:
            return median(own.error(objective) for own in self.each)
        if self.confusion is not None:
            return objective_error(objective, self.confusion)
        return 1.0 - self.correct / self.rows if self.rows else 1.0

    def __add__(self, other: Counted) -> Counted:
        both = [one.confusion for one in (self, other) if one.confusion is not None]
        return Counted(self.correct + other.correct, self.rows + other.rows, sum(both[1:], both[0]) if both else None)

    def to_plain(self) -> Payload:
        """Without statistics."""
        return {"correct": self.correct, "rows": self.rows, "confusion": self.confusion}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Counted:
        return cls(**plain)

    def add(self, payload: Payload, rows: int) -> None:
        if self.median:
            own_counts = Counted()
            own_counts.add({name: value for name, value in payload.items() if name != "statistics"}, rows)
            self.each.append(own_counts)
        self.rows += rows
        if "confusion" in payload:
            found: Confusion = payload["confusion"]
            self.confusion = found if self.confusion is None else self.confusion + found
            self.correct += int(np.trace(found))
        else:
            self.correct += payload["correct"]
        if "statistics" in payload:
            own = payload["statistics"]
            self.statistics = calibration.pooled((self.statistics, own)) if self.statistics else own


def count_correct(
    federation: Federation,
    models: Sequence[FederatedModel],
    holders: Sequence[ClientInfo],
    part: Part,
    test_evaluation: bool = False,
    own: Own | None = None,
    statistics: bool = False,
    confusion: bool = False,
    tested: bool = False,
    same_clients: bool = False,
) -> dict[str, Counted]:
    """For each model what it gets right of this part's rows; no rows where no client holds any.

    With `statistics` also batch norm statistics of the same rows, with `confusion` the whole confusion matrix. If it is
    `tested`, clients whose own test rows the report is about count those as well, in the same task. With `same_clients`
    those that failed to count one of the models do not count for the others, unless every client failed.
    """
    tasks, owner = [], {}
    sizes: dict[str, int] = {}
    robust = federation.median_fitness and part == "validation"
    counts = {model.name: Counted(median=robust, test=Counted() if tested else None) for model in models}
    about = reporting(federation) if tested else frozenset()
    reported = {info.name: info.sizes["test"] for info in holders if info.name in about}
    for model in models:
        asked = [info for info in (own or {}).get(model.name, holders) if info.sizes[part]]
        sizes |= {info.name: info.sizes[part] for info in asked}
        if model.diverged:
            counts[model.name].rows = sum(info.sizes[part] for info in asked)  # it gets nothing right
            continue
        payload = {"architecture": model.architecture, "weights": model.weights, "part": part, "batch": jobs.TEST_BATCH}
        payload |= ({"statistics": True} if statistics else {}) | ({"confusion": True} if confusion else {})
        macs, classes = spaces.cost(model.architecture).macs, int(model.architecture["classes"])
        for info in asked:
            rows = info.sizes[part]
            task_id = f"{part}:{model.name}:{info.name}"
            returns: dict[str, Any] = {"correct": Count(rows)}
            if confusion:
                returns = {"confusion": CountArray((classes, classes), rows)}
            returns |= {"statistics": statistics_check(model.architecture, rows)} if statistics else {}
            whole = payload
            if info.name in reported:
                whole = payload | {REPORT: {"test": True}}
                returns[REPORT] = {"test": {"correct": Count(reported[info.name])}}
            tasks.append(Task(task_id, info.name, jobs.COUNT_CORRECT, whole, macs * rows, returns, test_evaluation))
            owner[task_id] = model.name
    minimum = 0 if test_evaluation else min(1, len(tasks))
    replies: Iterable[Reply] = federation.collect(tasks, minimum, f"{part} counts")
    if same_clients:
        replies = _of_complete_clients(list(replies), Counter(task.client for task in tasks))
    for reply in replies:
        found, client = counts[owner[reply.task.id]], reply.task.client
        found.add(reply.payload, sizes[client])
        if found.test is not None and REPORT in reply.payload:
            found.test.add(reply.payload[REPORT]["test"], reported[client])
            found.test.clients.append(client)
    return counts


def _of_complete_clients(replies: Sequence[Reply], tasks: Mapping[str, int]) -> Sequence[Reply]:
    """The replies of clients that have answered as many `tasks` as they were sent; all, if there is no such client."""
    answered = Counter(reply.task.client for reply in replies)
    return [reply for reply in replies if answered[reply.task.client] == tasks[reply.task.client]] or replies


def count_tests(
    federation: Federation, models: Sequence[FederatedModel], known: Mapping[str, Counted | None]
) -> dict[str, Counted]:
    """What each model gets right of the test data, for the report. Of holders whose counts are `known` these are used,
    the others are asked."""
    holders, before = federation.test_holders(), {model.name: known.get(model.name) or Counted() for model in models}
    others = {name: [info for info in holders if info.name not in own.clients] for name, own in before.items()}
    more = count_correct(federation, models, holders, "test", test_evaluation=True, own=others)
    return {name: own + more[name] for name, own in before.items()}


def _train_task(
    model: FederatedModel, info: ClientInfo, training: LocalTraining, rounds_done: int, parts: Sequence[Part]
) -> Task:
    payload: Payload = {
        "architecture": model.architecture,
        "weights": model.weights,
        "epochs": training.epochs,
        "batch": training.batch,
        "lr": training.rate(model.architecture.get("lr", training.lr), rounds_done),
        "momentum": training.momentum,
        "weight_decay": training.weight_decay,
        "client_accuracy": training.client_accuracy,
        **training.extras,
    }
    return train_task(info, payload, model.name, parts=parts, measure="count_correct")


@dataclass
class _Sum:
    """What the replies for one model add up to."""

    mean: Mean | RobustMean
    asked: int  # clients
    good: int = 0  # replies
    enough: bool = True  # of them
    connections: float = 0.0
    correct: int = 0
    rows: int = 0
    errors: list[str] = field(default_factory=list)
    counts: dict[Part, Counted] = field(default_factory=dict)
    median: bool = False

    @property
    def diverged(self) -> bool:
        return not self.enough and mostly_nonfinite(self.errors, self.asked)

    def add(self, architecture: dict[str, Any], payload: Payload, rows: int, weight: float) -> None:
        self.good += 1
        self.mean.add(payload["weights"], weight)
        self.connections += weight * sparse.connections(architecture, payload["weights"])
        if "correct" in payload:
            self.correct += payload["correct"]
            self.rows += rows

    def count(self, payload: Payload, info: ClientInfo) -> None:
        """Add what this client says of the model as it was sent."""
        for key in ("before", REPORT):
            for part, counts in payload.get(key, {}).items():
                robust = self.median and part == "validation"
                total = self.counts.setdefault(part, Counted(median=robust))
                total.add(counts, info.sizes[part])
                total.clients.append(info.name)

    def applied(self, model: FederatedModel, momentum: float) -> FederatedModel:
        """The model after the round."""
        left = model.connections or sparse.connections(model.architecture, model.weights)
        if not self.enough:
            return replace(model, diverged=self.diverged, connections=left)
        averaged = self.mean.result()  # the model's own weights, if a robust rule has too few updates
        weights, velocity = with_momentum(model.weights, averaged, model.velocity, momentum)
        return replace(
            model,
            weights=weights,
            velocity=velocity,
            connections=left if averaged is model.weights else self.connections / self.mean.weight,
            client_correct=self.correct,
            client_rows=self.rows,
            counts=self.counts,
        )
