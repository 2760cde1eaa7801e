"""Messages in flight. Pulling a message from the SuperLink deletes it there: whatever comes back is kept here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from atoll.core.messages import one_line
from atoll.core.wire import FrameLimits
from atoll.deploy.flower.frames import content, frame_of
from atoll.errors import Paused
from atoll.federation.executor import words

HELLO, PREPARE, NOTICE, TASK = "query.hello", "query.prepare", "query.notice", "train.task"
ANSWER = FrameLimits(header=4 * 2**20, arrays=64 * 2**20)  # of a node, to everything but a task

STOPPED = "RunNotRunningException"  # what Flower raises in a program whose run was stopped; not public
NODE_GONE = 5
ERRORS = {  # Flower's codes and what they mean
    0: "an unknown error",
    1: "the node could not load Atoll; is the same version of atoll[flower] installed there?",
    2: "the client's program failed",
    3: "the message or its reply expired or was lost on the SuperLink",
    4: "the reply expired or was lost on the SuperLink",
    NODE_GONE: "the node is not connected any more",
    6: "a precondition of the node's program failed",
    7: "the node refused the app's package",
    8: "the client's process crashed or was killed",
}
LOST = frozenset({3, 4})  # the work may have been done, only the message is lost: sending again is worth it


@dataclass(frozen=True)
class Arrived:
    """What came back for something that was sent: a frame, or the code and message of an error."""

    about: Any
    node: int
    frame: bytes = b""
    code: int | None = None
    error: str | None = None


@dataclass(frozen=True)
class _Sent:
    about: Any
    node: int


@contextmanager
def pausing_on_failure() -> Iterator[None]:
    """What Flower's Grid raises is a failure between server and sites: the run can continue from its last checkpoint.

    For instance a SuperLink that was killed and restarted has lost what was being pushed to it.
    """
    try:
        yield
    except Exception as problem:
        if type(problem).__name__ == STOPPED:
            raise
        raise Paused(f"the connection to the sites failed ({words(problem)})", code="link-failed") from problem


class Messages:
    """Messages in flight. Duplicates, and replies to no message or from another node than was asked, are dropped."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._sent: dict[str, _Sent] = {}  # by Flower's message id

    def send(self, node: int, kind: str, frame: bytes, about: Any, ttl: float | None = None) -> bool:
        """Hand a frame to the SuperLink; False if it refuses. `about` comes back with the reply."""
        message = Message(content(frame), dst_node_id=node, message_type=kind, ttl=ttl)
        with pausing_on_failure():
            identifier = next(iter(self._grid.push_messages([message])), None)
        if not identifier:
            return False
        self._sent[identifier] = _Sent(about, node)
        return True

    def collect(self) -> list[Arrived]:
        """Everything that has come back since the last time."""
        if not self._sent:
            return []
        arrived = []
        for message in self._pull(list(self._sent)):
            identifier = message.metadata.reply_to_message_id
            sent = self._sent.get(identifier)
            # An error may come from the SuperLink instead of the node.
            if sent is None or not (message.has_error() or message.metadata.src_node_id == sent.node):
                continue
            del self._sent[identifier]
            arrived.append(_read(message, sent))
        return arrived

    def forget(self, about: Any) -> None:
        """Do not wait for this any more; a reply that still comes is dropped."""
        self._sent = {identifier: sent for identifier, sent in self._sent.items() if sent.about != about}

    def awaits(self, about: Any) -> bool:
        return any(sent.about == about for sent in self._sent.values())

    def _pull(self, identifiers: list[str]) -> Iterable[Message]:
        with pausing_on_failure():
            return list(self._grid.pull_messages(identifiers))


def _read(message: Message, sent: _Sent) -> Arrived:
    if message.has_error():
        code = message.error.code
        said = one_line(message.error.reason or "")
        detail = f" ({said})" if said and code in (0, 2, 6) else ""
        return Arrived(sent.about, sent.node, code=code, error=f"{ERRORS.get(code, f'error {code}')}{detail}")
    frame = frame_of(message)
    if frame is None:
        return Arrived(sent.about, sent.node, code=0, error="the node's answer is not a message of Atoll")
    return Arrived(sent.about, sent.node, frame)
