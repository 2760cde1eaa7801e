"""Offline federated evolutionary search: the comparator of the real-time paper.

H. Zhu and Y. Jin, "Real-time Federated Evolutionary Neural Architecture Search", section IV-G: the same space and the
same NSGA-II, but every new individual starts from fresh random weights and is trained by all participating clients.

    for each generation:                                   Offline._generation
        breed N offspring, initialise each from scratch    ChoiceSearch.offspring, Offline._fresh
        all clients train it for one round (FedAvg)        Offline._average
        its error on the clients' validation parts         Offline._error
        select N of parents and offspring                  Offline._generation
    High and Knee: from scratch, round by round (FedAvg)   Offline._final_round

A parent retains the objectives it was measured with; only generation 1 measures parents too. A generation is one round
of the run, and so is a round of the final training, which trains both networks: `generations` of the `rounds`
search, the others train. The results are High and Knee, fully trained. The other networks of the front had
one round of training, are of no use as they are, and would have to be stored as N models: their keys and objectives
stand in the events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from atoll.algorithms import nsga2
from atoll.clients import FederatedModel, calibrated_each
from atoll.errors import ConfigError, TooFewReplies
from atoll.methods.base import (
    Candidate,
    ClientInfo,
    Federation,
    Generator,
    Metrics,
    Part,
    PrivateWork,
    RunSegment,
    Schema,
    Tensors,
)
from atoll.methods.choice_config import ChoiceConfig
from atoll.methods.choice_search import (
    ChoiceSearch,
    Key,
    key_from_name,
    key_name,
    names_of,
    picked_after,
    picked_keys,
)
from atoll.spaces.choice import space as choice

SEARCH_SHARE = 4  # without a setting every fourth round is a generation


class OfflineConfig(ChoiceConfig):
    """The settings of all searches over choice keys, and how many of the rounds are generations."""

    round_parts: ClassVar[tuple[str, ...]] = ("generations",)

    rounds: int = Field(ge=2)  # generations and rounds of the final training together
    generations: int | None = Field(default=None, ge=1)
    # Of the learning rate of the final training; cosine, beyond the paper: from lr to 0 over its rounds.
    schedule: Literal["decay", "cosine"] = "decay"

    @model_validator(mode="after")
    def _rounds_are_left(self) -> Self:
        if self.generations is not None and self.generations >= self.rounds:
            raise ConfigError(
                f"offline.generations = {self.generations}: of {self.rounds} rounds none is left to train High and "
                f"Knee; use fewer generations, or {self.generations + 1} rounds or more",
                code="phase-exceeds-rounds",
            )
        return self

    @property
    def searching(self) -> int:
        """Rounds that are generations; the others train."""
        return self.generations or max(1, self.rounds // SEARCH_SHARE)

    @property
    def closing(self) -> int:
        """Rounds of the final training."""
        return self.rounds - self.searching

    def fitted(self, schema: Schema, clients: int) -> Self:
        return super().fitted(schema, clients).model_copy(update={"generations": self.searching})


@dataclass(frozen=True)
class OfflineState:
    round: int
    parents: list[Key]
    objectives: list[list[float]]  # of the parents, each from its own generation; empty before the first
    trained: dict[str, Any]  # name of a key -> its weights, in the final training; empty before that
    velocities: dict[str, Any] = field(default_factory=dict)  # the same -> velocity of `server_momentum`, if it is on
    segment: dict[str, int] = field(default_factory=dict)  # see `RunSegment`


class Offline(ChoiceSearch[OfflineState]):
    """The server's side."""

    name: ClassVar[str] = "offline"
    metrics_kind: ClassVar[str] = "front"
    summary: ClassVar[str] = (
        "evolve networks that start from scratch each time, then train the best two: the comparator"
    )
    Config: ClassVar[type[OfflineConfig]] = OfflineConfig
    State: ClassVar[type[OfflineState]] = OfflineState
    config: OfflineConfig

    def init(self, federation: Federation, rng: Generator) -> OfflineState:
        return OfflineState(0, self.first_parents(federation, rng), [], {})

    def step(self, state: OfflineState, federation: Federation, rng: Generator) -> tuple[OfflineState, Metrics]:
        participating, segment = self.participating(federation, rng), self._segment(state)
        state = replace(state, segment=asdict(segment))
        if state.round < segment.searched:
            return self._generation(state, participating, federation, rng)
        if state.round == segment.searched:
            federation.new_phase()
        return self._final_round(state, segment, participating, federation, rng)

    def done(self, state: OfflineState) -> bool:
        return self._segment(state).ended(self.config.rounds, state.round)

    def within(self, state: OfflineState, federation: Federation, macs: int) -> OfflineState:
        """A generation is taken to cost what the last one did."""
        if state.trained or not state.objectives:
            return state
        before, picks = self._segment(state), self._searched_picks(state)
        finalists = list({key_name(key): key for key in picks.values()}.values())
        another, closing = federation.ledger.rounds[-1].client_macs, self.closing_macs(finalists, federation)
        segment = before.within(state.round, macs, another, closing)
        return state if segment is before else replace(state, segment=asdict(segment))

    def _segment(self, state: OfflineState) -> RunSegment:
        """What is added to a run trains on."""
        before, searching = RunSegment(**state.segment), self.config.searching
        return before.extended(self.config.rounds, state.round, False, lambda rounds, added: rounds - searching)

    def _searched_picks(self, state: OfflineState) -> dict[str, Key]:
        """High and Knee of the search."""
        return picked_keys(state.parents, self.pickable(state.parents, state.objectives))

    def private_work(self) -> PrivateWork:
        """Every client trains and counts every new network, then High and Knee; the result is measured once more."""
        settings, searching = self.config, self.config.searching
        networks = (searching + 1) * self.population + 2 * (settings.rounds - searching)
        return PrivateWork([self.architecture], networks, settings.epochs, settings.batch, networks + 2, final=2)

    def results(self, state: OfflineState, federation: Federation, rng: Generator) -> list[Candidate]:
        """The networks that were trained, measured and calibrated on all clients, and picked by what they are now."""
        everyone = federation.clients()
        models = self._finalists(state, rng)
        counted = self.count_finalists(models, everyone, federation, tested=True)
        keys = [key_from_name(one.name) for one in models]
        values = [
            self.values(counted[one.name].error(self.config.objective), self.cost(key), everyone)
            for one, key in zip(models, keys, strict=True)
        ]
        picks = picked_after(keys, values)
        tested = self.test_finalists(models, federation, {name: found.test for name, found in counted.items()})
        ready = calibrated_each(federation, [(one.architecture, one.weights, everyone) for one in models])
        return [
            self.candidate(key, row, names_of(key, picks), one.weights, own, tested.get(one.name))
            for one, key, row, own in zip(models, keys, values, ready, strict=True)
        ]

    # -- the search ----------------------------------------------------------------------------------------------------

    def _generation(
        self,
        state: OfflineState,
        participating: Sequence[ClientInfo],
        federation: Federation,
        rng: Generator,
    ) -> tuple[OfflineState, Metrics]:
        offspring = self.offspring(state.parents, state.objectives, rng)
        new = offspring if state.objectives else [*state.parents, *offspring]
        keys = list(state.parents) if state.objectives else []
        objectives, untrained, problems = list(state.objectives), [], []
        for key in new:
            weights, problem = self._average(key, self._fresh(key, rng), 0, participating, federation)
            error = None if weights is None else self._error(key, weights, participating, "validation", federation)
            if error is None:
                untrained.append(key_name(key))
                problems.append(problem)
            else:
                keys.append(key)
                objectives.append(self.values(error, self.cost(key), participating))
        if len(untrained) == len(new):
            raise TooFewReplies(
                f"none of {len(new)} networks could be trained and measured ({problems[0]})", code="too-few-replies"
            )
        survivors = nsga2.select(objectives, min(self.population, len(keys)), self.excess(keys)).tolist()
        parents, values = [keys[i] for i in survivors], [objectives[i] for i in survivors]
        front = self.front_metrics(parents, values, self.admissible(parents, values), federation)
        metrics = {"phase": "search", **front, "untrained": untrained}
        return replace(state, round=state.round + 1, parents=parents, objectives=values), metrics

    def _fresh(self, key: Key, rng: Generator) -> Tensors:
        return choice.initial(choice.sub_model(self.architecture, key), rng)

    def _average(
        self,
        key: Key,
        weights: Tensors,
        rounds_done: int,
        participating: Sequence[ClientInfo],
        federation: Federation,
    ) -> tuple[Tensors | None, str]:
        """One round of federated averaging of one network; None, and why, if too few clients trained it."""
        rows = {info.name: info.sizes["train"] for info in participating}
        mean = federation.mean(weights, key_name(key))
        tasks = [self.train_task(key, weights, rounds_done, info) for info in participating]
        replies = federation.collect(tasks, minimum=0)
        for reply in replies:
            mean.add(reply.payload["weights"], federation.weight(reply.task.client, rows[reply.task.client]))
        trained = mean.result() if mean.weight and replies.enough else weights
        return (None if trained is weights else trained), replies.reasons

    def _error(
        self,
        key: Key,
        weights: Tensors,
        holders: Sequence[ClientInfo],
        part: Part,
        federation: Federation,
    ) -> float | None:
        """The share of wrong rows over all holders of this part; None if no client has or returns it."""
        errors = self.errors([key], weights, holders, part, federation).errors
        return errors[0] if errors else None

    # -- the final training -------------------------------------------------------------------------------------------

    def _finalists(self, state: OfflineState, rng: Generator) -> list[FederatedModel]:
        """High and Knee of the search, with the weights that they have by now."""
        found = []
        for name, key in {key_name(key): key for key in self._searched_picks(state).values()}.items():
            weights = state.trained[name] if name in state.trained else self._fresh(key, rng)
            found.append(self.finalist(key, weights, state.velocities.get(name)))
        return found

    def _final_round(
        self,
        state: OfflineState,
        segment: RunSegment,
        participating: Sequence[ClientInfo],
        federation: Federation,
        rng: Generator,
    ) -> tuple[OfflineState, Metrics]:
        settings = self.config
        training = self.final_training(segment.closing, settings.lr)
        if settings.schedule == "decay":
            training = replace(training, cosine=0, decay=settings.decay)
        rounds_done = state.round - segment.searched
        models = self._finalists(state, rng)
        trained, values, counted = self.train_finalists(models, training, rounds_done, participating, federation)
        weights, velocities = {one.name: one.weights for one in trained}, {one.name: one.velocity for one in trained}
        new = replace(state, round=state.round + 1, trained=weights, velocities=velocities)
        tested: dict[str, float] = {}
        if self.test_is_due(new.round):
            tested = self.test_finalists(trained, federation, {name: found.test for name, found in counted.items()})
        return new, self._final_metrics(new, trained, values, tested, federation)

    def _final_metrics(
        self,
        state: OfflineState,
        models: Sequence[FederatedModel],
        values: Mapping[str, list[float]],
        tested: Mapping[str, float],
        federation: Federation,
    ) -> Metrics:
        """Error and test error of each, for its learning curve; the front is that of the trained two."""
        keys = [key_from_name(one.name) for one in models]
        rows = [values[one.name] for one in models]
        population = self.admissible(state.parents, state.objectives)
        metrics = {"phase": "final", **self.front_metrics(keys, rows, population, federation)}
        for pick, key in picked_after(keys, rows).items():
            name = key_name(key)
            metrics[pick] = self.network_metrics(key, values[name][0], tested.get(name))
        return metrics
