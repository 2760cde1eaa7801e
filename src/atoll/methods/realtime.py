"""Real-time federated evolutionary neural architecture search.

H. Zhu and Y. Jin, "Real-time Federated Evolutionary Neural Architecture Search": Algorithm 4, with Algorithm 3 to
aggregate models. Sub-networks of one master are evolved by NSGA-II while the federation trains them; a generation is a
communication round, and the best networks of each round are ready for use. In the order of Algorithm 4's lines:

     3      initialise the master                            Realtime.init
     7      sample parents' choice keys                      ChoiceSearch.first_parents
    10-12   breed offspring on the keys' bits                ChoiceSearch.offspring
    14      m = C * K clients participate                    ChoiceSearch.participating
    15-26   round 1: parents train, one group each           Realtime._train
    28-41   offspring train, weights inherited               Realtime._train
    43-49   all 2N keys measured on all m clients            Realtime._measure
    50-53   non-dominated sorting and selection              Realtime.step
    57-68   client: train one sub-network                    clients/jobs.py, train

What the offline comparator needs as well is in `choice_search.py`. Readings that differ from the paper's letter are in
docs/papers.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from atoll.algorithms import nsga2
from atoll.algorithms.aggregation import Average, PartialMean
from atoll.algorithms.sampling import groups, participants
from atoll.clients import calibrated_together
from atoll.errors import ConfigError, TooFewReplies
from atoll.methods.base import Candidate, ClientInfo, Federation, Generator, Metrics, Part, Schema, Tensors
from atoll.methods.choice_search import (
    POPULATION,
    ChoiceConfig,
    ChoiceSearch,
    Key,
    front_of,
    key_name,
    names_of,
    picked,
    picked_keys,
)
from atoll.spaces.choice import space as choice


class RealtimeConfig(ChoiceConfig):
    """The settings of all searches over choice keys, and those of the shared master."""

    average: Average = "all"  # n of Algorithm 3: all clients of the round, or those that trained the parameter
    snapshots: bool = True  # after each round the run directory holds the current High and Knee, ready for use

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


@dataclass(frozen=True)
class RealtimeState:
    round: int
    master: Tensors
    parents: list[Key]
    objectives: list[list[float]]  # of the parents, measured last round; empty before the first
    ready: dict[str, Any]  # pick -> fixed batch norm statistics of its snapshot


class Realtime(ChoiceSearch[RealtimeState]):
    """The server's side."""

    name: ClassVar[str] = "realtime"
    metrics_kind: ClassVar[str] = "front"
    summary: ClassVar[str] = "evolve sub-networks of a shared master while the federation trains; usable at every round"
    Config: ClassVar[type[RealtimeConfig]] = RealtimeConfig
    State: ClassVar[type[RealtimeState]] = RealtimeState
    config: RealtimeConfig

    def init(self, federation: Federation, rng: Generator) -> RealtimeState:
        parents = self.first_parents(federation, rng)
        return RealtimeState(0, choice.initial(self.architecture, rng), parents, [], {})

    def step(self, state: RealtimeState, federation: Federation, rng: Generator) -> tuple[RealtimeState, Metrics]:
        offspring = self.offspring(state.parents, state.objectives, rng)
        participating = self.participating(federation, rng)
        master, untrained = state.master, []
        if state.round == 0:
            master, left_out = self._train(master, state.parents, state.round, participating, federation, rng)
            untrained += left_out
        master, left_out = self._train(master, offspring, state.round, participating, federation, rng)
        untrained += left_out

        keys = [*state.parents, *offspring]
        objectives = self._measure(master, keys, participating, federation)
        survivors = nsga2.select(objectives, self.population).tolist()
        parents, values = [keys[i] for i in survivors], [objectives[i] for i in survivors]
        ready = self._snapshot_statistics(master, parents, values, participating, federation)
        new = RealtimeState(state.round + 1, master, parents, values, ready)
        return new, self._metrics(new, federation) | {"untrained": untrained}

    def snapshots(self, state: RealtimeState) -> list[Candidate]:
        """High and Knee as they are now."""
        if not state.ready:
            return []
        picks = picked(np.array(state.objectives))
        return [self._found(state, i, [pick], Tensors(state.ready[pick]), None) for pick, i in picks.items()]

    def results(self, state: RealtimeState, federation: Federation, rng: Generator) -> list[Candidate]:
        """The first front, each network with its test error and fixed statistics from all clients' training data."""
        front = front_of(state.parents, np.array(state.objectives))
        picks = picked_keys(state.parents, state.objectives)
        errors = self._test_errors(state, front, federation)
        keys = [state.parents[i] for i in front]
        statistics = self._statistics(state.master, keys, federation.clients(), "train", federation)
        return [
            self._found(state, i, names_of(state.parents[i], picks), own, errors.get(i))
            for i, own in zip(front, statistics, strict=True)
        ]

    # -- Algorithm 4, lines 15-41, and Algorithm 3: double sampling, training, aggregation ---------------------------

    def _train(
        self,
        master: Tensors,
        keys: Sequence[Key],
        rounds_done: int,
        participating: Sequence[ClientInfo],
        federation: Federation,
        rng: Generator,
    ) -> tuple[Tensors, list[str]]:
        """Each key is trained by its own group of clients; the new master, and the keys that no client trained."""
        infos = {info.name: info for info in participating}
        tasks = [
            self.train_task(key, self._slice(master, key), rounds_done, infos[name])
            for key, group in zip(keys, groups(list(infos), len(keys), rng), strict=True)
            for name in group
        ]
        mean, trained = PartialMean(master, self.config.average), set()
        for reply in federation.collect(tasks, what="a usable sub-model"):
            mean.add(reply.payload["weights"], infos[reply.task.client].sizes["train"])
            trained.add(key_name(reply.task.payload["key"]))
        return mean.result(), [key_name(key) for key in keys if key_name(key) not in trained]

    # -- lines 43-49: objectives of all 2N keys ------------------------------------------------------------------------

    def _measure(
        self,
        master: Tensors,
        keys: Sequence[Key],
        participating: Sequence[ClientInfo],
        federation: Federation,
    ) -> list[list[float]]:
        correct, rows, problem = self.count(keys, master, participating, "validation", federation)
        if not rows:
            raise TooFewReplies(f"no client returned validation counts ({problem})", code="too-few-replies")
        return [
            self.values(1.0 - right / rows, self.cost(key), participating)
            for key, right in zip(keys, correct.tolist(), strict=True)
        ]

    # -- ready at every round, and what the report shows -----------------------------------------------------------

    def _snapshot_statistics(
        self,
        master: Tensors,
        parents: Sequence[Key],
        objectives: Sequence[Sequence[float]],
        participating: Sequence[ClientInfo],
        federation: Federation,
    ) -> dict[str, Any]:
        """For High and Knee, from validation rows: the clients hold the master already, so hardly a byte travels."""
        if not self.config.snapshots:
            return {}
        picks = picked(np.array(objectives))
        positions = sorted(set(picks.values()))
        found = self._statistics(master, [parents[i] for i in positions], participating, "validation", federation)
        return {pick: found[positions.index(i)] for pick, i in picks.items()}

    def _statistics(
        self,
        master: Tensors,
        keys: Sequence[Key],
        clients: Sequence[ClientInfo],
        part: Part,
        federation: Federation,
    ) -> list[Tensors]:
        """One task a client for all keys: a second one would make it forget the master before the next training."""
        networks = [choice.sub_model(self.architecture, key) for key in keys]
        names = dict.fromkeys(name for arch in networks for name in choice.names(arch))
        return calibrated_together(federation, clients, networks, master.slice(names), part)

    def _metrics(self, state: RealtimeState, federation: Federation) -> Metrics:
        metrics = self.front_metrics(state.parents, state.objectives, federation)
        if self.test_is_due(state.round):
            picks = picked(np.array(state.objectives))
            errors = self._test_errors(state, sorted(set(picks.values())), federation)
            for pick, i in picks.items():
                metrics[pick] = self.network_metrics(state.parents[i], state.objectives[i][0], errors.get(i))
        return metrics

    def _test_errors(
        self, state: RealtimeState, positions: Sequence[int], federation: Federation
    ) -> Mapping[int, float]:
        """Errors on test data of the parents at these positions; empty where there is no test data."""
        keys = [state.parents[i] for i in positions]
        correct, rows, _ = self.count(keys, state.master, federation.test_holders(), "test", federation)
        return {i: 1.0 - right / rows for i, right in zip(positions, correct.tolist(), strict=True)} if rows else {}

    def _found(
        self,
        state: RealtimeState,
        i: int,
        picks: list[str],
        statistics: Tensors,
        test_error: float | None,
    ) -> Candidate:
        key = state.parents[i]
        weights = self._slice(state.master, key)
        return self.candidate(key, state.objectives[i], picks, weights, statistics, test_error)

    def _slice(self, master: Tensors, key: Key) -> Tensors:
        """The weights of one sub-network."""
        return master.slice(choice.names(choice.sub_model(self.architecture, key)))
