"""The embedded engine: all clients on this machine, in this process or in worker processes.

Workers are programs of their own, spoken to in `wire` bytes, one torch thread each. The data is written once to a
scratch folder that every worker maps into memory. A worker that dies is replaced and its task done again, once.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.core import wire
from atoll.core.ledger import Ledger
from atoll.core.messages import Payload
from atoll.data.loading import settle
from atoll.errors import AtollError, ConfigError
from atoll.federation import executor, pipe
from atoll.federation.base import Federation
from atoll.federation.engines import Engine, Request
from atoll.federation.envelopes import Envelope, Outcome
from atoll.federation.executor import TaskEncoder, perform, stream_name, words
from atoll.training.determinism import ENVIRONMENT, single_thread

if TYPE_CHECKING:
    from atoll.data import Federated


class LocalFederation(Federation):
    """All clients of `data` on this machine. `workers=0` does everything in this process."""

    def __init__(
        self,
        data: Federated,
        seed: int,
        workers: int | None = None,
        device: str = "cpu",
        deadline: float | None = None,
        ledger: Ledger | None = None,
        preload: Sequence[str] = (),
    ) -> None:
        """`preload` names modules that workers import before their first task, outside of any deadline."""
        count = (os.cpu_count() or 1) if workers is None else workers
        if count < 0:
            raise ConfigError(
                f"workers = {count}: must be 0 (everything in this process) or more", code="workers-negative"
            )
        transport = (
            WorkerTransport(data, seed, count, device, preload) if count else SerialTransport(data, seed, device)
        )
        super().__init__(
            transport,
            [data.info(name) for name in data.names],
            ledger if ledger is not None else Ledger(),
            [data.info(name) for name in data.benchmark],
            deadline,
        )


class SerialTransport:
    """Every task is done on the spot, in this process. A task cannot be interrupted: a deadline holds between tasks."""

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
            outcome = Outcome(envelope.order, payload, memory, wire.size(payload, digests=False))
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


class WorkerTransport:
    """A pool of worker processes, each playing one client at a time."""

    def __init__(self, data: Federated, seed: int, count: int, device: str, preload: Sequence[str] = ()) -> None:
        self.window = 2 * count + 2
        self._scratch = scratch_folder()
        data.save(self._scratch)
        self._hello: Payload = {"data": str(self._scratch), "seed": seed, "device": device, "preload": list(preload)}
        self._selector = selectors.DefaultSelector()
        self._queue: deque[Envelope] = deque()
        self._died: set[int] = set()  # envelopes that have cost one worker its life
        self._lost: list[Outcome] = []  # envelopes that could not even be handed over
        self._workers = [_Worker(self._hello, self._scratch, self._selector) for _ in range(count)]
        self._started = False

    def start(self, envelope: Envelope) -> None:
        if not self._started:
            self._wait_for_workers()
        self._queue.append(envelope)
        self._dispatch()

    def poll(self, timeout: float | None) -> list[Outcome]:
        outcomes, self._lost = self._lost, []
        while not outcomes and any(worker.envelope for worker in self._workers):
            ready = self._selector.select(timeout)
            for key, _ in ready:
                outcome = self._hear(key.data)
                if outcome is not None:
                    outcomes.append(outcome)
            outcomes += self._lost
            self._lost = []
            if not ready:
                break
        return outcomes

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

    def _wait_for_workers(self) -> None:
        """Once, before the first task: importing takes seconds, which are nobody's round."""
        while not all(worker.ready for worker in self._workers):
            for key, _ in self._selector.select():
                if not key.data.greeted():
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
                    lost = self._bereaved(envelope)
                    if lost is not None:
                        self._lost.append(lost)

    def _hear(self, worker: _Worker) -> Outcome | None:
        """A worker has something to say, or is gone."""
        if not worker.ready and worker.greeted():
            return None
        envelope = worker.envelope
        frame = worker.answer()
        if frame is None:
            worker.restart()
            outcome = None if envelope is None else self._bereaved(envelope)
            self._dispatch()
            return outcome
        if envelope is None:
            raise AssertionError("a worker answered without being asked")
        self._dispatch()  # first of all: the worker is busy again while its answer is read here
        return executor.outcome(envelope, frame)

    def _bereaved(self, envelope: Envelope) -> Outcome | None:
        """The worker died on this envelope: do it again once, then call it a failure."""
        if envelope.order in self._died:
            return Outcome(envelope.order, error="the worker process died twice on this task")
        self._died.add(envelope.order)
        self._queue.appendleft(envelope)
        return None


class _Worker:
    """One worker process, what it is doing, and which tensors it holds."""

    def __init__(self, hello: Payload, scratch: Path, selector: selectors.BaseSelector) -> None:
        self._hello, self._scratch, self._selector = hello, scratch, selector
        self._start()

    def _start(self) -> None:
        self.envelope: Envelope | None = None
        self.ready = False  # it says so once, before it answers anything
        self._letters = TaskEncoder()
        with open(self._scratch / "workers.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "atoll.federation.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                # Ctrl-C in the terminal is for the server, which stops its workers after a checkpoint.
                start_new_session=True,
            )
        assert self._process.stdin and self._process.stdout
        self._in, self._out = self._process.stdin, self._process.stdout
        pipe.widen(self._in)  # type: ignore[arg-type]
        pipe.widen(self._out)  # type: ignore[arg-type]
        pipe.write(self._in, wire.encode(self._hello))  # type: ignore[arg-type]
        self._selector.register(self._out, selectors.EVENT_READ, self)

    def give(self, envelope: Envelope) -> None:
        """Send a task, with those of its tensors that this worker lacks."""
        pipe.write(self._in, self._letters.write(envelope))  # type: ignore[arg-type]
        self.envelope = envelope

    def greeted(self) -> bool:
        """Take the worker's word that it is ready; False if it is gone instead."""
        try:
            self.ready = pipe.read(self._out) is not None  # type: ignore[arg-type]
        except OSError:
            self.ready = False
        return self.ready

    def answer(self) -> bytearray | None:
        """The frame in which the worker answers, or None if it is gone."""
        self.envelope = None
        try:
            return pipe.read(self._out)  # type: ignore[arg-type]
        except OSError:
            return None

    def restart(self) -> None:
        self.stop()
        self._start()

    def stop(self) -> None:
        self._selector.unregister(self._out)
        self._process.kill()
        self._process.wait()
        for end in (self._in, self._out):
            with contextlib.suppress(OSError):
                end.close()


def scratch_folder() -> Path:
    """A folder for this process's shared data; folders of processes that were killed are swept away."""
    root = Path(tempfile.gettempdir())
    for old in root.glob("atoll-scratch-*"):
        owner = old.name.split("-")[2]
        if owner.isdigit() and not _alive(int(owner)):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"atoll-scratch-{os.getpid()}-", dir=root))


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


class LocalEngine:
    """Clients whose data is in one place. An engine that spreads them over machines derives from this."""

    def __init__(self, request: Request) -> None:
        self.request = request
        if request.given is not None:
            self.federated, self.data = request.given, request.data
        else:
            self.federated, self.data = settle(request.data, request.seed, request.data_dir)
        if request.centralised:
            self.federated = self.federated.centralised()
        self.schema = self.federated.schema
        self.clients = len(self.federated.names)

    def about(self) -> dict[str, Any]:
        return {"digest": self.federated.digest(), "clients": self.clients, "rows": self.federated.rows}

    def federation(self, run: str, directory: Path) -> Federation:

        engine, module = self.request.engine, self.request.module
        # A worker process cannot import what was defined in a notebook.
        workers = 0 if module == "__main__" else engine.workers
        seed = self.request.seed
        return LocalFederation(self.federated, seed, workers, engine.device, engine.deadline, preload=[module])


def open_engine(request: Request) -> Engine:
    return LocalEngine(request)
