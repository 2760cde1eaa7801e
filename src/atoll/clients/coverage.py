"""What a task releases under `[privacy]`, and the settings with which its client makes it private.

| job             | what leaves                   | sensitivity (L2) to one row                                    |
|-----------------|-------------------------------|----------------------------------------------------------------|
| `train`         | weights after noisy steps     | `clip`: the longest gradient of one row, in each step          |
| `evaluate`      | correct rows                  | 1: a row is right or wrong                                     |
| `count_correct` | correct rows of K networks    | sqrt(K): a row changes each of K numbers by 1 at most          |

Every other job is refused, and so are replies with anything else in them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from atoll.clients import jobs
from atoll.core.checks import CountArray
from atoll.core.messages import ClientInfo, Part, Task
from atoll.errors import ConfigError
from atoll.privacy.accountant import Release
from atoll.spaces import canonical, skeleton
from atoll.training import private


@dataclass(frozen=True)
class PrivateWork:
    """The most that a run asks of one client, from which its spending is projected and noise is derived."""

    networks: Sequence[Mapping[str, Any]]  # architectures that are trained
    trainings: int  # tasks of training
    epochs: int
    batch: int
    counts: int  # tasks that count correct validation rows
    with_validation: bool = False  # validation rows are trained on, too


@dataclass(frozen=True)
class Noise:
    """The noise of a run, see `atoll.privacy.settings`."""

    clip: float
    gradients: float
    counts: float


def releases_of(job: str, payload: Mapping[str, Any]) -> list[Release]:
    """What a private task releases, from nothing but the task: a site does not rely on what the server says of it."""
    own = payload["privacy"]
    if job == jobs.TRAIN:
        steps = private.PrivateSteps(**own)
        parts: list[Part] = ["train", "validation"] if payload.get("with_validation") else ["train"]
        return [Release(part, steps.noise, steps.rate, steps.steps) for part in parts]
    if job in (jobs.EVALUATE, jobs.COUNT_CORRECT):
        return [Release(payload["part"], own["deviation"] / math.sqrt(networks_of(payload)))]
    raise not_covered(job)


def networks_of(payload: Mapping[str, Any]) -> int:
    """Of how many networks a task counts correct rows."""
    return max(1, len(payload["keys"])) if "keys" in payload else 1


def not_covered(job: str) -> ConfigError:
    name = job.removeprefix(f"{jobs.__name__}:")
    return ConfigError(
        f"[privacy]: what the job {name!r} sends is not covered by the account; leave out [privacy] or what needs this "
        "job",
        code="privacy-not-covered",
    )


def training_steps(rows: int, epochs: int, batch: int) -> int:
    """Steps of a task of training: as many as plain training takes."""
    return epochs * math.ceil(rows / batch)


def releases_of_training(rows: int, epochs: int, batch: int, noise: float, parts: Sequence[Part]) -> list[Release]:
    """A task of training on these parts, which have this many rows together."""
    steps = training_steps(rows, epochs, batch)
    return [Release(part, noise, min(1.0, batch / rows), steps) for part in parts]


def planned(work: PrivateWork, info: ClientInfo, noise: Noise, labels: float | None) -> list[Release]:
    """The most that is released of a client in a run; `labels`: the noise of its rows per class, if it shares them."""
    parts: list[Part] = ["train", "validation"] if work.with_validation else ["train"]
    rows = sum(info.sizes[part] for part in parts)
    one = releases_of_training(rows, work.epochs, work.batch, noise.gradients, parts) if rows else []
    found = [release._replace(times=release.times * work.trainings) for release in one if work.trainings]
    if labels is not None:
        found.append(Release("train", labels))
    if work.counts and info.sizes["validation"]:
        found.append(Release("validation", noise.counts, 1.0, work.counts))
    return found


@dataclass
class Coverage:
    """Makes the tasks of a run private."""

    noise: Noise
    infos: Mapping[str, ClientInfo]

    def __post_init__(self) -> None:
        self._checked: set[str] = set()

    def cover(self, task: Task) -> tuple[Task, list[Release]]:
        """The task as it is sent, and what it releases. A task that is not covered is a `ConfigError`."""
        payload, info = task.payload, self.infos[task.client]
        if task.job not in (jobs.TRAIN, jobs.EVALUATE, jobs.COUNT_CORRECT):
            raise not_covered(task.job)
        self._check(payload["architecture"])
        if task.job == jobs.TRAIN:
            return self._training(task, info)
        if payload.get("confusion"):
            raise ConfigError(
                "[privacy]: confusion matrices of clients are not covered; set objective = 'error'",
                code="privacy-not-covered",
            )
        settings = {"deviation": self.noise.counts * math.sqrt(networks_of(payload))}
        part: Part = payload["part"]
        returns = task.returns
        if task.job == jobs.EVALUATE:
            returns = {"confusion": CountArray((1, 2), info.sizes[part])}
        covered = replace(task, payload={**payload, "privacy": settings}, returns=returns)
        return covered, [Release(part, self.noise.counts)]

    def _training(self, task: Task, info: ClientInfo) -> tuple[Task, list[Release]]:
        payload = task.payload
        if payload.get("client_accuracy"):
            raise ConfigError(
                "[privacy]: client_accuracy = true is not covered by the account; set it to false",
                code="privacy-not-covered",
            )
        parts: list[Part] = ["train", "validation"] if payload.get("with_validation") else ["train"]
        rows = sum(info.sizes[part] for part in parts)
        found = releases_of_training(rows, payload["epochs"], payload["batch"], self.noise.gradients, parts)
        settings = {
            "clip": self.noise.clip,
            "noise": found[0].noise,
            "rate": found[0].rate,
            "steps": found[0].times,
        }
        return replace(task, payload={**payload, "privacy": settings}), found

    def _check(self, architecture: Mapping[str, Any]) -> None:
        name = canonical(architecture)
        if name not in self._checked:
            private.refuse_mixed_rows(skeleton(architecture))
            self._checked.add(name)
