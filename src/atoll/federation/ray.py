"""The Ray engine: clients on a pool of actors, on one machine or on a trusted cluster.

Atoll's own frames travel, but Ray wraps them with pickle and its actors run whatever its head sends: for trusted
clusters only. The data goes into Ray's object store once; actors on one machine share its pages. Every machine of
the cluster needs the same Atoll.
"""

from __future__ import annotations

import importlib
import math
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.errors import ConfigError
from atoll.extras import require
from atoll.federation import executor
from atoll.federation.engines import Engine, Request
from atoll.federation.executor import Executor, TaskEncoder
from atoll.federation.local import engine_of
from atoll.federation.transport import LONGEST_TASK, Envelope, Outcome, Transport
from atoll.training.determinism import ENVIRONMENT, single_thread

if TYPE_CHECKING:
    from atoll.data import Federated


# No usage statistics, nothing bound to an external address on a single machine, and workers of ordinary priority: with
# Ray's own they starve beside anything else.
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_worker_niceness": "0",
}
TOKEN = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")  # either says where the cluster's password is


class RayTransport(Transport):
    """A pool of actors, each doing one task at a time. An actor that dies is replaced, its task done again once."""

    def __init__(
        self,
        data: Federated,
        seed: int,
        workers: int | None = None,
        device: str = "cpu",
        preload: Sequence[str] = (),
        address: str | None = None,
        longest: float = LONGEST_TASK,
    ) -> None:
        """`workers=None`: one actor per processor of the cluster. `address` of a running cluster's head; without it a
        cluster of this one machine is started, and ended. An actor that takes more than `longest` seconds for a task is
        replaced."""
        if workers == 0:
            raise ConfigError(
                "workers = 0: on Ray at least one actor does the work; give 1 or more, or use local",
                code="ray-needs-worker",
            )
        self._ray = _connect(address, workers)
        processors = max(1, self._processors())
        if workers is not None and workers > processors:
            self._ray.shutdown()
            raise ConfigError(
                f"engine.workers = {workers}: the cluster at {address} has {processors} processors, and an actor needs "
                "one of its own; give fewer, or start Ray on more machines",
                code="ray-too-few-processors",
            )
        count = processors if workers is None else workers
        self.window, self.longest = 2 * count + 2, longest
        # A processor each, so that actors spread over the machines of a cluster.
        self._actor = self._ray.remote(num_cpus=1, max_restarts=0)(_Actor)
        self._settings = (self._ray.put(data.taken_apart()), seed, device, list(preload))
        self._queue: deque[Envelope] = deque()
        self._died: set[int] = set()  # envelopes on which one actor has died
        self._slots = [self._new_slot() for _ in range(count)]
        self._ray.get([slot.actor.ready.remote() for slot in self._slots])  # importing belongs to no round

    def start(self, envelope: Envelope) -> None:
        self._queue.append(envelope)
        self._dispatch()

    def poll(self, timeout: float | None) -> list[Outcome]:
        end = math.inf if timeout is None else time.monotonic() + timeout
        outcomes: list[Outcome] = []
        while not outcomes:
            busy = {slot.answer: slot for slot in self._slots if slot.answer is not None}
            if not busy:
                break
            left = min(end, min(slot.begun for slot in busy.values()) + self.longest) - time.monotonic()
            done, _ = self._ray.wait(list(busy), num_returns=1, timeout=max(0.0, min(left, LONGEST_TASK)))
            received = [self._receive(busy[answer]) for answer in done]
            outcomes = [outcome for outcome in received if outcome is not None] + self._hanging()
            self._dispatch()
            if not done and time.monotonic() >= end:
                break
        return outcomes

    def _hanging(self) -> list[Outcome]:
        """Failures of tasks that take too long; their actors are replaced."""
        found = []
        for number, slot in enumerate(self._slots):
            if slot.envelope is not None and time.monotonic() >= slot.begun + self.longest:
                found.append(Outcome(slot.envelope.order, error=f"no answer within {self.longest:g} s"))
                self._ray.kill(slot.actor)
                self._slots[number] = self._new_slot()
        return found

    def abandon(self, order: int) -> None:
        self._queue = deque(envelope for envelope in self._queue if envelope.order != order)
        for number, slot in enumerate(self._slots):
            if slot.envelope is not None and slot.envelope.order == order:
                self._ray.kill(slot.actor)
                self._slots[number] = self._new_slot()
        self._dispatch()

    def close(self) -> None:
        for slot in self._slots:
            self._ray.kill(slot.actor)
        self._slots = []
        self._ray.shutdown()

    def _processors(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 0))

    def _replace(self, slot: _Slot) -> None:
        """A new actor for one that died. If a machine has left the cluster with it, the others do its work."""
        place = self._slots.index(slot)
        if self._processors() >= len(self._slots) or len(self._slots) == 1:
            self._slots[place] = self._new_slot()
        else:
            del self._slots[place]

    def _new_slot(self) -> _Slot:
        return _Slot(self._actor.remote(*self._settings), TaskEncoder())

    def _dispatch(self) -> None:
        for slot in self._slots:
            if slot.envelope is None and self._queue:
                slot.envelope = self._queue.popleft()
                slot.answer = slot.actor.answer.remote(slot.encoder.encode(slot.envelope))
                slot.begun = time.monotonic()

    def _receive(self, slot: _Slot) -> Outcome | None:
        envelope, answer = slot.envelope, slot.answer
        assert envelope is not None
        slot.envelope = slot.answer = None
        try:
            frame = self._ray.get(answer)
        except self._ray.exceptions.RayError:  # the actor died, or its machine did
            self._replace(slot)
            if envelope.order in self._died:
                return Outcome(envelope.order, error="the actor died twice on this task")
            self._died.add(envelope.order)
            self._queue.appendleft(envelope)
            return None
        return executor.outcome(envelope, frame)


@dataclass(eq=False)
class _Slot:
    """One actor, what it is doing, and what it holds."""

    actor: Any
    encoder: TaskEncoder
    envelope: Envelope | None = None
    answer: Any = None
    begun: float = 0.0


class _Actor:
    """In a process of Ray's: an executor, with the data from the object store."""

    def __init__(self, parts: Any, seed: int, device: str, preload: list[str]) -> None:
        from atoll.data import Federated

        single_thread()
        for module in ("torch", *preload):
            importlib.import_module(module)
        self._executor = Executor(Federated.put_together(*parts), seed, device)

    def ready(self) -> bool:
        return True

    def answer(self, frame: bytes) -> bytes:
        return self._executor.answer(frame)


def _connect(address: str | None, workers: int | None) -> Any:
    """Ray, joined to the cluster at `address` or started on this machine alone."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if any(name in os.environ for name in TOKEN) or (Path.home() / ".ray" / "auth_token").exists():
        # Ray does so by itself for a cluster it starts, and not for one it joins.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    import ray

    environment = {"env_vars": {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}
    options: dict[str, Any] = {"configure_logging": False, "log_to_driver": False, "ignore_reinit_error": False}
    if address is None:
        options |= {"num_cpus": workers or os.cpu_count() or 1, "include_dashboard": False}
    else:
        environment["env_vars"].pop("PYTHONPATH")  # other machines have paths of their own
    _require_answer(address)
    ray.init(address=address or "local", runtime_env=environment, **options)
    return ray


def _require_answer(address: str | None) -> None:
    """A cluster must answer at its address: Ray itself would try for minutes."""
    if address is None or address == "auto":
        return
    host, _, port = address.rpartition(":")
    hint = "start one with `ray start --head`, or leave the address out for this machine alone"
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, ValueError) as problem:
        raise ConfigError(
            f"engine.ray_address = {address!r}: no cluster answers ({problem}); {hint}", code="ray-not-answering"
        ) from None


def open_engine(request: Request) -> Engine:
    """The clients of the request's data, on Ray's actors."""
    require("ray")
    settings = request.engine
    if request.module == "__main__":
        raise ConfigError(
            "engine ray: actors cannot import a method of a notebook; put it in a module, or use local",
            code="method-not-importable",
        )

    def transport(data: Federated) -> Transport:
        preload, address = [request.module], settings.ray_address
        longest = max(LONGEST_TASK, settings.deadline or 0.0)
        return RayTransport(data, request.seed, settings.workers, settings.device, preload, address, longest)

    return engine_of(request, transport)
