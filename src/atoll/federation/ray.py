"""The same protocol on a pool of Ray actors: one machine, or a cluster that one trusts.

Atoll's own frames travel, but Ray wraps them with pickle and its actors run what its head tells them: for trusted
clusters only. The data goes into Ray's object store once; actors on one machine share its pages. Every machine of
the cluster needs the same Atoll.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.core.ledger import Ledger
from atoll.errors import ConfigError
from atoll.federation import executor
from atoll.federation.base import Federation
from atoll.federation.engines import Engine, Request
from atoll.federation.envelopes import Envelope, Outcome
from atoll.federation.executor import Executor, TaskEncoder
from atoll.federation.local import LocalEngine
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


class RayFederation(Federation):
    """All clients of `data`, played by `workers` actors (None: one per processor of the cluster)."""

    def __init__(
        self,
        data: Federated,
        seed: int,
        workers: int | None = None,
        device: str = "cpu",
        deadline: float | None = None,
        ledger: Ledger | None = None,
        preload: Sequence[str] = (),
        address: str | None = None,
    ) -> None:
        """`address` of a running cluster's head; without it a cluster of this one machine is started, and ended."""
        if workers == 0:
            raise ConfigError(
                "workers = 0: on Ray at least one actor does the work; give 1 or more, or use local",
                code="ray-needs-worker",
            )
        super().__init__(
            RayTransport(data, seed, workers, device, preload, address),
            [data.info(name) for name in data.names],
            ledger if ledger is not None else Ledger(),
            [data.info(name) for name in data.benchmark],
            deadline,
        )


class RayTransport:
    """A pool of actors, each playing one client at a time. An actor that dies is replaced, its task done again once."""

    def __init__(
        self,
        data: Federated,
        seed: int,
        workers: int | None,
        device: str,
        preload: Sequence[str],
        address: str | None,
    ) -> None:
        self._ray = _connect(address, workers)
        count = workers if workers is not None else max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self.window = 2 * count + 2
        # A processor each, so that actors spread over the machines of a cluster.
        self._actor = self._ray.remote(num_cpus=1, max_restarts=0)(_Actor)
        self._hello = (self._ray.put(data.taken_apart()), seed, device, list(preload))
        self._queue: deque[Envelope] = deque()
        self._died: set[int] = set()  # envelopes that have cost one actor its life
        self._seats = [self._seat() for _ in range(count)]
        self._ray.get([seat.actor.ready.remote() for seat in self._seats])  # importing is nobody's round

    def start(self, envelope: Envelope) -> None:
        self._queue.append(envelope)
        self._dispatch()

    def poll(self, timeout: float | None) -> list[Outcome]:
        outcomes: list[Outcome] = []
        while not outcomes:
            busy = {seat.answer: seat for seat in self._seats if seat.answer is not None}
            if not busy:
                break
            done, _ = self._ray.wait(list(busy), num_returns=1, timeout=timeout)
            if not done:
                break
            heard = [self._hear(busy[answer]) for answer in done]
            outcomes = [outcome for outcome in heard if outcome is not None]
            self._dispatch()
        return outcomes

    def abandon(self, order: int) -> None:
        self._queue = deque(envelope for envelope in self._queue if envelope.order != order)
        for number, seat in enumerate(self._seats):
            if seat.envelope is not None and seat.envelope.order == order:
                self._ray.kill(seat.actor)
                self._seats[number] = self._seat()
        self._dispatch()

    def close(self) -> None:
        for seat in self._seats:
            self._ray.kill(seat.actor)
        self._seats = []
        self._ray.shutdown()

    def _seat(self) -> _Slot:
        return _Slot(self._actor.remote(*self._hello), TaskEncoder())

    def _dispatch(self) -> None:
        for seat in self._seats:
            if seat.envelope is None and self._queue:
                seat.envelope = self._queue.popleft()
                seat.answer = seat.actor.answer.remote(seat.letters.write(seat.envelope))

    def _hear(self, seat: _Slot) -> Outcome | None:
        envelope, answer = seat.envelope, seat.answer
        assert envelope is not None
        seat.envelope = seat.answer = None
        try:
            frame = self._ray.get(answer)
        except self._ray.exceptions.RayError:  # the actor died, or its machine did
            self._seats[self._seats.index(seat)] = self._seat()
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
    letters: TaskEncoder
    envelope: Envelope | None = None
    answer: Any = None


class _Actor:
    """In a process of Ray's: the player of a worker process, with the data from the object store."""

    def __init__(self, parts: Any, seed: int, device: str, preload: list[str]) -> None:
        from atoll.data import Federated

        single_thread()
        for module in ("torch", *preload):
            importlib.import_module(module)
        self._player = Executor(Federated.put_together(*parts), seed, device)

    def ready(self) -> bool:
        return True

    def answer(self, frame: bytes) -> bytes:
        return self._player.answer(frame)


def _connect(address: str | None, workers: int | None) -> Any:
    """Ray, joined to the cluster at `address` or started on this machine alone."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if any(name in os.environ for name in TOKEN) or (Path.home() / ".ray" / "auth_token").exists():
        # Ray does so by itself for a cluster it starts, and not for one it joins.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    try:
        import ray
    except ImportError:
        raise ConfigError(
            "engine ray: the package ray is missing; install it with: pip install 'atoll[ray]'", code="ray-missing"
        ) from None
    environment = {"env_vars": {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}}
    options: dict[str, Any] = {"configure_logging": False, "log_to_driver": False, "ignore_reinit_error": False}
    if address is None:
        options |= {"num_cpus": workers or os.cpu_count() or 1, "include_dashboard": False}
    else:
        environment["env_vars"].pop("PYTHONPATH")  # other machines have paths of their own
    _knock(address)
    ray.init(address=address or "local", runtime_env=environment, **options)
    return ray


def _knock(address: str | None) -> None:
    """A cluster must answer at its address: Ray itself would try for minutes."""
    if address is None or address == "auto":
        return
    host, _, port = address.rpartition(":")
    way_out = "start one with `ray start --head`, or leave the address out for this machine alone"
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, ValueError) as problem:
        raise ConfigError(
            f"engine.ray_address = {address!r}: no cluster answers ({problem}); {way_out}", code="ray-not-answering"
        ) from None


class RayEngine(LocalEngine):
    """As local, but the clients are played by actors."""

    def federation(self, run: str, directory: Path) -> Federation:

        engine, module = self.request.engine, self.request.module
        if module == "__main__":
            raise ConfigError(
                "engine ray: actors cannot import a method of a notebook; put it in a module, or use local",
                code="method-not-importable",
            )
        return RayFederation(
            self.federated,
            self.request.seed,
            engine.workers,
            engine.device,
            engine.deadline,
            preload=[module],
            address=engine.ray_address,
        )


def open_engine(request: Request) -> Engine:
    return RayEngine(request)
