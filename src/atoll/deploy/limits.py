"""What a site allows the server to ask for: checked on the node before a job is looked up.

A malicious server may send a training step on a single row, a billion steps, a network that fills the memory, or
weights that are not numbers. The limits belong to the site and are in its file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from atoll.core.messages import Array, Payload, TaskSize, Tensors
from atoll.errors import AtollError

METHODS = "atoll.methods."
# Work that several methods share: allowed wherever a method is.
SHARED_JOBS = ("atoll.clients",)
LONGEST_ARCHITECTURE = 1_000_000  # characters; longer than any reasonable description of a network
MANY = 10**15  # larger numbers are not printed
COPIES = 4  # training holds weights, gradients, momentum and the reply


class Limits(BaseModel):
    """The `[limits]` table of a site's file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    methods: tuple[StrictStr, ...] | None = None  # None: all
    jobs: tuple[StrictStr, ...] = ()  # modules of plug-ins, installed at the site, whose jobs may run
    parameters: StrictInt = Field(default=50_000_000, ge=1)
    steps: StrictInt = Field(default=1_000_000, ge=1)
    memory: StrictInt = Field(default=4_000_000_000, ge=1)
    batch: StrictInt = Field(default=2, ge=1)
    minutes: float = Field(default=60.0, gt=0, le=1_000_000, allow_inf_nan=False)  # of one task
    epsilon: float | None = Field(default=None, gt=0, le=1000, allow_inf_nan=False)  # of all runs; None: no limit
    delta: float = Field(default=1e-5, gt=0, lt=1, allow_inf_nan=False)

    def check_method(self, method: str) -> str | None:
        """Why this site does not participate in a run of this method, or None."""
        if self.methods is None or method in self.methods:
            return None
        return f"method '{method}' is not allowed here (limits.methods allows: {', '.join(self.methods) or 'none'})"

    def check_privacy(self, private: bool) -> str | None:
        """Why this site does not send what a run or a task without `[privacy]` asks for, or None."""
        if private or self.epsilon is None:
            return None
        return f"no [privacy], which limits.epsilon = {self.epsilon:g} demands; add [privacy] to the experiment"

    def check(self, method: str, job: str, payload: Payload, size: TaskSize, rows: int) -> str | None:
        """Why this task of a run of `method` is refused at a site with this number of training rows, or None.

        What the payload shows is checked itself; `size` adds what it does not show, and is never believed to be less.
        """
        try:
            return (
                self.check_method(method)
                or self.check_privacy("privacy" in payload)
                or self._job(job)
                or self._tensors(payload)
                or self._networks(payload)
                or self._declared(size)
                or next(filter(None, (self._training(one, size, rows) for one in _settings(payload))), None)
            )
        except (AtollError, KeyError, TypeError, ValueError, AttributeError) as problem:
            return f"the task cannot be read ({type(problem).__name__}: {' '.join(str(problem).split())[:200]})"

    def _job(self, job: str) -> str | None:
        """Jobs of Atoll's own methods run where their method is allowed, shared jobs everywhere, others by name."""
        module = job.partition(":")[0]
        if module in self.jobs or _within(module, *SHARED_JOBS):
            return None
        hint = f"to allow it, add '{module[:80]}' to limits.jobs"
        if not module.startswith(METHODS):
            return f"job '{job[:80]}' is not part of Atoll; {hint}"
        if self.methods is None or any(_within(module, *_modules_of(method)) for method in self.methods):
            return None
        allowed = ", ".join(self.methods) or "none"
        return f"job '{job[:80]}' belongs to no method that limits.methods allows ({allowed}); {hint}"

    def _tensors(self, payload: Payload) -> str | None:
        total = sum(array.nbytes for array in _arrays(payload))
        if total > self.memory:
            return f"a task with {total:,} bytes of tensors, limits.memory allows {self.memory:,}"
        for tensors in _find(payload, Tensors):
            count = sum(array.size for array in tensors.values())
            if count > self.parameters:
                return f"{count:,} weights, limits.parameters allows {self.parameters:,}"
        for array in _arrays(payload):
            if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
                return "weights that are NaN or infinite"
        return None

    def _networks(self, payload: Payload) -> str | None:
        for architecture in _architectures(payload):
            if len(json.dumps(architecture, default=str)) > LONGEST_ARCHITECTURE:
                return f"an architecture of more than {LONGEST_ARCHITECTURE:,} characters"
            from atoll.spaces import skeleton  # without memory for its weights, and without counting its work

            sizes = [(weight.numel(), weight.element_size()) for weight in skeleton(architecture).parameters()]
            count, taken = sum(number for number, _ in sizes), COPIES * sum(number * each for number, each in sizes)
            if count > self.parameters:
                return f"a network of {count:,} weights, limits.parameters allows {self.parameters:,}"
            if taken > self.memory:
                return f"a network that takes {taken:,} bytes, limits.memory allows {self.memory:,}"
        return None

    def _declared(self, size: TaskSize) -> str | None:
        for name in ("parameters", "memory"):
            wanted, allowed = getattr(size, name), getattr(self, name)
            if wanted > allowed:
                return f"a task that declares {name} = {min(wanted, MANY):,}, limits.{name} allows {allowed:,}"
        return None

    def _training(self, payload: Payload, size: TaskSize, rows: int) -> str | None:
        """Training steps: passes over the rows times batches in a pass, for each member of a population."""
        passes = 1
        for word in ("epochs", "generations", "repeats"):
            given = payload.get(word, 1)
            if type(given) is not int or given < 0:
                return f"{word} = {str(given)[:40]!r} is not a whole number of 0 or more"
            passes *= given
        batches = 1
        if "epochs" in payload:
            batch = payload.get("batch")
            if type(batch) is not int or batch < self.batch:
                return f"a batch of {str(batch)[:40]}, limits.batch requires {self.batch} rows or more"
            batches = math.ceil(rows / batch)
        population = payload.get("population", 1)
        if type(population) is not int or population < 1:
            return f"population = {str(population)[:40]!r} is not a whole number of 1 or more"
        noisy = (
            payload.get("steps", 0) if "noise" in payload else 0
        )  # under `[privacy]` steps are not counted by epochs
        if type(noisy) is not int:
            return f"steps = {str(noisy)[:40]!r} is not a whole number"
        steps = max(size.steps, passes * batches, noisy) * max(size.population, population)
        if steps > self.steps:
            return f"{min(steps, MANY):,} training steps, limits.steps allows {self.steps:,}"
        return None


def _modules_of(method: str) -> set[str]:
    """The modules and packages whose jobs belong to a method: those of its class and its base classes."""
    from atoll.methods import find_method
    from atoll.registry import names

    if method not in names("methods"):
        return set()
    modules = {kind.__module__ for kind in find_method(method).__mro__}
    packages = {module.rpartition(".")[0] for module in modules}
    return {module for module in modules | packages if module.startswith(METHODS)}


def _within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def _find(value: Any, kind: type[Any]) -> Iterator[Any]:
    """Every value of this kind within a payload."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, Mapping) and not isinstance(value, Tensors):
        for inner in value.values():
            yield from _find(inner, kind)
    elif isinstance(value, list):
        for inner in value:
            yield from _find(inner, kind)


def _arrays(payload: Payload) -> Iterator[Array]:
    yield from _find(payload, np.ndarray)
    for tensors in _find(payload, Tensors):
        yield from tensors.values()


def _settings(payload: Payload) -> Iterator[Payload]:
    """The payload, and the payload with each of its inner tables on top: a job may read its settings from either."""
    yield payload
    waiting: list[Any] = [value for value in payload.values() if not isinstance(value, Tensors)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict) and "space" not in value:
            yield {**payload, **value}
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _architectures(payload: Payload) -> Iterator[dict[str, Any]]:
    """Descriptions of networks: tables with a key `space`, at any depth."""
    if isinstance(payload, dict):
        if "space" in payload:
            yield payload
        else:
            for value in payload.values():
                yield from _architectures(value)
    elif isinstance(payload, list):
        for value in payload:
            yield from _architectures(value)
