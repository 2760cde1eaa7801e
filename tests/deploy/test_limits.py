"""Trap tasks are refused before anything is computed; honest ones are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from atoll.core.messages import Payload, TaskSize, Tensors
from atoll.deploy.limits import Limits

ARCHITECTURE = {"space": "fixed", "model": "mlp", "input": [4], "classes": 2, "hidden": [3]}  # 15 + 8 weights
TRAIN, EVALUATE = "atoll.methods.fedavg:train", "atoll.clients.jobs:evaluate"


def task(**changed: Any) -> Payload:
    weights = Tensors({"w": np.zeros((5, 4), np.float32)})
    return {"architecture": ARCHITECTURE, "weights": weights, "epochs": 2, "batch": 10, "lr": 0.1} | changed


def check(limits: Limits, job: str, payload: Payload, rows: int, method: str = "fedavg", **size: int) -> str | None:
    return limits.check(method, job, payload, TaskSize(**size), rows)


def test_an_honest_task() -> None:
    assert check(Limits(), TRAIN, task(), 100) is None
    assert check(Limits(), EVALUATE, {"architecture": ARCHITECTURE, "part": "test", "batch": 100}, 100) is None


def test_steps_are_counted_by_hand() -> None:
    """Two epochs of 95 rows in batches of 10: 20 steps."""
    assert check(Limits(steps=20), TRAIN, task(), 95) is None
    assert check(Limits(steps=19), TRAIN, task(), 95) == "20 training steps, limits.steps allows 19"


def test_parameters_are_counted_by_hand() -> None:
    """The tensors have 20 weights, the network 4 x 3 + 3 + 3 x 2 + 2 = 23."""
    assert check(Limits(parameters=23), TRAIN, task(), 10) is None
    assert "a network of 23 weights" in str(check(Limits(parameters=22), TRAIN, task(), 10))
    assert "20 weights" in str(check(Limits(parameters=19), TRAIN, task(), 10))


def test_memory_is_counted_by_hand() -> None:
    """80 bytes of tensors; 23 weights of 4 bytes in four copies: 368."""
    assert check(Limits(memory=368), TRAIN, task(), 10) is None
    assert "takes 368 bytes" in str(check(Limits(memory=367), TRAIN, task(), 10))
    assert "80 bytes of tensors" in str(check(Limits(memory=79), TRAIN, task(), 10))


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
        ({"architecture": {**ARCHITECTURE, "space": "unheard"}}, "unheard"),
        ({"architecture": {**ARCHITECTURE, "hidden": "wide"}}, "cannot be read"),
        ({"architecture": {"space": "fixed", "junk": "x" * 2_000_000}}, "characters"),
    ],
)
def test_traps(changed: dict[str, Any], words: str) -> None:
    reason = check(Limits(), TRAIN, task(**changed), 100)
    assert reason is not None and words in reason and "\n" not in reason and len(reason) < 400


UPDATE = "atoll.methods.nevofed.clients:update"


def test_a_declared_population_counts_for_each_step() -> None:
    """Four generations of 50 genomes: 200 steps. The payload's own generations are counted where less is declared."""
    for declared in ({"steps": 4, "population": 50}, {"population": 50}, {"steps": 1, "population": 50}):
        assert check(Limits(steps=200), UPDATE, {"generations": 4}, 9, "nevofed", **declared) is None
        assert "200 training steps" in str(
            check(Limits(steps=199), UPDATE, {"generations": 4}, 9, "nevofed", **declared)
        )


def test_what_is_declared_is_checked_and_cannot_hide_what_is_there() -> None:
    for name in ("steps", "parameters", "memory"):
        assert f"limits.{name}" in str(check(Limits(), TRAIN, task(), 10, **{name: 10**12}))
    little = {"steps": 1, "parameters": 1, "memory": 1}
    assert "20 training steps" in str(check(Limits(steps=19), TRAIN, task(), 95, **little))
    assert "23 weights" in str(check(Limits(parameters=22), TRAIN, task(), 10, **little))


@pytest.mark.parametrize(
    "job", ["os:system", "subprocess:run", "atoll.store.files:replace_file", "", "x", "atoll.methodsx:y"]
)
def test_jobs_of_strangers_are_refused(job: str) -> None:
    reason = str(check(Limits(), job, {}, 10))
    assert f"job '{job}'" in reason and "limits.jobs" in reason


def test_own_jobs_can_be_allowed() -> None:
    assert check(Limits(jobs=("hospital.methods",)), "hospital.methods:train", {}, 10, "mine") is None
    assert check(Limits(methods=(), jobs=("hospital.methods",)), "hospital.methods:train", {}, 10, "mine") is not None


def test_methods_are_a_list_of_what_is_allowed() -> None:
    some = Limits(methods=("fedavg", "realtime"))
    assert some.check_method("fedavg") is None
    refusal = str(some.check_method("moefl"))
    assert "'moefl'" in refusal and "limits.methods" in refusal and "fedavg, realtime" in refusal
    assert "none" in str(Limits(methods=()).check_method("fedavg"))


@pytest.mark.parametrize(
    ("methods", "job", "allowed"),
    [
        (("fedavg",), "atoll.methods.fedavg:train", True),
        (("fedavg",), "atoll.clients.jobs:train", True),
        (("fedavg",), "atoll.clientsx:train", False),
        (("fedavg",), "atoll.methods.nevofed.clients:update", False),
        (("fedavg",), "atoll.methods.decnas.clients:tune", False),
        (("fedavg",), "atoll.methods.choice_search:train", False),
        (("fedavg",), "atoll.methods.fedavg_other:train", False),
        (("fedavg", "unheard_of"), "atoll.methods.unheard_of:train", False),
        (("central",), "atoll.methods.fedavg:train", True),  # a subclass of FedAvg
        (("decnas",), "atoll.methods.decnas.clients:tune", True),
        (("netadapt",), "atoll.methods.decnas.clients:tune", True),
        (("realtime",), "atoll.methods.choice_search:train", True),
        (("offline",), "atoll.methods.choice_search:train", True),
        (("offline",), "atoll.methods.realtime:train", False),
        ((), "atoll.methods.fedavg:train", False),
    ],
)
def test_a_job_belongs_to_the_methods_that_use_it(methods: tuple[str, ...], job: str, allowed: bool) -> None:
    """A server that calls its run by an allowed name cannot run another method's jobs."""
    reason = check(Limits(methods=methods), job, {}, 10, methods[0] if methods else "fedavg")
    assert (reason is None) is allowed
    assert reason is None or not methods or (f"'{job}'" in reason and "limits.jobs" in reason)


@pytest.mark.parametrize(
    "hidden",
    [
        {"training": {"epochs": 10**9, "batch": 10}},
        {"a": [{"b": {"training": {"generations": 10**9}}}]},
        {"settings": {"population": 10**9}},
        {"training": {"epochs": 1, "batch": 1}},
        {"training": {"epochs": -1, "batch": 10}},
    ],
)
def test_settings_inside_of_other_tables_are_found(hidden: dict[str, Any]) -> None:
    assert check(Limits(), TRAIN, task(), 95) is None
    assert check(Limits(), TRAIN, task() | hidden, 95) is not None
    assert check(Limits(), TRAIN, task() | {"training": {"epochs": 1, "batch": 10}}, 95) is None
