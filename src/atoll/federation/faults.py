"""Faults and attacks on purpose: clients that drop out, delay, corrupt or lie, so that users can test their settings.

A file of rules (`atoll run ... --faults faults.toml`) becomes the `[faults]` table of the experiment:

    [[rule]]
    kind = "flip"          # see KINDS
    clients = 0.2          # a share, drawn by the seed, or a list of names
    factor = 5.0           # how strong, for flip, scale, noise and delay (seconds)
    probability = 0.5      # of each task
    first = 3              # the first round of it, and `last`

It changes what the transport brings back, before anything is checked: the dispatcher cannot tell it from a real client.
The kinds in `ON_CLIENT` happen while a client works: its task is then a job of this module, which does the real one.
All draws are named by (seed, round, client, task number), so that a resumed run meets the same faults.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from atoll.core import checks, wire
from atoll.core.messages import REPORT, Array, Part, Payload, Schema, Tensors
from atoll.errors import ConfigError, WireError, nearest
from atoll.federation.executor import Job, find_job, refused
from atoll.federation.transport import Envelope, Outcome, Transport
from atoll.rng import Generator, stream

if TYPE_CHECKING:
    from atoll.training.client import Client, LocalData

Kind = Literal["dropout", "delay", "crash", "corrupt", "nan", "huge", "flip", "scale", "noise", "lie", "label_flip"]
KINDS: dict[Kind, str] = {
    "dropout": "no reply",
    "delay": "a reply after `factor` more seconds",
    "crash": "the client's process dies in the middle of the task, and again when the task is repeated",
    "corrupt": "a frame with flipped bytes",
    "nan": "an update of NaN",
    "huge": "an update of 3e38",
    "flip": "an update in the opposite direction, `factor` times as long",
    "scale": "an update `factor` times as long",
    "noise": "an update with normal noise of `factor` times its own size",
    "lie": "every row counted as answered correctly",
    "label_flip": "training on wrong labels: the last class for the first, and so on",
}
ON_CLIENT: tuple[Kind, ...] = ("crash", "label_flip")


class FaultRule(BaseModel):
    """One kind of fault, and whom it strikes when."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    kind: Kind
    clients: float | list[str] = Field(default=0.2)  # a share of all, drawn by the seed, or a list of names
    factor: float = Field(default=1.0, ge=0)  # how strong; delay: seconds
    probability: float = Field(default=1.0, ge=0, le=1)  # of each task
    first: int = Field(default=1, ge=1)  # the first round of it
    last: int | None = Field(default=None, ge=1)  # the last round of it; None: to the end


class FaultSettings(BaseModel):
    """The `[faults]` table."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    rule: list[FaultRule] = Field(default_factory=list)


def struck_clients(rule: FaultRule, number: int, names: Sequence[str], seed: int) -> frozenset[str]:
    """The clients that a rule strikes: those it names, or a share of all, drawn by the seed. A rule that strikes none
    is refused: a run without faults must not pass for one that stood them."""
    if rule.last is not None and rule.last < rule.first:
        raise ConfigError(
            f"faults: first = {rule.first}, last = {rule.last}: no round is in between; give a later `last`",
            code="invalid-setting",
        )
    if isinstance(rule.clients, list):
        for name in rule.clients:
            if name not in names:
                raise ConfigError(f"faults: there is no client {name!r}; {nearest(name, names)}", code="unknown-client")
        return frozenset(rule.clients)
    if not 0 <= rule.clients <= 1:
        raise ConfigError(f"faults: clients = {rule.clients}: must be a share from 0 to 1", code="invalid-setting")
    count = round(rule.clients * len(names))
    if rule.clients and not count:
        raise ConfigError(
            f"faults: clients = {rule.clients}: of {len(names)} clients that is none; give {1 / len(names):.2g} or "
            "more, or a list of names",
            code="invalid-setting",
        )
    return frozenset(stream(seed, "faults", number).choice(sorted(names), count, replace=False).tolist())


class InjectedFaults(Transport):
    """A transport whose clients have these faults."""

    def __init__(self, inner: Transport, settings: FaultSettings, names: Sequence[str], seed: int) -> None:
        self.inner, self.queue, self.replies = inner, inner.queue, inner.replies
        self._seed = seed
        self._rules = [
            (number, rule, struck_clients(rule, number, names, seed)) for number, rule in enumerate(settings.rule)
        ]
        self._refuse_own_crash(settings)
        self._envelopes: dict[int, Envelope] = {}
        self._held: list[tuple[float, Outcome]] = []  # outcomes that come later, by the machine's clock

    @property
    def window(self) -> int:  # type: ignore[override]
        """A reply that is delayed keeps no other client from working."""
        return self.inner.window + len(self._held)

    def _refuse_own_crash(self, settings: FaultSettings) -> None:
        from atoll.federation.local import SerialTransport

        if isinstance(self.inner, SerialTransport) and any(rule.kind == "crash" for rule in settings.rule):
            raise ConfigError(
                "faults: kind = 'crash': all clients work in this process (engine.workers = 0), which would die with "
                "them; use one worker or more",
                code="inapplicable-setting",
            )

    def start(self, envelope: Envelope) -> None:
        self._envelopes[envelope.order] = envelope
        task = envelope.task
        for rule, _ in self._striking(envelope):
            if rule.kind in ON_CLIENT:
                inner = {"job": task.job, "payload": task.payload}
                task = replace(task, job=f"{__name__}:{rule.kind}", payload=inner)
        self.inner.start(replace(envelope, task=task))

    def poll(self, timeout: float | None) -> list[Outcome]:
        if self._held:
            left = max(0.0, min(due for due, _ in self._held) - time.monotonic())
            timeout = left if timeout is None else min(left, timeout)
        started = time.monotonic()
        found = self.inner.poll(timeout)
        for outcome in found:
            self._strike(outcome)
        now = time.monotonic()
        ready = [outcome for due, outcome in self._held if due <= now]
        if not ready and not found and self._held and timeout is not None:
            time.sleep(max(0.0, timeout - (now - started)))  # a serial transport returns at once
        self._held = [(due, outcome) for due, outcome in self._held if due > now]
        return ready

    def abandon(self, order: int) -> None:
        self._envelopes.pop(order, None)
        self._held = [(due, outcome) for due, outcome in self._held if outcome.order != order]
        self.inner.abandon(order)

    def saved(self, memory: Mapping[str, Payload], since: int) -> None:
        self.inner.saved(memory, since)

    def close(self) -> None:
        self.inner.close()

    def _strike(self, outcome: Outcome) -> None:
        """Put an outcome where `poll` finds it, changed by the rules that strike its client."""
        envelope = self._envelopes.pop(outcome.order, None)
        due = time.monotonic()
        for rule, rng in self._striking(envelope) if envelope is not None else ():
            if rule.kind == "delay" and outcome.error is None:
                due += rule.factor
            elif rule.kind not in ON_CLIENT and outcome.error is None:
                assert envelope is not None
                outcome = _changed(envelope, outcome, rule, rng)
        self._held.append((due, outcome))

    def _striking(self, envelope: Envelope) -> Iterator[tuple[FaultRule, Generator]]:
        """The rules that strike this task, each with its random stream. The report says what is true: none strikes a
        test evaluation, and `lie` changes no part of a reply that is one."""
        client, number = envelope.task.client, envelope.round
        for place, rule, struck in self._rules if not envelope.task.test_evaluation else ():
            rng = stream(self._seed, "faults", place, number, client, envelope.number)
            in_time = rule.first <= number and (rule.last is None or number <= rule.last)
            if client in struck and in_time and rng.random() < rule.probability:
                yield rule, rng


def _changed(envelope: Envelope, outcome: Outcome, rule: FaultRule, rng: Generator) -> Outcome:
    if rule.kind == "dropout":
        return Outcome(outcome.order, error="made to drop out")
    payload = outcome.payload or {}
    if rule.kind == "corrupt":
        frame = bytearray(wire.encode(_by_name(payload), digests=False))
        for place in rng.integers(len(frame), size=8):
            frame[place] ^= int(rng.integers(1, 256))
        try:
            return replace(
                outcome, payload=wire.decode(frame, digests=False, limits=checks.limits(envelope.task.returns))
            )
        except WireError as problem:
            return refused(envelope, problem)

    def update(values: Tensors, sent: Tensors | None) -> Tensors:
        # In the order of names: a resumed run may hold the tensors in another one.
        return Tensors({n: _new(values[n], None if sent is None else sent[n], rule, rng) for n in sorted(values)})

    change: Callable[[Any, Any, Any], Any]
    if rule.kind == "lie":
        change = _lie
    else:
        change = lambda check, value, sent: update(value, sent) if _is_update(check, value) else value  # noqa: E731
    return replace(outcome, payload=_walk(envelope.task.returns, payload, envelope.task.payload, change))


def _new(array: Array, sent: Array | None, rule: FaultRule, rng: Generator) -> Array:
    """The array of an update as a faulty client sends it."""
    if rule.kind in ("nan", "huge"):
        return np.full_like(array, np.nan if rule.kind == "nan" else 3e38)
    before = np.zeros_like(array, np.float64) if sent is None else sent.astype(np.float64)
    update = array - before
    if rule.kind == "noise":
        update = update + rng.standard_normal(array.shape) * rule.factor * float(np.sqrt(np.mean(update**2)))
    else:
        update = update * (-rule.factor if rule.kind == "flip" else rule.factor)
    with np.errstate(over="ignore"):
        return (before + update).astype(array.dtype)


def _by_name(payload: Payload) -> Payload:
    """The payload with its tensors in the order of their names."""
    return {key: value.slice(sorted(value)) if isinstance(value, Tensors) else value for key, value in payload.items()}


def _is_update(check: Any, value: Any) -> bool:
    return isinstance(check, checks.TensorsLike) and check.update is not None and isinstance(value, Tensors)


def _lie(check: Any, value: Any, sent: Any) -> Any:
    if isinstance(check, checks.Count) and type(value) is int:
        return check.maximum
    if isinstance(check, checks.CountsUpTo):
        return np.full_like(value, check.maximum)
    if isinstance(check, checks.CountArray) and value.ndim >= 2:  # confusion matrices: all rows onto the diagonal
        return np.eye(value.shape[-1], dtype=value.dtype) * value.sum(axis=-1, keepdims=True)
    return value


def _walk(returns: Any, payload: Any, sent: Any, change: Callable[[Any, Any, Any], Any]) -> Any:
    """The payload with each described leaf changed; `sent` is what the task holds at the same place."""
    if isinstance(returns, Mapping) and isinstance(payload, dict):
        inner = sent if isinstance(sent, dict) else {}
        return {
            key: _walk(returns[key], value, inner.get(key), change) if key in returns and key != REPORT else value
            for key, value in payload.items()
        }
    if isinstance(returns, list) and isinstance(payload, list):
        return [_walk(one, value, None, change) for one, value in zip(returns, payload, strict=True)]
    values = isinstance(returns, checks.TensorsLike) and returns.update == "values" and isinstance(sent, Tensors)
    return payload if returns is None else change(returns, payload, sent if values else None)


# -- the clients' side -----------------------------------------------------------------------------------------------


def _crash(payload: Payload, client: Client) -> Payload:
    """The work is done, and no answer of it is left: as a process that the system ends."""
    find_job(payload["job"])(payload["payload"], client)
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def _label_flip(payload: Payload, client: Client) -> Payload:
    return find_job(payload["job"])(payload["payload"], replace(client, data=_Flipped(client.data)))


@dataclass(frozen=True)
class _Flipped:
    """A client's data whose training rows have wrong labels; other parts are as they are."""

    data: LocalData

    @property
    def schema(self) -> Schema:
        return self.data.schema

    def part(self, part: Part, /) -> tuple[Array, Array]:
        x, y = self.data.part(part)
        return x, len(self.schema.classes) - 1 - y if part == "train" else y


JOBS: dict[str, Job] = {"crash": _crash, "label_flip": _label_flip}
