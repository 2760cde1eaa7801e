"""What `[privacy]` means for one run: the noise, what clients will spend, and what is refused before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from atoll.clients.coverage import Coverage, Noise, PrivateWork, planned
from atoll.config import Experiment, settings_table
from atoll.core.messages import PARTS, ClientInfo, Part
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
    MOST_ROWS,
    NOT_COVERED,
    SIMULATED,
    TESTED,
    PrivacySettings,
    refuse_coupled_rows,
    with_earlier,
)
from atoll.rng import stream
from atoll.spaces import skeleton
from atoll.training import private

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
            f"[privacy]: engine {experiment.engine.name!r}: its noise source is unknown; use one of "
            f"{', '.join(ENGINES)}, or leave out [privacy]",
            code="privacy-engine",
        )


@dataclass(frozen=True)
class PrivatePlan:
    """The decided settings of a run, and what its clients will release at most."""

    settings: PrivacySettings  # with noise
    work: PrivateWork
    clients: Sequence[ClientInfo]
    before: Mapping[str, float] = field(default_factory=dict)  # what leaves before the first round -> its noise
    real: bool = False  # clients are real sites
    tested: bool = False  # there is a test set that no client holds

    @property
    def noise(self) -> Noise:
        assert self.settings.noise is not None and self.settings.count_noise is not None
        return Noise(self.settings.longest, self.settings.noise, self.settings.count_noise)

    @cached_property
    def releases(self) -> dict[str, list[Release]]:
        """Client -> the most that is released of it."""
        before = list(self.before.values())
        return {info.name: planned(self.work, info, self.noise, before) for info in self.clients}

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
        """What makes tasks private, with the account in this folder, which the run directory was created with."""
        if not (folder / FILE).exists():
            raise RunDamaged(
                f"{folder / FILE}: missing; what was spent is not known, so the run cannot be resumed",
                code="privacy-account-missing",
            )
        names = [info.name for info in self.clients]
        final = sum(part.final for part in self.work.parts)
        reserved = {name: [Release("validation", self.noise.counts, 1.0, final)] for name in names if final}
        account = PrivacyAccount(self.settings, names, folder, reserved)
        for kind, noise in self.before.items():
            for name in names:
                account.charge((0, name, 0, kind), [Release("train", noise)])
        account.records.flush()
        return PrivacyGuard(account, Coverage(self.noise, {info.name: info for info in self.clients}), self.outside)

    @property
    def outside(self) -> list[str]:
        """What the account does not cover, in words."""
        return [*NOT_COVERED, *([TESTED] if self.tested else []), *(AT_SITES if self.real else SIMULATED)]


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
    before = {"labels": settings.label_noise} if any(info.labels is not None for info in engine.clients) else {}
    if engine.preparation.scale == "federated":
        before["moments"] = settings.moment_noise
    settings = settings.model_copy(update={"clip": settings.longest})
    plan = PrivatePlan(settings, work, engine.clients, before, engine.real, bool(engine.benchmark))
    gradients = settings.noise or _derived(plan, ("train",))
    plan = replace(plan, settings=settings.model_copy(update={"noise": gradients}))
    counts = settings.count_noise or _derived(plan, ("validation", "test"))
    plan = replace(plan, settings=plan.settings.model_copy(update={"count_noise": counts}))
    _refuse_unaffordable(plan)
    return plan


def _derived(plan: PrivatePlan, parts: Sequence[Part]) -> float:
    """The noise with which no client spends more than the budget on rows of these parts."""
    settings, work = plan.settings, plan.work
    distinct = {tuple(sorted(info.sizes.items())): info for info in plan.clients}
    ordered = sorted(distinct.values(), key=lambda info: info.sizes["train"])
    trainings, counts = _amounts(work)
    what = f"{trainings} trainings" if "train" in parts else f"{counts} counts"

    def spend(noise: float, info: ClientInfo) -> float:
        both = Noise(settings.longest, settings.noise or noise, noise)
        releases = planned(work, info, both, list(plan.before.values()))
        return max(_epsilon(releases, settings.delta, part) for part in parts)

    # A client with fewer rows spends more, but for rounding of its steps: the others are checked, too.
    found = smallest_noise(settings.epsilon, lambda noise: spend(noise, ordered[0]), what)
    for info in ordered[1:]:
        while spend(found, info) > settings.epsilon:
            found *= 1.005
    return max(LEAST_NOISE, float(np.ceil(found * 1e4) / 1e4))


def _refuse_unaffordable(plan: PrivatePlan) -> None:
    """Refuse given noise with which no client can afford one task of each kind."""
    settings, before = plan.settings, list(plan.before.values())
    work = plan.work
    one = replace(work, trainings=min(1, work.trainings), counts=min(1, work.counts), then=None)
    spent = {info.name: _epsilon(planned(one, info, plan.noise, before), settings.delta) for info in plan.clients}
    client = min(spent, key=lambda name: spent[name], default=None)
    if client is not None and spent[client] > settings.epsilon:
        raise ConfigError(
            f"privacy.epsilon = {settings.epsilon:g}: with noise {settings.noise:g} for gradients and "
            f"{settings.count_noise:g} for counts one training and one count spend {spent[client]:.3g}, also of the "
            f"client that spends least, {client!r}; use more noise, or leave privacy.noise and count_noise out",
            code="privacy-unreachable",
        )


def _amounts(work: PrivateWork) -> tuple[int, int]:
    """Trainings and counts of the whole run."""
    return sum(part.trainings for part in work.parts), sum(part.counts for part in work.parts)


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
    data, scale = engine.data, engine.preparation.scale
    parts = [part for part in PARTS if any(info.sizes[part] for info in engine.clients)]
    refuse_coupled_rows(scale, data.missing, data.blocks if len(parts) > 1 else None, data.window, data.window_step)
    if engine.given and (scale == "federated" or data.blocks is None):
        raise ConfigError(
            f"[privacy]: data in memory with scale = {scale!r} and blocks = {data.blocks!r}: it was prepared without "
            "noise, or it is not known how; make it with scale = 'none' and blocks = 'shuffled'",
            code="privacy-scaling",
        )
    if engine.held_out:
        raise ConfigError(
            "[privacy]: counts of clients that are held out are not covered; leave out data.holdout_clients",
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
    have added it themselves.

    The noise of a simulation follows from its seed. It is another one for other data and for another deviation: the
    difference of two runs is not that of their rows.
    """
    if engine.real:
        return engine
    clients = []
    for info in engine.clients:
        if info.labels is not None:
            about = f"{settings.label_noise!r} {engine.about['digest']}"
            rng = stream(seed, "noise", "labels", info.name, about)
            noisy = private.noisy_counts(np.array(info.labels), settings.label_noise, MOST_ROWS, rng)
            info = replace(info, labels=tuple(int(count) for count in noisy))
        clients.append(info)
    return replace(engine, clients=clients)
