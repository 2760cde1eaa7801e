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
from atoll.spaces.choice import plan
from atoll.spaces.choice import space as choice
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


def test_fedprox_by_hand() -> None:
    """Logistic regression, two steps on all rows: the term has no gradient in the first one, and pulls back by mu times
    what that has moved in the second."""
    arch = {**ARCH, "hidden": []}
    start = spaces.initial(arch, stream(1, "start"))
    payload: Payload = {"architecture": arch, "weights": start, "epochs": 2, "batch": 1000, "lr": 0.5, "prox": 0.8}
    found = jobs.train(payload, Client(DATA.client(NAME), {}, stream(1, "client")))["weights"]
    x, y = DATA.client(NAME).part("train")
    first = [start[name].astype(np.float64) for name in ("layers.0.weight", "layers.0.bias")]
    weights = [array.copy() for array in first]
    for _ in range(2):
        logits = x @ weights[0].T + weights[1]
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        error = (shares - np.eye(3)[y]) / len(y)
        gradients = [error.T @ x, error.sum(axis=0)]
        weights = [
            now - 0.5 * (gradient + 0.8 * (now - old))
            for now, gradient, old in zip(weights, gradients, first, strict=True)
        ]
    np.testing.assert_allclose(found["layers.0.weight"], weights[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["layers.0.bias"], weights[1], rtol=1e-5, atol=1e-6)


def moved(weights: Tensors) -> float:
    return float(sum(np.square(weights[name] - WEIGHTS[name]).sum() for name in WEIGHTS))


def test_test_rows_counted_along_with_another_task_are_the_same_counts() -> None:
    """To the bit: of networks while another is trained, and of slices of a master while they are calibrated."""
    client = Client(DATA.client(NAME), {}, stream(1, "client"))
    master = plan.architecture_for(DATA.schema, None, [4, 4, 4], None, 6, "batch")
    weights, keys = spaces.initial(master, stream(1, "start")), [[0, 1, 2], [3, 2, 1], [0, 1, 3]]
    common: Payload = {"architecture": master, "weights": weights, "batch": jobs.TEST_BATCH}
    alone = jobs.count_correct({**common, "keys": keys, "part": "test"}, client)["correct"]
    parts = [choice.sub_model(master, key) for key in (keys[2], keys[0])]
    networks = [{"architecture": arch, "weights": weights.slice(choice.names(arch))} for arch in parts]
    training: Payload = {**common, "key": keys[1], "epochs": 1, "batch": 4, "lr": 0.1}
    plain = jobs.train(training, Client(DATA.client(NAME), {}, stream(1, "client")))
    found = jobs.train(
        training | {"report": {"networks": networks}}, Client(DATA.client(NAME), {}, stream(1, "client"))
    )
    assert found["report"]["networks"].tolist() == [alone[2], alone[0]]
    assert found["weights"].whole_digest() == plain["weights"].whole_digest()
    slices = {"architectures": [choice.sub_model(master, key) for key in keys], "weights": weights}
    calibrated = jobs.calibrate({**slices, "batch": jobs.TEST_BATCH, "part": "train", "report": {"test": True}}, client)
    assert calibrated["report"]["test"]["correct"].tolist() == alone.tolist()

    one = {"architecture": ARCH, "weights": WEIGHTS, "batch": 7}
    tested = jobs.count_correct({**one, "part": "test"}, client)
    both = jobs.count_correct({**one, "part": "validation", "statistics": True, "report": {"test": True}}, client)
    assert both["report"] == {"test": tested} and {"correct", "statistics"} < set(both)


def test_statistics_are_kept_until_the_next_measurement_and_only_fetched_from_their_own() -> None:
    client = Client(DATA.client(NAME), {}, stream(1, "client"))
    master = plan.architecture_for(DATA.schema, None, [4, 4], None, 6, "batch")
    weights, keys = spaces.initial(master, stream(1, "start")), [[0, 1], [3, 2]]
    measuring: Payload = {"architecture": master, "weights": weights, "batch": 100, "part": "validation", "keys": keys}
    assert set(jobs.count_correct({**measuring, "keep": "m1"}, client)) == {"correct"}
    rows = len(DATA.client(NAME).part("validation")[1])

    def counts(measurement: str, key: list[int]) -> set[float]:
        (own,) = jobs.fetch({"architecture": master, "kept": {"of": measurement, "keys": [key]}}, client)["statistics"]
        return {float(array[0]) for name, array in own.items() if name.endswith(".count")}

    assert counts("m1", [3, 2]) == {rows}
    assert counts("m2", [3, 2]) == counts("m1", [1, 1]) == {0.0}, (
        "of another measurement, or of a key that was not in it"
    )
    jobs.count_correct(measuring, client)
    assert counts("m1", [3, 2]) == {rows}, "a measurement that says nothing of it"
    jobs.count_correct({**measuring, "keep": ""}, client)
    assert client.memory == {} and counts("m1", [3, 2]) == {0.0}


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
