"""Federated averaging: the baseline, and the template for new methods.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017, Algorithm 1 (the same
as Algorithm 1 of the real-time paper). In the order of its lines:

    initialise theta                              FedAvg.init
    for each round: choose m = C * K clients      FedAvg.step, choose
    each client trains E epochs of batches of B   _train_job
    theta <- sum over k of (n_k / n) * theta_k    FedAvg.step, Mean
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from atoll import spaces
from atoll.algorithms.aggregation import Mean
from atoll.algorithms.sampling import choose
from atoll.core.checks import TensorsLike
from atoll.core.messages import ClientInfo, Payload, Reply, Schema, Task, Tensors
from atoll.errors import TooFewReplies
from atoll.federation.base import Federation
from atoll.methods.augmented import AugmentedConfig
from atoll.methods.base import Candidate, Metrics
from atoll.methods.measure import (
    calibrated,
    client_metrics,
    evaluate_test,
    evaluate_test_each,
    failure_reasons,
    figures,
    final_objectives,
    validate,
)
from atoll.rng import Generator
from atoll.spaces.fixed import architecture_for
from atoll.training.augmentation import Augmentation
from atoll.training.client import Client
from atoll.training.metrics import Counts
from atoll.training.networks import network
from atoll.training.sgd import TrainSettings, train

TRAIN = "atoll.methods.fedavg:train"


class FedAvgConfig(AugmentedConfig):
    """Settings of federated averaging."""

    model: str = "auto"  # auto: an MLP for tables and tiny images, ConvNet for other images
    hidden: list[int] | None = None  # widths of an MLP's hidden layers
    widths: list[int] | None = None  # channels of a convolutional network's stages
    fraction: float = Field(default=1.0, gt=0, le=1)  # C
    epochs: int = Field(default=1, ge=1)  # E
    batch: int = Field(default=50, ge=2)  # B
    lr: float = Field(default=0.1, gt=0)
    decay: float = Field(default=1.0, gt=0, le=1)  # of the learning rate, per round
    momentum: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    average: Literal["weighted", "equal"] = "weighted"  # by rows, or every client alike
    # The share of the chosen whose models a round waits for. Below 1 the clock decides who is late: bits may differ.
    quorum: float = Field(default=1.0, gt=0, le=1)
    test_every: int = Field(
        default=1, ge=0
    )  # rounds between looks at the test data, for the report; 0: only at the end

    def fitted(self, schema: Schema, clients: int) -> Self:
        arch = architecture_for(self.model, schema, self.hidden, self.widths)
        self.augmentation.check(schema)
        chosen = {"model": arch["model"], "hidden": arch.get("hidden"), "widths": arch.get("widths")}
        return self.model_copy(update=chosen)


@dataclass(frozen=True)
class FedAvgState:
    round: int
    weights: Tensors


class FedAvg:
    """The server's side."""

    name: ClassVar[str] = "fedavg"
    metrics_kind: ClassVar[str] = "model"
    summary: ClassVar[str] = "train one fixed network by federated averaging: the baseline"
    Config: ClassVar[type[FedAvgConfig]] = FedAvgConfig
    State: ClassVar[type[FedAvgState]] = FedAvgState
    centralised: ClassVar[bool] = False

    def __init__(self, config: FedAvgConfig, schema: Schema) -> None:
        self.config = config
        self.architecture = architecture_for(config.model, schema, config.hidden, config.widths)
        self.cost = spaces.cost(self.architecture)

    def init(self, federation: Federation, rng: Generator) -> FedAvgState:
        return FedAvgState(0, spaces.initial(self.architecture, rng))

    def step(self, state: FedAvgState, federation: Federation, rng: Generator) -> tuple[FedAvgState, Metrics]:
        infos = {info.name: info for info in federation.clients()}
        free = [name for name in infos if name not in federation.busy]  # others are late with an earlier round
        chosen = [infos[name] for name in choose(free, self.config.fraction, rng)] if free else []
        mean, failed = Mean(), []
        for reply in self._replies([self._train_task(state, info) for info in chosen], federation):
            if reply.ok:
                rows = infos[reply.task.client].sizes["train"]
                mean.add(reply.payload["weights"], rows if self.config.average == "weighted" else 1)
            else:
                failed.append(reply.error)
        if mean.weight == 0:
            raise TooFewReplies(
                f"none of {len(chosen)} clients returned a usable model ({failure_reasons(failed)})",
                code="too-few-replies",
            )
        new = FedAvgState(state.round + 1, mean.result())
        here = [info for info in chosen if info.name not in federation.busy]
        return new, self._measure(new, here, federation) | {"clients": len(here) - len(failed)}

    def done(self, state: FedAvgState) -> bool:
        return state.round >= self.config.rounds

    def snapshots(self, state: FedAvgState) -> list[Candidate]:
        return []

    def results(self, state: FedAvgState, federation: Federation, rng: Generator) -> list[Candidate]:
        everyone = federation.clients()
        validation = validate(federation, everyone, self.architecture, state.weights)
        each = evaluate_test_each(federation, self.architecture, state.weights)
        test = sum(each.values(), Counts.zero(self.architecture["classes"])) if each else None
        objectives = final_objectives(validation, test, self.cost)
        statistics = calibrated(federation, everyone, self.architecture, state.weights)
        own = client_metrics(federation, each)
        return [Candidate("final", self.architecture, objectives, ["high"], state.weights, statistics, own)]

    def _train_task(self, state: FedAvgState, info: ClientInfo) -> Task:
        settings = self.config
        payload: Payload = {
            "architecture": self.architecture,
            "weights": state.weights,
            "epochs": settings.epochs,
            "batch": settings.batch,
            "lr": settings.lr * settings.decay**state.round,
            "momentum": settings.momentum,
            "weight_decay": settings.weight_decay,
            **settings.extras(),
        }
        passes = 3 * settings.epochs  # a training pass counts as three forward ones
        macs = self.cost.macs * info.sizes["train"] * passes
        returns = {"weights": TensorsLike.of(state.weights)}
        return Task(f"train:{info.name}", info.name, TRAIN, payload, macs, returns)

    def _replies(self, tasks: list[Task], federation: Federation) -> Iterator[Reply]:
        """All of this round's, one after the other, or a quorum of them; what comes later is thrown away."""
        if self.config.quorum == 1:
            yield from federation.map(tasks)
            return
        federation.send(tasks)
        for reply in federation.receive(at_least=math.ceil(self.config.quorum * len(tasks)) or 1):
            if reply.round == federation.round:
                yield reply
            elif reply.ok:
                federation.forget(reply)

    def _measure(self, state: FedAvgState, chosen: list[ClientInfo], federation: Federation) -> Metrics:
        """The new model on validation data and, when it is time, on test data for the report."""
        metrics: Metrics = {}
        validation = validate(federation, chosen, self.architecture, state.weights)
        if validation is not None:
            metrics |= figures(validation)
        every = self.config.test_every
        if every and (state.round % every == 0 or self.done(state)):
            test = evaluate_test(federation, self.architecture, state.weights)
            if test is not None:
                metrics |= figures(test, "test_")
                metrics.setdefault("error", metrics["test_error"])
        return metrics


def _train_job(payload: Payload, client: Client) -> Payload:
    x, y = client.data.part("train")
    settings = TrainSettings(
        epochs=payload["epochs"],
        batch=payload["batch"],
        lr=payload["lr"],
        momentum=payload["momentum"],
        weight_decay=payload["weight_decay"],
        clip=payload.get("clip"),
    )
    module = network(payload["architecture"], client.device)
    augment = Augmentation.from_payload(payload)
    outcome = train(module, payload["weights"], x, y, settings, client.rng, augment=augment, device=client.device)
    return {"weights": outcome.weights}


JOBS: dict[str, Any] = {"train": _train_job}
