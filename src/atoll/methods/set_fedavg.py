"""Federated averaging of several networks side by side, sparse ones by modified SET (Zhu & Jin, Algorithms 2 and 4).

One call of `train_round` is one communication round for all networks in training: every client gets a task for each,
and all tasks go out together, so that workers are busy whatever the networks' sizes. In the order of Algorithm 4's
lines:

     2      a graph by Eq. 5, weights inside it          spaces/sparse/space.py
     4      m = C * K clients take part                  the method's step
     7-10   E epochs of mini-batch SGD in the graph      _train_job
    11      remove the fraction xi of the smallest       _train_job, once per upload (docs/papers.md)
    13      theta <- sum over k of (n_k / n) theta_k     train_round, Mean
    14-15   Omega <- sum over k of (n_k / n) Omega_k     train_round
    18      accuracy of theta                            count_correct

A network of any other space takes part as it is: nothing is removed, all its weights travel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from atoll import spaces
from atoll.algorithms.aggregation import Mean
from atoll.core.checks import Count, OnGraph, TensorsLike
from atoll.core.messages import ClientInfo, Part, Payload, Task, Tensors
from atoll.errors import TooFewReplies
from atoll.federation.base import Federation
from atoll.methods.measure import TEST_BATCH, failure_reasons
from atoll.rng import Generator
from atoll.spaces.sparse import space as sparse
from atoll.spaces.sparse.graph import remove_smallest
from atoll.training.augmentation import Augmentation
from atoll.training.client import Client
from atoll.training.evaluation import evaluate
from atoll.training.networks import network
from atoll.training.sgd import TrainSettings, train

Own = Mapping[str, Sequence[ClientInfo]]  # network -> its group of clients; others take part with all

TRAIN, EVALUATE = "atoll.methods.set_fedavg:train", "atoll.methods.set_fedavg:evaluate"


@dataclass(frozen=True)
class Trainee:
    """A network in training. Weights of a sparse one are kept along its graph, as they travel."""

    name: str
    architecture: dict[str, Any]
    weights: Tensors
    connections: float = 0.0  # Omega of the last round
    client_correct: int = 0  # of the clients' own training rows, after their own training, if it was asked for
    client_rows: int = 0
    diverged: bool = False  # no client could return finite weights: there is nothing left to train

    def whole(self) -> Tensors:
        """The weights as the network's own parameters."""
        return sparse.unpack(self.architecture, self.weights)


@dataclass(frozen=True)
class Settings:
    """How a round trains. `lr` holds for networks that do not bring their own."""

    epochs: int = 5
    batch: int = 50
    lr: float = 0.1
    decay: float = 1.0
    momentum: float = 0.0
    weight_decay: float = 0.0
    client_accuracy: bool = False  # clients also count what their own trained network gets right on their own rows
    cosine: int = 0  # rounds of a cosine from the full learning rate down to nothing; 0: the decay instead
    extras: Payload = field(default_factory=dict)  # augmentation and clipping, as tasks carry them

    def rate(self, lr: float, rounds_done: int) -> float:
        """The learning rate of the next round."""
        if self.cosine:
            return lr * 0.5 * (1 + math.cos(math.pi * min(rounds_done / self.cosine, 1.0)))
        return lr * self.decay**rounds_done


@dataclass
class _Sum:
    """What the replies for one network add up to."""

    mean: Mean = field(default_factory=Mean)
    connections: float = 0.0
    correct: int = 0
    rows: int = 0
    errors: list[str] = field(default_factory=list)


def beginner(name: str, architecture: dict[str, Any], rng: Generator) -> Trainee:
    """A network with fresh weights."""
    return Trainee(name, architecture, sparse.pack(architecture, spaces.initial(architecture, rng)))


def veteran(name: str, architecture: dict[str, Any], weights: Tensors) -> Trainee:
    """A network that goes on from weights it has been trained to."""
    return Trainee(name, architecture, sparse.pack(architecture, weights))


def train_round(
    federation: Federation,
    trainees: Sequence[Trainee],
    clients: Sequence[ClientInfo],
    settings: Settings,
    rounds_done: int,
    own: Own | None = None,
) -> list[Trainee]:
    """All networks after one more round on these clients, or each on its `own`.

    A network whose weights left the finite numbers on every client has diverged. One that nobody trained for another
    reason stays as it was. If no client returned anything for any network, that is `TooFewReplies`.
    """
    running = [trainee for trainee in trainees if not trainee.diverged]
    if not running:
        return list(trainees)
    # Network by network, not client by client: neighbours in the queue are then different clients and can work at once.
    pairs = [(trainee, info) for trainee in running for info in (own or {}).get(trainee.name, clients)]
    tasks = [_train_task(trainee, info, settings, rounds_done) for trainee, info in pairs]
    sums = {trainee.name: _Sum() for trainee in running}
    for (trainee, info), reply in zip(pairs, federation.map(tasks), strict=True):
        if reply.ok:
            _fold(sums[trainee.name], trainee.architecture, reply.payload, info.sizes["train"])
        else:
            sums[trainee.name].errors.append(reply.error or "")
    errors = [error for total in sums.values() for error in total.errors]
    if all(total.mean.weight == 0 and not _diverged(total) for total in sums.values()):
        raise TooFewReplies(
            f"none of {len(tasks)} tasks came back with a usable network ({failure_reasons(errors)})",
            code="too-few-replies",
        )
    return [_after(trainee, sums[trainee.name]) if trainee.name in sums else trainee for trainee in trainees]


def count_correct(
    federation: Federation,
    trainees: Sequence[Trainee],
    holders: Sequence[ClientInfo],
    part: Part,
    test_evaluation: bool = False,
    own: Own | None = None,
) -> dict[str, tuple[int, int]]:
    """For each network how many rows of this part it gets right, and of how many; where nobody holds any, 0 of 0."""
    asked = {t.name: [info for info in (own or {}).get(t.name, holders) if info.sizes[part]] for t in trainees}
    pairs = [(trainee, info) for trainee in trainees if not trainee.diverged for info in asked[trainee.name]]
    tasks = [
        Task(
            f"{part}:{trainee.name}:{info.name}",
            info.name,
            EVALUATE,
            {"architecture": trainee.architecture, "weights": trainee.weights, "part": part, "batch": TEST_BATCH},
            spaces.cost(trainee.architecture).macs * info.sizes[part],
            {"correct": Count(info.sizes[part])},
            test_evaluation,
        )
        for trainee, info in pairs
    ]
    # A diverged network gets nothing right.
    counts = {t.name: (0, sum(info.sizes[part] for info in asked[t.name]) if t.diverged else 0) for t in trainees}
    for (trainee, info), reply in zip(pairs, federation.map(tasks), strict=True):
        if reply.ok:
            right, rows = counts[trainee.name]
            counts[trainee.name] = (right + reply.payload["correct"], rows + info.sizes[part])
    return counts


def _train_task(trainee: Trainee, info: ClientInfo, settings: Settings, rounds_done: int) -> Task:
    arch = trainee.architecture
    payload: Payload = {
        "architecture": arch,
        "weights": trainee.weights,
        "epochs": settings.epochs,
        "batch": settings.batch,
        "lr": settings.rate(arch.get("lr", settings.lr), rounds_done),
        "momentum": settings.momentum,
        "weight_decay": settings.weight_decay,
        "client_accuracy": settings.client_accuracy,
        **settings.extras,
    }
    passes = 3 * settings.epochs + settings.client_accuracy  # a training pass counts as three forward ones
    graphs = {name: int(np.count_nonzero(mask)) for name, mask in sparse.masks(arch).items()}
    returns: dict[str, Any] = {"weights": OnGraph(TensorsLike.of(trainee.weights).model, graphs)}
    if settings.client_accuracy:
        returns["correct"] = Count(info.sizes["train"])
    macs = spaces.cost(arch).macs * info.sizes["train"] * passes
    return Task(f"train:{trainee.name}:{info.name}", info.name, TRAIN, payload, macs, returns)


def _fold(total: _Sum, architecture: dict[str, Any], payload: Payload, rows: int) -> None:
    total.mean.add(payload["weights"], rows)
    total.connections += rows * sparse.connections(architecture, payload["weights"])
    if "correct" in payload:
        total.correct += payload["correct"]
        total.rows += rows


def _after(trainee: Trainee, total: _Sum) -> Trainee:
    if total.mean.weight == 0:
        return replace(trainee, diverged=_diverged(total))
    return replace(
        trainee,
        weights=total.mean.result(),
        connections=total.connections / total.mean.weight,
        client_correct=total.correct,
        client_rows=total.rows,
    )


def _diverged(total: _Sum) -> bool:
    return total.mean.weight == 0 and any("nonfinite" in error for error in total.errors)


# -- the clients' side: Algorithm 4, lines 7-12 ------------------------------------------------------------------------


def _train_job(payload: Payload, client: Client) -> Payload:
    """Train inside the graph, then remove the smallest weights of every fully connected matrix of a sparse network."""
    arch = payload["architecture"]
    x, y = client.data.part("train")
    names = ("epochs", "batch", "lr", "momentum", "weight_decay")
    settings = TrainSettings(**{name: payload[name] for name in names}, clip=payload.get("clip"))
    augment = Augmentation.from_payload(payload)
    module = network(arch, client.device)
    weights, graphs = sparse.unpack(arch, payload["weights"]), sparse.masks(arch)
    outcome = train(module, weights, x, y, settings, client.rng, masks=graphs, augment=augment, device=client.device)
    trained = outcome.weights
    answer: Payload = {}
    if payload["client_accuracy"]:
        answer["correct"] = evaluate(module, trained, x, y, TEST_BATCH, device=client.device).correct
    upload = sparse.pack(arch, trained)
    kept = {name: remove_smallest(upload[name], arch.get("xi", 0.0)) for name in graphs}
    return {"weights": upload.replaced(kept), **answer}


def _evaluate_job(payload: Payload, client: Client) -> Payload:
    """Correct rows. A network that computes no finite numbers gets nothing right, wherever its largest output is."""
    arch = payload["architecture"]
    x, y = client.data.part(payload["part"])
    module = network(arch, client.device)
    counts = evaluate(module, sparse.unpack(arch, payload["weights"]), x, y, payload["batch"], device=client.device)
    return {"correct": counts.correct if math.isfinite(counts.loss) else 0}


JOBS: dict[str, Any] = {"train": _train_job, "evaluate": _evaluate_job}
