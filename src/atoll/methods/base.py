"""What a method is: a function from state to state that talks to clients through a handle.

A method's file holds, in this order: `Config`, `State`, the class with `init`, `step`, `done`, `results`, then the
client jobs and `JOBS`. `atoll.testing.MethodContract` tests what is promised here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from atoll.core.messages import Schema, Tensors
from atoll.federation.base import Federation
from atoll.rng import Generator

Metrics = dict[str, Any]


class MethodConfig(BaseModel):
    """Settings that every method has. A method's own `Config` derives from this, frozen and complete."""

    # Strict: "20" is not a number of rounds, nor is true.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    rounds: int = Field(ge=1)

    def fitted(self, schema: Schema, clients: int) -> Self:
        """These settings with everything left to `auto` decided for this data. What was set is never altered."""
        return self


@dataclass(frozen=True)
class Candidate:
    """A network that a search found, with its trained weights."""

    id: str
    architecture: dict[str, Any]
    objectives: Mapping[str, float]
    picks: list[str]
    weights: Tensors
    statistics: Tensors = field(default_factory=lambda: Tensors({}))
    clients: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # figures on each client's own test rows
    about: Mapping[str, Any] = field(default_factory=dict)  # what else a reader of the result should know of it


StateT = TypeVar("StateT")


class Method(Protocol[StateT]):
    """The contract.

    State is a frozen dataclass with a whole number `round` (rounds done); its other fields are wire-legal (JSON values,
    arrays, Tensors): it is all that the method remembers. A method object itself holds settings only.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    metrics_kind: ClassVar[str] = (
        "model"  # what a round's metrics hold: a kind of `atoll.run.metrics`, or one of its own
    )
    Config: ClassVar[type[MethodConfig]]
    State: ClassVar[type[Any]]
    centralised: ClassVar[bool]  # True: all data in one place, for comparators that are not federated

    def __init__(self, config: Any, schema: Schema) -> None: ...

    def init(self, federation: Federation, rng: Generator) -> StateT:
        """The state before the first round."""

    def step(self, state: StateT, federation: Federation, rng: Generator) -> tuple[StateT, Metrics]:
        """One communication round. `metrics["error"]` is what a progress bar shows."""

    def done(self, state: StateT) -> bool:
        """Whether the search is over."""

    def snapshots(self, state: StateT) -> list[Candidate]:
        """Networks that can be used already, after this round; empty if the method has none before its end."""

    def results(self, state: StateT, federation: Federation, rng: Generator) -> list[Candidate]:
        """What the search found, ready to be taken away."""
