"""A toy with many trials: a fifth of the clients lies about every network, three in ten do not answer.

Fifty clients measure five networks, whose errors are 10, 20, 30, 40 and 50 %, on 50 rows each; their own errors differ
from these by 5 points (standard deviation). Liars count every row of the worst network as right and none of the best.
"""

from __future__ import annotations

import numpy as np
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


def winners(trial: int, lying: bool) -> dict[str, int]:
    """The network of the lowest error, by the mean over all rows and by the median of the clients' own errors. Honest
    answers are the same with and without liars."""
    rng = stream(trial, "liars")
    names = [f"client-{number:02d}" for number in range(CLIENTS)]
    drawn = set(rng.choice(names, int(LIARS * CLIENTS), replace=False).tolist())
    silent = set(rng.choice(names, int(SILENT * CLIENTS), replace=False).tolist())
    liars = drawn if lying else set()
    own = np.clip(np.array(ERRORS) + SPREAD * rng.standard_normal((CLIENTS, len(ERRORS))), 0, 1)
    honest = rng.binomial(ROWS, 1 - own)

    def answer(task: Task) -> Payload:
        number = int(task.id.split(":")[1])
        if task.client in silent:
            raise ValueError("no answer")
        if task.client in liars and number in (0, len(ERRORS) - 1):
            return {"correct": ROWS if number else 0}
        return {"correct": int(honest[names.index(task.client), number])}

    federation = ScriptedFederation(names, answer, SCHEMA, rows=ROWS)
    federation.robust = RobustSettings(fitness="median")
    federation.begin(1)
    counts = list(count_correct(federation, MODELS, federation.clients(), "validation").values())
    errors = {"mean": [1 - one.correct / one.rows for one in counts], "median": [one.error() for one in counts]}
    return {fitness: found.index(min(found)) for fitness, found in errors.items()}


def trials(number: int) -> dict[str, dict[str, float]]:
    """For both kinds of fitness, the share of trials in which liars change the winner, and make the worst one win."""
    pairs = [(winners(trial, False), winners(trial, True)) for trial in range(number)]
    return {
        fitness: {
            "changed": sum(before[fitness] != after[fitness] for before, after in pairs) / number,
            "worst": sum(after[fitness] == len(ERRORS) - 1 for _, after in pairs) / number,
        }
        for fitness in ("mean", "median")
    }


def test_a_few_trials() -> None:
    found = trials(10)
    assert found["median"] == {"changed": 0.0, "worst": 0.0} and found["mean"]["changed"] > 0.5


@pytest.mark.soak
def test_four_hundred_trials() -> None:
    found = trials(400)
    print(found)
    assert found["median"]["changed"] <= 0.01 and found["median"]["worst"] <= 0.01
