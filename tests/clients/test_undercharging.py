"""A malicious server adds settings to tasks: whatever it adds, a client charges at least what it draws."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from atoll import spaces
from atoll.clients import jobs
from atoll.clients.coverage import releases_of
from atoll.core.messages import Array, Part, Payload, Schema, Tensors
from atoll.federation.executor import find_job
from atoll.methods.decnas.clients import TUNE, UPLOAD
from atoll.methods.fednas import SEARCH
from atoll.privacy.accountant import Release
from atoll.rng import stream
from atoll.spaces.darts import space as darts
from atoll.training import private
from atoll.training.client import Client

ROWS: dict[Part, int] = {"train": 9, "validation": 6, "test": 4}  # all different: rows are known by their number
TABLE: dict[str, Any] = {"space": "fixed", "model": "mlp", "input": [3], "classes": 3, "hidden": [4]}
CHOICE: dict[str, Any] = {"space": "choice", "input": [3], "classes": 3, "widths": [4, 4], "norm": "group"}
SUPERNET = darts.supernet([1, 4, 4], 3, channels=2, cells=1, norm="group")
PRIVACY: Payload = {"clip": 1.0, "noise": 2.0, "rate": 0.25, "steps": 3, "counts": 4.0}


def initial(arch: dict[str, Any]) -> Tensors:
    return spaces.initial(arch, stream(1, "start"))


OWN = {"architecture": TABLE, "weights": initial(TABLE), "privacy": PRIVACY}
TRAINING = {"epochs": 2, "batch": 4, "lr": 0.1}
ALTERNATING = {"momentum": 0.0, "weight_decay": 0.0, "clip": 5.0, "alpha_lr": 0.1, "alpha_decay": 0.0}
TUNED = {**OWN, "round": 1, "candidate": "u", "training": TRAINING, "hold": False, "measure": "trained"}
COUNTED = {"part": "validation", "batch": 4}
TASKS: dict[str, tuple[str, Payload]] = {
    "train": (jobs.TRAIN, {**OWN, **TRAINING}),
    "train, measured before": (jobs.TRAIN, {**OWN, **TRAINING, "before": {"validation": "evaluate"}}),
    "evaluate": (jobs.EVALUATE, {**OWN, **COUNTED}),
    "count": (jobs.COUNT_CORRECT, {**OWN, **COUNTED}),
    "count keys": (
        jobs.COUNT_CORRECT,
        {**OWN, "architecture": CHOICE, "weights": initial(CHOICE), **COUNTED, "keys": [[1, 2], [2, 3], [3, 1]]},
    ),
    "delivered": (
        jobs.EVALUATE_DELIVERED,
        {
            "models": [{"architecture": TABLE, "weights": initial(TABLE), "statistics": Tensors({})}] * 2,
            "part": "test",
            "batch": 4,
            "privacy": PRIVACY,
        },
    ),
    "gradient": (jobs.GRADIENT, {**OWN, **TRAINING, "epochs": 0, "privacy": {**PRIVACY, "steps": 1}}),
    "gradient of epochs": (jobs.GRADIENT, {**OWN, **TRAINING}),
    "search": (
        SEARCH,
        {
            "architecture": SUPERNET,
            "supernet": initial(SUPERNET),
            **TRAINING,
            **ALTERNATING,
            "level": "validation",
            "privacy": {**PRIVACY, "alphas": {"noise": 3.0, "rate": 0.5}},
        },
    ),
    "tune": (TUNE, TUNED),
    "tune two": (TUNE, {**TUNED, "previous": {"architecture": TABLE, "weights": initial(TABLE)}}),
    "tune without training": (TUNE, {**TUNED, "training": {**TRAINING, "epochs": 0}}),
}
ADDED: list[tuple[str, Any]] = [
    ("with_validation", True),
    *(("part", part) for part in ("train", "test")),
    *(("before", {part: job}) for part in ("validation", "test") for job in ("evaluate", "count_correct")),
    ("report", {"test": "evaluate"}),
    ("keys", [[1, 2]] * 5),
    *((name, True) for name in ("client_accuracy", "confusion", "statistics", "hold")),
    *(("steps", value) for value in (1, 7, 2.5, -1, True)),
    *(("epochs", value) for value in (0, -1, 0.5, 9)),
    ("counts", 1),
    ("alphas", {"noise": 9.0, "rate": 0.1, "steps": 1, "clip": 9.0}),
    ("privacy", {**PRIVACY, "noise": 0.5, "counts": 0.5}),
    ("previous", {"architecture": TABLE, "weights": initial(TABLE), "with_validation": True, "epochs": 5}),
    ("measure", "trained"),
    ("counted", 1),
]


class Rows:
    """Made rows of every part; says which parts were looked at."""

    def __init__(self, shape: list[int]) -> None:
        self.schema = Schema("table", tuple(shape), ("a", "b", "c"))
        self.seen: set[Part] = set()

    def part(self, part: Part, /) -> tuple[Array, Array]:
        self.seen.add(part)
        rng = stream(1, part)
        return rng.random((ROWS[part], *self.schema.shape), dtype=np.float32), rng.integers(3, size=ROWS[part])


class Drawn:
    """What really has noise: the steps by part, noise and rate, and the inverse squared noise of counts by part."""

    def __init__(self) -> None:
        self.steps: Counter[tuple[Part, float, float]] = Counter()
        self.counts: Counter[Part] = Counter()

    def draw(self, noisy: private.NoisyGradients, rng: np.random.Generator) -> list[torch.Tensor]:
        parts = parts_of(len(noisy._rows))
        self.steps.update((part, noisy._private.noise, noisy._private.rate) for part in parts)
        return [torch.zeros_like(one.detach()) for one in noisy._parameters.values()]

    def count(self, counts: Array, deviation: float, most: int, rng: np.random.Generator) -> Array:
        for part in parts_of(most):
            self.counts[part] += counts.size / deviation**2
        return counts

    def within(self, releases: list[Release]) -> bool:
        charged = Counter[tuple[Part, float, float]]()
        counted = Counter[Part]()
        for part, noise, rate, times in releases:
            if rate < 1:
                charged[part, noise, rate] += times
            else:
                counted[part] += times / noise**2
        steps = all(times <= charged[place] for place, times in self.steps.items())
        return steps and all(found <= counted[part] * (1 + 1e-9) for part, found in self.counts.items())


def parts_of(rows: int) -> list[Part]:
    """One part, or training and validation rows together."""
    together = ROWS["train"] + ROWS["validation"]
    return ["train", "validation"] if rows == together else [part for part, own in ROWS.items() if own == rows]


def changed(payload: Payload) -> Iterator[tuple[str, Payload]]:
    """The payload with each setting added to each of its tables, besides architectures."""

    def tables(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if isinstance(value, dict) and "space" not in value:
            yield path
            for key, inner in value.items():
                yield from tables(inner, (*path, key))

    large = "supernet" in payload  # it takes longer
    added = [one for one in ADDED if not large or one[0] in ("steps", "alphas", "with_validation")]
    for path in tables(payload, ()):
        for name, value in added:
            found = copy.copy(payload)
            place = found
            for key in path:
                place[key] = copy.copy(place[key])
                place = place[key]
            place[name] = value
            yield f"{'.'.join((*path, name))} = {str(value)[:60]}", found


@pytest.mark.parametrize("name", TASKS)
def test_no_setting_makes_a_client_draw_more_than_it_charges(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job, payload = TASKS[name]
    done = []
    evaluation = import_module("atoll.training.evaluation")
    monkeypatch.setattr(evaluation, "evaluate", lambda *_, **__: SimpleNamespace(correct=1, loss=0.0, confusion=None))
    for what, hostile in [("", payload), *changed(payload)]:
        drawn, data = Drawn(), Rows(payload.get("architecture", TABLE)["input"])
        monkeypatch.setattr(private.NoisyGradients, "draw", lambda self, rng, drawn=drawn: drawn.draw(self, rng))
        monkeypatch.setattr(import_module("atoll.training.private"), "noisy_counts", drawn.count)
        client = Client(data, {}, stream(1, "rng"), noise=stream(1, "noise"))
        try:
            releases = releases_of(job, hostile)
            reply = find_job(job)(hostile, client)
        except Exception:
            assert what, f"{name} itself is refused"
            continue
        assert reply
        assert drawn.within(releases), f"{what}: {drawn.steps} {drawn.counts} are more than {releases}"
        assert data.seen <= {release.part for release in releases}, what
        assert drawn.steps or drawn.counts or what
        done.append(what)
    assert "" in done and len(done) > 3  # additions that are ignored


def test_only_changes_with_noise_leave_in_a_private_run(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {key: value for key, value in TUNED.items() if key != "privacy"} | {"hold": True}
    client = Client(Rows([3]), {}, stream(1, "rng"), noise=stream(1, "noise"))
    wanted: Payload = {"round": 1, "wanted": ["u"]}
    find_job(TUNE)(plain, client)
    with pytest.raises(KeyError):
        find_job(UPLOAD)({**wanted, "privacy": {}}, client)
    find_job(TUNE)(plain, client)
    find_job(TUNE)({**TUNED, "candidate": "v", "hold": True}, client)  # what was there without noise is gone
    with pytest.raises(KeyError):
        find_job(UPLOAD)({**wanted, "privacy": {}}, client)
    find_job(TUNE)({**TUNED, "hold": True}, client)
    assert len(find_job(UPLOAD)({**wanted, "privacy": {}}, client)["changes"]) == 1
