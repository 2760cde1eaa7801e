"""Settings of federated NetAdapt. The paper's values are in `presets/decnas/paper.toml`."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from atoll import spaces
from atoll.algorithms.netadapt import Schedule
from atoll.devices import DeviceProfile, device_profile, resources
from atoll.errors import ConfigError
from atoll.methods.base import Schema, Tensors, TrainingConfig
from atoll.methods.decnas.clients import Measure
from atoll.spaces.pruned import start
from atoll.store.weights import given_weights
from atoll.training.metrics import Objective

USUAL_GROUPS = 10  # the default, if each can have at least two clients
OWN = "own"
LATER = (5, 10, 15)  # the last iterations of the first three entries of `tune_rounds`


class DecnasConfig(TrainingConfig):
    """Which network shrinks to what, and how its candidates are tuned. `rounds` is an upper limit."""

    round_parts: ClassVar[tuple[str, ...]] = ("start_rounds",)

    # The start network, GM_0
    model: str = "auto"  # a fixed network, or one's own: package.module:function or file.py:function
    hidden: list[int] | None = None  # of an MLP
    widths: list[int] | None = None  # of the others
    width: float | None = Field(default=None, gt=0)  # a factor of their usual widths
    norm: Literal["batch", "group"] = "batch"  # or group: rows do not influence each other
    weights: str | None = (
        None  # its trained weights: a .safetensors file, or own: those the user's module has; unset: fresh
    )
    start_rounds: int = Field(default=0, ge=0)  # rounds of federated averaging before the first pruning
    start_lr: float | None = Field(default=None, gt=0)  # unset: lr
    server_momentum: float = Field(default=0.0, ge=0, lt=1)  # FedAvgM: in these rounds, not of candidates
    layer_groups: list[list[str]] = Field(default=[])  # layers that are pruned together, as one unit

    # Budgets, section 4
    resources: dict[str, float] = Field(default={"macs": 0.5}, min_length=1)  # up to 1: a share of the start network
    device: str | None = None  # whose latency and energy: phone, board or a file
    step: float = Field(default=0.05, gt=0, lt=1)  # Delta R: a share of the start network, each iteration
    step_decay: float = Field(default=0.98, gt=0, le=1)  # of the step, each iteration
    minimal_step: float = Field(default=0.01, ge=0, lt=1)
    multiple: int = Field(default=1, ge=1)  # filters are removed in multiples of this

    # The three optimisations, section 3.3; with all three off it is naive federated NetAdapt
    grouping: bool = True  # off: all clients tune every candidate
    groups: int | None = Field(default=None, ge=1)  # unset: ten, or as many as leave two clients in each
    balance: float = Field(default=1.1, ge=1)  # r
    dropping: bool = True  # off: every candidate is tuned to the iteration's last round
    alpha: float = Field(default=0.33, gt=0, le=1)  # of an iteration's candidates, dropped each round
    dynamic_rounds: bool = True  # off: the largest of `tune_rounds` in every iteration
    # Of iterations 1-5, 6-10, 11-15 and later; 0: candidates are only measured, and the best one is taken untuned.
    tune_rounds: list[Annotated[int, Field(ge=0)]] = Field(default=[2, 5, 8, 10], min_length=1, max_length=4)
    regroup: Literal["round", "iteration"] = "round"  # how long a candidate stays with its group
    depth: bool = False  # whole blocks may be left out too, as candidates beside narrower layers

    # What a client does in a round
    epochs: int = Field(default=1, ge=1)  # E
    batch: int = Field(default=32, ge=2)
    lr: float = Field(default=0.05, gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    steps: int | None = Field(default=None, ge=1)  # the most local steps of a round; unset: all of its epochs
    # Which networks a group measures after local training, before a candidate is compared with GM_{t-1}: the candidate
    # alone (paper), both (trained), or none (sent). Where clients hold different classes training fits a network to its
    # client, so that the candidate alone would be compared with something else.
    measure: Measure = "paper"
    objective: Objective = "error"  # what is compared; or balanced_error, weighted_f1 (1 minus it)

    snapshots: bool = True  # after each iteration the run directory holds the newest network, ready for use
    test_every: int = Field(default=1, ge=0)  # iterations between test evaluations, for the report; 0: at the end

    @field_validator("resources")
    @classmethod
    def _amounts(cls, value: dict[str, float]) -> dict[str, float]:
        for kind, amount in value.items():
            if not amount > 0:
                raise ConfigError(
                    f"resources.{kind} = {amount:g}: give a share of the start network or an amount",
                    code="invalid-setting",
                )
        return value

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.step, self.step_decay, self.minimal_step)

    @property
    def profile(self) -> DeviceProfile | None:
        return None if self.device is None else device_profile(self.device)

    def rounds_of(self, iteration: int) -> int:
        """Line 4: the round number of iteration 1, 2, ...: 1-5, 6-10, 11-15, 16 and later."""
        if not self.dynamic_rounds:
            return max(self.tune_rounds)
        entry = sum(iteration > last for last in LATER)
        return self.tune_rounds[min(entry, len(self.tune_rounds) - 1)]

    def start(self, schema: Schema) -> dict[str, Any]:
        """The architecture of GM_0."""
        return start.start_architecture(self.model, schema, self.hidden, self.widths, self.width, self.norm)

    def fitted(self, schema: Schema, clients: int) -> Self:
        for kind in self.resources:
            resources.check_resource(kind, self.device is not None)
        groups = self.groups or max(1, min(USUAL_GROUPS, clients // 2))
        if self.grouping and groups > clients:
            raise ConfigError(
                f"groups = {groups}: there are only {clients} clients, and a group has at least one; "
                f"use {clients} or fewer groups, or more clients",
                code="impossible-group-count",
            )
        self.augmentation.check(schema)
        decided = start.fitted_start(self.model, schema, self.hidden, self.widths, self.width, self.norm)
        fitted = self.model_copy(update={**decided, "groups": groups})
        fitted.trained(schema, fitted.start(schema))  # what does not fit is refused before a run starts
        return fitted

    def trained(self, schema: Schema, arch: dict[str, Any]) -> Tensors | None:
        """The weights that GM_0 comes with, or None if it is to start from fresh ones."""
        if self.weights is None:
            return None
        if self.weights == OWN:
            return start.user_weights(self.model, schema)
        return given_weights(self.weights, parameter_shapes(arch))


def parameter_shapes(arch: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The names and shapes of a network's weights."""
    return {name: tuple(parameter.shape) for name, parameter in spaces.skeleton(arch).named_parameters()}
