"""A federation whose accepted replies survive a kill: no reply that a method has seen is asked for twice.

Where a real clock decides who answers in time, a repeated round would go another way. So every outcome is written to a
journal in the run directory, and is on the disk, before the method sees it; a resumed run takes it from there. The
place of an outcome is the call (`send`, `receive` or `map`) in which it arrived: a method is deterministic, so its
calls come in the same order again. An outcome is bound to its task: should a run take another way than before (it goes
further than was planned), what does not fit is thrown away. Once two later checkpoints are written, it is not needed.

    journal/00000012.journal   the outcomes that arrived after call 12
    record = length, 8 bytes little-endian | digest, 16 bytes | frame of `wire`
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from atoll.core import wire
from atoll.core.messages import Payload, Reply, Task
from atoll.errors import RunDamaged, WireError
from atoll.federation.base import Federation
from atoll.federation.envelopes import Envelope, Outcome
from atoll.store.files import sync_folder

HEAD = 24


class Journal:
    """The outcomes since the last two checkpoints, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._calls: dict[int, list[Outcome]] = {}  # outcomes to be told again, by call
        self._ended: set[int] = set()
        self._last = -1  # the last call of which anything is known
        self.known: dict[int, str] = {}  # orders whose outcomes are to be told again -> what was asked
        for path in self._segments():
            for record in _read(path, last=path == self._segments()[-1]):
                self._remember(record)
        self._file = open(self._latest(), "ab")  # noqa: SIM115 (open while the run lasts)

    def _remember(self, record: Payload) -> None:
        call = int(record["call"])
        self._last = max(self._last, call)
        if record["order"] is None:
            self._ended.add(call)
            return
        outcome = Outcome(record["order"], record["payload"], record["memory"], record["size"], record["error"])
        self._calls.setdefault(call, []).append(outcome)
        self.known[outcome.order] = record["asked"]

    def skip(self, calls: int) -> None:
        """A checkpoint knows everything up to this call: tell of later calls only."""
        self._calls = {call: outcomes for call, outcomes in self._calls.items() if call > calls}
        left = {outcome.order for outcomes in self._calls.values() for outcome in outcomes}
        self.known = {order: asked for order, asked in self.known.items() if order in left}

    def ended(self, call: int) -> bool:
        """Whether the method has seen what this call gave."""
        return call in self._ended or call < self._last

    def take(self, call: int) -> list[Outcome]:
        """What arrived in this call, to be told once."""
        outcomes = self._calls.pop(call, [])
        for outcome in outcomes:
            del self.known[outcome.order]
        return outcomes

    def write(self, call: int, outcomes: Sequence[tuple[Outcome, str]]) -> None:
        """Outcomes, each with what was asked. When this returns, they are on the disk."""
        for outcome, asked in outcomes:
            values = {"order": outcome.order, "payload": outcome.payload, "memory": outcome.memory, "asked": asked}
            self._append({"call": call, **values, "size": outcome.size, "error": outcome.error})
        self._flush()

    def end(self, call: int) -> None:
        """The method is about to see what this call gave, and nothing may be added to it."""
        self._append({"call": call, "order": None})
        self._flush()

    def saved(self, calls: int) -> None:
        """A checkpoint that knows everything up to this call is on the disk."""
        before = self._segments()
        path = self._folder / f"{calls:08d}.journal"
        if path in before:
            return
        self._file.close()
        self._file = open(path, "ab")  # noqa: SIM115
        for old in before[:-1]:  # the last one holds what happened since the checkpoint before, which may be needed
            old.unlink()
        sync_folder(self._folder)

    def rewind(self, calls: int) -> None:
        """The run goes another way from this call on: nothing that is written here will happen again."""
        self._file.close()
        for path in self._segments():
            path.unlink()
        self._calls, self._ended, self._last, self.known = {}, set(), calls, {}
        self._file = open(self._folder / f"{calls:08d}.journal", "ab")  # noqa: SIM115
        sync_folder(self._folder)

    def close(self) -> None:
        self._file.close()

    def _append(self, record: Payload) -> None:
        frame = wire.encode(record, digests=False)
        self._file.write(len(frame).to_bytes(8, "little") + _digest(frame) + frame)

    def _flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def _segments(self) -> list[Path]:
        return sorted(self._folder.glob("*.journal"))

    def _latest(self) -> Path:
        return (self._segments() or [self._folder / f"{0:08d}.journal"])[-1]


class JournaledFederation(Federation):
    """A federation with a journal. Everything else is as in `Federation`."""

    journal: Journal | None = None
    _call = 0

    def send(self, tasks: Sequence[Task]) -> None:
        self._call += 1
        super().send(tasks)

    def receive(self, at_least: int | None = None, deadline: float | None = None) -> list[Reply]:
        self._call += 1
        if self.journal is not None and self.journal.ended(self._call):
            self._feed()
            return [self._deliver(order) for order in sorted(self._done)]
        replies = super().receive(at_least, deadline)
        if self.journal is not None:
            self.journal.end(self._call)
        return replies

    def map(self, tasks: Sequence[Task]) -> Iterator[Reply]:
        self._call += 1
        yield from super().map(tasks)

    def snapshot(self) -> Payload:
        return {**super().snapshot(), "calls": self._call}

    def restore(self, snapshot: Payload) -> None:
        super().restore(snapshot)
        self._call = snapshot.get("calls", 0)
        if self.journal is not None:
            self.journal.skip(self._call)

    def saved(self, snapshot: Payload) -> None:
        if self.journal is None:
            return
        if snapshot["calls"] < self._call:  # the run stopped and will try again what came after
            self.journal.rewind(snapshot["calls"])
        else:
            self.journal.saved(snapshot["calls"])

    def close(self) -> None:
        super().close()
        if self.journal is not None:
            self.journal.close()

    def _feed(self, streaming: bool = False) -> None:
        """Tasks whose outcomes the journal knows are not started; those that arrived in this call are told."""
        if self.journal is not None and self.journal.known:
            self._tell_again(self.journal)
        super()._feed(streaming)

    def _tell_again(self, journal: Journal) -> None:
        again = [order for order in self._waiting if order in journal.known]
        if any(journal.known[order] != _asked(self._waiting[order]) for order in again):
            journal.rewind(self._call - 1)
            return
        for order in again:
            self._working[order] = self._waiting.pop(order)
        for outcome in journal.take(self._call):
            self._accept(outcome)

    def _collect(self, timeout: float | None) -> None:
        if not self._working:
            return
        outcomes = self._transport.poll(timeout)
        expected = [(found, _asked(self._working[found.order])) for found in outcomes if found.order in self._working]
        if self.journal is not None and expected:
            self.journal.write(self._call, expected)
        for outcome in outcomes:
            self._accept(outcome)

    def _give_up(self, order: int) -> None:
        envelope = self._working.get(order) or self._waiting[order]
        super()._give_up(order)
        if self.journal is not None:
            self.journal.write(self._call, [(Outcome(order, error=self._done[order].error), _asked(envelope))])

    def _accept(self, outcome: Outcome) -> None:
        envelope = self._working.pop(outcome.order, None)
        if envelope is not None:
            self._shelve(envelope, outcome)
        else:
            self._refuse(outcome)


def _asked(envelope: Envelope) -> str:
    """A name for what a task asked, tensors by their content's names."""
    task = envelope.task
    about = {"id": task.id, "client": task.client, "job": task.job, "round": envelope.round, "number": envelope.number}
    return _digest(wire.encode({**about, "payload": task.payload}, envelope.digests)).hex()


def _digest(frame: bytes) -> bytes:
    return hashlib.blake2b(frame, digest_size=16).digest()


def _read(path: Path, last: bool) -> Iterator[Payload]:
    """The records of a segment. One that was being written when the process was killed has not been seen by anybody:
    it is cut off."""
    data, start = path.read_bytes(), 0
    while start < len(data):
        length = int.from_bytes(data[start : start + 8], "little")
        frame = data[start + HEAD : start + HEAD + length]
        if len(frame) < length or len(data) - start < HEAD or _digest(frame) != data[start + 8 : start + HEAD]:
            if not last or start + HEAD + length < len(data):
                raise RunDamaged(f"{path}: damaged at byte {start}; start the run anew", code="journal-damaged")
            os.truncate(path, start)
            return
        try:
            yield wire.decode(frame)
        except WireError as problem:
            raise RunDamaged(
                f"{path}: damaged at byte {start} ({problem}); start the run anew", code="journal-damaged"
            ) from problem
        start += HEAD + length
