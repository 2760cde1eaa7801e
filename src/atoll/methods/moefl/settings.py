"""Settings of `moefl`: Table II of the paper, and what goes beyond it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from atoll.algorithms.genetic import Duplicates
from atoll.errors import ArchitectureError, ConfigError
from atoll.methods.base import Schema, TrainingConfig
from atoll.methods.moefl.individuals import architecture_of
from atoll.spaces.sparse import genes as sparse_genes
from atoll.spaces.sparse import space as sparse
from atoll.training.metrics import Objective


class MoeflConfig(TrainingConfig):
    """Table II and section IV-A. `rounds` counts communication rounds: generations x fitness_rounds, and those of the
    closing phase."""

    network: Literal["mlp", "cnn"] = "mlp"
    population: int = Field(default=20, ge=2)  # M
    fitness_rounds: int = Field(default=5, ge=1)  # before a network is measured; the paper takes 10 for non-IID data
    fraction: float = Field(default=1.0, gt=0, le=1)  # C
    epochs: int = Field(default=5, ge=1)  # E
    batch: int = Field(default=50, ge=2)  # B
    momentum: float = Field(default=0.0, ge=0, lt=1)
    server_momentum: float = Field(default=0.0, ge=0, lt=1)  # FedAvgM: of each network's changes, from its first round
    crossover: float = Field(default=0.9, ge=0, le=1)  # one-point, per pair
    mutation: float = Field(default=0.1, ge=0, le=1)  # flip, per bit
    sbx: float = Field(default=0.9, ge=0, le=1)  # simulated binary crossover, per pair
    sbx_eta: float = Field(default=2.0, gt=0)
    polynomial: float = Field(default=0.1, ge=0, le=1)  # polynomial mutation, per real number
    polynomial_eta: float = Field(default=20.0, gt=0)
    evaluate: Literal["new", "all"] = "new"  # all: parents are trained from scratch again, every generation
    search: Literal["evolution", "random"] = "evolution"  # random: offspring are drawn, not bred
    # Constraint domination: networks beyond a limit follow all others. Networks that are not bred are drawn again until
    # they send no more than `max_connections`. "standard": no more than the standard network.
    max_connections: int | Literal["standard"] | None = None
    max_error: float | None = Field(default=None, gt=0, le=1)
    crowding: Literal["linear", "log"] = "linear"  # distance of connections on the front; log: of their logarithms
    halving: bool = False  # after fitness rounds 1, 2, 4, ... the worse half of the new networks is dropped
    inherit: bool = False  # an offspring starts with the weights of one of its parents where both have a connection
    # The last share of the rounds, with whole generations before it, which trains picks and breeds nothing.
    finish: float = Field(default=0.0, ge=0, lt=1)
    finish_networks: Literal["high", "picks", "front"] = "picks"  # that are finished: High, High and Knee, or all
    duplicates: Duplicates = "mutate"  # an offspring that decodes to a parent or sibling is mutated again; or keep
    fitness: Literal["validation", "test"] = "validation"  # test: as in the paper, on the data of the final evaluation
    objective: Objective = "error"  # on these rows; or balanced_error, weighted_f1 (1 minus it)
    test_every: int = Field(default=1, ge=0)  # generations between test evaluations, for the report

    @property
    def closing(self) -> int:
        """Rounds of the closing phase."""
        return self.closing_of(self.rounds)

    @property
    def halvings(self) -> list[int]:
        """The fitness rounds after which `halving` drops networks: what is left has twice the rounds each time."""
        return [2**power for power in range(self.fitness_rounds.bit_length()) if 2**power < self.fitness_rounds]

    def closing_of(self, rounds: int, added: bool = False) -> int:
        """The same of this many rounds, with whole generations before it; also of what is `added` to a run."""
        if not self.finish:
            return 0
        generations = round((1 - self.finish) * rounds / self.fitness_rounds)
        return rounds - min(generations, rounds // self.fitness_rounds) * self.fitness_rounds

    @model_validator(mode="after")
    def _whole_generations(self) -> Self:
        if self.closing == self.rounds:
            raise ConfigError(
                f"moefl.finish = {self.finish}: of {self.rounds} rounds none is left to search, and a generation takes "
                f"fitness_rounds = {self.fitness_rounds}; lower it or use more rounds",
                code="phase-exceeds-rounds",
            )
        if not self.finish and self.rounds % self.fitness_rounds:
            fits = max(1, self.rounds // self.fitness_rounds) * self.fitness_rounds
            raise ConfigError(
                f"moefl.rounds = {self.rounds}: a generation takes fitness_rounds = {self.fitness_rounds} rounds; "
                f"give a multiple of it, such as {fits}",
                code="indivisible-rounds",
            )
        return self

    def without_effect(self) -> list[str]:
        if not self.finish or self.closing:
            return []
        share = (
            f"{self.finish:g} of {self.rounds} rounds is less than half a generation of {self.fitness_rounds} rounds"
        )
        return [f"moefl.finish: {share}, so there is no closing phase; raise it or use more rounds"]

    def fitted(self, schema: Schema, clients: int) -> Self:
        smallest = architecture_of(self.network, schema, sparse_genes.smallest(self.network), 0)
        try:
            least = sparse.uploaded(smallest | {"xi": sparse_genes.HIGH[1]})
        except ArchitectureError as problem:
            raise ConfigError(f"moefl.network = {self.network!r}: {problem}", code="network-data-mismatch") from None
        if isinstance(self.max_connections, int) and self.max_connections < least:
            raise ConfigError(
                f"moefl.max_connections = {self.max_connections}: the smallest network for this data sends "
                f"{least:,}; raise the limit",
                code="impossible-limit",
            )
        self.augmentation.check(schema)
        return self
