"""Measuring a network on the clients, for every method: validation, the report's test figures, calibration.

The server's halves come first, the clients' jobs after them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from atoll import spaces
from atoll.core import checks
from atoll.core.messages import ClientInfo, Part, Payload, Task, Tensors
from atoll.errors import TooFewReplies
from atoll.federation.base import Federation
from atoll.training.calibration import calibrate, pooled, statistics_form
from atoll.training.client import Client
from atoll.training.evaluation import evaluate
from atoll.training.metrics import Counts, accuracy, weighted_f1
from atoll.training.networks import network

EVALUATE = "atoll.methods.measure:evaluate"
CALIBRATE = "atoll.methods.measure:calibrate"
TEST_BATCH = 100


def figures(counts: Counts, prefix: str = "") -> dict[str, float]:
    """For an event: error, accuracy, mean loss, weighted F1."""
    right = accuracy(counts.confusion)
    values = {
        "error": 1.0 - right,
        "accuracy": right,
        "loss": counts.loss / counts.rows,
        "f1": weighted_f1(counts.confusion),
    }
    return {prefix + name: value for name, value in values.items()}


def final_objectives(validation: Counts | None, test: Counts | None, cost: spaces.Cost) -> dict[str, float]:
    """A candidate's figures. The error is the clients' validation error; without such data it is the test error."""
    errors = {}
    judged = validation or test
    if judged is not None:
        errors["error"] = figures(judged)["error"]
    if test is not None:
        errors["test_error"] = figures(test)["error"]
    return errors | {"macs": cost.macs, "params": cost.params, "upload_bytes": cost.bytes}


def validate(
    federation: Federation,
    clients: Sequence[ClientInfo],
    architecture: dict[str, Any],
    weights: Tensors,
) -> Counts | None:
    """The network on these clients' validation parts, weighted by their size; None if nobody has such a part."""
    return _evaluate_on(federation, clients, "validation", architecture, weights, test_evaluation=False)


def evaluate_test(federation: Federation, architecture: dict[str, Any], weights: Tensors) -> Counts | None:
    """The network on test data, for the report only: not charged to the search and never seen by it."""
    return _evaluate_on(federation, federation.test_holders(), "test", architecture, weights, test_evaluation=True)


def evaluate_test_each(federation: Federation, architecture: dict[str, Any], weights: Tensors) -> dict[str, Counts]:
    """The same, for each holder of test data by itself."""
    return _counts_on(federation, federation.test_holders(), "test", architecture, weights, test_evaluation=True)


def client_metrics(federation: Federation, each: Mapping[str, Counts]) -> dict[str, dict[str, float]]:
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
    forms = [statistics_form(architecture) for architecture in architectures]
    if not any(forms):
        return forms
    macs = sum(spaces.cost(architecture).macs for architecture in architectures)
    payload: Payload = {
        "architectures": list(architectures),
        "weights": weights,
        "part": part,
        "batch": TEST_BATCH,
    }
    returns = {"statistics": [checks.TensorsLike.of(form) for form in forms]}
    tasks = [
        Task(f"calibrate:{info.name}", info.name, CALIBRATE, payload, macs * info.sizes[part], returns)
        for info in clients
        if info.sizes[part] > 0
    ]
    totals: list[Tensors] = []
    for reply in federation.map(tasks):
        if reply.ok:
            own = reply.payload["statistics"]
            totals = [pooled(pair) for pair in zip(totals, own, strict=True)] if totals else own
    if not totals:
        raise TooFewReplies("no client answered with batch norm statistics", code="too-few-replies")
    return totals


def _evaluate_on(
    federation: Federation,
    clients: Sequence[ClientInfo],
    part: Part,
    architecture: dict[str, Any],
    weights: Tensors,
    test_evaluation: bool,
) -> Counts | None:
    each = _counts_on(federation, clients, part, architecture, weights, test_evaluation)
    if not each:
        return None
    return sum(each.values(), Counts.zero(int(architecture["classes"])))


def _counts_on(
    federation: Federation,
    clients: Sequence[ClientInfo],
    part: Part,
    architecture: dict[str, Any],
    weights: Tensors,
    test_evaluation: bool,
) -> dict[str, Counts]:
    """Each client's counts; empty if nobody has such a part."""
    macs = spaces.cost(architecture).macs
    outputs = int(architecture["classes"])
    payload: Payload = {"architecture": architecture, "weights": weights, "part": part, "batch": TEST_BATCH}
    tasks = [
        Task(
            f"{part}:{info.name}",
            info.name,
            EVALUATE,
            payload,
            macs * info.sizes[part],
            {"confusion": checks.CountArray((outputs, outputs), info.sizes[part]), "loss": checks.Number(0.0)},
            test_evaluation,
        )
        for info in clients
        if info.sizes[part] > 0
    ]
    each, errors = {}, []
    for reply in federation.map(tasks):
        if reply.ok:
            each[reply.task.client] = Counts.from_payload(reply.payload)
        else:
            errors.append(reply.error)
    if tasks and not each:
        raise TooFewReplies(
            f"no client answered with {part} figures ({failure_reasons(errors)})", code="too-few-replies"
        )
    return each


def failure_reasons(errors: Sequence[str | None]) -> str:
    """Errors of replies, the most frequent first, for one line of text."""
    ranked = sorted(Counter(error for error in errors if error).items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{count} x {error}" for error, count in ranked[:2]) or "no replies"


def _evaluate_job(payload: Payload, client: Client) -> Payload:
    x, y = client.data.part(payload["part"])
    module = network(payload["architecture"], client.device)
    return evaluate(module, payload["weights"], x, y, payload["batch"], device=client.device).payload()


def _calibrate_job(payload: Payload, client: Client) -> Payload:
    x, _ = client.data.part(payload["part"])
    statistics = []
    for architecture in payload["architectures"]:
        module = network(architecture, client.device)
        weights = payload["weights"].slice([name for name, _ in module.named_parameters()])
        statistics.append(calibrate(module, weights, x, payload["batch"], device=client.device))
    return {"statistics": statistics}


JOBS = {"evaluate": _evaluate_job, "calibrate": _calibrate_job}
