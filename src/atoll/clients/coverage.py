"""What a task releases under `[privacy]`, and the settings with which its client makes it private.

| job             | what leaves                   | sensitivity (L2) to one row                                    |
|-----------------|-------------------------------|----------------------------------------------------------------|
| `train`         | weights after noisy steps     | `clip`: the longest gradient of one row, in each step          |
|                 | and correct rows, if asked    | 1, as `evaluate`                                               |
| `evaluate`      | correct rows                  | 1: a row is right or wrong                                     |
| `count_correct` | correct rows of K networks    | sqrt(K): a row changes each of K numbers by 1 at most          |
| `evaluate_delivered` | correct rows of K networks, of one part | sqrt(K)                                    |
| `gradient`      | a noisy gradient              | `clip`, in each step                                           |
|                 | and correct validation rows   | 1                                                              |
| `fednas`: search| weights after noisy steps     | `clip`, in each step                                           |
|                 | alphas, on validation rows    | `clip`, in each of the same steps; their noise is that of counts|
|                 | and correct validation rows   | 1                                                              |
| `decnas`: tune  | correct rows of 1 or 2        | trainings as above, and sqrt(K)                                |
| `decnas`: upload| weights of `tune`, with noise | nothing more: they were charged when they were trained         |

Every other job is refused, and so are replies with anything else in them. A job says itself what it does with rows: see
`jobs.USES`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from atoll.clients import jobs
from atoll.core.checks import Count, CountArray
from atoll.core.messages import REPORT, ClientInfo, Part, Task
from atoll.errors import ConfigError
from atoll.privacy.accountant import Release
from atoll.spaces import canonical, cost, skeleton
from atoll.training import batches, private


@dataclass(frozen=True)
class PrivateWork:
    """The most that a run asks of one client, from which its spending is projected and noise is derived."""

    networks: Sequence[Mapping[str, Any]]  # architectures that are trained
    trainings: int  # tasks of training
    epochs: int
    batch: int
    counts: int  # tasks that count correct validation rows
    with_validation: bool = False  # validation rows are trained on, too
    steps: int | None = None  # the most steps of a training; None: all of its epochs
    alphas: bool = False  # with every step goes one of architecture parameters, on validation rows
    final: int = 0  # of these counts those that measure the result, after the last round
    rewards: bool = False  # counts decide how the search goes on: every client must have validation rows
    then: PrivateWork | None = None  # what is asked after that, in another way

    @property
    def parts(self) -> list[PrivateWork]:
        """This and what follows."""
        return [self, *(self.then.parts if self.then is not None else [])]


@dataclass(frozen=True)
class Noise:
    """The noise of a run, see `atoll.privacy.settings`."""

    clip: float
    gradients: float
    counts: float


def use_of(job: str, payload: Mapping[str, Any]) -> jobs.RowUse:
    """What a job of Atoll's does with rows. A job that is not covered is a `ConfigError`."""
    if REPORT in payload:
        raise ConfigError(
            "[privacy]: counts of clients' test rows are not covered by the account; set data.split to leave none",
            code="privacy-not-covered",
        )
    if "kept" in payload:
        raise ConfigError(
            "[privacy]: batch norm statistics of clients are not covered by the account; use networks with group norm",
            code="privacy-not-covered",
        )
    module, _, name = job.partition(":")
    if module.startswith("atoll.") and name in (known := getattr(import_module(module), "USES", {})):
        found: jobs.RowUse = known[name](payload)
        return found
    raise ConfigError(
        f"[privacy]: what the job {name!r} sends is not covered by the account; leave out [privacy] or what needs this "
        "job",
        code="privacy-not-covered",
    )


def releases_of(job: str, payload: Mapping[str, Any]) -> list[Release]:
    """What a private task releases, from nothing but the task: a site does not rely on what the server says of it."""
    use, own = use_of(job, payload), payload["privacy"]
    found = []
    if use.training is not None:
        steps = private.PrivateSteps.of(own)
        found += [
            Release(part, steps.noise, steps.rate, use.trainings * steps.steps) for part in trained_parts(use.training)
        ]
    if use.alphas:
        alphas = private.PrivateSteps.of_alphas(own)
        found.append(Release("validation", alphas.noise, alphas.rate, alphas.steps))
    if use.counts:
        found.append(Release(use.counted, private.number(own["counts"], "counts")))
    return found


def trained_parts(training: Mapping[str, Any]) -> list[Part]:
    return ["train", "validation"] if training.get("with_validation") else ["train"]


def noisy_steps(rows: int, training: Mapping[str, Any]) -> tuple[float, int]:
    """The rate and number of the steps of a task of training: as many as plain training takes."""
    steps = training["epochs"] * len(batches.bounds(rows, training["batch"]))
    limit = training.get("steps")
    return min(1.0, training["batch"] / rows), steps if limit is None else min(steps, limit)


def alpha_rate(info: ClientInfo, batch: int) -> float:
    """With which every validation row takes part in a step of architecture parameters."""
    return min(1.0, batch / info.sizes["validation"])


def planned(work: PrivateWork, info: ClientInfo, noise: Noise, before: Sequence[float] = ()) -> list[Release]:
    """The most that is released of a client in a run; `before`: the noise of what leaves before the first round."""
    found = [Release("train", own) for own in before]
    found += [release for part in work.parts for release in _releases(part, info, noise)]
    return found + ([Release("test", noise.counts)] if info.sizes["test"] else [])


def _releases(work: PrivateWork, info: ClientInfo, noise: Noise) -> list[Release]:
    training = {
        "epochs": work.epochs,
        "batch": work.batch,
        "steps": work.steps,
        "with_validation": work.with_validation,
    }
    parts = trained_parts(training)
    rows, found = sum(info.sizes[part] for part in parts), []
    if rows and work.trainings:
        rate, steps = noisy_steps(rows, training)
        found += [Release(part, noise.gradients, rate, steps * work.trainings) for part in parts]
        if work.alphas:
            own = alpha_rate(info, work.batch)
            found.append(Release("validation", noise.counts, own, steps * work.trainings))
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
        use = use_of(task.job, payload)
        for architecture in use.networks:
            self._check(architecture)
        for name in ("confusion", "client_accuracy"):
            if payload.get(name):
                raise ConfigError(
                    f"[privacy]: {name} of clients is not covered by the account; set objective = 'error' and "
                    "client_accuracy = false",
                    code="privacy-not-covered",
                )
        settings: dict[str, Any] = {}
        if use.training is not None:
            rows = sum(info.sizes[part] for part in trained_parts(use.training))
            rate, steps = noisy_steps(rows, use.training)
            settings = {"clip": self.noise.clip, "noise": self.noise.gradients, "rate": rate, "steps": steps}
            if use.alphas:
                settings["alphas"] = {
                    "noise": self.noise.counts,
                    "rate": alpha_rate(info, use.training["batch"]),
                }
        if use.counts:
            settings["counts"] = self.noise.counts
        returns, counts = task.returns, {"confusion": CountArray((1, 2), info.sizes["validation"])}
        if task.job == jobs.EVALUATE:
            returns = counts
        elif task.job == jobs.EVALUATE_DELIVERED:
            each = CountArray((1, 2), info.sizes[use.counted])
            returns = {"confusions": [each] * len(payload["models"])}
        elif payload.get("before") == {"validation": "evaluate"}:
            returns = {**returns, "before": {"validation": counts}}
        macs = task.macs
        if task.job == jobs.GRADIENT or use.alphas:  # correct rows are those of validation, not of the batches
            returns = {**returns, "correct": Count(info.sizes["validation"])}
            macs += cost(payload["architecture"]).macs * info.sizes["validation"]
        covered = replace(task, payload={**payload, "privacy": settings}, returns=returns, macs=macs)
        return covered, releases_of(task.job, covered.payload)

    def _check(self, architecture: Mapping[str, Any]) -> None:
        name = canonical(architecture)
        if name not in self._checked:
            private.refuse_mixed_rows(skeleton(architecture))
            self._checked.add(name)
