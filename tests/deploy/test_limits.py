"""Trap tasks are refused before anything is computed; honest ones are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from atoll.core.messages import Payload, Tensors
from atoll.deploy.limits import Limits

ARCHITECTURE = {"space": "fixed", "model": "mlp", "input": [4], "classes": 2, "hidden": [3]}  # 15 + 8 weights
TRAIN, EVALUATE = "atoll.methods.fedavg:train", "atoll.methods.measure:evaluate"


def task(**changed: Any) -> Payload:
    weights = Tensors({"w": np.zeros((5, 4), np.float32)})
    return {"architecture": ARCHITECTURE, "weights": weights, "epochs": 2, "batch": 10, "lr": 0.1} | changed


def test_an_honest_task() -> None:
    assert Limits().check("fedavg", TRAIN, task(), rows=100) is None
    assert Limits().check("fedavg", EVALUATE, {"architecture": ARCHITECTURE, "part": "test", "batch": 100}, 100) is None


def test_steps_are_counted_by_hand() -> None:
    """Two epochs of 95 rows in batches of 10: 20 steps."""
    assert Limits(steps=20).check("fedavg", TRAIN, task(), rows=95) is None
    assert Limits(steps=19).check("fedavg", TRAIN, task(), rows=95) == "20 training steps, limits.steps allows 19"


def test_parameters_are_counted_by_hand() -> None:
    """The tensors have 20 weights, the network 4 x 3 + 3 + 3 x 2 + 2 = 23."""
    assert Limits(parameters=23).check("fedavg", TRAIN, task(), 10) is None
    assert "a network of 23 weights" in str(Limits(parameters=22).check("fedavg", TRAIN, task(), 10))
    assert "20 weights" in str(Limits(parameters=19).check("fedavg", TRAIN, task(), 10))


def test_memory_is_counted_by_hand() -> None:
    """80 bytes of tensors; 23 weights of 4 bytes in four copies: 368."""
    assert Limits(memory=368).check("fedavg", TRAIN, task(), 10) is None
    assert "takes 368 bytes" in str(Limits(memory=367).check("fedavg", TRAIN, task(), 10))
    assert "80 bytes of tensors" in str(Limits(memory=79).check("fedavg", TRAIN, task(), 10))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"batch": 1}, "a batch of 1"),
        ({"batch": 0}, "a batch of 0"),
        ({"batch": None}, "a batch of None"),
        ({"batch": "ten"}, "a batch of ten"),
        ({"epochs": 10**9}, "training steps"),
        ({"epochs": 10**400}, "training steps"),
        ({"epochs": -1}, "epochs"),
        ({"epochs": 1.5}, "epochs"),
        ({"epochs": True}, "epochs"),
        ({"generations": 10**9}, "training steps"),
        ({"weights": Tensors({"w": np.array([np.nan], np.float32)})}, "NaN"),
        ({"weights": Tensors({"w": np.array([np.inf], np.float64)})}, "NaN"),
        ({"guests": [np.array([-np.inf])]}, "NaN"),
        ({"architecture": {**ARCHITECTURE, "hidden": [10**6, 10**6]}}, "limits.parameters"),
        ({"architecture": {**ARCHITECTURE, "space": "unheard"}}, "unknown space"),
        ({"architecture": {**ARCHITECTURE, "hidden": "wide"}}, "cannot be read"),
        ({"architecture": {"space": "fixed", "junk": "x" * 2_000_000}}, "characters"),
    ],
)
def test_traps(changed: dict[str, Any], words: str) -> None:
    reason = Limits().check("fedavg", TRAIN, task(**changed), rows=100)
    assert reason is not None and words in reason and "\n" not in reason and len(reason) < 400


def test_a_population_counts_as_steps() -> None:
    told = Tensors({"settings": np.frombuffer(b'{"settings": {"population": 50}, "reading": {}}', np.uint8)})
    payload = {"told": told, "generations": 4}
    assert Limits(steps=200).check("nevofed", "atoll.methods.nevofed:update", payload, 9) is None
    assert "200 training steps" in str(Limits(steps=199).check("nevofed", "atoll.methods.nevofed:update", payload, 9))


@pytest.mark.parametrize(
    "job", ["os:system", "subprocess:run", "atoll.store.files:replace_file", "", "x", "atoll.methodsx:y"]
)
def test_jobs_of_strangers_are_refused(job: str) -> None:
    assert "none of Atoll's" in str(Limits().check("fedavg", job, {}, 10))


def test_own_jobs_can_be_allowed() -> None:
    assert Limits(jobs=("hospital.methods",)).check("mine", "hospital.methods:train", {}, 10) is None


def test_methods_are_a_list_of_what_is_allowed() -> None:
    some = Limits(methods=("fedavg", "realtime"))
    assert some.check_method("fedavg") is None
    assert some.check_method("moefl") == "method 'moefl' is not allowed here (allowed: fedavg, realtime)"
    assert Limits(methods=()).check_method("fedavg") == "method 'fedavg' is not allowed here (allowed: none)"
    assert some.check("realtime", "atoll.methods.choice_search:train", {}, 10) is None, "shared by several methods"
    assert some.check("fedavg", EVALUATE, {}, 10) is None
    # A server that calls its run by an allowed name cannot smuggle another method's jobs in.
    assert "nevofed" in str(some.check("fedavg", "atoll.methods.nevofed:update", {}, 10))
