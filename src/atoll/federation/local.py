"""The embedded engine: all clients on this machine, in this process or in worker processes.

Workers are processes that read and write `wire` frames, with one torch thread each. The data is written once to a
scratch folder that every worker maps into memory. A worker that dies is replaced and its task done again, once.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.core import wire
from atoll.core.messages import ClientInfo, Payload
from atoll.data.loading import settle
from atoll.data.private import PrivateRows
from atoll.errors import AtollError, ConfigError, WireError
from atoll.federation import executor
from atoll.federation.base import Federation
from atoll.federation.clock import Clock
from atoll.federation.engines import Engine, Request
from atoll.federation.exchange import ExchangeRules
from atoll.federation.executor import TaskEncoder, perform, stream_name, words
from atoll.federation.journal import Journal
from atoll.federation.transport import LONGEST_TASK, Envelope, Outcome, Transport
from atoll.federation.worker import read_frame, send_request, widen_pipe, write_frame
from atoll.store.lock import Lock, hold, owner
from atoll.training.determinism import ENVIRONMENT, single_thread

if TYPE_CHECKING:
    from atoll.data import Federated

LONGEST_SELECT = 1e6  # seconds that the system accepts


def local_federation(
    data: Federated,
    seed: int,
    workers: int | None = None,
    device: str = "cpu",
    deadline: float | None = None,
    preload: Sequence[str] = (),
    clock: Clock | None = None,
    journal: Journal | None = None,
    rules: ExchangeRules | None = None,
) -> Federation:
    """All clients of `data` on this machine. The parameters are those of `local_transport` and `Federation`."""
    transport = local_transport(data, seed, workers, device, preload)
    clients, benchmark, held_out = clients_of(data)
    rules = rules or ExchangeRules(deadline=deadline)
    return Federation(transport, clients, benchmark, rules, clock, journal, held_out)


def local_transport(
    data: Federated,
    seed: int,
    workers: int | None = None,
    device: str = "cpu",
    preload: Sequence[str] = (),
    longest: float = LONGEST_TASK,
) -> Transport:
    """`workers=0` does everything in this process; None: one worker process per processor.

    `preload` names modules that workers import before their first task, outside of any deadline. A worker that takes
    more than `longest` seconds for a task is replaced.
    """
    count = (os.cpu_count() or 1) if workers is None else workers
    if count < 0:
        raise ConfigError(f"workers = {count}: must be 0 (everything in this process) or more", code="workers-negative")
    if count == 0:
        return SerialTransport(data, seed, device)
    return WorkerTransport(data, seed, count, device, preload, longest)


def clients_of(data: Federated) -> tuple[list[ClientInfo], list[ClientInfo], list[ClientInfo]]:
    """The clients of `data`, those that hold its benchmark's test set, and those that are held out."""
    clients, benchmark, held_out = ([data.info(name) for name in names] for names in data.holders())
    return clients, benchmark, held_out


class SerialTransport(Transport):
    """Every task is done at once, in this process. A task cannot be interrupted: a deadline holds between tasks."""

    window = 1

    def __init__(self, data: Federated, seed: int, device: str) -> None:
        single_thread()
        self._data, self._seed, self._device = data, seed, device
        self._outcomes: list[Outcome] = []

    def start(self, envelope: Envelope) -> None:
        task = envelope.task
        name = stream_name(self._seed, envelope.round, task.client, envelope.number)
        try:
            data = self._data.client(task.client)
            payload, memory = perform(task.job, task.payload, envelope.memory, data, name, self._device)
            size = wire.size(payload, digests=False)
            problem = executor.check_size(envelope, size)
            outcome = executor.with_sound_memory(envelope, Outcome(envelope.order, payload, memory, size))
            if problem is not None:
                outcome = executor.refused(envelope, problem)
        except (Exception, SystemExit) as problem:  # a client's failure is data, whatever it is
            outcome = Outcome(envelope.order, error=words(problem))
        self._outcomes.append(outcome)

    def poll(self, timeout: float | None) -> list[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def abandon(self, order: int) -> None:
        self._outcomes = [outcome for outcome in self._outcomes if outcome.order != order]

    def close(self) -> None:
        self._outcomes = []


class WorkerTransport(Transport):
    """A pool of worker processes, each doing one task at a time, of `longest` seconds at most."""

    def __init__(
        self,
        data: Federated,
        seed: int,
        count: int,
        device: str,
        preload: Sequence[str] = (),
        longest: float = LONGEST_TASK,
    ) -> None:
        self.longest = longest
        self.window = 2 * count + 2
        self._scratch, self._lock = scratch_folder()
        data.save(self._scratch)
        self._settings: Payload = {"data": str(self._scratch), "seed": seed, "device": device, "preload": list(preload)}
        self._selector = selectors.DefaultSelector()
        self._queue: deque[Envelope] = deque()
        self._died: set[int] = set()  # envelopes on which one worker has died
        self._lost: list[Outcome] = []  # envelopes that could not even be handed over
        self._workers = [_Worker(self._settings, self._scratch, self._selector) for _ in range(count)]
        self._started = False

    def start(self, envelope: Envelope) -> None:
        if not self._started:
            self._wait_for_workers()
        self._queue.append(envelope)
        self._dispatch()

    def poll(self, timeout: float | None) -> list[Outcome]:
        end = math.inf if timeout is None else time.monotonic() + timeout
        outcomes, self._lost = self._lost, []
        while not outcomes and any(worker.envelope for worker in self._workers):
            begun = min(worker.begun for worker in self._workers if worker.envelope)
            left = min(end, begun + self.longest) - time.monotonic()
            ready = self._selector.select(max(0.0, min(left, LONGEST_SELECT)))
            for key, _ in ready:
                outcome = self._receive(key.data)
                if outcome is not None:
                    outcomes.append(outcome)
            outcomes += self._lost + self._hanging()
            self._lost = []
            if not ready and time.monotonic() >= end:
                break
        return outcomes

    def _hanging(self) -> list[Outcome]:
        """Failures of tasks that take too long; their workers are replaced."""
        found = []
        for worker in self._workers:
            if worker.envelope is not None and time.monotonic() >= worker.begun + self.longest:
                found.append(Outcome(worker.envelope.order, error=f"no answer within {self.longest:g} s"))
                worker.restart()
        self._dispatch()
        return found

    def abandon(self, order: int) -> None:
        self._queue = deque(envelope for envelope in self._queue if envelope.order != order)
        for worker in self._workers:
            if worker.envelope is not None and worker.envelope.order == order:
                worker.restart()
        self._dispatch()

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers = []
        self._selector.close()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._lock.release()

    def _wait_for_workers(self) -> None:
        """Once, before the first task: importing takes seconds, which belong to no round."""
        while not all(worker.ready for worker in self._workers):
            for key, _ in self._selector.select():
                if not key.data.becomes_ready():
                    log = (self._scratch / "workers.log").read_text(errors="replace").strip().splitlines()
                    raise AtollError(
                        f"a worker process cannot start: {log[-1] if log else 'it left no message'}",
                        code="worker-cannot-start",
                    )
        self._started = True

    def _dispatch(self) -> None:
        for worker in self._workers:
            while worker.envelope is None and self._queue:
                envelope = self._queue.popleft()
                try:
                    worker.give(envelope)
                except OSError:  # it died while idle, or while it read this
                    worker.restart()
                    lost = self._try_again(envelope)
                    if lost is not None:
                        self._lost.append(lost)

    def _receive(self, worker: _Worker) -> Outcome | None:
        """A worker has written something, or has died."""
        if not worker.ready and worker.becomes_ready():
            return None
        envelope = worker.envelope
        try:
            frame = worker.answer()
        except WireError as problem:
            worker.restart()  # the rest of its answer is still in the pipe
            self._dispatch()
            assert envelope is not None
            return executor.refused(envelope, problem)
        if frame is None:
            worker.restart()
            outcome = None if envelope is None else self._try_again(envelope)
            self._dispatch()
            return outcome
        if envelope is None:
            raise AssertionError("a worker answered without being asked")
        self._dispatch()  # first of all: the worker is busy again while its answer is read here
        return executor.outcome(envelope, frame)

    def _try_again(self, envelope: Envelope) -> Outcome | None:
        """The worker died on this envelope: do it again once, then it has failed."""
        if envelope.order in self._died:
            return Outcome(envelope.order, error="the worker process died twice on this task")
        self._died.add(envelope.order)
        self._queue.appendleft(envelope)
        return None


class _Worker:
    """One worker process, what it is doing, and which tensors it holds."""

    def __init__(self, settings: Payload, scratch: Path, selector: selectors.BaseSelector) -> None:
        self._settings, self._scratch, self._selector = settings, scratch, selector
        self._start()

    def _start(self) -> None:
        self.envelope: Envelope | None = None
        self.begun = 0.0
        self.ready = False  # it says so once, before it answers anything
        self._encoder = TaskEncoder()
        tasks_out, tasks = os.pipe()
        answers, answers_in = os.pipe()
        # Unbuffered: a buffer could hold an answer that `select` then never announces.
        self._in, self._out = os.fdopen(tasks, "wb", buffering=0), os.fdopen(answers, "rb", buffering=0)
        with open(self._scratch / "workers.log", "ab") as log:
            descriptors = (tasks_out, answers_in, log.fileno())
            self._forks, self._process = forked(self._settings["preload"], descriptors)
        os.close(tasks_out)
        os.close(answers_in)
        widen_pipe(self._in)
        widen_pipe(self._out)
        write_frame(self._in, wire.encode(self._settings))
        self._selector.register(self._out, selectors.EVENT_READ, self)

    def give(self, envelope: Envelope) -> None:
        """Send a task, with those of its tensors that this worker lacks."""
        write_frame(self._in, self._encoder.encode(envelope))
        self.envelope, self.begun = envelope, time.monotonic()

    def becomes_ready(self) -> bool:
        """Read that the worker is ready; False if it has died instead."""
        try:
            self.ready = read_frame(self._out) is not None
        except OSError:
            self.ready = False
        return self.ready

    def answer(self) -> bytearray | None:
        """The frame in which the worker answers, or None if it has died."""
        most = None if self.envelope is None else executor.longest_answer(self.envelope)
        self.envelope = None
        try:
            return read_frame(self._out, most)
        except OSError:
            return None

    def restart(self) -> None:
        self.stop()
        self._start()

    def stop(self) -> None:
        self._selector.unregister(self._out)
        self._forks.stop(self._process)
        for end in (self._in, self._out):
            with contextlib.suppress(OSError):
                end.close()


class _ForkServer:
    """The process that workers are forked from, see `federation/worker.py`. It ends when its socket is closed."""

    def __init__(self) -> None:
        self._owner, self._lock = os.getpid(), threading.Lock()
        self._control, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "atoll.federation.worker"],
            stdin=theirs.fileno(),
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        theirs.close()
        atexit.register(self._control.close)

    @property
    def alive(self) -> bool:
        return self._owner == os.getpid() and self._process.poll() is None

    def start(self, preload: Sequence[str], descriptors: Sequence[int]) -> int:
        """A new worker with this program's environment, folder and paths: its process number."""
        asked: Payload = {
            "preload": list(preload),
            "environment": {**os.environ, **ENVIRONMENT},
            "folder": os.getcwd(),
            "path": list(filter(None, sys.path)),
        }
        with self._lock:
            return send_request(self._control, asked, descriptors)

    def stop(self, worker: int) -> None:
        """Kill a worker and wait for its end."""
        try:
            with self._lock:
                send_request(self._control, {"stop": worker})
        except OSError:  # the fork server was killed, so that nothing waits for its workers
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)

    def ended(self) -> None:
        """Return when the process is gone, of which a failed request has told."""
        self._control.close()
        self._process.wait()


_server: _ForkServer | None = None


def fork_server() -> _ForkServer:
    """The one of this process; it is started on first use, and again if it has ended."""
    global _server
    if _server is None or not _server.alive:
        _server = _ForkServer()
    return _server


def forked(preload: Sequence[str], descriptors: Sequence[int]) -> tuple[_ForkServer, int]:
    """A new worker, and the fork server that started it. One that was just killed may seem to be alive still."""
    server = fork_server()
    try:
        return server, server.start(preload, descriptors)
    except OSError:
        server.ended()
        server = fork_server()
        return server, server.start(preload, descriptors)


def scratch_folder() -> tuple[Path, Lock]:
    """A folder for this process's shared data, and its lock; folders of processes that were killed are removed.

    The lock says whether the owner lives, also where it is in another container, whose processes have other numbers.
    """
    root = Path(tempfile.gettempdir())
    for old in root.glob("atoll-scratch-*"):
        if (old / "lock").is_file() and old.stat().st_uid == os.getuid() and owner(old) is None:
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"atoll-scratch-{os.getpid()}-", dir=root))
    return folder, hold(folder, "a scratch folder")


def open_engine(request: Request) -> Engine:
    """The clients of the request's data, on this machine."""

    def transport(data: Federated) -> Transport:
        longest = max(LONGEST_TASK, request.engine.deadline or 0.0)
        return local_transport(data, request.seed, workers, request.engine.device, ["torch", request.module], longest)

    # A worker process cannot import what was defined in a notebook.
    workers = 0 if request.module == "__main__" else request.engine.workers
    if workers != 0:
        fork_server()  # imports torch while the data is read here
    return engine_of(request, transport)


def engine_of(request: Request, transport: Callable[[Federated], Transport]) -> Engine:
    """An engine for data that is in one place, by what carries tasks to its clients."""
    import torch

    device = request.engine.device
    if device != "cpu" and not torch.cuda.is_available():
        raise ConfigError(
            f"engine.device = {device!r}: torch finds no such device here; use cpu", code="device-missing"
        )
    if request.given is not None:
        rules = request.given.client_rows.rules
        federated, settings = request.given, request.data.model_copy(update=asdict(rules) if rules else {})
    else:
        private = None if request.privacy is None else PrivateRows(request.privacy.bounds, request.privacy.moment_noise)
        federated, settings = settle(request.data, request.seed, request.data_dir, private)
    if request.centralised:
        federated = federated.centralised()
    clients, benchmark, held_out = clients_of(federated)
    return Engine(
        preparation=federated.preparation,
        own_preparation=None if request.centralised else federated.preparation_of,
        clients=clients,
        benchmark=benchmark,
        held_out=held_out,
        data=settings,
        given=request.given is not None,
        about={"digest": federated.digest(), "clients": len(clients), "rows": federated.rows},
        transport=lambda run, directory: transport(federated),
    )
