"""What tasks release under `[privacy]`: rates, steps and sensitivities, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from atoll import spaces
from atoll.clients import jobs
from atoll.clients.coverage import Coverage, Noise
from atoll.core.checks import Count, CountArray
from atoll.core.messages import Array, Part, Payload, Task, Tensors
from atoll.errors import ConfigError
from atoll.methods.decnas.clients import CONFIRM, TUNE, UPLOAD
from atoll.methods.fednas import SEARCH
from atoll.privacy.accountant import Release
from atoll.rng import stream
from atoll.spaces.darts import space as darts
from atoll.testing import made_table
from atoll.training.client import Client
from atoll.training.sgd import TrainSettings
from refusals import refused

DATA = made_table(clients=2, rows=60, scale="none", split=(0.7, 0.3, 0.0))
INFO = DATA.info("client-00")
ARCH: dict[str, Any] = {"space": "choice", "input": [6], "classes": 3, "widths": [4, 4], "norm": "group"}
NOISE = Noise(clip=0.5, gradients=1.5, counts=4.0)
KEYS = [[0, 1], [1, 2], [2, 3], [3, 3]]


def covered(job: str, **payload: Any) -> tuple[Task, list[Release]]:
    task = Task("t", INFO.name, job, {"architecture": ARCH, **payload}, returns={"correct": None, "before": None})
    return Coverage(NOISE, {INFO.name: INFO}).cover(task)


def test_training() -> None:
    task, releases = covered(jobs.TRAIN, epochs=3, batch=10)
    assert INFO.sizes["train"] == 42
    assert releases == [Release("train", 1.5, 10 / 42, 15)]
    assert task.payload["privacy"] == {"clip": 0.5, "noise": 1.5, "rate": 10 / 42, "steps": 15}
    odd = {"epochs": 3, "batch": 41}  # one row is left over: it joins the batch before it, as in plain training
    assert covered(jobs.TRAIN, **odd)[1] == [Release("train", 1.5, 41 / 42, 3)]
    weights = {"weight": np.zeros(1, np.float32)}
    assert TrainSettings(**odd, lr=0.5, clip=2.0).longest_update(42, weights) == pytest.approx(3 * 0.5 * 2.0)
    _, both = covered(jobs.TRAIN, epochs=1, batch=100, with_validation=True)
    assert both == [Release("train", 1.5, 1.0, 1), Release("validation", 1.5, 1.0, 1)]


def test_training_that_measures_first() -> None:
    """Both are charged."""
    sent, releases = covered(jobs.TRAIN, epochs=3, batch=10, before={"validation": "evaluate"})
    assert releases == [Release("train", 1.5, 10 / 42, 15), Release("validation", 4.0)]
    assert sent.returns["before"] == {"validation": {"confusion": CountArray((1, 2), 18)}}
    assert sent.payload["privacy"]["counts"] == 4.0 and sent.payload["privacy"]["steps"] == 15
    with pytest.raises(ConfigError, match="test rows"):
        covered(jobs.TRAIN, epochs=1, batch=10, report={"test": "evaluate"})
    with pytest.raises(ConfigError, match="statistics"):
        covered(jobs.TRAIN, epochs=1, batch=10, kept={"of": "m1", "keys": KEYS})


def test_counts() -> None:
    task, releases = covered(jobs.COUNT_CORRECT, part="validation")
    assert task.payload["privacy"] == {"counts": 4.0} and releases == [Release("validation", 4.0)]
    task, releases = covered(jobs.COUNT_CORRECT, part="validation", keys=KEYS)
    assert task.payload["privacy"] == {"counts": 4.0} and releases == [Release("validation", 4.0)]
    task, _ = covered(jobs.EVALUATE, part="validation")
    assert task.returns == {"confusion": CountArray((1, 2), 18)}


def test_delivered_networks_are_counted_on_test_rows() -> None:
    """All of them in one reply: a row changes each count by 1 at most. Training rows are not counted."""
    models = [{"architecture": ARCH, "weights": None, "statistics": None}] * 3
    tested = Coverage(NOISE, {INFO.name: replace(INFO, sizes={"train": 30, "validation": 18, "test": 12})})
    task = Task("t", INFO.name, jobs.EVALUATE_DELIVERED, {"models": models, "part": "test"})
    sent, releases = tested.cover(task)
    assert releases == [Release("test", 4.0)] and sent.payload["privacy"] == {"counts": 4.0}
    assert sent.returns == {"confusions": [CountArray((1, 2), 12)] * 3}
    with refused(ConfigError, "privacy-not-covered", "counts of train rows"):
        tested.cover(replace(task, payload={"models": models, "part": "train"}))
    with refused(ConfigError, "privacy-batch-norm"):
        batch = [{"architecture": {**ARCH, "norm": "batch"}}]
        tested.cover(replace(task, payload={"models": batch, "part": "test"}))


def test_a_candidate_is_trained_and_counted_in_one_task() -> None:
    """And the network before it, if it is asked for: two counts, and two trainings where both are trained."""
    training = {"epochs": 2, "batch": 10, "steps": 7}
    before = {"architecture": ARCH}
    task, releases = covered(TUNE, training=training, measure="paper", previous=before)
    assert releases == [Release("train", 1.5, 10 / 42, 7), Release("validation", 4.0)]
    assert task.payload["privacy"]["counts"] == 4.0
    _, both = covered(TUNE, training=training, measure="trained", previous=before)
    assert both[0] == Release("train", 1.5, 10 / 42, 14)
    _, counted = covered(TUNE, training={**training, "epochs": 0}, measure="paper")
    assert counted == [Release("validation", 4.0)]
    assert covered(UPLOAD, wanted=["unit"])[1] == []


def test_gradients_and_their_reward() -> None:
    """One step, or those of local epochs; the reward counts the validation rows, which is charged and costs."""
    task, releases = covered(jobs.GRADIENT, epochs=0, batch=10)
    assert releases == [Release("train", 1.5, 10 / 42, 1), Release("validation", 4.0)]
    assert task.returns["correct"] == Count(18)
    assert task.macs == 18 * spaces.cost(ARCH).macs
    assert covered(jobs.GRADIENT, epochs=2, batch=10)[1][0] == Release("train", 1.5, 10 / 42, 10)


def test_a_search_by_gradient_also_charges_its_alphas() -> None:
    """A step of alphas on validation rows goes with every step of weights."""
    supernet = darts.supernet([1, 8, 8], 3, channels=2, cells=1, norm="group")
    task, releases = covered(SEARCH, architecture=supernet, epochs=1, batch=6)
    assert task.payload["privacy"]["alphas"] == {"noise": 4.0, "rate": 6 / 18}
    assert releases == [
        Release("train", 1.5, 6 / 42, 7),
        Release("validation", 4.0, 6 / 18, 7),
        Release("validation", 4.0),
    ]


@pytest.mark.parametrize(
    ("job", "payload"),
    [
        (CONFIRM, {}),
        (jobs.CALIBRATE, {"part": "train"}),
        (jobs.GRADIENT, {"epochs": 0, "batch": 10, "confusion": True}),
        ("elsewhere:train", {}),
        (jobs.COUNT_CORRECT, {"part": "validation", "confusion": True}),
        (jobs.TRAIN, {"epochs": 1, "batch": 10, "client_accuracy": True}),
        (jobs.TRAIN, {"epochs": 1, "batch": 10, "report": {"test": "evaluate"}}),
    ],
)
def test_everything_else_is_refused(job: str, payload: Payload) -> None:
    with pytest.raises(ConfigError, match=r"\[privacy\]: .* not covered"):
        covered(job, **payload)


def test_batch_norm_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch norm"):
        covered(jobs.TRAIN, architecture={**ARCH, "norm": "batch"}, epochs=1, batch=10)


class Rows:
    """Data whose validation rows are given."""

    def __init__(self, x: Array, y: Array) -> None:
        self.x, self.y, self.schema = x, y, INFO.schema

    def part(self, part: Part, /) -> tuple[Array, Array]:
        return self.x, self.y


def exact(x: Array, y: Array, **payload: Any) -> Array:
    """The counts before noise."""
    weights = spaces.initial(ARCH, stream(1, "start"))
    whole = {"architecture": ARCH, "weights": weights, "part": "validation", "batch": 4}
    client = Client(Rows(x, y), {}, stream(1, "rng"), noise=stream(1, "noise"))
    given = {**whole, **payload, "privacy": {"counts": 1e-9}}
    return np.atleast_1d(jobs.count_correct(given, client)["correct"])


def test_no_row_changes_counts_of_delivered_networks_by_more_than_the_sensitivity() -> None:
    """Brute force, for three networks in one reply."""
    rng = stream(3, "rows")
    x, y = rng.standard_normal((9, 6)).astype(np.float32), rng.integers(3, size=9)
    starts = [spaces.initial({**ARCH, "key": key}, stream(1, "s")) for key in ([0, 1], [1, 2], [3, 3])]
    models = [
        {"architecture": {**ARCH, "key": key}, "weights": start, "statistics": Tensors({})}
        for key, start in zip(([0, 1], [1, 2], [3, 3]), starts, strict=True)
    ]
    payload = {"models": models, "part": "test", "batch": 4, "privacy": {"counts": 1e-9}}

    def counted(x: Array, y: Array) -> Array:
        found = jobs.evaluate_delivered(payload, Client(Rows(x, y), {}, stream(1, "r"), noise=stream(1, "n")))
        assert all(int(one.sum()) == len(y) and one.shape == (1, 2) for one in found["confusions"])
        return np.array([one[0, 0] for one in found["confusions"]])

    for place in range(9):
        others = np.arange(9) != place
        for scale in (1.0, np.inf):
            changed = x.copy()
            changed[place] *= scale
            assert np.linalg.norm(counted(changed, y) - counted(changed[others], y[others])) <= math.sqrt(3)


@pytest.mark.parametrize("payload", [{"keys": KEYS}, {"architecture": {**ARCH, "key": [1, 2]}}], ids=["keys", "one"])
def test_no_row_changes_counts_by_more_than_the_sensitivity(payload: Payload) -> None:
    """Brute force: each row is replaced by an empty one, whatever it holds; one that is not finite spoils no other."""
    rng = stream(2, "rows")
    x, y = rng.standard_normal((9, 6)).astype(np.float32), rng.integers(3, size=9)
    if "keys" not in payload:
        weights = spaces.initial(ARCH, stream(1, "start"))
        payload = {**payload, "weights": weights.slice(list(spaces.initial(payload["architecture"], rng)))}
    networks = len(payload.get("keys", [None]))
    for place in range(9):
        others = np.arange(9) != place
        for scale in (1.0, 1e30, np.inf):
            changed = x.copy()
            changed[place] *= scale
            difference = exact(changed, y, **payload) - exact(changed[others], y[others], **payload)
            assert np.linalg.norm(difference) <= math.sqrt(networks)


def test_a_client_without_a_source_of_noise_sends_nothing() -> None:
    """As at a real site."""
    x, y = np.zeros((4, 6), np.float32), np.zeros(4, np.int64)
    weights = spaces.initial(ARCH, stream(1, "start"))
    payload = {"architecture": ARCH, "weights": weights, "keys": KEYS, "part": "validation", "batch": 4}
    payload["privacy"] = {"counts": 1.0}
    client = replace(Client(Rows(x, y), {}, stream(1, "rng")), noise=None)
    with pytest.raises(ValueError, match="no source of noise"):
        jobs.count_correct(payload, client)
