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
    50-53   non-dominated sorting and selection              Realtime._search_round
    57-68   client: train one sub-network                    clients/jobs.py, train

Beyond the paper, and off in its preset: a closing phase (`finish`), in which the picks split off from the master and
are trained by all clients, and `paths = "balanced"`. What the offline comparator needs as well is in
`choice_search.py`. Readings that differ from the paper's letter are in docs/papers.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from atoll.algorithms import nsga2
from atoll.algorithms.aggregation import with_momentum
from atoll.algorithms.robust import FEWEST
from atoll.algorithms.sampling import balanced_paths, groups, participants
from atoll.clients import Counted, Fetch, ReportCounts, calibrated_each, calibrated_together
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
    Tensors,
)
from atoll.methods.choice_search import (
    ChoiceSearch,
    Key,
    front_of,
    key_from_name,
    key_name,
    names_of,
    picked,
    picked_after,
    picked_keys,
)
from atoll.methods.published import Snapshot, completed, fetching, offered
from atoll.methods.realtime_config import RealtimeConfig
from atoll.spaces.choice import space as choice
from atoll.training import calibration


@dataclass(frozen=True)
class RealtimeState:
    round: int
    searched: int  # rounds of the search; the others were of closing phases
    master: Tensors
    parents: list[Key]
    objectives: list[list[float]]  # of the parents, measured in the last round of the search; empty before the first
    published: dict[str, Any]  # pick -> its `Snapshot`
    finished: dict[str, Any]  # closing phase: name of a key -> its weights; empty in the search
    best: dict[str, Any]  # closing phase: name of a key -> weights, objectives and statistics of its best round
    checkers: list[str] = field(default_factory=list)  # clients that measure at the end only, see `robust.confirm`
    segment: dict[str, int] = field(default_factory=dict)  # see `RunSegment`
    velocity: Tensors = field(default_factory=lambda: Tensors({}))  # of the master, for `server_momentum`
    velocities: dict[str, Any] = field(default_factory=dict)  # closing phase: the same of each finished network
    measured: list[str] = field(default_factory=list)  # clients that keep statistics of the last measurement


class Realtime(ChoiceSearch[RealtimeState]):
    """The server's side."""

    name: ClassVar[str] = "realtime"
    confirms: ClassVar[bool] = True
    metrics_kind: ClassVar[str] = "front"
    summary: ClassVar[str] = "evolve sub-networks of a shared master while the federation trains; usable at every round"
    Config: ClassVar[type[RealtimeConfig]] = RealtimeConfig
    State: ClassVar[type[RealtimeState]] = RealtimeState
    config: RealtimeConfig

    def init(self, federation: Federation, rng: Generator) -> RealtimeState:
        self._refuse_lonely_branches(federation)
        parents = self.first_parents(federation, rng)
        master, checkers = choice.initial(self.architecture, rng), federation.draw_checkers(rng)
        clients = participants(len(federation.clients()), self.config.fraction)
        if checkers and clients < len(checkers) + FEWEST:
            raise ConfigError(
                f"robust.confirm: {clients} clients a round, of which up to {len(checkers)} measure at the end only; "
                f"{FEWEST} must be left, so it needs {len(checkers) + FEWEST}: raise realtime.fraction",
                code="too-few-clients",
            )
        return RealtimeState(0, 0, master, parents, [], {}, {}, {}, checkers)

    def _refuse_lonely_branches(self, federation: Federation) -> None:
        """A robust rule needs several clients for every branch, not for the master as a whole."""
        clients, branches = participants(len(federation.clients()), self.config.fraction), choice.BRANCHES
        each = f"about {clients / branches:.1f} clients a branch, so {FEWEST * branches} clients a round are needed"
        what = f"{clients} clients a round train {branches} branches of each block, {each}"
        federation.robust.refuse_fewer(clients // branches, what, "models")

    def step(self, state: RealtimeState, federation: Federation, rng: Generator) -> tuple[RealtimeState, Metrics]:
        segment = self._segment(state)
        state = replace(state, segment=asdict(segment))
        if state.round >= segment.searched and state.objectives:
            return self._closing_round(state, segment, federation, rng)
        return self._search_round(state, federation, rng)

    def done(self, state: RealtimeState) -> bool:
        return self._segment(state).ended(self.config.rounds, state.round)

    def within(self, state: RealtimeState, federation: Federation, macs: int) -> RealtimeState:
        """A round of the search is taken to cost what the last one did."""
        if state.finished or not state.objectives:
            return state
        before, finalists = self._segment(state), self._finalists(state)
        another, closing = federation.ledger.rounds[-1].client_macs, self.closing_macs(finalists, federation)
        segment = before.within(state.round, macs, another, closing)
        return state if segment is before else replace(state, segment=asdict(segment))

    def _segment(self, state: RealtimeState) -> RunSegment:
        before = RunSegment(**state.segment)
        return before.extended(self.config.rounds, state.round, bool(state.finished), self.config.closing_of)

    def _search_round(
        self, state: RealtimeState, federation: Federation, rng: Generator
    ) -> tuple[RealtimeState, Metrics]:
        offspring = self.offspring(state.parents, state.objectives, rng)
        participating = self.participating(federation, rng)
        due, untrained = self.test_is_due(state.round + 1), []
        offers = self._offered(state, due)
        fetch = self._fetch(state, offers, federation, due)
        for trained in [state.parents, offspring] if state.searched == 0 else [offspring]:
            state, left_out = self._train(state, trained, participating, federation, rng, fetch)
            untrained += left_out
        state = replace(state, published=completed(state.published, offers, fetch, federation))

        keys = [*state.parents, *offspring]
        measuring = [info for info in participating if info.name not in state.checkers]
        objectives, clients = self._measure(state.master, keys, measuring, federation, self._keep(state))
        survivors = nsga2.select(objectives, self.population, self.excess(keys)).tolist()
        new = replace(
            state,
            round=state.round + 1,
            searched=state.searched + 1,
            parents=[keys[i] for i in survivors],
            objectives=[objectives[i] for i in survivors],
            measured=clients,
            finished={},
            best={},
            velocities={},
        )
        if not new.published or len(participating) < len(federation.clients()):
            # Of the clients that measured some may not participate in the next round, and the first one is usable, too.
            offers = self._offered(new, due)
            fetch = self._fetch(new, offers, federation, due)
            asked = fetch.alone(measuring)
            for reply in federation.collect(asked, minimum=0) if asked else ():
                fetch.add(reply)
            new = replace(new, published=completed(new.published, offers, fetch, federation))
        return new, self._metrics(new, federation, due) | {"untrained": untrained}

    def snapshots(self, state: RealtimeState) -> list[Candidate]:
        """High and Knee, as published last."""
        if not self.config.snapshots:
            return []
        if state.finished:
            ready = {pick: (key, state.best[key_name(key)]["statistics"]) for pick, key in self._picked(state).items()}
            return [self._found(state, key, [pick], own, None) for pick, (key, own) in ready.items()]
        return [
            self.candidate(key_from_name(one["key"]), one["objectives"], [pick], one["weights"], one["statistics"])
            for pick, one in state.published.items()
        ]

    def private_work(self) -> PrivateWork:
        """A round of the search trains once, the first one twice, and counts all keys at once. A closing round trains
        and counts every finalist."""
        settings, closing = self.config, self.config.closing
        finalists = {"high": 1, "picks": 2}.get(settings.finish_networks, self.population)
        rounds = settings.rounds - closing + closing * finalists
        return PrivateWork([self.architecture], rounds + 1, settings.epochs, settings.batch, rounds)

    def results(self, state: RealtimeState, federation: Federation, rng: Generator) -> list[Candidate]:
        """The finished networks, each after its best round by validation error, or without a closing phase the first
        front; with test errors and fixed statistics from all clients' training data."""
        state = self._rechecked(state, federation)
        picks, everyone, tested = self._picked(state), federation.clients(), ReportCounts()
        if state.finished:
            names = sorted(state.best, key=lambda name: list(state.best[name]["objectives"]))
            keys = [key_from_name(name) for name in names]
            models = [(choice.sub_model(self.architecture, key), self._weights(state, key), everyone) for key in keys]
            statistics = calibrated_each(federation, models)
        else:
            keys = self._front(state)
            statistics = self._statistics(state.master, keys, everyone, "train", federation, tested)
        errors = self._test_errors(state, keys, federation, tested)
        return [
            self._found(state, key, names_of(key, picks), own, errors.get(key_name(key)))
            for key, own in zip(keys, statistics, strict=True)
        ]

    def _rechecked(self, state: RealtimeState, federation: Federation) -> RealtimeState:
        """With the errors that fresh clients find, beyond the paper: the front is made of these (`robust.confirm`)."""
        checkers = [info for info in federation.clients() if info.name in state.checkers]
        if not checkers:
            return state
        if state.finished:
            models = [self.finalist(key_from_name(name), own["weights"]) for name, own in state.best.items()]
            counted = self.count_finalists(models, checkers, federation)
            errors = {name: found.error(self.config.objective) for name, found in counted.items()}
            best = {
                name: {**own, "objectives": [errors[name], *own["objectives"][1:]]} for name, own in state.best.items()
            }
            return replace(state, best=best)
        objectives, _ = self._measure(state.master, state.parents, checkers, federation)
        kept = [[new[0], *old[1:]] for new, old in zip(objectives, state.objectives, strict=True)]
        return replace(state, objectives=kept)

    # -- Algorithm 4, lines 15-41, and Algorithm 3: double sampling, training, aggregation ---------------------------

    def _train(
        self,
        state: RealtimeState,
        keys: Sequence[Key],
        participating: Sequence[ClientInfo],
        federation: Federation,
        rng: Generator,
        fetch: Fetch,
    ) -> tuple[RealtimeState, list[str]]:
        """Each key is trained by its own group of clients; the state with the new master, and the keys that no client
        trained."""
        infos, master, rounds_done = {info.name: info for info in participating}, state.master, state.searched
        if self.config.paths == "balanced":
            paths = balanced_paths(len(infos), len(keys[0]), choice.BRANCHES, rng)
            pairs = list(zip(paths, rng.permutation(list(infos)).tolist(), strict=True))
        else:
            shares = groups(list(infos), len(keys), rng)
            pairs = [(key, name) for key, group in zip(keys, shares, strict=True) for name in group]
        tasks = [
            fetch.along(self.train_task(key, self._slice(master, key), rounds_done, infos[name]), infos[name])
            for key, name in pairs
        ]
        mean, trained = federation.partial_mean(master, self.config.average), set()
        for reply in federation.collect(tasks, what="a usable sub-model"):
            rows = infos[reply.task.client].sizes["train"]
            mean.add(reply.payload["weights"], federation.weight(reply.task.client, rows))
            trained.add(key_name(reply.task.payload["key"]))
            fetch.add(reply)
        asked = {key_name(key) for key, _ in pairs}
        left_out = [name for name in map(key_name, keys) if name in asked and name not in trained]
        moved, velocity = with_momentum(master, mean.result(), state.velocity, self.config.server_momentum)
        return replace(state, master=moved, velocity=velocity), left_out

    # -- lines 43-49: objectives of all 2N keys ------------------------------------------------------------------------

    def _measure(
        self,
        master: Tensors,
        keys: Sequence[Key],
        participating: Sequence[ClientInfo],
        federation: Federation,
        keep: str | None = None,
    ) -> tuple[list[list[float]], list[str]]:
        """The objectives of all keys, and the clients that keep statistics of them; see `errors`."""
        found = self.errors(keys, master, participating, "validation", federation, keep)
        if not found.errors:
            raise TooFewReplies(f"no client returned validation counts ({found.problem})", code="too-few-replies")
        pairs = zip(keys, found.errors, strict=True)
        values = [self.values(error, self.cost(key), participating) for key, error in pairs]
        return values, found.clients if keep else []

    # -- the closing phase: picks split off with their inherited weights, and all clients train them -----------------

    def _closing_round(
        self, state: RealtimeState, segment: RunSegment, federation: Federation, rng: Generator
    ) -> tuple[RealtimeState, Metrics]:
        """One of the last rounds of the segment."""
        if not state.finished:
            federation.new_phase()
        participating = self.participating(federation, rng)
        keys = [key_from_name(name) for name in state.finished] or self._finalists(state)
        weights = {key_name(key): state.finished.get(key_name(key)) for key in keys}
        models = [
            self.finalist(key, weights[name] or self._slice(state.master, key), state.velocities.get(name))
            for name, key in zip(weights, keys, strict=True)
        ]
        training = self.final_training(segment.closing, self.config.finish_lr or self.config.lr)
        rounds_done = state.round - segment.searched
        trained, values, counted = self.train_finalists(
            models, training, rounds_done, participating, federation, state.checkers, self.config.snapshots
        )
        finished, best = {one.name: one.weights for one in trained}, dict(state.best)
        for name, own in finished.items():
            if name not in best or values[name][0] <= best[name]["objectives"][0]:
                best[name] = {"weights": own, "objectives": values[name], "statistics": counted[name].statistics}
                best[name]["tested"] = _tests_of(counted[name])
        velocities = {one.name: one.velocity for one in trained if one.velocity}
        new = replace(state, round=state.round + 1, finished=finished, best=best, published={}, velocities=velocities)
        return new, {"phase": "final", **self._metrics(new, federation, self.test_is_due(new.round))}

    def _finalists(self, state: RealtimeState) -> list[Key]:
        """The networks that are finished, each once."""
        picks = picked_keys(state.parents, self.pickable(state.parents, state.objectives))
        chosen = {"high": [picks["high"]], "picks": list(picks.values())}
        found = chosen.get(self.config.finish_networks) or self._front(state)
        return list({key_name(key): key for key in found}.values())

    def _picked(self, state: RealtimeState) -> dict[str, Key]:
        """High and Knee, of the finished networks if there are any."""
        if not state.objectives:
            return {}
        if state.finished:
            return picked_after(*self._candidates(state))
        return picked_keys(state.parents, self.pickable(state.parents, state.objectives))

    def _front(self, state: RealtimeState) -> list[Key]:
        rows = np.array(self.pickable(state.parents, state.objectives))
        return [state.parents[i] for i in front_of(state.parents, rows)]

    def _places(self, keys: Sequence[Key], objectives: Sequence[Sequence[float]]) -> dict[str, int]:
        return picked(np.array(self.pickable(keys, objectives)))

    def _candidates(self, state: RealtimeState) -> tuple[list[Key], list[list[float]]]:
        """The networks that can be had now, and their objectives."""
        if not state.finished:
            return state.parents, state.objectives
        return [key_from_name(name) for name in state.best], [own["objectives"] for own in state.best.values()]

    # -- ready at every round, and what the report shows -----------------------------------------------------------

    def _keep(self, state: RealtimeState) -> str | None:
        """The name of the measurement of this master, under which clients keep its statistics; "" if no round follows
        that could fetch them, None if none are needed."""
        if not self.config.snapshots or not calibration.statistics_form(self.architecture):
            return None
        segment = self._segment(state)
        last = segment.closing > 0 and state.round + 1 == segment.searched
        return "" if last and state.published else state.master.whole_digest()

    def _offered(self, state: RealtimeState, due: bool) -> dict[str, Snapshot]:
        """High and Knee after this state, if they are published, or tested because it is time for that."""
        if not state.objectives or state.finished or not (self.config.snapshots or due):
            return {}
        places = self._places(state.parents, state.objectives)
        picks = {pick: (key_name(state.parents[i]), state.objectives[i]) for pick, i in places.items()}
        lasts = self.config.snapshot_every if self.config.snapshots else 1
        return offered(
            state.published, picks, lambda key: self._slice(state.master, key_from_name(key)), state.round, lasts
        )

    def _fetch(self, state: RealtimeState, offers: Mapping[str, Snapshot], federation: Federation, due: bool) -> Fetch:
        measurement = (state.master.whole_digest() if state.measured else "", state.measured)
        return fetching(offers, federation, self.architecture, measurement, self.config.snapshots, due)

    def _statistics(
        self,
        master: Tensors,
        keys: Sequence[Key],
        clients: Sequence[ClientInfo],
        part: Part,
        federation: Federation,
        tested: ReportCounts | None,
    ) -> list[Tensors]:
        """One task a client for all keys: a second one would make it forget the master before the next training.
        `tested` gets what the same clients count on their own test rows."""
        networks = [choice.sub_model(self.architecture, key) for key in keys]
        names = dict.fromkeys(name for arch in networks for name in choice.names(arch))
        about = list(map(key_name, keys))
        return calibrated_together(federation, clients, networks, master.slice(names), part, about, tested)

    def _metrics(self, state: RealtimeState, federation: Federation, due: bool) -> Metrics:
        keys, values = self._candidates(state)
        metrics = self.front_metrics(keys, values, self.admissible(state.parents, state.objectives), federation)
        picks = self._picked(state)
        errors = dict(zip(map(key_name, keys), (row[0] for row in values), strict=True))
        known = {pick: one["test_error"] for pick, one in state.published.items()}
        if state.finished and due:
            tested = self._test_errors(state, list(picks.values()), federation, ReportCounts())
            known = {pick: tested.get(key_name(key)) for pick, key in picks.items()}
        for pick, key in picks.items():
            metrics[pick] = self.network_metrics(key, errors[key_name(key)], known.get(pick) if due else None)
            if pick in state.published:
                metrics[pick]["published"] = state.published[pick]["key"]
        return metrics

    def _test_errors(
        self, state: RealtimeState, keys: Sequence[Key], federation: Federation, tested: ReportCounts
    ) -> dict[str, float]:
        """Errors on test data of these networks, by name; empty where there is no test data. What clients have counted
        already, of the master now or of a finished network in its best round, is not asked for."""
        if state.finished:
            models = {key_name(key): self.finalist(key, self._weights(state, key)) for key in keys}
            known = {name: Counted.from_plain(state.best[name].get("tested", {})) for name in models}
            return self.test_finalists(list(models.values()), federation, known)
        return self.test_errors(keys, state.master, federation, tested)

    def _found(
        self,
        state: RealtimeState,
        key: Key,
        picks: list[str],
        statistics: Tensors,
        test_error: float | None,
    ) -> Candidate:
        keys, values = self._candidates(state)
        own = values[[key_name(one) for one in keys].index(key_name(key))]
        return self.candidate(key, own, picks, self._weights(state, key), statistics, test_error)

    def _weights(self, state: RealtimeState, key: Key) -> Tensors:
        """The weights of one sub-network: those of its best round if it is finished, else the master's."""
        own = state.best.get(key_name(key))
        return self._slice(state.master, key) if own is None else own["weights"]

    def _slice(self, master: Tensors, key: Key) -> Tensors:
        return master.slice(choice.names(choice.sub_model(self.architecture, key)))


def _tests_of(counted: Counted) -> dict[str, Any]:
    """What clients counted on their own test rows, for the state."""
    found = counted.test or Counted()
    return {"correct": found.correct, "rows": found.rows, "clients": list(found.clients)}
