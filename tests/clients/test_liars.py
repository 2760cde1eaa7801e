"""A toy with many trials: a fifth of the clients lies about every network, three in ten do not answer.

Fifty clients measure five networks, whose errors are 10, 20, 30, 40 and 50 %, on 50 rows each; their own errors differ
from these by 5 points (standard deviation). Liars count every row of the worst network as right and none of the best.
"""

from __future__ import annotations

import pytest

from atoll import spaces
from atoll.clients import FederatedModel, count_correct
from atoll.core.messages import Payload, Schema, Task
from atoll.federation.trust import RobustSettings
from atoll.rng import stream
from atoll.testing import ScriptedFederation

ERRORS = (0.1, 0.2, 0.3, 0.4, 0.5)
CLIENTS, ROWS, LIARS, SILENT, SPREAD = 50, 50, 0.2, 0.3, 0.05
SCHEMA = Schema("table", (2,), ("a", "b"))
ARCH = {"space": "fixed", "model": "mlp", "input": [2], "classes": 2, "hidden": []}
MODELS = [FederatedModel(str(n), ARCH, spaces.initial(ARCH, stream(1, n))) for n in range(len(ERRORS))]


def winner(trial: int, fitness: str, lying: bool) -> int:
    """The network of the lowest error. Honest answers are the same with and without liars."""
    rng = stream(trial, "liars")
    names = [f"client-{number:02d}" for number in range(CLIENTS)]
    liars = set(rng.choice(names, int(LIARS * CLIENTS), replace=False).tolist()) if lying else set()
    silent = {name for name in names if stream(trial, "silent", name).random() < SILENT}

    def answer(task: Task) -> Payload:
        number = int(task.id.split(":")[1])
        if task.client in silent:
            raise ValueError("no answer")
        if task.client in liars and number in (0, len(ERRORS) - 1):
            return {"correct": ROWS if number else 0}
        own = stream(trial, "counts", task.client, number)
        error = min(1.0, max(0.0, ERRORS[number] + SPREAD * float(own.standard_normal())))
        return {"correct": int(own.binomial(ROWS, 1 - error))}

    federation = ScriptedFederation(names, answer, SCHEMA, rows=ROWS)
    federation.robust = RobustSettings.model_validate({"fitness": fitness})
    federation.begin(1)
    counts = count_correct(federation, MODELS, federation.clients(), "validation")
    return min(range(len(MODELS)), key=lambda number: counts[str(number)].error())


def trials(number: int) -> dict[str, dict[str, float]]:
    """For both kinds of fitness, the share of trials in which liars change the winner, and make the worst one win."""
    found = {}
    for fitness in ("mean", "median"):
        pairs = [(winner(trial, fitness, False), winner(trial, fitness, True)) for trial in range(number)]
        found[fitness] = {
            "changed": sum(before != after for before, after in pairs) / number,
            "worst": sum(after == len(ERRORS) - 1 for _, after in pairs) / number,
        }
    return found


def test_a_few_trials() -> None:
    found = trials(10)
    assert found["median"] == {"changed": 0.0, "worst": 0.0} and found["mean"]["changed"] > 0.5


@pytest.mark.soak
def test_four_hundred_trials() -> None:
    found = trials(400)
    print(found)
    assert found["median"]["changed"] <= 0.01 and found["median"]["worst"] <= 0.01
