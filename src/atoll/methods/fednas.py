"""FedNAS-style search: every client trains the whole supernet and its alphas by gradient, the server averages both.

He et al., "FedNAS: Federated Deep Learning via Neural Architecture Search", 2020: the gradient rival of `fedrl`, over
the same space. What it costs is the point of the comparison: each client receives, trains and returns the whole
supernet, where `fedrl` sends one path of it. In the order of a round:

    server sends weights and alphas to all clients             FedNAS.step
    client: alphas on validation rows, weights on training     _search_job
    weighted mean of weights and of alphas                     FedNAS.step, Mean
    at the end: derive the network, train it from scratch      DartsSearch.retrain_round

Readings are in docs/papers.md.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from atoll import spaces
from atoll.algorithms.sampling import choose
from atoll.clients import Client, PrivateWork, jobs
from atoll.core.checks import Count, TensorsLike
from atoll.errors import ConfigError
from atoll.methods.base import Array, Candidate, ClientInfo, Federation, Generator, Metrics, Payload, Task, Tensors
from atoll.methods.darts_search import DartsConfig, DartsSearch, accuracy_metrics
from atoll.spaces.darts import space as darts
from atoll.training import alternating, networks, private

SEARCH = "atoll.methods.fednas:search"


class FedNASConfig(DartsConfig):
    """Settings of the search; those of the weights are `fedrl`'s, those of the alphas DARTS'."""

    fraction: float = Field(default=1.0, gt=0, le=1)  # of the clients, in every round
    epochs: int = Field(default=1, ge=1)
    batch: int = Field(default=64, ge=2)
    lr: float = Field(default=0.025, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=3e-4, ge=0)
    clip: float = Field(default=5.0, gt=0)
    alpha_lr: float = Field(default=3e-4, gt=0)
    alpha_decay: float = Field(default=1e-3, ge=0)
    level: Literal["validation", "mixed"] = "validation"  # the loss alphas follow; mixed: and the training loss

    @property
    def alternation(self) -> alternating.Alternation:
        names = ("epochs", "batch", "lr", "momentum", "weight_decay", "clip", "alpha_lr", "alpha_decay", "level")
        return alternating.Alternation(**{name: getattr(self, name) for name in names})


@dataclass(frozen=True)
class FedNASState:
    round: int
    supernet: Tensors  # weights and alphas
    recent: list[float]  # training accuracies of the last rounds, for the moving average
    found: dict[str, Any]  # the found network while it is trained


class FedNAS(DartsSearch[FedNASState]):
    """The server's side."""

    name: ClassVar[str] = "fednas"
    not_private: ClassVar[str] = "with level = 'mixed' alphas follow the loss of training rows, too; use 'validation'"
    metrics_kind: ClassVar[str] = "policy"
    summary: ClassVar[str] = "search DARTS cells by gradient: clients train the whole supernet, alphas are averaged"
    Config: ClassVar[type[FedNASConfig]] = FedNASConfig
    State: ClassVar[type[FedNASState]] = FedNASState
    config: FedNASConfig

    def init(self, federation: Federation, rng: Generator) -> FedNASState:
        if not all(info.sizes["validation"] for info in federation.clients()):
            raise ConfigError(
                "data.split: some client has no validation rows, and alphas are trained on them; add some",
                code="no-validation-rows",
            )
        return FedNASState(0, spaces.initial(self.supernet, rng), [], {})

    def step(self, state: FedNASState, federation: Federation, rng: Generator) -> tuple[FedNASState, Metrics]:
        if state.round >= self.config.search_rounds:
            if not state.found:
                federation.new_phase()
            start = state.found or {"architecture": self._network(state)}
            found, metrics = self.retrain_round(start, self.config.batch, state.round, federation, rng)
            return FedNASState(state.round + 1, state.supernet, state.recent, found), metrics
        infos = {info.name: info for info in federation.clients()}
        chosen = choose(list(infos), self.config.fraction, rng)
        mean, accuracies = federation.mean(state.supernet), []
        tasks = [self._task(state.supernet, infos[name]) for name in chosen]
        for reply in federation.collect(tasks, what="a supernet"):
            rows = infos[reply.task.client].sizes["train"]
            mean.add(reply.payload["supernet"], federation.weight(reply.task.client, rows))
            accuracies.append(reply.payload["correct"] / reply.task.returns["correct"].maximum)
        now = float(np.mean(accuracies))
        new = FedNASState(state.round + 1, mean.result(), [*state.recent, now][-self.config.window :], {})
        metrics = {"phase": "search", "accuracy": now, "size_share": 1.0}
        metrics |= self.policy_metrics(_alpha(new.supernet)) | accuracy_metrics(new.recent)
        return new, metrics | self.tested(new.round, federation, self.supernet, new.supernet)

    def private_work(self) -> PrivateWork | None:
        """A round of the search trains weights and alphas together and counts once."""
        if self.config.level != "validation":
            return None
        settings, rounds = self.config, self.config.search_rounds
        search = PrivateWork([self.supernet], rounds, settings.epochs, settings.batch, rounds, alphas=True)
        return replace(search, rewards=True, then=self.private_retraining(settings.batch))

    def results(self, state: FedNASState, federation: Federation, rng: Generator) -> list[Candidate]:
        """The found network if it was trained, and the supernet itself."""
        network = self._network(state)
        return self.candidates(state.found, "supernet", self.supernet, state.supernet, network, federation)

    def _network(self, state: FedNASState) -> dict[str, Any]:
        return self.derived(darts.genotype(*_alpha(state.supernet)))

    def _task(self, supernet: Tensors, info: ClientInfo) -> Task:
        settings = self.config.alternation
        payload: Payload = {"architecture": self.supernet, "supernet": supernet, **asdict(settings)}
        rows = info.sizes["train"] * settings.epochs
        # For every training batch a training pass on it (mixed: two) and one on validation rows.
        on_training = (2 if settings.level == "mixed" else 1) * rows
        on_validation = alternating.validation_rows(info.sizes["train"], info.sizes["validation"], settings)
        macs = spaces.training_macs(darts.cost(self.supernet), on_training + on_validation)
        longest = settings.longest_update(info.sizes["train"], supernet, darts.ALPHAS)
        returns = {"supernet": TensorsLike.of(supernet, "values", longest), "correct": Count(rows)}
        return Task(f"search:{info.name}", info.name, SEARCH, payload, macs, returns)


def _alpha(supernet: Tensors) -> Array:
    return np.stack([supernet[name] for name in darts.ALPHAS]).astype(np.float64)


def _search_job(payload: Payload, client: Client) -> Payload:
    """Weights and alphas after the local search, and how many training rows were right on the way. With `privacy` all
    steps are noisy, and correct validation rows of the supernet that came are counted instead."""
    fields = alternating.Alternation.__dataclass_fields__
    settings = alternating.Alternation(**{name: payload[name] for name in fields})
    train, validation = client.data.part("train"), client.data.part("validation")
    module = networks.network(payload["architecture"], client.device)
    if "privacy" in payload:
        own = {"architecture": payload["architecture"], "weights": payload["supernet"], "privacy": payload["privacy"]}
        counted = jobs.count_correct({**own, "part": "validation", "batch": jobs.TEST_BATCH}, client)
        noisy = alternating.search_privately(
            module,
            payload["supernet"],
            darts.ALPHAS,
            train,
            validation,
            settings,
            private.PrivateSteps.of(payload["privacy"]),
            private.PrivateSteps.of_alphas(payload["privacy"]),
            jobs.noise_of(client),
            device=client.device,
        )
        return {"supernet": noisy} | counted
    found = alternating.search_locally(
        module, payload["supernet"], darts.ALPHAS, train, validation, settings, client.rng, device=client.device
    )
    return {"supernet": found.tensors, "correct": found.correct}


def _search_use(payload: Payload) -> jobs.RowUse:
    training = {"epochs": payload["epochs"], "batch": payload["batch"]}
    return jobs.RowUse([payload["architecture"]], training, alphas=True, counts=1)


JOBS: dict[str, Any] = {"search": _search_job}
USES = {"search": _search_use}
