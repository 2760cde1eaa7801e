"""Settings of NEvoFed: the paper's Table 3 are the defaults, neat-python's xor example where the table is silent."""

from __future__ import annotations

import importlib
import math
from dataclasses import fields, replace
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from atoll.algorithms.neat.functions import ACTIVATIONS, AGGREGATIONS
from atoll.algorithms.neat.scoring import FITNESS, Readout
from atoll.algorithms.neat.settings import NeatSettings, Start
from atoll.errors import ConfigError, nearest
from atoll.methods.base import MethodConfig, Schema

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(ge=0)]


class NEvoFedConfig(MethodConfig):
    """Settings of the islands and of the exchange between them."""

    fraction: float = Field(default=1.0, gt=0, le=1)  # of the clients, each round; the paper takes all
    generations: int = Field(default=1, ge=1)  # E, on each client in each round
    # Of the clients' training rows: weighted_f1, error, balanced_error, or a fitness of one's own as module:function.
    objective: str = "weighted_f1"
    network: Literal["feed_forward", "recurrent"] = "feed_forward"
    steps: int = Field(default=1, ge=1)  # recurrent: a row has this many steps in time, features of a step side by side
    passes: int = Field(default=1, ge=1)  # recurrent: activations on each step
    output: Literal["argmax", "bins"] = "argmax"  # one output a class, or one value cut into class ranges
    edges: list[float] | None = None  # of the bins; unset: halfway between the class numbers 0, 1, 2, ...
    one_class: Literal["refuse", "use"] = "refuse"  # what a client does whose training rows are all of one class
    test_every: int = Field(default=0, ge=0)  # rounds between test evaluations, for the report; 0: at the end
    importance_repeats: int = Field(default=5, ge=0)  # shuffles of each feature for its importance, at the end

    # Beyond the paper, and off in its preset. Shares of the rounds, in this order: islands, refine, polish.
    keep: Literal["last", "best"] = "last"  # the global network: of the last bests, or of all rounds, by psi
    patience: int = Field(default=0, ge=0)  # islands stop after this many rounds without a higher psi; 0: never
    refine: Share = 0.0  # one population for all clients, on the server, with soft psi as fitness
    refine_population: int = Field(default=100, ge=2)
    refine_activation_mutation: Share = 0.1  # this and the next three: gentler than on the islands
    refine_aggregation_mutation: Share = 0.1
    refine_node_add: Share = 0.1
    refine_connection_add: Share = 0.5
    polish: Share = 0.0  # the weights of the best network so far, by CMA-ES on soft psi
    polish_population: int | None = Field(default=None, ge=4)  # of CMA-ES; None: its own rule, 4 + 3 ln(weights)

    population: int = Field(default=200, ge=2)
    start: Start = "fs_neat_nohidden"
    activations: list[str] = Field(default=list(ACTIVATIONS))
    aggregations: list[str] = Field(default=list(AGGREGATIONS))
    activation_start: str = "sigmoid"  # of new nodes; random: any of `activations`
    aggregation_start: str = "sum"
    activation_mutation: Share = 0.4
    aggregation_mutation: Share = 0.4
    connection_add: Share = 0.4
    connection_delete: Share = 0.1
    node_add: Share = 0.4
    node_delete: Share = 0.1
    weight_mutation: Share = 0.8
    weight_replace: Share = 0.1
    weight_power: Positive = 0.5
    bias_mutation: Share = 0.7
    bias_replace: Share = 0.1
    bias_power: Positive = 0.5
    response_mutation: Share = 0.0
    response_replace: Share = 0.0
    response_power: Positive = 0.0
    enabled_mutation: Share = 0.01
    bound: float = Field(default=30.0, gt=0, le=1e6)
    disjoint_coefficient: Positive = 1.0
    weight_coefficient: Positive = 0.5
    threshold: float = Field(default=3.0, gt=0)
    elitism: int = Field(default=1, ge=0)
    species_elitism: int = Field(default=1, ge=1)
    stagnation: int = Field(default=10, ge=1)
    survival: float = Field(default=0.2, gt=0, le=1)
    species_size: int = Field(default=2, ge=1)
    max_hidden: int = Field(default=100, ge=0, le=10_000)
    max_connections: int = Field(default=5000, ge=1, le=30_000)

    @field_validator("objective")
    @classmethod
    def _objective_is_known(cls, name: str) -> str:
        if name in FITNESS:
            return name
        module, colon, attribute = name.partition(":")
        if not colon:
            raise ConfigError(
                f"nevofed.objective = {name!r}: unknown, and not module:function; {nearest(name, FITNESS)}",
                code="unknown-objective",
            )
        try:
            getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as problem:
            raise ConfigError(
                f"nevofed.objective = {name!r}: {problem}; name an importable function", code="not-importable"
            ) from None
        return name

    @field_validator("activations", "activation_start", "aggregations", "aggregation_start")
    @classmethod
    def _functions_are_known(cls, value: list[str] | str, info: object) -> list[str] | str:
        what = str(getattr(info, "field_name", ""))
        known = ACTIVATIONS if what.startswith("activation") else AGGREGATIONS
        words = [*known, "random"] if isinstance(value, str) else known
        for word in [value] if isinstance(value, str) else value:
            if word not in words:
                raise ConfigError(
                    f"nevofed.{what} = {word!r}: unknown function; {nearest(word, words)}", code="unknown-function"
                )
        if not value:
            raise ConfigError(
                f"nevofed.{what} is empty; name at least one of {', '.join(known)}", code="invalid-setting"
            )
        return value

    @property
    def phases(self) -> dict[str, int]:
        """The rounds of each phase. Shares are rounded down: a run of few rounds is one of islands."""
        polish, refine = (int(share * self.rounds + 1e-9) for share in (self.polish, self.refine))
        return {"islands": self.rounds - refine - polish, "refine": refine, "polish": polish}

    @model_validator(mode="after")
    def _rounds_are_left(self) -> Self:
        found = self.phases
        if found["islands"] < 0 or found["islands"] + found["refine"] < 1:
            raise ConfigError(
                f"nevofed.refine = {self.refine} and polish = {self.polish}: of {self.rounds} rounds none is left to "
                "search; lower them or use more rounds",
                code="phase-exceeds-rounds",
            )
        return self

    def without_effect(self) -> list[str]:
        shares, found = {"refine": self.refine, "polish": self.polish}, self.phases
        return [
            f"nevofed.{name}: {share:g} of {self.rounds} rounds is less than a round, so there is none; raise it or "
            "use more rounds"
            for name, share in shares.items()
            if share and not found[name]
        ]

    def gentle(self, schema: Schema) -> NeatSettings:
        """The settings of the one population that is refined."""
        return replace(
            self.neat(schema),
            population=self.refine_population,
            activation_mutation=self.refine_activation_mutation,
            aggregation_mutation=self.refine_aggregation_mutation,
            node_add=self.refine_node_add,
            connection_add=self.refine_connection_add,
        )

    def fitted(self, schema: Schema, clients: int) -> Self:
        features = math.prod(schema.shape)
        if features % self.steps:
            raise ConfigError(
                f"nevofed.steps = {self.steps}: does not divide the {features} features of a row",
                code="indivisible-features",
            )
        if self.steps > 1 and self.network != "recurrent":
            raise ConfigError(
                f"nevofed.steps = {self.steps}: only a recurrent network has steps; set network = 'recurrent'",
                code="inapplicable-setting",
            )
        if self.output == "argmax":
            if self.edges is not None:
                raise ConfigError(
                    "nevofed.edges is for output = 'bins' only; leave it out", code="inapplicable-setting"
                )
            return self
        edges = self.edges or [place + 0.5 for place in range(schema.outputs - 1)]
        if len(edges) != schema.outputs - 1 or any(a >= b for a, b in pairwise(edges)):
            raise ConfigError(
                f"nevofed.edges = {edges}: {schema.outputs} classes need {schema.outputs - 1} ascending edges",
                code="invalid-edges",
            )
        return self.model_copy(update={"edges": edges})

    def reading(self, schema: Schema) -> Readout:
        """How rows are shown and answers read."""
        edges = tuple(self.edges or ()) if self.output == "bins" else ()
        return Readout(schema.outputs, self.network == "recurrent", self.steps, self.passes, edges)

    def neat(self, schema: Schema) -> NeatSettings:
        """The settings of an island."""
        known = {item.name for item in fields(NeatSettings)} & set(type(self).model_fields)
        values = {name: getattr(self, name) for name in known}
        for name in ("activations", "aggregations"):
            values[name] = tuple(values[name])
        reading = self.reading(schema)
        settings = NeatSettings(
            inputs=math.prod(schema.shape) // self.steps, outputs=reading.outputs, recurrent=reading.recurrent, **values
        )
        connected = {"full": settings.inputs, "unconnected": 0}.get(settings.start, 1)
        if connected * settings.outputs > settings.max_connections:
            raise ConfigError(
                f"nevofed.start = {settings.start!r}: a network starts with {connected} x {settings.outputs} = "
                f"{connected * settings.outputs} connections, more than max_connections = {settings.max_connections}; "
                "raise it",
                code="too-many-connections",
            )
        return settings
