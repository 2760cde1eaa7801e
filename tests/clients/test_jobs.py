"""The shared client jobs: the local objective of `train`, and what its tasks cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from atoll import spaces
from atoll.clients import Client, jobs, train_task
from atoll.core.messages import ClientInfo, Payload, Tensors
from atoll.rng import stream
from atoll.testing import made_table
from atoll.training.sgd import Forward, cross_entropy

DATA = made_table()
NAME = DATA.names[0]
ARCH: dict[str, Any] = {
    "space": "fixed",
    "model": "mlp",
    "input": list(DATA.schema.shape),
    "classes": DATA.schema.outputs,
    "hidden": [4],
}
WEIGHTS = spaces.initial(ARCH, stream(1, "start"))


def trained(objective: Any = None, **settings: Any) -> Tensors:
    payload: Payload = {"architecture": ARCH, "weights": WEIGHTS, "epochs": 2, "batch": 8, "lr": 0.1, **settings}
    client = Client(DATA.client(NAME), {}, stream(1, "client"))
    weights: Tensors = jobs.train(payload, client, **({} if objective is None else {"objective": objective}))["weights"]
    return weights


def test_another_local_objective_replaces_the_cross_entropy() -> None:
    """A term of infinite weight on the distance to the start would hold the weights there; a zero term changes none."""
    start = [torch.tensor(array) for array in WEIGHTS.values()]

    def proximal(mu: float) -> Any:
        def objective(forward: Forward, x: Tensor, y: Tensor, parameters: Sequence[nn.Parameter]) -> Tensor:
            distance = sum(((new - old) ** 2).sum() for new, old in zip(parameters, start, strict=True))
            return cross_entropy(forward, x, y, parameters) + mu / 2 * distance

        return objective

    plain, none, strong = trained(), trained(proximal(0.0)), trained(proximal(5.0))
    for name, array in plain.items():
        np.testing.assert_allclose(none[name], array, rtol=1e-4, atol=1e-6)
    assert moved(strong) < 0.7 * moved(plain)


def moved(weights: Tensors) -> float:
    return float(sum(np.square(weights[name] - WEIGHTS[name]).sum() for name in WEIGHTS))


def test_the_standard_objective_by_name_is_the_default_to_the_bit() -> None:
    plain, named = trained(), trained(cross_entropy)
    assert all(np.array_equal(plain[name], named[name]) for name in plain)


@pytest.mark.parametrize(("extra", "passes"), [({}, 6), ({"client_accuracy": True}, 7)])
def test_a_training_pass_counts_three_forward_passes(extra: Payload, passes: int) -> None:
    info = ClientInfo("a", {"train": 10, "validation": 0, "test": 0}, DATA.schema)
    payload: Payload = {"architecture": ARCH, "weights": WEIGHTS, "epochs": 2, "batch": 8, "lr": 0.1, **extra}
    task = train_task(info, payload)
    assert task.macs == passes * 10 * spaces.cost(ARCH).macs and task.job == "atoll.clients.jobs:train"
    assert set(task.returns) == ({"weights", "correct"} if extra else {"weights"})
