"""A network of each client's own: the rivals of personal networks that a search finds.

With `shared = 0` every client trains alone and nothing is averaged. Otherwise the first rounds are federated averaging,
and from what it gives each client goes on alone: FedAvg with local fine-tuning (Yu et al., "Salvaging Federated
Learning by Local Adaptation", 2020). The weights pass through the server, which only keeps them for the result. As in
federated averaging, the metrics of a round are those of the networks that were sent in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from atoll import spaces
from atoll.algorithms.aggregation import with_momentum
from atoll.clients import Finished, calibrated_each, evaluate_finished, measured_by, train_task
from atoll.errors import ConfigError
from atoll.methods.base import Candidate, Federation, Generator, Method, Metrics, Part, Payload, Schema, Tensors
from atoll.methods.fedavg import FedAvgConfig, scheduled
from atoll.spaces import fixed
from atoll.training import calibration
from atoll.training.metrics import Confusion, accuracy, weighted_f1

Counts = dict[Part, dict[str, Confusion]]  # by part, then by client


class PersonalConfig(FedAvgConfig):
    """The settings of federated averaging, and how many of the rounds average."""

    round_parts: ClassVar[tuple[str, ...]] = ("shared",)

    shared: int = Field(default=0, ge=0)  # rounds of federated averaging before each client goes on alone

    @model_validator(mode="after")
    def _rounds_are_left(self) -> Self:
        if self.shared >= self.rounds:
            raise ConfigError(
                f"personal.shared = {self.shared}: of {self.rounds} rounds none is left to train alone; use fewer",
                code="phase-exceeds-rounds",
            )
        return self


@dataclass(frozen=True)
class PersonalState:
    round: int
    shared: Tensors  # the network of all clients, as long as it is averaged
    own: dict[str, Any]  # client -> its own weights, after that
    velocity: Tensors = field(default_factory=lambda: Tensors({}))  # of `server_momentum`, in the shared rounds


class Personal(Method[PersonalState]):
    """The server's side."""

    name: ClassVar[str] = "personal"
    not_private: ClassVar[str] = "each client's own network is fitted to its rows, without noise"
    metrics_kind: ClassVar[str] = "model"
    recommended: ClassVar[str] = "shared"
    summary: ClassVar[str] = "train a network for each client: alone, or from federated averaging on"
    Config: ClassVar[type[PersonalConfig]] = PersonalConfig
    State: ClassVar[type[PersonalState]] = PersonalState
    config: PersonalConfig

    def __init__(self, config: PersonalConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.architecture = fixed.architecture_for(config.model, schema, config.hidden, config.widths, config.norm)

    def init(self, federation: Federation, rng: Generator) -> PersonalState:
        return PersonalState(0, spaces.initial(self.architecture, rng), {})

    def step(self, state: PersonalState, federation: Federation, rng: Generator) -> tuple[PersonalState, Metrics]:
        alone = state.round >= self.config.shared
        infos = {info.name: info for info in federation.clients()}
        every = self.config.test_every
        counted = not calibration.statistics_form(self.architecture)
        tested = counted and bool(every) and (state.round + 1) % every == 0
        parts: list[Part] = ["validation"] if counted else []
        parts += ["test"] if tested else []
        tasks = [
            train_task(info, self._payload(state.own.get(name, state.shared), state.round), parts=parts)
            for name, info in infos.items()
        ]
        mean, own = federation.mean(state.shared), dict(state.own)
        counts: Counts = {"validation": {}, "test": {}}
        for reply in federation.collect(tasks, what="a usable model"):
            for part, found in measured_by(reply.payload).items():
                counts[part][reply.task.client] = found.confusion
            if alone:
                own[reply.task.client] = reply.payload["weights"]
            else:
                rows = infos[reply.task.client].sizes["train"]
                mean.add(reply.payload["weights"], federation.weight(reply.task.client, rows))
        shared, velocity = state.shared, state.velocity
        if not alone:
            shared, velocity = with_momentum(shared, mean.result(), velocity, self.config.server_momentum)
        new = PersonalState(state.round + 1, shared, own, velocity)
        return new, self._metrics(state, counts, federation, tested)

    def results(self, state: PersonalState, federation: Federation, rng: Generator) -> list[Candidate]:
        """The shared network, and every client's own."""
        rounds = min(state.round, self.config.shared)
        about = {} if rounds else {"trained_rounds": 0}
        found = [self.measured(federation, "shared", self.architecture, state.shared, ["high", "shared"], about)]
        cost = spaces.cost(self.architecture)
        sizes = {"macs": cost.macs, "params": cost.params, "upload_bytes": cost.bytes}
        infos = {info.name: info for info in federation.clients()}
        ready = calibrated_each(
            federation, [(self.architecture, weights, [infos[name]]) for name, weights in state.own.items()]
        )
        networks = [
            Finished(self.architecture, weights, own, name)
            for (name, weights), own in zip(state.own.items(), ready, strict=True)
        ]
        validated = evaluate_finished(federation, networks, "validation")
        for network, counts in zip(networks, validated, strict=True):
            label = f"personal-{network.owner}"
            error = {"error": 1.0 - accuracy(counts[str(network.owner)])} if counts else {"error": 1.0}
            found.append(
                Candidate(
                    label,
                    self.architecture,
                    error | sizes,
                    [label],
                    network.weights,
                    network.statistics,
                    owner=network.owner,
                )
            )
        return found

    def _payload(self, weights: Tensors, rounds_done: int) -> Payload:
        settings = self.config
        return {
            "architecture": self.architecture,
            "weights": weights,
            "epochs": settings.epochs,
            "batch": settings.batch,
            "lr": scheduled(settings.lr, settings, rounds_done),
            "momentum": settings.momentum,
            "weight_decay": settings.weight_decay,
            **settings.extras(),
        }

    def _metrics(self, state: PersonalState, counts: Counts, federation: Federation, tested: bool) -> Metrics:
        """The mean over clients of each one's network, as it was sent, on its own validation rows and, when it is time,
        on its own test rows for the report, of which those that did not count while they trained are asked."""
        found = counts["validation"].values()
        metrics: Metrics = {"error": _mean([1.0 - accuracy(own) for own in found])} if found else {}
        if not tested:
            return metrics
        test, clients = counts["test"], federation.clients()
        networks = [
            Finished(self.architecture, state.own.get(info.name, state.shared), Tensors({}), info.name)
            for info in clients
            if info.sizes["test"] > 0 and info.name not in test
        ]
        test = test | {name: own for each in evaluate_finished(federation, networks) for name, own in each.items()}
        held = [test[info.name] for info in clients if info.name in test]
        if held:
            metrics["test_error"] = _mean([1.0 - accuracy(own) for own in held])
            metrics["test_f1"] = _mean([weighted_f1(own) for own in held])
            metrics.setdefault("error", metrics["test_error"])
        return metrics


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
