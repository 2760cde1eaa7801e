"""What the clients of federated NetAdapt do in a round, and how the cloud asks (Algorithm 4.1, lines 17-22, 27-38).

A client holds its weight change in its memory until the cloud has decided which candidates continue; then it uploads
the change or deletes it, so that no memory outlives a round. Where no candidate will be dropped the change travels with
the accuracy: that saves a message, and no byte of weights.

MACs: training as in `training_macs`, one forward pass for a validation row; scoring the previous network, once for each
group and iteration, counts its own MACs. Uploading counts none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

import numpy as np

from atoll import spaces
from atoll.algorithms.aggregation import Mean
from atoll.algorithms.robust import RobustMean
from atoll.clients import Counted, jobs
from atoll.core import checks
from atoll.core.checks import Count, CountArray, TensorsLike
from atoll.core.messages import Array, ClientInfo, Payload, Task, Tensors
from atoll.errors import TooFewReplies
from atoll.federation.base import Federation
from atoll.spaces.cost import training_macs
from atoll.training.client import Client
from atoll.training.metrics import Objective

Measure = Literal["sent", "trained", "paper"]
TUNE, UPLOAD = "atoll.methods.decnas.clients:tune", "atoll.methods.decnas.clients:upload"
CONFIRM = "atoll.methods.decnas.clients:confirm"
# All that a training looks at.
TRAINING = ("epochs", "batch", "lr", "momentum", "weight_decay", "clip", "steps", "augmentation", "prox")


@dataclass(frozen=True)
class PrunedCandidate:
    """PM_i: the iteration's network with one unit pruned."""

    unit: str
    architecture: dict[str, Any]
    weights: Tensors
    group: int | None = None  # of the iteration's groups; None: it waits for one
    avoid: int | None = None  # the group it was taken from because no client there answered

    def fused(self, mean: Mean | RobustMean) -> PrunedCandidate:
        """Line 31: PM_i + grad; unchanged if no change was uploaded. Its group has answered: nothing to avoid."""
        change = mean.result() if mean.weight else {}
        weights = self.weights.replaced({name: self.weights[name] + change[name] for name in change})
        return PrunedCandidate(self.unit, self.architecture, weights, self.group)

    def sent_away(self) -> PrunedCandidate:
        """It waits for another group."""
        return PrunedCandidate(self.unit, self.architecture, self.weights, None, self.group)


@dataclass
class GroupCounts:
    """What a candidate's group returned in one round."""

    objective: Objective = "error"
    counted: Counted = field(default_factory=Counted)
    answered: list[ClientInfo] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    mean: Mean | RobustMean = field(default_factory=Mean)  # of the weight changes, by training rows
    asked: int = 0  # clients of its own group
    updates: int = 0  # in the mean
    # With a second group, client by client over both: the accuracies of GM_{t-1} and of the candidate.
    pairs: list[tuple[float, float]] = field(default_factory=list)

    def add(self, change: Mapping[str, Array], weight: float) -> None:
        self.mean.add(change, weight)
        self.updates += 1

    def confirmed(self) -> tuple[float, float]:
        """The accuracies before and after: the median over the clients of both groups, and less the median loss."""
        before = median(one for one, _ in self.pairs)
        return before, before - median(one - other for one, other in self.pairs)

    @property
    def rows(self) -> int:
        return self.counted.rows

    @property
    def accuracy(self) -> float:
        """Section 4.3: the clients' accuracies, weighted by their validation rows; or 1 minus another objective."""
        return 1.0 - self.counted.error(self.objective)


@dataclass(frozen=True)
class Orders:
    """What a round asks of its clients. `previous` is GM_{t-1}: architecture and weights."""

    round: int
    training: Mapping[str, Any]  # the fields of TrainSettings
    hold: bool  # clients hold the change until it is asked for
    previous: Mapping[str, Any]
    # Which networks are measured after local training: the candidate (paper), both (trained), none (sent).
    measure: Measure = "paper"
    train: bool = True  # False: candidates are only measured, and there is no change to hold or to send
    objective: Objective = "error"


@checks.register
@dataclass(frozen=True)
class HeldChanges:
    """A client's memory after a candidate was tuned: the changes of this round, this candidate's among them."""

    round: int
    unit: str
    model: Mapping[str, tuple[str, tuple[int, ...]]]

    def problem(self, value: Any) -> str | None:
        if value.keys() != {"round", "private", "changes"} or not isinstance(value["changes"], dict):
            return "schema: something else where held weight changes were expected"
        if value["round"] != self.round or self.unit not in value["changes"]:
            return f"schema: no weight change of {self.unit!r} in round {self.round}"
        for unit, change in value["changes"].items():
            other = TensorsLike.of(change if isinstance(change, Tensors) else {})
            reason = (TensorsLike(self.model) if unit == self.unit else other).problem(change)
            if reason:
                return reason
        return None


def tune(
    federation: Federation,
    candidates: Sequence[PrunedCandidate],
    groups: Sequence[Sequence[ClientInfo]],
    orders: Orders,
    scored: Mapping[str, Counted],
    second: Mapping[str, int] | None = None,
) -> tuple[dict[str, GroupCounts], dict[str, Counted]]:
    """Lines 17-22: every candidate is trained and tested by its group.

    `scored` are the groups that have counted what GM_{t-1} gets right and wrong; the second value returned has the
    others too. A candidate whose group has several to tune waits its turn there: tasks of one client are done in this
    order. `second` names another group for each candidate, which trains and tests it as well: all clients then score
    GM_{t-1} each time, and only the candidate's own group uploads.
    """
    known = dict(scored)
    infos = {info.name: info for group in groups for info in group}
    by_unit = {one.unit: one for one in candidates}
    tasks = []
    first_here = {one.group: one.unit for one in reversed(candidates)}
    for one in candidates:
        assert one.group is not None
        asks = second is not None or (str(one.group) not in scored and first_here[one.group] == one.unit)
        tasks += [tune_task(one, info, orders, asks) for info in groups[one.group]]
        if second is not None:
            tasks += [confirm_task(one, info, orders) for info in groups[second[one.unit]]]
    counted = {one.unit: _counts_of(one, federation, orders, len(groups[one.group or 0])) for one in candidates}
    replies = federation.collect(tasks, minimum=0)
    for reply in replies:
        one, info = by_unit[reply.task.payload["candidate"]], infos[reply.task.client]
        counts, rows = counted[one.unit], info.sizes["validation"]
        if second is not None and rows:
            counts.pairs.append(
                (_accuracy(reply.payload["previous"], rows, orders), _accuracy(reply.payload, rows, orders))
            )
        if reply.task.job == CONFIRM:
            continue
        counts.answered.append(info)
        counts.counted.add(reply.payload, rows)
        if "change" in reply.payload:
            counts.add(reply.payload["change"], federation.weight(info.name, info.sizes["train"]))
        if "previous" in reply.payload and second is None:
            known.setdefault(str(one.group), Counted()).add(reply.payload["previous"], rows)
    for failure in replies.failures:
        counts = counted[failure.task.payload["candidate"]]
        counts.errors.append(failure.error or "")
        counts.asked -= not failure.asked and failure.task.job == TUNE
    for one in candidates:
        counts = counted[one.unit]
        if len(counts.answered) < federation.rules.least(counts.asked):  # as if none had answered
            errors = counts.errors
            counted[one.unit] = _counts_of(one, federation, orders)
            counted[one.unit].errors = errors
            if str(one.group) not in scored:
                known.pop(str(one.group), None)
    return counted, known


def _counts_of(one: PrunedCandidate, federation: Federation, orders: Orders, asked: int = 0) -> GroupCounts:
    """Of a candidate that this many clients are asked about."""
    own = Counted(median=federation.median_fitness)
    return GroupCounts(orders.objective, own, mean=federation.mean(None, one.unit), asked=asked)


def _accuracy(counts: Payload, rows: int, orders: Orders) -> float:
    own = Counted()
    own.add(counts, rows)
    return 1.0 - own.error(orders.objective)


def upload(
    federation: Federation, survivors: Sequence[PrunedCandidate], counted: Mapping[str, GroupCounts], round_number: int
) -> None:
    """Lines 27-30: the survivors' clients upload, all others delete. Changes are added to the counts."""
    rows = {info.name: info.sizes["train"] for counts in counted.values() for info in counts.answered}
    wanted: dict[str, list[PrunedCandidate]] = {name: [] for name in rows}
    for one in survivors:
        for info in counted[one.unit].answered:
            wanted[info.name].append(one)
    replies = federation.collect([upload_task(name, ones, round_number) for name, ones in wanted.items()], minimum=0)
    for reply in replies:
        for one, change in zip(wanted[reply.task.client], reply.payload["changes"], strict=True):
            counted[one.unit].add(change, federation.weight(reply.task.client, rows[reply.task.client]))
    for one in survivors:
        if counted[one.unit].updates < federation.rules.least(len(counted[one.unit].answered)):
            counted[one.unit].mean = federation.mean(None, one.unit)
    if not any(counted[one.unit].mean.weight for one in survivors):
        raise TooFewReplies(f"no client uploaded a weight change ({replies.reasons})", code="too-few-replies")


def tune_task(one: PrunedCandidate, info: ClientInfo, orders: Orders, asks: bool) -> Task:
    """Train and test this candidate; `asks`: score GM_{t-1} too."""
    rows = info.sizes
    payload: Payload = {
        "round": orders.round,
        "candidate": one.unit,
        "architecture": one.architecture,
        "weights": one.weights,
        "training": dict(orders.training),
        "hold": orders.hold,
    }
    if not orders.train:
        payload["training"]["epochs"] = 0
    payload["measure"] = orders.measure
    cost, classes = spaces.cost(one.architecture), int(one.architecture["classes"])
    counts: dict[str, Any] = {"correct": Count(rows["validation"])}
    if orders.objective != "error":
        payload["confusion"] = True
        counts = {"confusion": CountArray((classes, classes), rows["validation"])}
    macs = _training_macs(cost, rows["train"], payload["training"]) + cost.macs * rows["validation"]
    returns: dict[str, Any] = dict(counts)
    if orders.train and not orders.hold:
        returns["change"] = TensorsLike.of(one.weights, "change")
    if asks:
        before = orders.previous
        payload["previous"] = {"architecture": before["architecture"], "weights": before["weights"]}
        own = spaces.cost(before["architecture"])
        macs += own.macs * rows["validation"]
        if orders.measure == "trained":
            macs += _training_macs(own, rows["train"], payload["training"])
        returns["previous"] = counts
    held = orders.train and orders.hold
    remembers = HeldChanges(orders.round, one.unit, TensorsLike.of(one.weights).model) if held else None
    name = f"tune:{one.unit}:{info.name}"
    return Task(name, info.name, TUNE, payload, macs, returns, remembers=remembers)


def confirm_task(one: PrunedCandidate, info: ClientInfo, orders: Orders) -> Task:
    """Train and test this candidate and score GM_{t-1}; the change is neither held nor sent."""
    task = tune_task(one, info, replace(orders, hold=True), asks=True)
    return replace(task, id=f"confirm:{one.unit}:{info.name}", job=CONFIRM, remembers=None)


def _training_macs(cost: spaces.Cost, rows: int, training: Mapping[str, Any]) -> int:
    """Of the rows that are really trained on: `steps` may end before all epochs are done."""
    trained = rows * int(training["epochs"])
    if training.get("steps") is not None:
        trained = min(trained, int(training["steps"]) * int(training["batch"]))
    return training_macs(cost, trained)


def upload_task(client: str, wanted: Sequence[PrunedCandidate], round_number: int) -> Task:
    """Upload the weight changes of these candidates and delete all of this round's."""
    payload: Payload = {"round": round_number, "wanted": [one.unit for one in wanted]}
    returns = {"changes": [TensorsLike.of(one.weights, "change") for one in wanted]}
    return Task(f"upload:{client}", client, UPLOAD, payload, 0, returns)


# -- the clients' side -----------------------------------------------------------------------------------------------


def _tune_job(payload: Payload, client: Client) -> Payload:
    """Client_Operation: train for E epochs, test on the validation part, hold the weight change."""
    architecture, before, measure = payload["architecture"], payload["weights"], payload["measure"]
    after = _trained(payload, payload, client)
    change = Tensors({name: after[name] - before[name] for name in before})
    tested = before if measure == "sent" else after

    def counted(arch: dict[str, Any], weights: Tensors) -> Payload:
        if "privacy" in payload and not len(client.data.part("validation")[1]):
            return {"correct": 0}  # the numbers of rows are public
        if "privacy" in payload:
            one = {"architecture": arch, "weights": weights, "part": "validation", "batch": jobs.TEST_BATCH}
            return jobs.count_correct(one | {"privacy": payload["privacy"]}, client, len(_networks(payload)))
        found = jobs.confusion_of(arch, weights, client, "validation")
        return {"confusion": found} if payload.get("confusion") else {"correct": int(np.trace(found))}

    reply = counted(architecture, tested)
    if "previous" in payload:
        previous = payload["previous"]
        weights = previous["weights"]
        if measure == "trained":
            weights = _trained(previous, payload, client)
        reply["previous"] = counted(previous["architecture"], weights)
    if not payload["training"]["epochs"]:
        return reply
    if not payload["hold"]:
        return {**reply, "change": change}
    held = {"round": payload["round"], "private": "privacy" in payload}
    if {name: client.memory.get(name) for name in held} != held:  # what an earlier round left will not be asked for
        client.memory.clear()
        client.memory.update({**held, "changes": {}})
    client.memory["changes"][payload["candidate"]] = change
    return reply


def _trained(network: Payload, payload: Payload, client: Client) -> Tensors:
    """This network after local training. Of the payload nothing else is looked at than what `_tune_use` charges."""
    weights: Tensors = network["weights"]
    if not _trains(payload):
        return weights
    own = {"architecture": network["architecture"], "weights": weights}
    private = {"privacy": payload["privacy"]} if "privacy" in payload else {}
    found: Tensors = jobs.train({**own, **_training(payload), **private}, client)["weights"]
    return found


def _training(payload: Payload) -> Payload:
    return {name: value for name, value in payload["training"].items() if name in TRAINING}


def _trains(payload: Payload) -> bool:
    return bool(payload["training"]["epochs"])


def _networks(payload: Payload) -> list[Payload]:
    """Those that are measured: the candidate, and the network before it if it is asked for."""
    return [payload, *([payload["previous"]] if "previous" in payload else [])]


def _confirm_job(payload: Payload, client: Client) -> Payload:
    reply = _tune_job(payload | {"hold": False}, client)
    return {name: value for name, value in reply.items() if name != "change"}


def _upload_job(payload: Payload, client: Client) -> Payload:
    """Lines 27-29: the changes that are asked for; the others are deleted."""
    asked = (payload["round"], "privacy" in payload)  # a change without noise never leaves in a private run
    held = client.memory["changes"] if (client.memory.get("round"), client.memory.get("private")) == asked else {}
    changes = [held[candidate] for candidate in payload["wanted"]]
    client.memory.clear()
    return {"changes": changes}


def _tune_use(payload: Payload) -> jobs.RowUse:
    """The change that is held is charged here: the counts depend on it, and it may be asked for."""
    networks = _networks(payload)
    return jobs.RowUse(
        [network["architecture"] for network in networks],
        _training(payload) if _trains(payload) else None,
        len(networks) if payload["measure"] == "trained" else 1,
        counts=len(networks),
    )


def _upload_use(payload: Payload) -> jobs.RowUse:
    return jobs.RowUse()  # the changes have noise, and were charged when they were computed


JOBS: dict[str, jobs.Job] = {"tune": _tune_job, "confirm": _confirm_job, "upload": _upload_job}
USES = {"tune": _tune_use, "upload": _upload_use}
