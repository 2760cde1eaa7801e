"""What the searches for DARTS cells have in common: the network that was found, trained from scratch and measured.

`fedrl` and `fednas` derive from `DartsSearch`; how they get from data to alphas is their own.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from atoll.algorithms import reinforce
from atoll.clients import (
    FederatedModel,
    LocalTraining,
    PrivateWork,
    evaluate,
    evaluate_test,
    fresh,
    metrics_of,
    train_models,
)
from atoll.errors import ConfigError
from atoll.methods.base import (
    Array,
    Candidate,
    Federation,
    Generator,
    Method,
    MethodConfig,
    Metrics,
    Schema,
    StateT,
    Tensors,
)
from atoll.spaces.darts import space as darts
from atoll.spaces.darts.genotype import Genotype
from atoll.spaces.darts.layers import KINDS
from atoll.training.augmentation import Augmentation

BEST = "best"  # the found network's name
DEEPEST, LARGEST = 200, 10**9  # cells, weights: ten times the largest published search

ANY = {kind: [["skip_connect", 0], ["skip_connect", 1]] * 4 for kind in KINDS}  # a genotype, for its sizes


class DartsConfig(MethodConfig):
    """`rounds` counts all communication rounds; the last ones train what was found."""

    round_parts: ClassVar[tuple[str, ...]] = ("retrain",)

    retrain: int | None = Field(default=None, ge=0)  # rounds; None: a tenth; 0: leave it to `atoll retrain`
    channels: int = Field(default=16, ge=1)  # of the supernet's first cells
    cells: int = Field(default=8, ge=1, le=DEEPEST)
    norm: Literal["batch", "group"] = "batch"  # or group: rows do not influence each other

    # The found network, trained from scratch by federated averaging
    retrain_channels: int | None = Field(default=None, ge=1)  # None: as many as the supernet
    retrain_cells: int | None = Field(default=None, ge=1, le=DEEPEST)
    retrain_epochs: int = Field(default=1, ge=1)
    retrain_batch: int | None = Field(default=None, ge=2)  # None: as in the search
    retrain_lr: float = Field(default=0.1, gt=0)
    retrain_momentum: float = Field(default=0.5, ge=0, lt=1)
    retrain_weight_decay: float = Field(default=0.005, ge=0)
    retrain_crop: int = Field(default=0, ge=0)  # augmentation of its training rows, see `retrain`; 0: none
    retrain_flip: float = Field(default=0.0, ge=0, le=1)
    retrain_cutout: int = Field(default=0, ge=0)

    window: int = Field(default=50, ge=1)  # rounds of the moving average
    test_every: int = Field(default=0, ge=0)  # rounds between test evaluations, for the report; 0: only at the end

    def fitted(self, schema: Schema, clients: int) -> Self:
        supernet = darts.architecture_for(schema, self.channels, self.cells, self.norm)
        size = darts.weight_count(supernet)
        if size > LARGEST:
            room = f"a supernet of {size:,} weights needs {4 * size / 1e9:,.0f} GB"
            raise ConfigError(
                f"channels = {self.channels}, cells = {self.cells}: {room}; take fewer", code="network-too-large"
            )
        found = darts.from_genotype(
            supernet, ANY, self.retrain_channels, self.retrain_cells
        )  # what does not fit is refused here
        size = darts.weight_count(found)
        if size > LARGEST:
            room = f"a network of {size:,} weights or more needs {4 * size / 1e9:,.0f} GB"
            sizes = f"retrain_channels = {found['channels']}, retrain_cells = {found['cells']}"
            raise ConfigError(f"{sizes}: {room}; take fewer", code="network-too-large")
        self.augmentation.check(schema, "retrain_")
        retrain = self.retrain if self.retrain is not None else math.ceil(self.rounds / 10)
        if retrain > self.rounds:
            raise ConfigError(
                f"retrain = {retrain}: the last of {self.rounds} rounds; give at most {self.rounds}",
                code="phase-exceeds-rounds",
            )
        return self.model_copy(update={"retrain": retrain})

    @property
    def search_rounds(self) -> int:
        """Rounds before the found network is trained."""
        return self.rounds - (self.retrain or 0)

    @property
    def augmentation(self) -> Augmentation:
        return Augmentation(self.retrain_crop, self.retrain_flip, self.retrain_cutout)

    def retraining(self, batch: int) -> LocalTraining:
        """How the found network is trained; `batch` is the search's."""
        return LocalTraining(
            epochs=self.retrain_epochs,
            batch=self.retrain_batch or batch,
            lr=self.retrain_lr,
            momentum=self.retrain_momentum,
            weight_decay=self.retrain_weight_decay,
            extras=self.augmentation.payload(),
        )


class DartsSearch(Method[StateT]):
    """The server's side of what is shared. Alphas are (2, 14, 8): normal and reduction cells, edges, operations."""

    config: DartsConfig

    def __init__(self, config: DartsConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.supernet = darts.architecture_for(schema, config.channels, config.cells, config.norm)
        self.size = darts.weight_count(self.supernet)

    def derived(self, cells: Genotype) -> dict[str, Any]:
        """The network of these cells, in the size of the found one."""
        return darts.from_genotype(self.supernet, cells, self.config.retrain_channels, self.config.retrain_cells)

    def retrain_round(
        self, found: dict[str, Any], batch: int, rounds_done: int, federation: Federation, rng: Generator
    ) -> tuple[dict[str, Any], Metrics]:
        """One round of federated averaging for the network `found`; without weights, it starts with random ones."""
        model = FederatedModel(BEST, **found) if "weights" in found else fresh(BEST, found["architecture"], rng)
        clients = federation.clients()
        (trained,) = train_models(federation, [model], clients, self.config.retraining(batch), 0)
        new = {"architecture": trained.architecture, "weights": trained.weights, "diverged": trained.diverged}
        if trained.diverged:
            return new, {"phase": "final", "diverged": True, "error": 1.0}
        metrics: Metrics = {"phase": "final"}
        validation = evaluate(federation, clients, trained.architecture, trained.weights)
        if validation is not None:
            metrics |= metrics_of(validation)
        return new, metrics | self.tested(rounds_done + 1, federation, trained.architecture, trained.weights)

    def private_retraining(self, batch: int) -> PrivateWork:
        """What `retrain_round` asks of a client, and the final measurements of both candidates; `batch` is the
        search's."""
        rounds, how = self.config.rounds - self.config.search_rounds, self.config.retraining(batch)
        return PrivateWork([self.derived(ANY)], rounds, how.epochs, how.batch, rounds + 2, final=2)

    def tested(self, rounds: int, federation: Federation, architecture: dict[str, Any], weights: Tensors) -> Metrics:
        """Metrics on test data, in the rounds that have a test evaluation."""
        if not self.config.test_every or rounds % self.config.test_every:
            return {}
        test = evaluate_test(federation, architecture, weights)
        return metrics_of(test, "test_") if test is not None else {}

    def candidates(
        self,
        found: dict[str, Any],
        name: str,
        architecture: dict[str, Any],
        weights: Tensors,
        network: dict[str, Any],
        federation: Federation,
    ) -> list[Candidate]:
        """The found network if it was trained (and has not diverged), and one of this name that shares the supernet's
        weights.

        If the latter is picked, `atoll retrain` trains the network that the search has derived.
        """
        derived: dict[str, Any] = {"derived": network}
        if found and found["diverged"]:
            derived["diverged"] = f"in training from scratch, at retrain_lr = {self.config.retrain_lr:g}"
        if not found or found["diverged"]:
            return [self.measured(federation, name, architecture, weights, ["high", BEST], derived)]
        return [
            self.measured(federation, BEST, found["architecture"], found["weights"]),
            self.measured(federation, name, architecture, weights, [], derived),
        ]

    def policy_metrics(self, alpha: Array) -> Metrics:
        """How decided the alphas are, and whether skip connections take over, as they are known to do in DARTS."""
        shares = reinforce.probabilities(alpha)
        return {
            "entropy": reinforce.entropy(alpha),
            "skip_share": darts.skip_share(darts.genotype(*alpha)),
            "skip_expected": darts.skip_share(by_kind(shares)),
            "size_expected": darts.expected_weights(self.supernet, *shares) / self.size,
        }


def accuracy_metrics(recent: list[float]) -> Metrics:
    """The moving average of training accuracies; its error is what a progress bar shows."""
    if not recent:
        return {}
    moving = float(np.mean(recent))
    return {"moving_accuracy": moving, "error": 1.0 - moving}


def by_kind(values: Array) -> dict[str, Array]:
    """Values of normal and of reduction cells, by name."""
    return dict(zip(KINDS, values, strict=True))
