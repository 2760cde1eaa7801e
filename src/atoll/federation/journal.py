"""The journal: replies that a method has seen survive a kill, and no client does their work twice.

Where a real clock decides who answers in time, a repeated round would have other replies. So every outcome is on the
disk, in the run directory, before the method sees it; a resumed run takes it from there. The place of an outcome is
the call (`send`, `receive` or `map`) in which it arrived: a method is deterministic, so its calls come in the same
order again. An outcome is bound to its task: if a run diverges (it continues further than was planned), outcomes that
do not fit are discarded. Once two later checkpoints are written, an outcome is not needed any more.

    journal/00000012.journal   the outcomes that arrived after call 12
    record = length, 8 bytes little-endian | digest, 16 bytes | frame of `wire`
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from atoll.core import wire
from atoll.core.messages import Payload
from atoll.errors import RunDamaged, WireError
from atoll.federation.transport import Envelope, Outcome, work_digest
from atoll.store.files import read_file, sync_folder

HEAD = 24


class Journal:
    """The outcomes since the last two checkpoints, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self._calls: dict[int, list[Outcome]] = {}  # outcomes to be replayed, by call
        self._ended: set[int] = set()
        self._last = -1  # the last call of which anything is known
        self.known: dict[int, str] = {}  # orders whose outcomes are to be replayed -> digest of the task
        for path in self._segments():
            for record in _read(path, last=path == self._segments()[-1]):
                self._remember(record)
        self._file = open(self._latest(), "ab")  # noqa: SIM115 (open while the run lasts)
        sync_folder(folder)

    def _remember(self, record: Payload) -> None:
        call = int(record["call"])
        self._last = max(self._last, call)
        if record["order"] is None:
            self._ended.add(call)
            return
        named = {key: record[key] for key in ("order", "payload", "memory", "size", "error")}
        outcome = Outcome(**named, rejected=record.get("rejected", False))
        self._calls.setdefault(call, []).append(outcome)
        self.known[outcome.order] = record["task"]

    def skip(self, calls: int) -> None:
        """The run continues from a checkpoint with everything up to this call: replay later calls only."""
        self._calls = {call: outcomes for call, outcomes in self._calls.items() if call > calls}
        left = {outcome.order for outcomes in self._calls.values() for outcome in outcomes}
        self.known = {order: task for order, task in self.known.items() if order in left}

    def fits(self, envelope: Envelope) -> bool:
        """Whether the outcome known for this order is that of this task."""
        return self.known[envelope.order] == _name(envelope)

    def ended(self, call: int) -> bool:
        """Whether the method has seen what this call gave."""
        return call in self._ended or call < self._last

    def take(self, call: int) -> list[Outcome]:
        """What arrived in this call. Each outcome is replayed once."""
        outcomes = self._calls.pop(call, [])
        for outcome in outcomes:
            del self.known[outcome.order]
        return outcomes

    def write(self, call: int, outcomes: Sequence[tuple[Envelope, Outcome]]) -> None:
        """Tasks and their outcomes. When this returns, they are on the disk."""
        for envelope, outcome in outcomes:
            values = {"order": outcome.order, "payload": outcome.payload, "memory": outcome.memory}
            about = {"size": outcome.size, "error": outcome.error, "rejected": outcome.rejected}
            about |= {"task": _name(envelope)}
            self._append({"call": call, **values, **about})
        self._flush()

    def end(self, call: int) -> None:
        """The method is about to see what this call gave, and nothing may be added to it."""
        self._append({"call": call, "order": None})
        self._flush()

    def saved(self, calls: int) -> None:
        """A checkpoint with everything up to this call is on the disk."""
        before = self._segments()
        path = self._folder / f"{calls:08d}.journal"
        if path in before:
            return
        self._file.close()
        self._file = open(path, "ab")  # noqa: SIM115
        for old in before[:-1]:  # the last one holds what happened since the previous checkpoint
            old.unlink()
        sync_folder(self._folder)

    def rewind(self, calls: int) -> None:
        """The run diverges after this call: nothing that is written here will happen again."""
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


def _name(envelope: Envelope) -> str:
    """A digest of a task. The order of weights does not matter: those of a checkpoint have another one."""
    task = envelope.task
    about = {"id": task.id, "client": task.client, "round": envelope.round, "number": envelope.number}
    return _digest(wire.encode({**about, "work": work_digest(task.job, task.payload)})).hex()


def _digest(frame: bytes) -> bytes:
    return hashlib.blake2b(frame, digest_size=16).digest()


def _read(path: Path, last: bool) -> Iterator[Payload]:
    """The records of a segment. One that was being written when the process was killed was not seen by the method: it
    is cut off."""
    data, start = read_file(path), 0
    while start < len(data):
        length = int.from_bytes(data[start : start + 8], "little")
        frame = data[start + HEAD : start + HEAD + length]
        if len(frame) < length or len(data) - start < HEAD or _digest(frame) != data[start + 8 : start + HEAD]:
            if not last or start + HEAD + length < len(data):
                raise RunDamaged(
                    f"{path}: damaged at byte {start}; start the run again from scratch", code="journal-damaged"
                )
            os.truncate(path, start)
            return
        try:
            yield wire.decode(frame)
        except WireError as problem:
            raise RunDamaged(
                f"{path}: damaged at byte {start} ({problem}); start the run again from scratch", code="journal-damaged"
            ) from problem
        start += HEAD + length
