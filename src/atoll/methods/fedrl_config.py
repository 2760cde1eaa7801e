"""Settings of `fedrl`: Table I of the paper, and what it leaves open."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator

from atoll.algorithms.aggregation import Descent
from atoll.algorithms.reinforce import Ascent, Correction
from atoll.algorithms.robust import FEWEST
from atoll.algorithms.sampling import Rule
from atoll.core.messages import ClientInfo, Schema
from atoll.errors import ConfigError
from atoll.federation.base import Federation
from atoll.methods.darts_search import DartsConfig
from atoll.spaces.darts.layers import OPERATIONS
from atoll.training.metrics import Objective

Phase = Literal["warmup", "search", "final"]
WITNESSES = 2  # other clients that measure a sub-model where rewards are medians


def refuse_too_few(federation: Federation) -> None:
    """Robust rules need three clients that evaluate every sub-model, and three gradients of every operation."""
    clients, operations = len(federation.clients()), len(OPERATIONS)
    each = f"about {clients / operations:.1f} clients an operation, so {FEWEST * operations} clients are needed"
    what = f"{clients} clients sample {operations} operations of each edge, {each}"
    federation.robust.refuse_fewer(clients // operations, what, "models")
    holders = sum(info.sizes["validation"] > 0 for info in federation.clients())
    if federation.median_fitness and holders <= WITNESSES:
        raise ConfigError(
            f"robust.fitness: {holders} clients have validation rows, and a reward is the median of three clients' "
            f"measurements; it needs {WITNESSES + 1} with validation rows, see data.split",
            code="too-few-clients",
        )
    if federation.median_fitness and federation.guard is not None:
        raise ConfigError(
            "robust.fitness = 'median': [privacy] does not plan for rewards by other clients; set it to 'mean'",
            code="privacy-not-covered",
        )


class FedRLConfig(DartsConfig):
    """`rounds` counts all communication rounds: warm-up, then search, then the training of what was found."""

    round_parts: ClassVar[tuple[str, ...]] = ("warmup", "retrain")

    warmup: int | None = Field(default=None, ge=0)  # P1; None: five eighths of the rounds before retraining

    # Weights (theta)
    batch: int = Field(default=256, ge=2)  # B
    epochs: int = Field(default=0, ge=0)  # 0: one gradient of one batch; else the weights' change over local epochs
    lr: float = Field(default=0.025, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=3e-4, ge=0)
    clip: float = Field(default=5.0, gt=0)  # of the averaged gradient
    bound: float | None = Field(default=None, gt=0)  # of each reply's gradient, before anything is done with it

    # Policy (alpha)
    policy_lr: float = Field(default=0.003, gt=0)
    policy_decay: float = Field(default=1e-4, ge=0)
    policy_clip: float = Field(default=5.0, gt=0)
    policy_betas: list[float] = Field(default=[0.5, 0.999], min_length=2, max_length=2)  # of Adam
    baseline: float = Field(default=0.99, ge=0, le=1)  # share of the new mean in Eq. 9
    objective: Objective = "error"  # a reward is 1 minus it; or balanced_error, weighted_f1 (1 minus it)
    reward_rows: int | None = Field(default=None, ge=2)  # that a reward is counted over; None: those of the batch
    policy_only: bool = False  # after the warm-up the weights stay as they are (Fig. 5)

    # Late replies; what becomes of them is a setting of the engine
    threshold: int = Field(default=2, ge=0, le=1000)  # Delta: older replies are discarded
    correction: Correction = "exact"  # of the policy's gradient, when compensating
    compensation: float = Field(default=0.1, ge=0)  # lambda of the constant rule and of `correction`
    # adaptive: lambda over the root of each weight's mean squared gradient (DC-ASGD-a); constant: the paper's
    compensation_rule: Literal["constant", "adaptive"] = "constant"
    adaptive_compensation: float = Field(default=8.0, ge=0)  # lambda of the adaptive rule, chosen on digits
    transmission: Rule = "adaptive"  # who gets which sub-model: larger ones over faster links, at random, as drawn

    # What is found: the likeliest cells or, of those and this many drawn from the policy, the best on validation rows
    # with the weights they share.
    choice: int = Field(default=0, ge=0, le=1000)
    reference: int = Field(default=20, ge=0, le=1000)  # policies without signal whose entropy is logged beside

    @field_validator("policy_betas")
    @classmethod
    def _below_one(cls, value: list[float]) -> list[float]:
        if not all(0 <= beta < 1 for beta in value):
            raise ConfigError(f"policy_betas = {value}: give two numbers from 0 to below 1", code="invalid-setting")
        return value

    def fitted(self, schema: Schema, clients: int) -> Self:
        if clients < 2:
            raise ConfigError(
                "clients = 1: sub-models are compared with each other; give two clients or more", code="too-few-clients"
            )
        whole = super().fitted(schema, clients)
        warmup = self.warmup if self.warmup is not None else whole.search_rounds * 5 // 8
        if warmup > whole.search_rounds:
            raise ConfigError(
                f"warmup = {warmup}: {whole.search_rounds} of {self.rounds} rounds come before the found network's "
                "training; give at most that many, or more rounds",
                code="phase-exceeds-rounds",
            )
        return whole.model_copy(update={"warmup": warmup})

    def phase(self, rounds_done: int) -> Phase:
        """Of the round that comes after this many."""
        if rounds_done >= self.search_rounds:
            return "final"
        return "warmup" if rounds_done < (self.warmup or 0) else "search"

    def ends(self, phase: Phase | Literal["both"], rounds_done: int) -> bool:
        """Whether a phase (warm-up and search: both) is over that was long enough for late replies to count."""
        warmup, whole = self.warmup or 0, self.search_rounds
        first, last = {"warmup": (0, warmup), "both": (0, whole)}.get(phase, (warmup, whole))
        return rounds_done == last and last - first > self.threshold + 1

    def rows(self, info: ClientInfo) -> int:
        """Rows that a client's accuracy is counted over."""
        size = info.sizes["train"]
        return self.epochs * size if self.epochs else min(max(self.batch, self.reward_rows or 0), size)

    def trained_rows(self, info: ClientInfo) -> int:
        """Rows of its gradient."""
        return self.rows(info) if self.epochs else min(self.batch, info.sizes["train"])

    @property
    def descent(self) -> Descent:
        return Descent(self.lr, self.momentum, self.weight_decay, self.clip)

    @property
    def ascent(self) -> Ascent:
        first, second = self.policy_betas
        return Ascent(self.policy_lr, self.policy_decay, self.policy_clip, (first, second))
