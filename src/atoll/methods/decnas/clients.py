"""What the clients of federated NetAdapt do in a round, and how the cloud asks (Algorithm 4.1, lines 17-22, 27-38).

A client keeps its weight change in its memory until the cloud has decided who goes on; then it uploads it or is told to
forget it, so that no memory outlives a round. Where nobody will be dropped the change travels with the accuracy: that
saves a message, and no byte of weights.

MACs: a training row counts three forward passes in each epoch, a validation row one; scoring the previous network, once
for each group and iteration, counts its own MACs. Uploading counts none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atoll import spaces
from atoll.algorithms.aggregation import Mean
from atoll.core.checks import Count, TensorsLike
from atoll.core.messages import ClientInfo, Payload, Task, Tensors
from atoll.errors import TooFewReplies
from atoll.federation.base import Federation
from atoll.methods.measure import TEST_BATCH
from atoll.training.client import Client
from atoll.training.evaluation import evaluate
from atoll.training.networks import network
from atoll.training.sgd import TrainSettings, train

TUNE, UPLOAD = "atoll.methods.decnas.clients:tune", "atoll.methods.decnas.clients:upload"


@dataclass(frozen=True)
class Contender:
    """PM_i: the iteration's network with one unit pruned."""

    unit: str
    architecture: dict[str, Any]
    weights: Tensors
    group: int | None = None  # of the iteration's groups; None: it waits for one
    avoid: int | None = None  # the group it was taken from because nobody there answered

    def fused(self, mean: Mean) -> Contender:
        """Line 31: PM_i + grad; unchanged if no change was uploaded. Its group has answered: nothing to avoid."""
        change = mean.result() if mean.weight else {}
        weights = self.weights.replaced({name: self.weights[name] + change[name] for name in change})
        return Contender(self.unit, self.architecture, weights, self.group)

    def sent_away(self) -> Contender:
        """It waits for another group."""
        return Contender(self.unit, self.architecture, self.weights, None, self.group)


@dataclass
class Tally:
    """What a contender's group said in one round."""

    correct: int = 0
    rows: int = 0
    answered: list[ClientInfo] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    mean: Mean = field(default_factory=Mean)  # of the weight changes, by training rows

    @property
    def accuracy(self) -> float:
        """Section 4.3: the clients' accuracies, weighted by their validation rows."""
        return self.correct / self.rows


@dataclass(frozen=True)
class Orders:
    """What a round asks of its clients. `previous` is GM_{t-1}: architecture and weights."""

    round: int
    training: Mapping[str, Any]  # the fields of TrainSettings
    hold: bool  # keep the change until it is asked for
    previous: Mapping[str, Any]
    judge_sent: bool = False  # the network as it was sent, not as local training leaves it


def tune(
    federation: Federation,
    contenders: Sequence[Contender],
    groups: Sequence[Sequence[ClientInfo]],
    orders: Orders,
    scored: Mapping[str, Sequence[int]],
) -> tuple[dict[str, Tally], dict[str, list[int]]]:
    """Lines 17-22: every contender is trained and tested by its group.

    `scored` are the groups that have said what GM_{t-1} gets right (of how many rows); the answer has the others too. A
    contender whose group has several to tune waits its turn there: tasks of one client are done in this order.
    """
    known = {group: list(counts) for group, counts in scored.items()}
    asked: list[tuple[Contender, ClientInfo]] = []
    tasks = []
    first_here = {one.group: one.unit for one in reversed(contenders)}
    for one in contenders:
        assert one.group is not None
        asks = str(one.group) not in scored and first_here[one.group] == one.unit
        asked += [(one, info) for info in groups[one.group]]
        tasks += [tune_task(one, info, orders, asks) for info in groups[one.group]]
    tallies = {one.unit: Tally() for one in contenders}
    for (one, info), reply in zip(asked, federation.map(tasks), strict=True):
        tally, rows = tallies[one.unit], info.sizes["validation"]
        if not reply.ok:
            tally.errors.append(reply.error or "")
            continue
        tally.answered.append(info)
        tally.correct += reply.payload["correct"]
        tally.rows += rows
        if "change" in reply.payload:
            tally.mean.add(reply.payload["change"], info.sizes["train"])
        if "previous" in reply.payload:
            counts = known.setdefault(str(one.group), [0, 0])
            counts[:] = counts[0] + reply.payload["previous"], counts[1] + rows
    return tallies, known


def collect(federation: Federation, kept: Sequence[Contender], tallies: Mapping[str, Tally], round_number: int) -> None:
    """Lines 27-30: the survivors' clients upload, all others are told to forget. Changes are added to the tallies."""
    wanted: dict[str, list[Contender]] = {info.name: [] for tally in tallies.values() for info in tally.answered}
    rows = {info.name: info.sizes["train"] for tally in tallies.values() for info in tally.answered}
    for one in kept:
        for info in tallies[one.unit].answered:
            wanted[info.name].append(one)
    errors = []
    for reply in federation.map([upload_task(name, ones, round_number) for name, ones in wanted.items()]):
        if not reply.ok:
            errors.append(f"{reply.task.client}: {reply.error}")
            continue
        for one, change in zip(wanted[reply.task.client], reply.payload["changes"], strict=True):
            tallies[one.unit].mean.add(change, rows[reply.task.client])
    if not any(tallies[one.unit].mean.weight for one in kept):
        raise TooFewReplies(f"no client uploaded a weight change ({'; '.join(errors[:2])})", code="too-few-replies")


def tune_task(one: Contender, info: ClientInfo, orders: Orders, asks: bool) -> Task:
    """Train and test this contender; `asks`: score GM_{t-1} too."""
    rows = info.sizes
    payload: Payload = {
        "round": orders.round,
        "candidate": one.unit,
        "architecture": one.architecture,
        "weights": one.weights,
        "training": dict(orders.training),
        "hold": orders.hold,
    }
    passes = 3 * orders.training["epochs"] * rows["train"] + rows["validation"]
    macs = spaces.cost(one.architecture).macs * passes
    returns: dict[str, Any] = {"correct": Count(rows["validation"])}
    if not orders.hold:
        returns["change"] = TensorsLike.of(one.weights)
    if orders.judge_sent:
        payload["judge_sent"] = True
    if asks:
        before = orders.previous
        payload["previous"] = {"architecture": before["architecture"], "weights": before["weights"]}
        macs += spaces.cost(before["architecture"]).macs * rows["validation"]
        returns["previous"] = Count(rows["validation"])
    return Task(f"tune:{one.unit}:{info.name}", info.name, TUNE, payload, macs, returns)


def upload_task(client: str, wanted: Sequence[Contender], round_number: int) -> Task:
    """Hand over the weight changes of these contenders and forget all of this round's."""
    payload: Payload = {"round": round_number, "wanted": [one.unit for one in wanted]}
    returns = {"changes": [TensorsLike.of(one.weights) for one in wanted]}
    return Task(f"upload:{client}", client, UPLOAD, payload, 0, returns)


# -- the clients' side -----------------------------------------------------------------------------------------------


def _tune_job(payload: Payload, client: Client) -> Payload:
    """Client_Operation: train for E epochs, test on the validation part, keep the weight change."""
    x, y = client.data.part("train")
    before: Tensors = payload["weights"]
    module = network(payload["architecture"], client.device)
    settings = TrainSettings(**payload["training"])
    after = train(module, before, x, y, settings, client.rng, device=client.device).weights
    change = Tensors({name: after[name] - before[name] for name in before})
    judged = before if payload.get("judge_sent") else after
    answer: Payload = {"correct": _correct(payload["architecture"], judged, client)}
    if "previous" in payload:
        answer["previous"] = _correct(payload["previous"]["architecture"], payload["previous"]["weights"], client)
    if not payload["hold"]:
        return {**answer, "change": change}
    if client.memory.get("round") != payload["round"]:  # what an earlier round left here will not be asked for
        client.memory.clear()
        client.memory.update({"round": payload["round"], "changes": {}})
    client.memory["changes"][payload["candidate"]] = change
    return answer


def _upload_job(payload: Payload, client: Client) -> Payload:
    """Lines 27-29: the changes that are asked for; the others are forgotten."""
    kept = client.memory.get("changes", {}) if client.memory.get("round") == payload["round"] else {}
    changes = [kept[candidate] for candidate in payload["wanted"]]
    client.memory.clear()
    return {"changes": changes}


def _correct(architecture: dict[str, Any], weights: Tensors, client: Client) -> int:
    """Correct validation rows. A network that computes no finite numbers gets none right."""
    x, y = client.data.part("validation")
    if not len(y):
        return 0
    counts = evaluate(network(architecture, client.device), weights, x, y, TEST_BATCH, device=client.device)
    return counts.correct if math.isfinite(counts.loss) else 0


JOBS: dict[str, Any] = {"tune": _tune_job, "upload": _upload_job}
