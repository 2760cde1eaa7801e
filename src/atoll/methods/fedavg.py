"""Federated averaging: the baseline, and the template for new methods.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", 2017, Algorithm 1 (the same
as Algorithm 1 of the real-time paper). In the order of its lines:

    initialise theta                              FedAvg.init
    for each round: choose m = C * K clients      FedAvg.step, choose
    each client trains E epochs of batches of B   clients/jobs.py, train
    theta <- sum over k of (n_k / n) * theta_k    FedAvg.step, Mean

A round is one exchange: a client measures the model that came, then trains it. So the metrics of round r are those of
the model after round r - 1, on every engine. The model of the last round is measured once, for the result.

A variant with another local objective is a subclass with a `job` of its own, and `extras` for what that job needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from atoll import spaces
from atoll.algorithms.aggregation import with_momentum
from atoll.algorithms.sampling import choose
from atoll.clients import evaluate_test, jobs, measured_by, measured_parts, metrics_of, total, train_task
from atoll.methods.base import (
    Candidate,
    ClientInfo,
    Federation,
    Generator,
    Method,
    Metrics,
    Part,
    Payload,
    PrivateWork,
    Schema,
    Task,
    Tensors,
    TrainingConfig,
)
from atoll.spaces import fixed
from atoll.training.metrics import ConfusionCounts

Counts = dict[Part, dict[str, ConfusionCounts]]  # by part, then by client


def scheduled(lr: float, settings: FedAvgConfig, rounds_done: int) -> float:
    """The learning rate of the next round."""
    if settings.schedule == "cosine":
        return lr * 0.5 * (1 + math.cos(math.pi * rounds_done / settings.rounds))
    return lr * settings.decay**rounds_done


class FedAvgConfig(TrainingConfig):
    """Settings of federated averaging."""

    model: str = "auto"  # auto: an MLP for tables and tiny images, ConvNet for other images
    hidden: list[int] | None = None  # widths of an MLP's hidden layers
    widths: list[int] | None = None  # channels of a convolutional network's stages
    norm: Literal["batch", "group"] = "batch"  # of a convolutional network; or group: rows do not influence each other
    fraction: float = Field(default=1.0, gt=0, le=1)  # C
    epochs: int = Field(default=1, ge=1)  # E
    batch: int = Field(default=50, ge=2)  # B
    lr: float = Field(default=0.1, gt=0)
    schedule: Literal["decay", "cosine"] = "decay"  # of the learning rate; cosine: from lr to 0 over all rounds
    decay: float = Field(default=1.0, gt=0, le=1)  # of the learning rate, per round, with schedule "decay"
    momentum: float = Field(default=0.0, ge=0, lt=1)
    server_momentum: float = Field(default=0.0, ge=0, lt=1)  # FedAvgM: of the averaged model's changes
    test_every: int = Field(default=1, ge=0)  # rounds between test evaluations, for the report; 0: only at the end

    @model_validator(mode="before")
    @classmethod
    def _earlier_average(cls, values: Any) -> Any:
        """Runs of an earlier version have a setting that is `robust.client_weights` now. Its default means the same."""
        if isinstance(values, dict) and values.get("average") == "weighted":
            return {name: value for name, value in values.items() if name != "average"}
        return values

    def fitted(self, schema: Schema, clients: int) -> Self:
        arch = fixed.architecture_for(self.model, schema, self.hidden, self.widths, self.norm)
        self.augmentation.check(schema)
        chosen = {"model": arch["model"], "hidden": arch.get("hidden"), "widths": arch.get("widths")}
        return self.model_copy(update=chosen)


@dataclass(frozen=True)
class FedAvgState:
    round: int
    weights: Tensors
    # Of the round with the lowest validation error so far, the last of equals. The last round's is not known yet.
    best: Tensors = field(default_factory=lambda: Tensors({}))
    best_error: float = 1.0
    best_round: int = 0
    velocity: Tensors = field(default_factory=lambda: Tensors({}))  # of `server_momentum`


class FedAvg(Method[FedAvgState]):
    """The server's side."""

    name: ClassVar[str] = "fedavg"
    metrics_kind: ClassVar[str] = "model"
    summary: ClassVar[str] = "train one fixed network by federated averaging: the baseline"
    Config: ClassVar[type[FedAvgConfig]] = FedAvgConfig
    State: ClassVar[type[FedAvgState]] = FedAvgState
    job: ClassVar[str] = jobs.TRAIN  # what a client does in a round; one with the same reply may replace it
    config: FedAvgConfig

    def __init__(self, config: FedAvgConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.architecture = fixed.architecture_for(config.model, schema, config.hidden, config.widths, config.norm)

    def extras(self) -> Payload:
        """What a training task carries besides the settings of SGD."""
        return self.config.extras()

    def init(self, federation: Federation, rng: Generator) -> FedAvgState:
        return FedAvgState(0, spaces.initial(self.architecture, rng))

    def step(self, state: FedAvgState, federation: Federation, rng: Generator) -> tuple[FedAvgState, Metrics]:
        infos = {info.name: info for info in federation.clients()}
        chosen = [infos[name] for name in choose(list(infos), self.config.fraction, rng)]
        mean, trained = federation.mean(state.weights), 0
        counts: Counts = {"validation": {}, "test": {}}
        tasks = [self.train_task(state, info, measured_parts(federation, info, self._tested(state))) for info in chosen]
        for reply in federation.collect(tasks, what="a usable model"):
            client = reply.task.client
            mean.add(reply.payload["weights"], federation.weight(client, infos[client].sizes["train"]))
            trained += 1
            for part, own in measured_by(reply.payload).items():
                counts[part][client] = own
        metrics = self._metrics(state, counts, federation)
        if counts["validation"] and state.round and metrics["error"] <= state.best_error:
            state = replace(state, best=state.weights, best_error=metrics["error"], best_round=state.round)
        momentum = self.config.server_momentum
        weights, velocity = with_momentum(state.weights, mean.result(), state.velocity, momentum)
        new = replace(state, round=state.round + 1, weights=weights, velocity=velocity)
        return new, metrics | {"clients": trained}

    def results(self, state: FedAvgState, federation: Federation, rng: Generator) -> list[Candidate]:
        """The network of the last round and, if it is another, that of the best round by validation error."""
        final = self.measured(federation, "final", self.architecture, state.weights, ["final"])
        if not state.best_round or final.objectives.get("error", 1.0) <= state.best_error:
            return [replace(final, picks=["high", "final", "best"])]
        about = {"round": state.best_round}
        found = [
            replace(final, about={"round": state.round}),
            self.measured(federation, "best", self.architecture, state.best, ["best"], about),
        ]
        best = min(found, key=lambda one: one.objectives.get("error", 1.0))
        return [replace(one, picks=["high", *one.picks] if one is best else one.picks) for one in found]

    def private_work(self) -> PrivateWork | None:
        """A round trains and counts once; the result is measured after the last and the best round."""
        if self.job != jobs.TRAIN:
            return None
        rounds, settings = self.config.rounds, self.config
        return PrivateWork([self.architecture], rounds, settings.epochs, settings.batch, rounds + 2, final=2)

    def train_task(self, state: FedAvgState, info: ClientInfo, parts: Sequence[Part] = ()) -> Task:
        """What a client does in a round: it measures the model that comes on these parts of its rows and trains it."""
        settings = self.config
        payload: Payload = {
            "architecture": self.architecture,
            "weights": state.weights,
            "epochs": settings.epochs,
            "batch": settings.batch,
            "lr": scheduled(settings.lr, settings, state.round),
            "momentum": settings.momentum,
            "weight_decay": settings.weight_decay,
            **self.extras(),
        }
        return train_task(info, payload, job=self.job, parts=parts)

    def _tested(self, state: FedAvgState) -> bool:
        """Whether the round after this state measures on test rows."""
        every, number = self.config.test_every, state.round + 1
        return bool(every) and (number % every == 0 or number >= self.config.rounds)

    def _metrics(self, state: FedAvgState, counts: Counts, federation: Federation) -> Metrics:
        """The model that was sent on validation data and, when it is time, on test data for the report."""
        validation = total(counts["validation"])
        metrics: Metrics = {} if validation is None else dict(metrics_of(validation))
        if self._tested(state):
            test = evaluate_test(federation, self.architecture, state.weights, counts["test"])
            if test is not None:
                metrics |= metrics_of(test, "test_")
                metrics.setdefault("error", metrics["test_error"])
        return metrics
