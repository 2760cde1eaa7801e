"""What a method is: a function from state to state that talks to clients through a handle.

A method's file holds, in this order: `Config`, `State`, the class with `init`, `step` and `results`, then the client
jobs of its own and `JOBS`. Work that methods share is in `atoll.clients`. `atoll.testing.MethodContract` tests what is
promised here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from atoll.clients import PrivateWork, measurements
from atoll.core.messages import Array, ClientInfo, Late, Part, Payload, Reply, Schema, Task, Tensors
from atoll.federation.base import Federation
from atoll.rng import Generator
from atoll.training.augmentation import Augmentation

# With the names that occur in every method's signatures, so that a method imports them from one place.
__all__ = [
    "Array",
    "Candidate",
    "ClientInfo",
    "Federation",
    "Generator",
    "Late",
    "Method",
    "MethodConfig",
    "Metrics",
    "Part",
    "Payload",
    "PrivateWork",
    "Reply",
    "RunSegment",
    "Schema",
    "StateT",
    "Task",
    "Tensors",
    "TrainingConfig",
]

Metrics = dict[str, Any]


class MethodConfig(BaseModel):
    """Settings that every method has. A method's own `Config` derives from this, frozen and complete."""

    # Strict: "20" is not a number of rounds, nor is true.
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    round_parts: ClassVar[tuple[str, ...]] = ()  # settings that are numbers of rounds, parts of `rounds`

    rounds: int = Field(ge=1)

    def fitted(self, schema: Schema, clients: int) -> Self:
        """These settings with everything left to `auto` decided for this data. What was set is never altered."""
        return self

    def without_effect(self) -> list[str]:
        """Settings that do nothing with these rounds, in words, for the person who starts the run."""
        return []


class TrainingConfig(MethodConfig):
    """What may be added to plain SGD on the clients. All of it is off by default.

    The usual values for photographs of 32x32: crop 4, flip 0.5, cutout 16, weight_decay 5e-4.
    """

    weight_decay: float = Field(default=0.0, ge=0)
    prox: float = Field(default=0.0, ge=0)  # FedProx: weight of half the squared distance to the weights that came
    crop: int = Field(default=0, ge=0)  # random crop out of the image with this many pixels of border
    flip: float = Field(default=0.0, ge=0, le=1)  # probability of a mirror image
    cutout: int = Field(default=0, ge=0)  # side of the square that is wiped out
    clip: float | None = Field(default=None, gt=0)  # longest gradient of a step

    @property
    def augmentation(self) -> Augmentation:
        return Augmentation(self.crop, self.flip, self.cutout)

    def extras(self) -> Payload:
        """What a training task carries of these settings: only what is on."""
        own = {"weight_decay": self.weight_decay or None, "prox": self.prox or None, "clip": self.clip}
        return self.augmentation.payload() | {name: value for name, value in own.items() if value is not None}


@dataclass(frozen=True)
class Candidate:
    """A network that a search found, with its trained weights."""

    id: str
    architecture: dict[str, Any]
    objectives: Mapping[str, float]
    picks: list[str]
    weights: Tensors
    statistics: Tensors = field(default_factory=lambda: Tensors({}))
    about: Mapping[str, Any] = field(default_factory=dict)  # what else a reader of the result should know of it
    owner: str | None = None  # the client whose own network it is; None: it serves all clients


@dataclass(frozen=True)
class RunSegment:
    """The rounds of a run that end with one closing phase: all of them, or those that `resume --rounds` has added. A
    state holds it as a table."""

    begun: int = 0  # rounds before it
    planned: int = 0  # the last one's number; 0: not known yet
    closing: int = 0  # rounds of its closing phase
    cut: int = 0  # the rounds of a run that a budget has ended earlier, see `Method.within`

    def extended(self, rounds: int, done: int, closed: bool, closing_of: Callable[[int, bool], int]) -> RunSegment:
        """For a run of this many `rounds`, with a closing phase of `closing_of(rounds, added)`. What is added in or
        after a closing phase (`closed`) is a segment of its own, so that the search goes on; before it, the present
        segment becomes longer."""
        if self.cut == rounds:
            return self
        begun = done if closed and 0 < self.planned != rounds else self.begun
        return RunSegment(begun, rounds, closing_of(rounds - begun, begun > 0))

    @property
    def searched(self) -> int:
        """The number of the last round of the search."""
        return self.planned - self.closing

    def ended(self, rounds: int, done: int) -> bool:
        """Whether a run of this many `rounds` is over."""
        return done >= (self.planned if self.cut == rounds else rounds)

    def within(self, done: int, macs: int, another: float, closing: float) -> RunSegment:
        """The same or, if `another` round of the search and the closing phase, of which a round takes `closing` MACs,
        need more than these: one whose closing phase begins now, with as many of its rounds as fit."""
        search = another if done < self.searched else 0.0
        if self.cut or search + closing * self.closing <= macs:
            return self
        rounds = min(self.closing, int(macs // closing)) if closing else 0
        return RunSegment(self.begun, done + rounds, rounds, self.planned)


StateT = TypeVar("StateT")


class Method(ABC, Generic[StateT]):
    """The base class of all methods: `init`, `step` and `results` are a method's own, the rest has defaults.

    State is a frozen dataclass with a whole number `round` (rounds done); its other fields are wire-legal (JSON values,
    arrays, Tensors): it is all that the method remembers. A method object itself holds settings only.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    metrics_kind: ClassVar[str] = "model"  # what a round's metrics hold: a kind of `atoll.run.metrics`, or its own
    Config: ClassVar[type[MethodConfig]] = MethodConfig
    State: ClassVar[type[Any]]
    centralised: ClassVar[bool] = False  # True: all data in one place, for comparators that are not federated
    recommended: ClassVar[str] = "high"  # the pick that most users want
    confirms: ClassVar[bool] = False  # whether it chooses between networks in a way that `robust.confirm` can confirm
    not_private: ClassVar[str] = "what its clients send is not covered yet"  # why `private_work` is None
    late: ClassVar[tuple[Late, ...]] = ("drop",)  # what it can do with replies to earlier exchanges, the best first

    config: Any  # of the class `Config`

    def __init__(self, config: Any, schema: Schema) -> None:
        self.config = config
        self.schema = schema

    @abstractmethod
    def init(self, federation: Federation, rng: Generator) -> StateT:
        """The state before the first round."""

    @abstractmethod
    def step(self, state: StateT, federation: Federation, rng: Generator) -> tuple[StateT, Metrics]:
        """One communication round. `metrics["error"]` is what a progress bar shows and stop rules read: only where this
        round has measured it. `metrics["phase"]` names the part of the run, where errors of several are not comparable.
        """

    @abstractmethod
    def results(self, state: StateT, federation: Federation, rng: Generator) -> list[Candidate]:
        """What the search found, ready for use. `measured` makes a candidate of one trained network."""

    @property
    def measured_on(self) -> str:
        """The rows that the errors of its rounds are about, in words for charts."""
        return "validation rows"

    @property
    def rounds_late(self) -> int | None:
        """By how many rounds a late reply that it uses may be late; None: by any number, or it uses none."""
        return None

    def done(self, state: StateT) -> bool:
        """Whether the search is over. Default: after `config.rounds` rounds."""
        rounds_done: int = state.round  # type: ignore[attr-defined]
        return rounds_done >= int(self.config.rounds)

    def within(self, state: StateT, federation: Federation, macs: int) -> StateT:
        """Before a round of a run with `stop.macs`, of which this many are left: the same state or, if another round of
        the search would take too much, one that ends with what fits, such as a closing phase. Default: the same."""
        return state

    def snapshots(self, state: StateT) -> list[Candidate]:
        """Networks that can be used already, after this round. Default: none before the end."""
        return []

    def private_work(self) -> PrivateWork | None:
        """The most that a run asks of one client, for `[privacy]`. None: the method is not covered."""
        return None

    def measured(
        self,
        federation: Federation,
        name: str,
        architecture: dict[str, Any],
        weights: Tensors,
        picks: Sequence[str] = ("high",),
        about: Mapping[str, Any] | None = None,
    ) -> Candidate:
        """One trained network as a candidate, with the standard measurements on all clients.

        They are the validation error, the test error, its cost, and fixed batch norm statistics from the clients'
        training rows.
        """
        objectives, statistics = measurements(federation, architecture, weights)
        return Candidate(name, architecture, objectives, list(picks), weights, statistics, dict(about or {}))
