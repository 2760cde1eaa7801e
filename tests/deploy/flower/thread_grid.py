"""A Grid of threads: Flower's real messages, without its link. Every node is a thread, one message at a time."""

from __future__ import annotations

import itertools
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

Handler = Callable[[Message], Message]

# Flower sets this in the processes that it starts; outside of them a message cannot be made without it. It is
# private to Flower: this is the one place where it is touched.
TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 7, 1, 1


OPEN: weakref.WeakSet[ThreadGrid] = weakref.WeakSet()  # what `tests/federation/conftest.py` closes after each test


class ThreadGrid(Grid):
    """Nodes come and go with `connect` and `disconnect`; `tamper` may change or multiply what a node answers."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1000, 17)
        self.sent: list[Message] = []
        self.tamper: Callable[[Message], list[Message]] = lambda reply: [reply]
        self.names: dict[int, str] = {}  # registered names; none by default
        self.activated: dict[int, str] = {}  # when nodes were connected, where the link says it
        self._queues: dict[int, queue.Queue[Message]] = {}
        self._messages = itertools.count(1)
        self._replies: dict[str, list[Message]] = {}
        self._pulled: set[str] = set()
        self._lock = threading.Lock()
        OPEN.add(self)

    def close(self) -> None:
        """All nodes end, as soon as they have done what they are doing."""
        for inbox in self._queues.values():
            inbox.put(None)  # type: ignore[arg-type]
        self._queues = {}

    def connect(self, handle: Handler, name: str = "") -> int:
        node, inbox = next(self.numbers), queue.Queue[Message]()
        self._queues[node] = inbox
        self.names[node] = name
        threading.Thread(target=self._serve, args=(node, inbox, handle), daemon=True).start()
        return node

    def disconnect(self, node: int) -> None:
        """As if killed: what it was doing is lost, and the link says so."""
        inbox = self._queues.pop(node)
        for message in self.sent:
            if message.metadata.dst_node_id == node and message.metadata.message_id not in self._answered():
                self.answer(Message(Error(5, "gone"), reply_to=message))
        inbox.put(None)  # type: ignore[arg-type]

    def answer(self, reply: Message) -> None:
        with self._lock:
            self._replies.setdefault(reply.metadata.reply_to_message_id, []).append(reply)

    def all_answered(self) -> bool:
        return len(self._answered()) == len(self.sent)

    def _answered(self) -> set[str]:
        return set(self._replies) | self._pulled

    def _serve(self, node: int, inbox: queue.Queue[Message], handle: Handler) -> None:
        while (message := inbox.get()) is not None:
            try:
                reply = handle(message)
            except Exception as problem:
                reply = Message(Error(2, f"{type(problem).__name__}: {problem}"), reply_to=message)
            if self._queues.get(node) is inbox:
                for one in self.tamper(reply):
                    self.answer(one)

    def get_node_ids(self) -> Iterable[int]:
        return list(self._queues)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [
            NodeInfo(node_id=node, name=self.names[node], last_activated_at=self.activated.get(node, ""))
            for node in self._queues
        ]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        identifiers = []
        for message in messages:
            inbox = self._queues.get(message.metadata.dst_node_id)
            if inbox is None:
                identifiers.append("")
                continue
            message.metadata.__dict__["_message_id"] = f"message-{next(self._messages)}"
            identifiers.append(message.metadata.message_id)
            self.sent.append(message)
            inbox.put(message)
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = list(message_ids)
        with self._lock:
            found = [reply for identifier in wanted for reply in self._replies.pop(identifier, [])]
        self._pulled = self._pulled | {reply.metadata.reply_to_message_id for reply in found}
        return found

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        waiting, found = set(self.push_messages(messages)), []
        while waiting:
            for reply in self.pull_messages(waiting):
                waiting.discard(reply.metadata.reply_to_message_id)
                found.append(reply)
            time.sleep(0.01)
        return found

    def set_run(self, run: Any) -> None:
        raise NotImplementedError("a grid of threads belongs to one run")

    @property
    def run(self) -> Any:
        raise NotImplementedError("a grid of threads belongs to one run")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)
