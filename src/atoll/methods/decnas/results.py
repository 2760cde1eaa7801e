"""What federated NetAdapt found: the sequence of networks, measured and ready for use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atoll import spaces
from atoll.algorithms import nsga2
from atoll.clients import (
    FederatedModel,
    calibrated,
    calibrated_each,
    count_correct,
    count_tests,
    evaluate_test,
    metrics_of,
)
from atoll.methods.base import Candidate, ClientInfo, Federation, Metrics, Tensors
from atoll.training import calibration

FoundNetwork = Mapping[str, Any]  # architecture, weights, about


def found_candidates(
    federation: Federation,
    found: Sequence[FoundNetwork],
    resources: Callable[[dict[str, Any]], dict[str, float]],
    ended: str,
    rounds: int,
) -> list[Candidate]:
    """GM_0 to GM_T as m0 to mT, measured and calibrated on all clients. Picks: `final`, `high`, `knee`.

    `ended` is the reason why the search is over; empty if its number of `rounds` cut it short.
    """
    everyone = federation.clients()
    models = [
        FederatedModel(f"m{number}", model["architecture"], model["weights"]) for number, model in enumerate(found)
    ]
    validation = count_correct(federation, models, everyone, "validation", tested=True)
    test = count_tests(federation, models, {name: counts.test for name, counts in validation.items()})
    rows = []
    for one in models:
        cost = spaces.cost(one.architecture)
        counts = {"error": validation[one.name], "test_error": test[one.name]}
        objectives = {name: found.error() for name, found in counts.items() if found.rows}
        objectives.setdefault("error", objectives.get("test_error", 1.0))
        objectives |= {"macs": cost.macs, "params": cost.params, "upload_bytes": cost.bytes}
        rows.append(objectives | resources(one.architecture))
    values = [[row["error"], row["macs"]] for row in rows]
    picks: list[list[str]] = [[] for _ in rows]
    for pick, place in (("final", len(rows) - 1), ("high", nsga2.high(values)), ("knee", nsga2.knee(values))):
        picks[place].append(pick)
    statistics = calibrated_each(federation, [(one.architecture, one.weights, everyone) for one in models])
    return [
        Candidate(
            one.name,
            one.architecture,
            row,
            names,
            one.weights,
            own,
            about=dict(model["about"]) | (_ending(ended, len(found), rounds) if "final" in names else {}),
        )
        for one, row, names, model, own in zip(models, rows, picks, found, statistics, strict=True)
    ]


def _ending(ended: str, networks: int, rounds: int) -> dict[str, str]:
    """Why the sequence has no further network, for the reader of the result."""
    why = ended or f"{rounds} rounds were too few"
    if networks == 1:
        stopped = f"the search stopped before its first step ({why}), so 'final' is the start network"
    else:
        stopped = "" if ended else f"the search stopped before the final budget was met ({why})"
    return {key: text for key, text in (("ended", ended), ("stopped", stopped)) if text}


def ready(federation: Federation, clients: Sequence[ClientInfo], model: FoundNetwork) -> Tensors:
    """Fixed batch norm statistics from these clients' training rows; none for a network without batch norm."""
    if not calibration.statistics_form(model["architecture"]):
        return Tensors({})
    return calibrated(federation, clients, model["architecture"], model["weights"])


def metrics_on_test(federation: Federation, model: FoundNetwork) -> Metrics:
    """The network on test data, for the report only."""
    counts = evaluate_test(federation, model["architecture"], model["weights"])
    return {} if counts is None else metrics_of(counts, "test_")
