"""Settings that the searches over choice keys have in common."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator

from atoll.algorithms.genetic import Duplicates
from atoll.errors import ConfigError, nearest
from atoll.methods.base import Schema, TrainingConfig
from atoll.spaces.choice import plan
from atoll.spaces.choice import space as choice
from atoll.training.metrics import Objective

POPULATION = 10  # the paper's N
COSTS = ("macs", "params", "upload_bytes", "latency")


class ChoiceConfig(TrainingConfig):
    """Tables I and II of the paper, and what they leave open. None: decided by the data at the start."""

    population: int | None = Field(default=None, ge=2)  # N
    channels: list[int] | None = None  # of the choice blocks, for images
    widths: list[int] | None = None  # of the choice blocks, for tables
    stem: int | None = Field(default=None, ge=1)  # default: as the first block
    expansion: int = Field(default=6, ge=1)  # of the inverted residual
    norm: Literal["batch", "group"] = "batch"  # or group: rows do not influence each other
    fraction: float = Field(default=1.0, gt=0, le=1)  # C
    epochs: int = Field(default=1, ge=1)  # E
    batch: int = Field(default=50, ge=2)  # B
    lr: float = Field(default=0.1, gt=0)
    decay: float = Field(default=0.995, gt=0, le=1)
    momentum: float = Field(default=0.5, ge=0, lt=1)
    server_momentum: float = Field(default=0.0, ge=0, lt=1)  # FedAvgM: of the master, and of what is finished
    crossover: float = Field(default=0.9, ge=0, le=1)
    mutation: float = Field(default=0.1, ge=0, le=1)  # per bit
    duplicates: Duplicates = "mutate"  # an offspring equal to a parent or sibling is mutated again; or keep
    search: Literal["evolution", "random"] = "evolution"  # random: offspring are drawn, not bred
    objective: Objective = "error"  # on validation rows; or balanced_error, weighted_f1 (1 minus it)
    objectives: list[str] = Field(default=["error", "macs"])  # error first, then one or two of COSTS
    max_macs: int | None = Field(default=None, ge=1)  # networks with more follow all others and are never picked
    device_speed: float = Field(default=5e9, gt=0)  # latency: MACs a second of a client that does not say
    device_bandwidth: float = Field(default=1.25e6, gt=0)  # latency: bytes a second of a client that does not say
    test_every: int = Field(default=1, ge=0)  # rounds between test evaluations, for the report; 0: only at the end

    @field_validator("objectives")
    @classmethod
    def _known_objectives(cls, value: list[str]) -> list[str]:
        if len(value) not in (2, 3) or value[0] != "error" or len(set(value)) != len(value):
            raise ConfigError(
                f"objectives = {value}: write error first, then one or two of {', '.join(COSTS)}",
                code="invalid-setting",
            )
        for name in value[1:]:
            if name not in COSTS:
                raise ConfigError(f"objectives: {name!r} is unknown; {nearest(name, COSTS)}", code="unknown-objective")
        return value

    def fitted(self, schema: Schema, clients: int) -> Self:
        arch = plan.architecture_for(schema, self.channels, self.widths, self.stem, self.expansion, self.norm)
        self.augmentation.check(schema)
        if self.max_macs is not None and self.max_macs < (least := choice.least_macs(arch)):
            raise ConfigError(
                f"max_macs = {self.max_macs}: the smallest network of this space has {least:,} MACs; raise the limit, "
                "or use fewer channels",
                code="impossible-limit",
            )
        chosen = {name: arch.get(name) for name in ("channels", "widths", "stem")}
        return self.model_copy(update={"population": self.population or POPULATION, **chosen})
