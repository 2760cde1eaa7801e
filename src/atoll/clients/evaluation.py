"""A network measured on the clients: the server's half of the jobs `evaluate` and `calibrate`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from atoll import spaces
from atoll.clients import jobs
from atoll.core import checks
from atoll.core.messages import REPORT, Array, ClientInfo, Part, Payload, Reply, Task, Tensors
from atoll.errors import TooFewReplies
from atoll.federation.base import Federation
from atoll.federation.replies import failure_reasons
from atoll.training import calibration
from atoll.training.metrics import Confusion, ConfusionCounts, accuracy, weighted_f1

MOST_POSITIONS = 2**24  # of an image, where batch norm sees one value each
ROUNDING = 1e-3  # of sums, relative
LARGEST = 1e30  # of a mean that batch norm sees: its square is a finite float64, and it is a finite float32


Measure = Literal["evaluate", "count_correct"]  # jobs that a task of training may do first, see `jobs.measured`


def metrics_of(counts: ConfusionCounts, prefix: str = "") -> dict[str, float]:
    """Error, accuracy, mean loss and weighted F1, for an event; of private counts error and accuracy only."""
    right = accuracy(counts.confusion)
    values = {"error": 1.0 - right, "accuracy": right}
    if not counts.private:
        values |= {"loss": counts.loss / counts.rows, "f1": weighted_f1(counts.confusion)}
    return {prefix + name: value for name, value in values.items()}


def final_objectives(
    validation: ConfusionCounts | None, test: ConfusionCounts | None, cost: spaces.Cost
) -> dict[str, float]:
    """A candidate's objectives. The error is the clients' validation error; without such data it is the test error."""
    errors = {}
    found = validation or test
    if found is not None:
        errors["error"] = metrics_of(found)["error"]
    if test is not None:
        errors["test_error"] = metrics_of(test)["error"]
    return errors | {"macs": cost.macs, "params": cost.params, "upload_bytes": cost.bytes}


def evaluate(
    federation: Federation, clients: Sequence[ClientInfo], architecture: dict[str, Any], weights: Tensors
) -> ConfusionCounts | None:
    """The network on these clients' validation rows, all counted together; None if no client has any."""
    return total(_each(federation, clients, "validation", architecture, weights))


def evaluate_test(
    federation: Federation,
    architecture: dict[str, Any],
    weights: Tensors,
    known: Mapping[str, ConfusionCounts] | None = None,
) -> ConfusionCounts | None:
    """The network on test data, for the report only: not charged to the search and never seen by it. Holders whose
    counts are `known` are not asked."""
    return total(evaluate_test_each(federation, architecture, weights, known))


def evaluate_test_each(
    federation: Federation,
    architecture: dict[str, Any],
    weights: Tensors,
    known: Mapping[str, ConfusionCounts] | None = None,
) -> dict[str, ConfusionCounts]:
    """The same, for each holder of test data by itself."""
    found = dict(known or {})
    others = [info for info in federation.test_holders() if info.name not in found]
    return found | _each(federation, others, "test", architecture, weights, True, minimum=0 if found else 1)


def measured_parts(federation: Federation, info: ClientInfo, tested: bool) -> list[Part]:
    """The parts of its rows on which a client that trains measures the network that came: also test rows, if it is time
    for a test and the report is about this client's."""
    held = tested and any(info.name == holder.name for holder in federation.test_holders())
    return ["validation", "test"] if held else ["validation"]


def reporting(federation: Federation) -> frozenset[str]:
    """The clients whose own test rows the report is about."""
    return frozenset(info.name for info in federation.test_holders()) & {info.name for info in federation.clients()}


class ReportCounts:
    """Correct test rows by network and client, for the report: what came along with other tasks, and the rest."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}

    def add(self, names: Sequence[str], client: str, correct: Array) -> None:
        """What a client got right with the networks of these names."""
        for name, right in zip(names, correct.tolist(), strict=True):
            self._counts.setdefault(name, {})[client] = right

    def complete(self, names: Iterable[str], client: str) -> bool:
        """Whether the client's counts of all these networks are known."""
        return all(client in self._counts.get(name, {}) for name in names)

    def errors(self, names: Collection[str], rows: Mapping[str, int]) -> dict[str, float]:
        """The share of wrong rows of each network, over the clients with these `rows` whose counts are complete."""
        clients = [client for client in rows if self.complete(names, client)]
        total = sum(rows[client] for client in clients)
        right = {name: sum(self._counts[name][client] for client in clients) for name in names if total}
        return {name: 1.0 - count / total for name, count in right.items()}


def measuring(
    info: ClientInfo, architecture: Mapping[str, Any], parts: Sequence[Part], measure: Measure
) -> tuple[Payload, Payload]:
    """What a task of training carries and may return if it also measures the network that came, on those of these parts
    of which the client has rows."""
    asked: Payload = {}
    returns: Payload = {}
    for part in parts:
        if info.sizes[part]:
            key = REPORT if part == "test" else "before"
            asked.setdefault(key, {})[part] = measure
            returns.setdefault(key, {})[part] = _counts_check(architecture, info.sizes[part], measure)
    return asked, returns


def measured_by(reply: Payload) -> dict[Part, ConfusionCounts]:
    """What the reply to such a task says, if it measured by `evaluate`."""
    found = {**reply.get("before", {}), **reply.get(REPORT, {})}
    return {part: ConfusionCounts.from_payload(counts) for part, counts in found.items()}


def _counts_check(architecture: Mapping[str, Any], rows: int, measure: Measure) -> Payload:
    if measure == "count_correct":
        return {"correct": checks.Count(rows)}
    outputs = int(architecture["classes"])
    return {"confusion": checks.CountArray((outputs, outputs), rows), "loss": checks.Number(0.0)}


class Finished(NamedTuple):
    """A network as it is handed over; one with an `owner` is that client's own."""

    architecture: dict[str, Any]
    weights: Tensors
    statistics: Tensors
    owner: str | None = None


def evaluate_finished(
    federation: Federation, networks: Sequence[Finished], part: Part = "test"
) -> list[dict[str, Confusion]]:
    """What each network gets right and wrong on the test rows of every holder of some: clients, slices of the official
    test set, clients that were held out. Or on validation rows of clients. For the report: not charged to the search.
    One task a holder."""
    own = [info for info in federation.clients() if info.sizes[part] > 0]
    others = (*federation.test_holders(), *federation.held_out()) if part == "test" else ()
    holders = list({info.name: info for info in (*own, *others)}.values())
    found: list[dict[str, Confusion]] = [{} for _ in networks]
    tasks, asked = [], {}
    for info in holders:
        places = [place for place, one in enumerate(networks) if one.owner in (None, info.name)]
        if not places:
            continue
        rows = info.sizes[part]
        models = [
            {"architecture": one.architecture, "weights": one.weights, "statistics": one.statistics}
            for one in (networks[place] for place in places)
        ]
        returns = [checks.CountArray((int(networks[place].architecture["classes"]),) * 2, rows) for place in places]
        macs = sum(spaces.cost(networks[place].architecture).macs for place in places) * rows
        task_id = f"finished:{info.name}"
        payload: Payload = {"models": models, "part": part, "batch": jobs.TEST_BATCH}
        tasks.append(
            Task(
                task_id,
                info.name,
                jobs.EVALUATE_DELIVERED,
                payload,
                macs,
                {"confusions": returns},
                test_evaluation=True,
            )
        )
        asked[task_id] = places
    for reply in federation.collect(tasks, minimum=0):
        for place, confusion in zip(asked[reply.task.id], reply.payload["confusions"], strict=True):
            found[place][reply.task.client] = confusion
    return found


def measurements(
    federation: Federation, architecture: dict[str, Any], weights: Tensors
) -> tuple[dict[str, float], Tensors]:
    """A trained network on all clients, in one exchange: objectives, and batch norm statistics."""
    everyone, holders = federation.clients(), federation.test_holders()
    validating = _count_tasks(everyone, "validation", architecture, weights)
    testing = _count_tasks(holders, "test", architecture, weights, test_evaluation=True)
    calibrating = _calibration_tasks(everyone, [architecture], weights, "train")
    groups = [("validation counts", validating), ("test counts", testing), ("batch norm statistics", calibrating)]
    counts, tested, statistics = _together(federation, groups)
    objectives = final_objectives(total(_read(counts)), total(_read(tested)), spaces.cost(architecture))
    return objectives, _pooled(statistics)[0] if statistics else Tensors({})


@checks.register
@dataclass(frozen=True)
class BatchNormSums(checks.TensorsLike):
    """Batch norm statistics that values of this many rows can have: counts that are a multiple of the rows, sums and
    sums of squares that belong together. See `calibration.calibrate`."""

    rows: int

    def problem(self, value: Any) -> str | None:
        fault = super().problem(value)
        if fault:
            return fault
        for name in self.model:
            layer, _, kind = name.rpartition(".")
            if kind != "count":
                continue
            count, sums, squares = float(value[name][0]), value[f"{layer}.sum"], value[f"{layer}.squares"]
            if not 0 <= count <= MOST_POSITIONS * self.rows or count % max(1, self.rows):
                return f"count: statistics of {count:g} values from {self.rows} rows in {layer!r}"
            mean, mean_square = np.abs(sums) / max(count, 1), squares / max(count, 1)
            small = (mean < LARGEST).all() and (mean_square < LARGEST**2).all()
            # A mean square is at least the square of the mean, but for rounding.
            if not (small and (mean_square >= mean**2 * (1 - ROUNDING)).all()):
                return f"count: sums that no values can have in {layer!r}"
        return None


def statistics_check(architecture: dict[str, Any], rows: int) -> BatchNormSums:
    """What a reply may hold as the batch norm statistics of this network on this many rows."""
    return BatchNormSums(checks.TensorsLike.of(calibration.statistics_form(architecture)).model, rows)


def calibrated(
    federation: Federation,
    clients: Sequence[ClientInfo],
    architecture: dict[str, Any],
    weights: Tensors,
    part: Part = "train",
) -> Tensors:
    """Fixed batch norm statistics from the clients' data; empty for a network without batch norm."""
    (statistics,) = calibrated_together(federation, clients, [architecture], weights, part)
    return statistics


def calibrated_together(
    federation: Federation,
    clients: Sequence[ClientInfo],
    architectures: Sequence[dict[str, Any]],
    weights: Tensors,
    part: Part = "train",
    names: Sequence[str] = (),
    tested: ReportCounts | None = None,
) -> list[Tensors]:
    """The same for several networks that are slices of one set of weights, in one task a client.

    Clients whose own test rows the report is about also count these, in the same task: `tested` gets the counts of each
    network, by its name.
    """
    reported = reporting(federation) if tested is not None else frozenset()
    tasks = _calibration_tasks(clients, architectures, weights, part, reported=reported)
    if not tasks:
        return [Tensors({}) for _ in architectures]
    replies = list(federation.collect(tasks, what="batch norm statistics"))
    for reply in replies:
        if tested is not None and REPORT in reply.payload:
            tested.add(names, reply.task.client, reply.payload[REPORT]["test"]["correct"])
    return _pooled(replies)


def calibrated_each(
    federation: Federation, networks: Sequence[tuple[dict[str, Any], Tensors, Sequence[ClientInfo]]]
) -> list[Tensors]:
    """The same for networks with weights and clients of their own, from training rows, in one exchange."""
    groups = [
        ("batch norm statistics", _calibration_tasks(clients, [architecture], weights, "train", f"{place}:"))
        for place, (architecture, weights, clients) in enumerate(networks)
    ]
    found = _together(federation, groups)
    return [_pooled(replies)[0] if replies else Tensors({}) for replies in found]


def _calibration_tasks(
    clients: Sequence[ClientInfo],
    architectures: Sequence[dict[str, Any]],
    weights: Tensors,
    part: Part,
    name: str = "",
    reported: Collection[str] = (),
) -> list[Task]:
    """A task for each client with rows of this part; none for networks without batch norm."""
    forms = [calibration.statistics_form(architecture) for architecture in architectures]
    if not any(forms):
        return []
    models = [checks.TensorsLike.of(form).model for form in forms]
    macs = sum(spaces.cost(architecture).macs for architecture in architectures)
    payload: Payload = {
        "architectures": list(architectures),
        "weights": weights,
        "part": part,
        "batch": jobs.TEST_BATCH,
    }
    tasks = []
    for info in clients:
        rows, own = info.sizes[part], payload
        if rows > 0:
            returns: Payload = {"statistics": [BatchNormSums(model, rows) for model in models]}
            if info.name in reported:
                own = payload | {REPORT: {"test": True}}
                returns[REPORT] = {"test": {"correct": checks.CountsUpTo((len(models),), info.sizes["test"])}}
            tasks.append(Task(f"calibrate:{name}{info.name}", info.name, jobs.CALIBRATE, own, macs * rows, returns))
    if not tasks:
        raise TooFewReplies(f"no client has {part} rows for batch norm statistics", code="too-few-replies")
    return tasks


def _pooled(replies: Iterable[Reply]) -> list[Tensors]:
    totals: list[Tensors] = []
    for reply in replies:
        own = reply.payload["statistics"]
        totals = [calibration.pooled(pair) for pair in zip(totals, own, strict=True)] if totals else own
    return totals


def _together(federation: Federation, groups: Sequence[tuple[str, Sequence[Task]]]) -> list[list[Reply]]:
    """The good replies to each group of tasks, all sent at once. A group is named by what its clients return; one with
    tasks needs a good reply, and all together enough of them."""
    owner = {task.id: place for place, (_, tasks) in enumerate(groups) for task in tasks}
    found: list[list[Reply]] = [[] for _ in groups]
    replies = federation.collect([task for _, tasks in groups for task in tasks], minimum=0)
    for reply in replies:
        found[owner[reply.task.id]].append(reply)
    for place, (what, tasks) in enumerate(groups):
        if tasks and not (found[place] and replies.enough):
            reasons = failure_reasons([one.error for one in replies.failures if owner[one.task.id] == place])
            number = f"{len(found[place]) or 'none'} of {len(tasks)}"
            raise TooFewReplies(f"{number} clients returned {what} ({reasons})", code="too-few-replies")
    return found


def _each(
    federation: Federation,
    clients: Sequence[ClientInfo],
    part: Part,
    architecture: dict[str, Any],
    weights: Tensors,
    test_evaluation: bool = False,
    minimum: int = 1,
) -> dict[str, ConfusionCounts]:
    """Each client's counts, at least `minimum` of them; empty if no client has rows of this part."""
    tasks = _count_tasks(clients, part, architecture, weights, test_evaluation)
    return _read(federation.collect(tasks, minimum=min(minimum, len(tasks)), what=f"{part} counts"))


def _count_tasks(
    clients: Sequence[ClientInfo],
    part: Part,
    architecture: dict[str, Any],
    weights: Tensors,
    test_evaluation: bool = False,
) -> list[Task]:
    macs = spaces.cost(architecture).macs
    payload: Payload = {"architecture": architecture, "weights": weights, "part": part, "batch": jobs.TEST_BATCH}
    return [
        Task(
            f"{part}:{info.name}",
            info.name,
            jobs.EVALUATE,
            payload,
            macs * info.sizes[part],
            _counts_check(architecture, info.sizes[part], "evaluate"),
            test_evaluation,
        )
        for info in clients
        if info.sizes[part] > 0
    ]


def _read(replies: Iterable[Reply]) -> dict[str, ConfusionCounts]:
    return {reply.task.client: ConfusionCounts.from_payload(reply.payload) for reply in replies}


def total(each: Mapping[str, ConfusionCounts]) -> ConfusionCounts | None:
    """All of these together; None if there are none."""
    counts = list(each.values())
    return sum(counts[1:], counts[0]) if counts else None
