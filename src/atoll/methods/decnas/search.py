"""Federated NetAdapt: shrink a network to a sequence of networks under falling resource budgets, on clients' data.

J. Yuan et al., "Federated Neural Architecture Search" (DecNAS), Algorithm 4.1. In the order of its lines:

     1- 2   for t <- 1 to T                                  one `step` is one round of one iteration
     3      R_t <- next resource budget                      Decnas._targets, algorithms/netadapt.py
     4      round_num <- round number of this iteration      DecnasConfig.rounds_of
     5      groups <- partition the available clients        Decnas._groups, algorithms/sampling.py
     6      PMs <- prune different layers of GM_{t-1}        Decnas.prunings, spaces/pruned/pruning.py
     8      Cloud_One_Round                                  Decnas._cloud_one_round
    10      GM_t <- PMs[0]                                   Decnas._close_iteration
    12      FL on GM_T or other GMs                          `atoll retrain RUN --from found` (methods/retrain.py)
    14-16   wait for a free group                            Decnas._scheduled, algorithms/netadapt.py
    17-22   train and test each PM on its group, fuse acc    clients.tune
    25-26   drop the worst                                   Decnas._places, Decnas._score, algorithms/netadapt.py
    27-32   collect and fuse the survivors' changes          clients.upload, PrunedCandidate.fused
    34-38   Client_Operation                                 clients.py, its jobs

A group from which no client answers gives its candidate back: it waits for another group in the next round, and is
dropped if no client answers there either. While candidates still compete such a one is retained beside those that have
a place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from atoll import spaces
from atoll.algorithms import netadapt
from atoll.algorithms.sampling import partition
from atoll.clients import Counted, FederatedModel, LocalTraining, PrivateWork, count_correct, train_models
from atoll.devices import resources
from atoll.errors import ConfigError, DataError, TooFewReplies
from atoll.federation.replies import failure_reasons
from atoll.methods.base import Candidate, ClientInfo, Federation, Generator, Method, Metrics, Schema, Tensors
from atoll.methods.decnas.clients import GroupCounts, Orders, PrunedCandidate, tune, upload
from atoll.methods.decnas.results import found_candidates, metrics_on_test, ready
from atoll.methods.decnas.settings import DecnasConfig
from atoll.spaces.pruned import depth, pruning

# The training settings that a task carries.
TRAINING = ("epochs", "batch", "lr", "momentum", "weight_decay", "steps")


@dataclass(frozen=True)
class DecnasState:
    round: int
    found: list[dict[str, Any]]  # GM_0, GM_1, ...: architecture, weights, statistics, about
    iteration: int = 0  # t; 0 while the start network is trained
    tuned: int = 0  # rounds of this iteration that are done
    first: int = 0  # K_0: how many candidates it began with
    candidates: list[dict[str, Any]] = field(default_factory=list)  # of `PrunedCandidate`
    groups: list[list[str]] = field(default_factory=list)
    previous: dict[str, Any] = field(default_factory=dict)  # group -> what GM_{t-1} gets right there, as plain data
    ended: str = ""  # why the search is over
    velocity: Tensors = field(default_factory=lambda: Tensors({}))  # of the start network, for `server_momentum`


class Decnas(Method[DecnasState]):
    """The server's side: the cloud."""

    name: ClassVar[str] = "decnas"
    confirms: ClassVar[bool] = True
    metrics_kind: ClassVar[str] = "pruning"
    recommended: ClassVar[str] = "final"
    summary: ClassVar[str] = "shrink a network step by step under falling budgets (federated NetAdapt)"
    Config: ClassVar[type[DecnasConfig]] = DecnasConfig
    State: ClassVar[type[DecnasState]] = DecnasState
    config: DecnasConfig

    def __init__(self, config: DecnasConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.device = config.profile
        self.architecture = config.start(schema)
        self.start = self.resources(self.architecture)
        self.final = netadapt.final_budget(config.resources, self.start)
        netadapt.require_reachable(config.resources, self.final, self.resources(self._least()))

    def resources(self, architecture: dict[str, Any]) -> dict[str, float]:
        return {kind: resources.measure(architecture, kind, self.device) for kind in self.config.resources}

    def _least(self) -> dict[str, Any]:
        """The network pruned as far as possible. Narrower layers may have equal shapes: more blocks can go then."""
        least = self._without_blocks(self.architecture)
        for unit in self.units(least):
            gone = netadapt.most_removable(unit.width, self.config.multiple)
            least = pruning.narrowed(least, unit.name, unit.width - gone)
        return self._without_blocks(least)

    def _without_blocks(self, arch: dict[str, Any]) -> dict[str, Any]:
        while self.config.depth and (blocks := depth.blocks(arch)):
            arch = depth.without(arch, blocks[0])
        return arch

    def init(self, federation: Federation, rng: Generator) -> DecnasState:
        if not any(info.sizes["train"] and info.sizes["validation"] for info in federation.clients()):
            raise DataError(
                "decnas evaluates its candidates on validation rows, and no client has any: see data.split",
                code="no-validation-rows",
            )
        if federation.robust.confirm and federation.guard is not None:
            raise ConfigError(
                "robust.confirm = true: what clients would send is not covered by [privacy]; leave one of them out",
                code="privacy-not-covered",
            )
        self._refuse_lonely_groups(federation)
        trained = self.config.trained(self.schema, self.architecture)
        weights = spaces.initial(self.architecture, rng) if trained is None else trained
        begun = DecnasState(0, [_model(self.architecture, weights, {"iteration": 0})])
        return begun if self.config.start_rounds else self._next_iteration(begun)

    def _refuse_lonely_groups(self, federation: Federation) -> None:
        """A robust rule needs several clients in every group. Two groups together must have a majority that one liar
        cannot be."""
        robust, clients = federation.robust, sum(info.sizes["train"] > 0 for info in federation.clients())
        groups = min(self.config.groups or 1, clients) if self.config.grouping else 1
        what = f"{clients} clients in {groups} groups are about {clients / groups:.1f} each; set decnas.groups"
        robust.refuse_fewer(clients // groups, what, "models")
        if not robust.confirm:
            robust.refuse_fewer(clients // groups, what, "fitness")
        if robust.confirm and (groups < 2 or clients < 2 * groups):
            raise ConfigError(
                f"robust.confirm: two groups evaluate a candidate; {clients} clients in {groups} groups are about "
                f"{clients / groups:.1f} each, but it needs two groups or more of two clients or more; set groups",
                code="too-few-clients",
            )

    def step(self, state: DecnasState, federation: Federation, rng: Generator) -> tuple[DecnasState, Metrics]:
        clients = [info for info in federation.clients() if info.sizes["train"]]
        if state.iteration == 0:
            return self._start_round(state, clients, federation)
        if not state.candidates:
            state = self._open_iteration(state, clients, rng)
        return self._cloud_one_round(state, {info.name: info for info in clients}, federation, rng)

    def done(self, state: DecnasState) -> bool:
        return bool(state.ended) or state.round >= self.config.rounds

    def snapshots(self, state: DecnasState) -> list[Candidate]:
        """The newest network of the sequence, once an iteration (or the training of the start network) is done."""
        newest = state.found[-1]
        if not self.config.snapshots or state.iteration == 0 or newest["statistics"] is None:
            return []
        name = f"m{len(state.found) - 1}"
        return [Candidate(name, newest["architecture"], {}, ["latest"], newest["weights"], newest["statistics"])]

    def results(self, state: DecnasState, federation: Federation, rng: Generator) -> list[Candidate]:
        """The whole sequence; a search that was cut short by its number of rounds leaves its candidates behind."""
        return found_candidates(federation, state.found, self.resources, state.ended, state.round)

    def private_work(self) -> PrivateWork:
        """In each round of an iteration a group may get all candidates for which there is no other group. The network
        before them is trained once more at most (`measure`), and all that were found are counted at the end."""
        settings = self.config
        candidates = len(self.units(self.architecture)) + settings.depth * len(depth.blocks(self.architecture))
        most = max(1, candidates - (settings.groups or 1 if settings.grouping else 1) + 1)
        rounds = settings.rounds - settings.start_rounds
        fewest = min(settings.tune_rounds) if settings.dynamic_rounds else max(settings.tune_rounds)
        found = 1 + rounds // max(1, fewest)
        trainings = settings.start_rounds + (rounds * most if max(settings.tune_rounds) else 0)
        trainings += found - 1 if settings.measure == "trained" else 0
        counts = settings.start_rounds + rounds * most + found
        epochs, batch = settings.epochs, settings.batch
        steps = None if settings.start_rounds else settings.steps  # those rounds train for all of their epochs
        return PrivateWork([self.architecture], trainings, epochs, batch, counts, steps=steps, final=found)

    # -- the start network: pre-trained, or trained here by federated averaging --------------------------------------

    def _start_round(
        self, state: DecnasState, clients: Sequence[ClientInfo], federation: Federation
    ) -> tuple[DecnasState, Metrics]:
        settings = self.config
        lr = settings.start_lr or settings.lr
        training = LocalTraining(settings.epochs, settings.batch, lr, momentum=settings.momentum)
        training = replace(training, server_momentum=settings.server_momentum, extras=settings.extras())
        (begun,) = state.found
        before = FederatedModel("m0", begun["architecture"], begun["weights"], velocity=state.velocity)
        (after,) = train_models(federation, [before], clients, training, state.round)
        counted = count_correct(federation, [after], clients, "validation")["m0"]
        correct, rows = counted.correct, counted.rows
        about = {"iteration": 0, "accuracy": correct / rows if rows else None}
        found = [_model(after.architecture, after.weights, about)]
        new = replace(state, round=state.round + 1, found=found, velocity=after.velocity)
        metrics: Metrics = {"phase": "start", "iteration": 0, "round_in_iteration": new.round}
        metrics |= {"error": 1 - correct / rows, "accuracy": correct / rows} if rows else {}
        if new.round >= settings.start_rounds:
            federation.new_phase()
            new = self._next_iteration(self._made_ready(new, clients, federation))
            metrics |= self._measured(new, federation)
        return new, metrics

    # -- lines 3-6 and 10: from one iteration to the next ------------------------------------------------------------

    def _next_iteration(self, state: DecnasState) -> DecnasState:
        """The state between two iterations. Whether there is a next one is known now."""
        ended, arch, iteration = "", state.found[-1]["architecture"], state.iteration + 1
        if netadapt.within_budget(self.resources(arch), self.final):
            ended = "the final budget is met"
        elif not self.prunings(arch, iteration) and not self.removals(arch, iteration):
            targets = ", ".join(f"{kind} {limit:,.6g}" for kind, limit in self._targets(arch, iteration).items())
            ended = f"no layer alone can be pruned to the budget of iteration {iteration} ({targets})"
        return DecnasState(state.round, state.found, iteration, ended=ended)

    def _open_iteration(self, state: DecnasState, clients: Sequence[ClientInfo], rng: Generator) -> DecnasState:
        arch, weights = state.found[-1]["architecture"], state.found[-1]["weights"]
        candidates = []
        for unit, keep in self.prunings(arch, state.iteration):
            pruned = pruning.prune(arch, weights, unit.name, keep)
            candidates.append(vars(PrunedCandidate(unit.name, *pruned)))
        for block in self.removals(arch, state.iteration):
            shorter, left = depth.without(arch, block), weights.slice(depth.names_without(weights, block))
            candidates.append(vars(PrunedCandidate(f"without {block.name}", shorter, left)))
        return replace(state, candidates=candidates, first=len(candidates), groups=self._groups(clients, rng))

    def _targets(self, arch: dict[str, Any], iteration: int) -> dict[str, float]:
        return self.config.schedule.targets(iteration, self.resources(arch), self.start, self.final)

    def prunings(self, arch: dict[str, Any], iteration: int) -> list[tuple[pruning.Unit, int]]:
        """Every unit that can meet this iteration's target alone, and how many of its filters stay."""
        targets, found = self._targets(arch, iteration), []
        for unit in self.units(arch):

            def with_width(keep: int, unit: pruning.Unit = unit) -> dict[str, float]:
                return self.resources(pruning.narrowed(arch, unit.name, keep))

            gone = netadapt.fewest_removed(unit.width, self.config.multiple, targets, with_width)
            if gone is not None:
                found.append((unit, unit.width - gone))
        return found

    def removals(self, arch: dict[str, Any], iteration: int) -> list[depth.Block]:
        """Every block whose removal meets this iteration's target, beyond the paper."""
        if not self.config.depth:
            return []
        targets = self._targets(arch, iteration)
        shorter = {block: self.resources(depth.without(arch, block)) for block in depth.blocks(arch)}
        return [block for block, needed in shorter.items() if netadapt.within_budget(needed, targets)]

    def units(self, arch: dict[str, Any]) -> list[pruning.Unit]:
        """What is pruned as one. A member of the user's groups may have been left out with its block."""
        shortened = len(arch["layers"]) < len(self.architecture["layers"])
        return pruning.merged(pruning.units(arch), self.config.layer_groups, shortened)

    def _groups(self, clients: Sequence[ClientInfo], rng: Generator) -> list[list[str]]:
        """Line 5: another partition in every iteration, because equal clients are taken in random order."""
        clients = [clients[place] for place in rng.permutation(len(clients))]
        count = min(self.config.groups or 1, len(clients)) if self.config.grouping else 1
        sizes, labels = [info.sizes["train"] for info in clients], [info.labels for info in clients]
        groups = partition(sizes, labels, count, self.config.balance)
        return [[clients[member].name for member in group] for group in groups]

    def _close_iteration(
        self, state: DecnasState, best: PrunedCandidate, score: dict[str, Any], federation: Federation
    ) -> DecnasState:
        """Line 10: GM_t is the candidate that is left. Its score of the last round is stored with it."""
        assert best.group is not None
        members = set(state.groups[best.group])
        about = {
            "iteration": state.iteration,
            "unit": best.unit,
            "layer": pruning.label(self.architecture, best.unit),
            "budget": self._targets(state.found[-1]["architecture"], state.iteration),
            "clients": len(members),
            "rounds": state.tuned,
            **score,
        }
        grown = replace(state, found=[*state.found, _model(best.architecture, best.weights, about)])
        infos = [info for info in federation.clients() if info.name in members and info.sizes["train"]]
        return self._next_iteration(self._made_ready(grown, infos, federation))

    def _made_ready(self, state: DecnasState, clients: Sequence[ClientInfo], federation: Federation) -> DecnasState:
        """The newest network with fixed batch norm statistics, if it is a snapshot."""
        *older, newest = state.found
        statistics = ready(federation, clients, newest) if self.config.snapshots else None
        return replace(state, found=[*older, {**newest, "statistics": statistics}])

    def _measured(self, state: DecnasState, federation: Federation) -> Metrics:
        """Metrics of the network that an iteration ended with, for the report."""
        newest, every = state.found[-1], self.config.test_every
        number = len(state.found) - 1
        metrics: Metrics = {"network": f"m{number}", "resources": self.resources(newest["architecture"])}
        if every and (number % every == 0 or state.ended):
            metrics |= metrics_on_test(federation, newest)
        return metrics | ({"ended": state.ended} if state.ended else {})

    # -- lines 13-33: Cloud_One_Round --------------------------------------------------------------------------------

    def _cloud_one_round(
        self, state: DecnasState, clients: Mapping[str, ClientInfo], federation: Federation, rng: Generator
    ) -> tuple[DecnasState, Metrics]:
        planned = self.config.rounds_of(state.iteration)
        number, rounds = state.tuned + 1, max(1, planned)
        groups = [[clients[name] for name in group if name in clients] for group in state.groups]
        candidates = self._scheduled(state, groups, rng)
        places = self._places(state, number, rounds)
        state = replace(state, round=state.round + 1)
        metrics: Metrics = {"phase": "search", "iteration": state.iteration}
        metrics |= {"round_in_iteration": number, "rounds_in_iteration": rounds}

        training = {name: getattr(self.config, name) for name in TRAINING} | self.config.extras()
        hold, settings = planned > 0 and places < len(candidates), self.config
        orders = Orders(state.round, training, hold, state.found[-1], settings.measure, planned > 0, settings.objective)
        known = {group: Counted.from_plain(row) for group, row in state.previous.items()}
        second = self._second_groups(candidates, groups, rng) if federation.robust.confirm else None
        counted, previous = tune(federation, candidates, groups, orders, known, second)  # lines 14-24
        state = replace(state, previous={group: own.to_plain() for group, own in previous.items()})
        scores = {one.unit: self._score(state, one, counted[one.unit]) for one in candidates if counted[one.unit].rows}
        if not scores:
            return self._without_replies(state, candidates, counted), metrics | {"waiting": [candidates[0].unit]}
        order = netadapt.ranked({unit: (row["degradation"], row["saving"]) for unit, row in scores.items()})
        by_unit = {one.unit: one for one in candidates}
        survivors = [by_unit[unit] for unit in order[:places]]  # lines 25-26, the best first
        if orders.hold:
            upload(federation, survivors, counted, state.round)
        fused = [one.fused(counted[one.unit].mean) for one in survivors]  # line 31

        may_wait = number < rounds and places > 1 and len(groups) > 1
        waiting = [one for one in candidates if one.unit not in scores and may_wait and one.avoid is None]
        metrics |= {"candidates": scores, "dropped": _dropped(candidates, survivors, waiting, counted)}
        metrics |= {"waiting": [one.unit for one in waiting], "error": 1 - scores[order[0]]["accuracy"]}
        without_change = [one.unit for one in survivors if not counted[one.unit].mean.weight]
        metrics |= {"not_uploaded": without_change if orders.train else []}
        if number >= rounds:
            chosen = {"chosen": order[0], "layer": pruning.label(self.architecture, order[0])}
            state = self._close_iteration(replace(state, tuned=number), fused[0], scores[order[0]], federation)
            return state, metrics | chosen | self._measured(state, federation)
        left = [*fused, *(one.sent_away() for one in waiting)]
        return replace(state, tuned=number, candidates=[vars(one) for one in left]), metrics

    def _scheduled(
        self, state: DecnasState, groups: Sequence[Sequence[ClientInfo]], rng: Generator
    ) -> list[PrunedCandidate]:
        """Lines 15-16: a candidate without a group gets a random free one, or waits for the first to be free."""
        candidates = [PrunedCandidate(**row) for row in state.candidates]
        if self.config.regroup == "round":
            candidates = [replace(one, group=None) for one in candidates]
        work = [float(spaces.cost(one.architecture).macs) for one in candidates]
        paces = [max((float(info.sizes["train"]) for info in group), default=0.0) for group in groups]
        places, avoid = [one.group for one in candidates], [one.avoid for one in candidates]
        numbers = netadapt.assign_groups(work, places, avoid, paces, rng)
        return [replace(one, group=number) for one, number in zip(candidates, numbers, strict=True)]

    def _second_groups(
        self, candidates: Sequence[PrunedCandidate], groups: Sequence[Sequence[ClientInfo]], rng: Generator
    ) -> dict[str, int]:
        """Another group for every candidate, beyond the paper: dropping is final, and one group may be wrong."""
        count = len(groups)
        return {one.unit: ((one.group or 0) + 1 + int(rng.integers(count - 1))) % count for one in candidates}

    def _places(self, state: DecnasState, number: int, rounds: int) -> int:
        """Line 25: how many continue after this round. Without dropping all do, to the upload of the last round."""
        if not self.config.dropping:
            return state.first
        return netadapt.remaining_after(state.first, number, rounds, self.config.alpha)

    def _score(self, state: DecnasState, one: PrunedCandidate, counts: GroupCounts) -> dict[str, Any]:
        """Section 4.3: accuracy lost against GM_{t-1}, as the candidate's own group sees it, per resource saved."""
        every = {group: Counted.from_plain(row) for group, row in state.previous.items()}
        found = every.get(str(one.group))
        if found is None:  # all clients that were asked failed: use the counts of the other groups
            found = sum(every.values(), Counted())
        before = 1.0 - found.error(self.config.objective) if found.rows else 1.0
        accuracy = counts.accuracy
        if counts.pairs:
            before, accuracy = counts.confirmed()
        whole, resources = self.resources(state.found[-1]["architecture"]), self.resources(one.architecture)
        # What is within its final budget already need not be saved: only the other kinds count.
        saving = netadapt.saved(
            whole, resources, {kind: self.start[kind] for kind in self.final if whole[kind] > self.final[kind]}
        )
        return {
            "accuracy": accuracy,
            "accuracy_before": before,
            "degradation": netadapt.degradation(before, accuracy, saving),
            "saving": saving,
            "group": one.group,
            "resources": resources,
        }

    def _without_replies(
        self, state: DecnasState, candidates: Sequence[PrunedCandidate], counted: Mapping[str, GroupCounts]
    ) -> DecnasState:
        """The last candidate's group is gone: it gets another, and this round does not count among its rounds."""
        if len(candidates) == 1 and candidates[0].avoid is None and len(state.groups) > 1:
            return replace(state, candidates=[vars(candidates[0].sent_away())])
        errors = [error for counts in counted.values() for error in counts.errors]
        raise TooFewReplies(
            f"no client answered for any of {len(candidates)} candidates ({failure_reasons(errors)})",
            code="too-few-replies",
        )


def _model(architecture: dict[str, Any], weights: Tensors, about: dict[str, Any]) -> dict[str, Any]:
    return {"architecture": architecture, "weights": weights, "statistics": None, "about": about}


def _dropped(
    candidates: Sequence[PrunedCandidate],
    survivors: Sequence[PrunedCandidate],
    waiting: Sequence[PrunedCandidate],
    counted: Mapping[str, GroupCounts],
) -> dict[str, str]:
    """Candidates that do not continue, and why."""
    continuing = {one.unit for one in (*survivors, *waiting)}
    reasons = {}
    for one in candidates:
        if one.unit not in continuing:
            counts = counted[one.unit]
            gone = f"no answer from group {one.group} ({failure_reasons(counts.errors)})"
            reasons[one.unit] = "lost more accuracy for what it saves" if counts.rows else gone
    return reasons
