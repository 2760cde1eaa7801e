"""What `[privacy]` means for one run: the noise, what clients will spend, and what is refused before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from atoll.clients.coverage import Coverage, Noise, PrivateWork, planned
from atoll.config import Experiment, settings_table
from atoll.core.messages import ClientInfo, Part
from atoll.errors import ConfigError, RunDamaged
from atoll.extras import require
from atoll.federation.engines import Engine
from atoll.federation.privacy import PrivacyGuard
from atoll.methods import find_method
from atoll.methods.base import Method
from atoll.privacy.account import FILE, PrivacyAccount
from atoll.privacy.accountant import Release, part_epsilon, smallest_noise, summed
from atoll.privacy.settings import (
    AT_SITES,
    LEAST_NOISE,
    NOT_COVERED,
    SIMULATED,
    SPLIT_BY_CLASS,
    PrivacySettings,
    refuse_statistics,
    with_earlier,
)
from atoll.rng import stream
from atoll.spaces import skeleton
from atoll.training import private

MANY = 2**40  # rows
ENGINES = ("local", "ray", "flower")  # whose clients can be private


def refuse_before_opening(experiment: Experiment, method: type[Method[Any]]) -> None:
    """What can be refused without looking at the data."""
    settings = experiment.privacy
    if settings is None:
        return
    require("privacy")
    settings.refuse_unclipped()
    if method.private_work is Method.private_work:
        raise ConfigError(
            f"[privacy]: method {experiment.method}: {method.not_private}; leave out [privacy], or use another method",
            code="privacy-not-covered",
        )
    if experiment.engine.name not in ENGINES:
        raise ConfigError(
            f"[privacy]: engine {experiment.engine.name!r}: it is not known where its clients get noise from; use one "
            f"of {', '.join(ENGINES)}, or leave out [privacy]",
            code="privacy-engine",
        )


@dataclass(frozen=True)
class PrivatePlan:
    """The decided settings of a run, and what its clients will release at most."""

    settings: PrivacySettings  # with noise
    work: PrivateWork
    clients: Sequence[ClientInfo]
    shares_labels: bool
    real: bool = False  # clients are real sites
    blocks: str | None = None  # how each client's rows are split; None: by class

    @property
    def noise(self) -> Noise:
        assert self.settings.noise is not None and self.settings.count_noise is not None
        return Noise(self.settings.longest, self.settings.noise, self.settings.count_noise)

    @cached_property
    def releases(self) -> dict[str, list[Release]]:
        """Client -> the most that is released of it."""
        settings, shares = self.settings, self.shares_labels
        return {info.name: _planned(self.work, info, self.noise, settings, shares) for info in self.clients}

    @cached_property
    def projected(self) -> dict[str, float]:
        """Client -> the epsilon that it will spend at most, if no round is repeated."""
        return {name: _epsilon(own, self.settings.delta) for name, own in self.releases.items()}

    def lines(self) -> list[str]:
        """The projection in words."""
        settings, values = self.settings, sorted(self.projected.values())
        if not values:
            return []
        span = f"{values[-1]:.3g}" if values[-1] - values[0] < 0.005 else f"{values[0]:.3g} to {values[-1]:.3g}"
        trainings, counts = _amounts(self.work)
        work = f"{trainings} trainings and {counts} counts of each client"
        budget = f"epsilon {span} of {settings.epsilon:g} at delta {settings.delta:g}"
        noise = f"noise {settings.noise:.4g} for gradients, {settings.count_noise:.4g} for counts"
        found = [
            f"privacy: {work} are projected to spend {budget}",
            f"privacy: gradients of rows are clipped to {settings.longest:g}; {noise}",
            *with_earlier(settings.model_dump(), min(values[-1], settings.epsilon)),
        ]
        over = sum(value > settings.epsilon for value in values)
        if over:
            found.append(
                f"privacy: {over} of {len(values)} clients will have spent their budget before the last round and are "
                "then left out; more noise or fewer rounds would avoid it"
            )
        return found

    def guard(self, folder: Path) -> PrivacyGuard:
        """What makes tasks private, with the account in this folder. A run that has begun must have one."""
        events = folder / "events.jsonl"
        if events.exists() and events.stat().st_size and not (folder / FILE).exists():
            raise RunDamaged(
                f"{folder / FILE}: missing; what was spent is not known, so the run cannot be resumed",
                code="privacy-account-missing",
            )
        account = PrivacyAccount(self.settings, [info.name for info in self.clients], folder)
        for own in {tuple(own) for own in self.releases.values()}:
            account.plan(own)
        if self.shares_labels:
            for info in self.clients:
                account.charge((0, info.name, 0, "labels"), [Release("train", self.settings.label_noise)])
            account.records.flush()
        return PrivacyGuard(account, Coverage(self.noise, {info.name: info for info in self.clients}), self.outside)

    @property
    def outside(self) -> list[str]:
        """What the account does not cover, in words."""
        blocks, several = self.blocks or "random", any(info.sizes["validation"] for info in self.clients)
        by_class = [SPLIT_BY_CLASS.format(blocks=blocks)] if several and blocks in ("random", "by_class") else []
        return [*NOT_COVERED, *by_class, *(AT_SITES if self.real else SIMULATED)]


def plan_privacy(experiment: Experiment, engine: Engine) -> PrivatePlan:
    """Noise that is not set is derived: the planned rounds spend the budget. What cannot be private is refused."""
    settings = experiment.privacy
    assert settings is not None
    settings.refuse_clients(len(engine.clients))
    _refuse_data(engine, settings)
    _refuse_settings(experiment)
    method = find_method(experiment.method)(experiment.settings, engine.schema)
    work = method.private_work()
    if work is None:
        raise ConfigError(
            f"[privacy]: method {experiment.method}: {method.not_private}; leave out [privacy], or use another method",
            code="privacy-not-covered",
        )
    for part in work.parts:
        for architecture in part.networks:
            private.refuse_mixed_rows(skeleton(architecture))
    empty = [info.name for info in engine.clients if not info.sizes["validation"]]
    if empty and any(part.rewards for part in work.parts):
        raise ConfigError(
            f"[privacy]: client {empty[0]!r} has no validation rows, and {experiment.method} takes its rewards from "
            "them; set data.split to, for instance, [0.8, 0.2, 0.0]",
            code="no-validation-rows",
        )
    shares = any(info.labels is not None for info in engine.clients)
    settings = settings.model_copy(update={"clip": settings.longest})
    gradients = settings.noise or _derived("train", work, engine.clients, settings, shares)
    settings = settings.model_copy(update={"noise": gradients})
    counts = settings.count_noise or _derived("validation", work, engine.clients, settings, shares)
    settings = settings.model_copy(update={"count_noise": counts})
    return PrivatePlan(settings, work, engine.clients, shares, engine.real, engine.data.blocks)


def _derived(
    part: Part, work: PrivateWork, clients: Sequence[ClientInfo], settings: PrivacySettings, shares: bool
) -> float:
    """The noise with which no client spends more than the budget on rows of this part."""
    distinct = {tuple(sorted(info.sizes.items())): info for info in clients}
    ordered = sorted(distinct.values(), key=lambda info: info.sizes["train"])
    trainings, counts = _amounts(work)
    what = f"{trainings} trainings" if part == "train" else f"{counts} counts"

    def spend(noise: float, info: ClientInfo) -> float:
        both = Noise(settings.longest, settings.noise or noise, noise)
        return _epsilon(_planned(work, info, both, settings, shares), settings.delta, part)

    # A client with fewer rows spends more, but for rounding of its steps: the others are checked, too.
    found = smallest_noise(settings.epsilon, lambda noise: spend(noise, ordered[0]), what)
    for info in ordered[1:]:
        while spend(found, info) > settings.epsilon:
            found *= 1.005
    return max(LEAST_NOISE, float(np.ceil(found * 1e4) / 1e4))


def _amounts(work: PrivateWork) -> tuple[int, int]:
    """Trainings and counts of the whole run."""
    return sum(part.trainings for part in work.parts), sum(part.counts for part in work.parts)


def _planned(
    work: PrivateWork, info: ClientInfo, noise: Noise, settings: PrivacySettings, shares: bool
) -> list[Release]:
    return planned(work, info, noise, settings.label_noise if shares else None)


def _epsilon(releases: Sequence[Release], delta: float, part: Part | None = None) -> float:
    spent = summed({}, releases)
    parts = {own for own, _, _ in spent} if part is None else {part}
    return max((part_epsilon(spent, own, delta) for own in sorted(parts)), default=0.0)


def _refuse_settings(experiment: Experiment) -> None:
    """Settings of methods for which clients would send more than the account covers."""
    table = settings_table(experiment.method)
    covered: dict[str, Any] = {"objective": "error", "client_accuracy": False, "reward_rows": None}
    for name, value in covered.items():
        given = getattr(experiment.settings, name, value)
        if given != value:
            raise ConfigError(
                f"[privacy]: {table}.{name} = {given!r}: what clients would send is not covered; set it to {value!r}",
                code="privacy-not-covered",
            )


def _refuse_data(engine: Engine, settings: PrivacySettings) -> None:
    """Data of which more leaves a client than the account covers, or whose rows depend on each other."""
    refuse_statistics(engine.preparation.scale, engine.data.missing)
    if engine.held_out or any(info.sizes["test"] for info in engine.clients):
        raise ConfigError(
            "[privacy]: clients have test rows of their own, and counts of them are not covered; set data.split to, "
            "for instance, [0.8, 0.2, 0.0], and leave out data.holdout_clients",
            code="privacy-test-rows",
        )
    most = max(sum(info.sizes.values()) for info in engine.clients)
    if settings.delta * most >= 1:
        raise ConfigError(
            f"privacy.delta = {settings.delta:g}: it must be below 1 / {most} (rows of a client), or a whole "
            f"row may be revealed; set it to {0.1 / most:.1g} or less",
            code="privacy-delta",
        )


def with_noisy_labels(engine: Engine, settings: PrivacySettings, seed: int) -> Engine:
    """The engine, whose clients share their rows per class with noise. One row changes one number by 1. Real sites
    have added it themselves."""
    if engine.real:
        return engine
    clients = []
    for info in engine.clients:
        if info.labels is not None:
            rng = stream(seed, "noise", "labels", info.name)
            noisy = private.noisy_counts(np.array(info.labels), settings.label_noise, MANY, rng)
            info = replace(info, labels=tuple(int(count) for count in noisy))
        clients.append(info)
    return replace(engine, clients=clients)
