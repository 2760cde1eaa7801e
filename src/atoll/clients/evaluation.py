"""A network measured on the clients: the server's half of the jobs `evaluate` and `calibrate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll import spaces
from atoll.clients import jobs
from atoll.core import checks
from atoll.core.messages import ClientInfo, Part, Payload, Task, Tensors
from atoll.federation.base import Federation
from atoll.training import calibration
from atoll.training.metrics import ConfusionCounts, accuracy, weighted_f1


def metrics_of(counts: ConfusionCounts, prefix: str = "") -> dict[str, float]:
    """Error, accuracy, mean loss and weighted F1, for an event."""
    right = accuracy(counts.confusion)
    values = {
        "error": 1.0 - right,
        "accuracy": right,
        "loss": counts.loss / counts.rows,
        "f1": weighted_f1(counts.confusion),
    }
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
    return _total(architecture, _each(federation, clients, "validation", architecture, weights))


def evaluate_test(federation: Federation, architecture: dict[str, Any], weights: Tensors) -> ConfusionCounts | None:
    """The network on test data, for the report only: not charged to the search and never seen by it."""
    return _total(architecture, evaluate_test_each(federation, architecture, weights))


def evaluate_test_each(
    federation: Federation, architecture: dict[str, Any], weights: Tensors
) -> dict[str, ConfusionCounts]:
    """The same, for each holder of test data by itself."""
    return _each(federation, federation.test_holders(), "test", architecture, weights, test_evaluation=True)


def client_metrics(federation: Federation, each: Mapping[str, ConfusionCounts]) -> dict[str, dict[str, float]]:
    """A network on each client's own test rows; empty where the test data belongs to no client."""
    own = {info.name for info in federation.clients()}
    return {
        name: {
            "test_f1": weighted_f1(counts.confusion),
            "test_error": 1.0 - accuracy(counts.confusion),
            "test_rows": counts.rows,
        }
        for name, counts in each.items()
        if name in own
    }


def measurements(
    federation: Federation, architecture: dict[str, Any], weights: Tensors
) -> tuple[dict[str, float], Tensors, dict[str, dict[str, float]]]:
    """A trained network on all clients: objectives, batch norm statistics, metrics on each client's own test rows."""
    everyone = federation.clients()
    validation = evaluate(federation, everyone, architecture, weights)
    each = evaluate_test_each(federation, architecture, weights)
    objectives = final_objectives(validation, _total(architecture, each), spaces.cost(architecture))
    statistics = calibrated(federation, everyone, architecture, weights)
    return objectives, statistics, client_metrics(federation, each)


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
    macs = sum(spaces.cost(architecture).macs for architecture in architectures)
    payload: Payload = {
        "architectures": list(architectures),
        "weights": weights,
        "part": part,
        "batch": jobs.TEST_BATCH,
    }
    returns = {"statistics": [checks.TensorsLike.of(form) for form in forms]}
    tasks = [
        Task(f"calibrate:{info.name}", info.name, jobs.CALIBRATE, payload, macs * info.sizes[part], returns)
        for info in clients
        if info.sizes[part] > 0
    ]
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
) -> dict[str, ConfusionCounts]:
    """Each client's counts; empty if no client has rows of this part."""
    macs = spaces.cost(architecture).macs
    outputs = int(architecture["classes"])
    payload: Payload = {"architecture": architecture, "weights": weights, "part": part, "batch": jobs.TEST_BATCH}
    tasks = [
        Task(
            f"{part}:{info.name}",
            info.name,
            jobs.EVALUATE,
            payload,
            macs * info.sizes[part],
            {"confusion": checks.CountArray((outputs, outputs), info.sizes[part]), "loss": checks.Number(0.0)},
            test_evaluation,
        )
        for info in clients
        if info.sizes[part] > 0
    ]
    replies = federation.collect(tasks, minimum=min(1, len(tasks)), what=f"{part} counts")
    return {reply.task.client: ConfusionCounts.from_payload(reply.payload) for reply in replies}


def _total(architecture: dict[str, Any], each: Mapping[str, ConfusionCounts]) -> ConfusionCounts | None:
    return sum(each.values(), ConfusionCounts.zero(int(architecture["classes"]))) if each else None
