"""Random search over choice blocks: train one random architecture after another, and keep the best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from pydantic import Field

from atoll.clients import LocalTraining, evaluate, metrics_of, resumed, train_models
from atoll.methods.base import Candidate, Federation, Generator, Method, MethodConfig, Metrics, Schema, Tensors
from atoll.spaces.choice import plan, space


class SearchConfig(MethodConfig):
    """Settings of random search."""

    rounds: int = Field(default=20, ge=1)
    rounds_each: int = Field(default=5, ge=1)  # rounds that each architecture is trained for
    epochs: int = Field(default=1, ge=1)
    batch: int = Field(default=32, ge=2)
    lr: float = Field(default=0.1, gt=0)


@dataclass(frozen=True)
class SearchState:
    round: int
    key: list[int]  # the architecture in training: the branch of each block
    weights: Tensors
    best_key: list[int]
    best_weights: Tensors
    best_error: float


class RandomSearch(Method[SearchState]):
    name: ClassVar[str] = "random_search"
    summary: ClassVar[str] = "train random architectures of choice blocks, and keep the best"
    Config: ClassVar[type[SearchConfig]] = SearchConfig
    State: ClassVar[type[SearchState]] = SearchState
    config: SearchConfig

    def __init__(self, config: SearchConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.master = plan.architecture_for(schema)

    def init(self, federation: Federation, rng: Generator) -> SearchState:
        key, weights = self._random(rng)
        return SearchState(0, key, weights, key, weights, best_error=1.0)

    def step(self, state: SearchState, federation: Federation, rng: Generator) -> tuple[SearchState, Metrics]:
        config, clients = self.config, federation.clients()
        model = resumed("random", space.sub_model(self.master, state.key), state.weights)
        training = LocalTraining(config.epochs, config.batch, config.lr)
        [model] = train_models(federation, [model], clients, training, state.round)
        counts = evaluate(federation, clients, model.architecture, model.weights)
        error = metrics_of(counts)["error"] if counts is not None else 1.0
        new = replace(state, round=state.round + 1, weights=model.weights)
        if error < state.best_error:
            new = replace(new, best_key=state.key, best_weights=model.weights, best_error=error)
        if new.round % config.rounds_each == 0:
            key, weights = self._random(rng)
            new = replace(new, key=key, weights=weights)
        return new, {"error": error, "best_error": new.best_error}

    def results(self, state: SearchState, federation: Federation, rng: Generator) -> list[Candidate]:
        return [self.measured(federation, "best", space.sub_model(self.master, state.best_key), state.best_weights)]

    def _random(self, rng: Generator) -> tuple[list[int], Tensors]:
        key = list(space.random_keys(1, space.blocks(self.master), rng)[0])
        return key, space.initial(space.sub_model(self.master, key), rng)
