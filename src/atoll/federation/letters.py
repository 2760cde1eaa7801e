"""What the server and a process that plays clients write to each other: tasks as letters, answers as frames.

Used by every engine whose processes live as long as the run and so can hold tensors themselves: local workers, Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll import wire
from atoll.errors import WireError
from atoll.federation.envelopes import Envelope, Outcome
from atoll.federation.perform import perform, stream_name, words
from atoll.messages import Array

if TYPE_CHECKING:
    from atoll.data import Federated


class Letters:
    """The server's side: which tensors one process holds, and letters with those that it lacks."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}  # digest -> round of its last use

    def write(self, envelope: Envelope) -> bytes:
        """The task as a letter; the process may forget what two rounds did not use."""
        forget = [digest for digest, used in self._held.items() if used < envelope.round - 1]
        for digest in forget:
            del self._held[digest]
        task = envelope.task
        letter = {
            "client": task.client,
            "job": task.job,
            "payload": task.payload,
            "memory": envelope.memory,
            "round": envelope.round,
            "number": envelope.number,
            "forget": forget,
        }
        frame = wire.encode(letter, self._held)
        self._held.update(dict.fromkeys(envelope.digests, envelope.round))
        return frame


class Player:
    """The process's side: plays one client after another."""

    def __init__(self, federated: Federated, seed: int, device: str) -> None:
        self._federated, self._seed, self._device = federated, seed, device
        self._held: dict[str, Array] = {}

    def answer(self, frame: bytes | bytearray) -> bytes:
        """Do the task of a letter: payload and new memory, or an error in words."""
        letter = wire.decode(frame, self._held)
        for digest in letter["forget"]:
            self._held.pop(digest, None)
        for owner, name in wire.take_apart(letter["payload"]).tensors:
            self._held[owner.digest(name)] = owner[name]
        drawing_from = stream_name(self._seed, letter["round"], letter["client"], letter["number"])
        try:
            data = self._federated.client(letter["client"])
            payload, memory = perform(
                letter["job"], letter["payload"], letter["memory"], data, drawing_from, self._device
            )
            return wire.encode({"payload": payload, "memory": memory, "error": None}, digests=False)
        except (Exception, SystemExit) as problem:  # a client's failure is data, whatever it is
            return wire.encode({"payload": {}, "memory": {}, "error": words(problem)})


def outcome(envelope: Envelope, frame: bytes | bytearray) -> Outcome:
    """What an answer says of its envelope."""
    try:
        answer = wire.decode(frame, digests=False)
    except WireError as problem:
        return Outcome(envelope.order, error=words(problem))
    if answer["error"] is not None:
        return Outcome(envelope.order, error=answer["error"])
    size = wire.size(answer["payload"], digests=False)
    return Outcome(envelope.order, answer["payload"], answer["memory"], size)
