"""Settings of `realtime`: those of the shared master, and those of the closing phase."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from atoll.algorithms.aggregation import Average
from atoll.algorithms.sampling import participants
from atoll.errors import ConfigError
from atoll.methods.base import Schema
from atoll.methods.choice_config import POPULATION, ChoiceConfig


class RealtimeConfig(ChoiceConfig):
    """The settings of all searches over choice keys, those of the shared master, and those of the closing phase."""

    average: Average = "all"  # n of Algorithm 3: all clients of the round, or those that trained the parameter
    # Which path each client trains: that of its offspring, or balanced ones, so that all branches are trained alike.
    paths: Literal["offspring", "balanced"] = "offspring"
    snapshots: bool = True  # after each round the run directory holds a High and a Knee, ready for use
    snapshot_every: int = Field(default=5, ge=1)  # rounds until that of an unchanged pick is renewed
    finish: float = Field(default=0.0, ge=0, lt=1)  # the last share of the rounds: trains picks, breeds nothing
    finish_networks: Literal["high", "picks", "front"] = "picks"  # that are finished: High, High and Knee, or all
    finish_lr: float | None = Field(default=None, gt=0)  # of the closing phase, falling to zero; None: lr

    @property
    def closing(self) -> int:
        """Rounds of the closing phase."""
        return self.closing_of(self.rounds)

    def closing_of(self, rounds: int, added: bool = False) -> int:
        """The same of this many rounds. What is `added` to a run ends with a closing phase; a single round is one."""
        closing = round(self.finish * rounds)
        return max(1, min(rounds - 1, closing)) if added else closing

    @model_validator(mode="after")
    def _rounds_are_left(self) -> Self:
        if self.closing >= self.rounds:
            raise ConfigError(
                f"realtime.finish = {self.finish}: of {self.rounds} rounds none is left to search; lower it or use "
                "more rounds",
                code="phase-exceeds-rounds",
            )
        return self

    def without_effect(self) -> list[str]:
        if not self.finish or self.closing:
            return []
        share = f"{self.finish:g} of {self.rounds} rounds is less than half a round"
        return [f"realtime.finish: {share}, so there is no closing phase; raise it or use more rounds"]

    def fitted(self, schema: Schema, clients: int) -> Self:
        participating = participants(clients, self.fraction)
        population = self.population if self.population is not None else min(POPULATION, participating)
        if population > participating:
            raise ConfigError(
                f"population = {population}: only {participating} clients participate in a round and each individual "
                f"needs one; use at most {participating}, or more clients",
                code="too-few-clients",
            )
        if population < 2:
            raise ConfigError(
                "clients = 1: a population of two needs two clients or more in a round; raise --clients",
                code="too-few-clients",
            )
        return super().fitted(schema, clients).model_copy(update={"population": population})
