"""A network measured on the clients: the server's half of the jobs `evaluate` and `calibrate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from atoll import spaces
from atoll.clients import jobs
from atoll.core import checks
from atoll.core.messages import REPORT, ClientInfo, Part, Payload, Task, Tensors
from atoll.federation.base import Federation
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
    """A trained network on all clients: objectives, and batch norm statistics."""
    everyone = federation.clients()
    validation = evaluate(federation, everyone, architecture, weights)
    test = evaluate_test(federation, architecture, weights)
    objectives = final_objectives(validation, test, spaces.cost(architecture))
    return objectives, calibrated(federation, everyone, architecture, weights)


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
) -> list[Tensors]:
    """The same for several networks that are slices of one set of weights, in one task a client."""
    forms = [calibration.statistics_form(architecture) for architecture in architectures]
    if not any(forms):
        return forms
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
        rows = info.sizes[part]
        if rows > 0:
            returns = {"statistics": [BatchNormSums(model, rows) for model in models]}
            tasks.append(Task(f"calibrate:{info.name}", info.name, jobs.CALIBRATE, payload, macs * rows, returns))
    totals: list[Tensors] = []
    for reply in federation.collect(tasks, what="batch norm statistics"):
        own = reply.payload["statistics"]
        totals = [calibration.pooled(pair) for pair in zip(totals, own, strict=True)] if totals else own
    return totals


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
    macs = spaces.cost(architecture).macs
    payload: Payload = {"architecture": architecture, "weights": weights, "part": part, "batch": jobs.TEST_BATCH}
    tasks = [
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
    replies = federation.collect(tasks, minimum=min(minimum, len(tasks)), what=f"{part} counts")
    return {reply.task.client: ConfusionCounts.from_payload(reply.payload) for reply in replies}


def total(each: Mapping[str, ConfusionCounts]) -> ConfusionCounts | None:
    """All of these together; None if there are none."""
    counts = list(each.values())
    return sum(counts[1:], counts[0]) if counts else None
