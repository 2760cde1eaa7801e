"""The Transport over Flower's Grid: a real federation, where every client is a site with a node of its own.

What a site's node lacks travels, and nothing else: tensors by name, as the ledger counts them. A client's memory stays
on its node; what the server keeps of it is the number of the task that wrote it. Errors are data, late replies are kept
until they are wanted, and a node that was away is used again when it returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import numpy as np

from atoll.core import checks, wire
from atoll.core.messages import Payload
from atoll.deploy.flower.messages import ERRORS, LOST, NODE_GONE, TASK, Arrived
from atoll.deploy.flower.nodes import Greeting, Nodes
from atoll.errors import WireError
from atoll.federation.client_cache import ClientCache
from atoll.federation.executor import refused
from atoll.federation.transport import Envelope, Outcome, Transport

WINDOW = 16  # sites at work at once, and replies that may wait in memory, however large
ROOM = 2**30  # bytes of replies: more sites work at once as long as theirs fit
QUEUE = 2  # tasks at a site: its node takes a second one at once, but looks for a new one every 3 seconds only
ABSENCE = 180.0  # seconds; a node that was killed is let in again after a minute, when its supervisor tries next
RETURNS = 3  # times that a task is sent again to a node that was lost and has returned
LIFETIME = 43_200.0  # seconds that a message lives on the SuperLink
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 0.5  # seconds between two looks for replies


@dataclass(frozen=True)
class RunContext:
    """What every task of a run has in common."""

    run: str  # Atoll's own name of the run, the same after a resume
    method: str
    seed: int
    device: str
    preparations: Mapping[str, Payload]  # site -> how its data was agreed to be prepared


@dataclass(frozen=True)
class _Asked:
    """A task in flight. `again`: how many times it was sent again because a message, tensors or its node were lost."""

    order: int
    again: int = 0


class FlowerTransport(Transport):
    """Carries envelopes to the sites' nodes."""

    queue = QUEUE

    def __init__(
        self,
        nodes: Nodes,
        context: RunContext,
        absence: float = ABSENCE,
        window: int | None = None,
        worked: Callable[[str, int, int], None] = lambda site, down, up: None,
        patient: bool = True,
    ) -> None:
        """`window`: sites at work at once; None: as many as there are, as far as there is room for their replies.
        `patient`: a task of a node that dies waits for its return, up to `absence` seconds; else it fails at once.
        `worked`: called for each answer to a task, with the bytes of the last frame sent and of the answer."""
        self.window, self.replies = (WINDOW, ROOM) if window is None else (window, 0)
        self._worked = worked
        self._sizes: dict[int, int] = {}  # order -> bytes of the last frame sent
        self._nodes, self._messages = nodes, nodes.messages
        self._context, self._absence, self._patient = context, absence, patient
        # Site -> version of its memory, in the last checkpoint and in the one before: older ones are not needed.
        self._saved: Mapping[str, int] = {}
        self._oldest: Mapping[str, int] = {}
        self._since: tuple[int, int] = (0, 0)  # the same for orders: earlier ones are not asked again
        self._envelopes: dict[int, Envelope] = {}  # everything that is neither answered nor abandoned
        self._unconnected: dict[int, _Asked] = {}  # by order: tasks whose site is not connected
        self._at_node: dict[_Asked, str] = {}  # sent -> since when its node is connected
        self._cache = ClientCache()
        self._forgotten: dict[str, int] = {}  # site -> the version of its memory that it has lost
        self._ready: list[Outcome] = []

    def start(self, envelope: Envelope) -> None:
        self._envelopes[envelope.order] = envelope
        self._post(_Asked(envelope.order))

    def poll(self, timeout: float | None) -> list[Outcome]:
        end = None if timeout is None else time.monotonic() + timeout
        pause = SHORTEST_PAUSE
        while True:
            self._receive()
            if self._ready or not self._envelopes:
                outcomes, self._ready = self._ready, []
                return outcomes
            left = LONGEST_PAUSE if end is None else end - time.monotonic()
            if left <= 0:
                return []
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, LONGEST_PAUSE)

    def abandon(self, order: int) -> None:
        self._envelopes.pop(order, None)
        self._sizes.pop(order, None)
        self._unconnected.pop(order, None)
        self._ready = [outcome for outcome in self._ready if outcome.order != order]
        for again in range(RETURNS + 1):
            self._forget(_Asked(order, again))

    def saved(self, memory: Mapping[str, Payload], since: int) -> None:
        """Two checkpoints are kept: sites may forget what is older than the one before this."""
        self._oldest, self._saved = self._saved, {site: own["version"] for site, own in memory.items()}
        self._since = (self._since[1], since)

    def close(self) -> None:
        self._envelopes, self._at_node = {}, {}
        self._ready = []

    # -- sending ---------------------------------------------------------------------------------------------------

    def _post(self, asked: _Asked) -> None:
        """Send a task, with those of its tensors that its site lacks, or with all of them if it is sent again; or wait
        for a site that is away."""
        envelope = self._envelopes[asked.order]
        site = envelope.task.client
        node = self._nodes.node_of(site)
        if node is None:
            self._unconnected[asked.order] = asked
            return
        frame = self._encode(envelope, whole=asked.again > 0)
        self._sizes[asked.order] = len(frame)
        if not self._messages.send(node, TASK, frame, asked, ttl=LIFETIME):
            self._nodes.gone(site)
            self._fail(asked.order, "the SuperLink did not accept the task; is the node registered and connected?")
            return
        self._at_node[asked] = self._nodes.since(node)

    def _forget(self, asked: _Asked) -> None:
        self._messages.forget(asked)
        self._at_node.pop(asked, None)

    def _encode(self, envelope: Envelope, whole: bool) -> bytes:
        task, context = envelope.task, self._context
        if whole:
            self._cache.lose(task.client)
        held = self._cache.of(task.client)
        if not task.test_evaluation:
            self._cache.take(task.client, wire.tensor_sizes(task.payload))
        version = envelope.memory.get("version")
        encoded = {
            "client": task.client,
            "method": context.method,
            "job": task.job,
            "payload": task.payload,
            "size": asdict(task.size),
            "seed": context.seed,
            "round": envelope.round,
            "number": envelope.number,
            "device": context.device,
            "memory": None if version is None or version == self._forgotten.get(task.client) else version,
            "floor": self._oldest.get(task.client),
            "since": self._since[0],
            "keep": sorted(self._cache.of(task.client)),
            "preparation": context.preparations[task.client],
        }
        # Two layers: a node that lacks tensors of the inner one can still read who asks.
        inner = np.frombuffer(wire.encode(encoded, held), np.uint8)
        return wire.encode({"run": context.run, "order": envelope.order, "message": inner}, digests=False)

    # -- receiving ---------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        for arrived in self._messages.collect():
            if isinstance(arrived.about, Greeting):
                self._nodes.greeted(arrived)
            elif isinstance(arrived.about, _Asked) and arrived.about.order in self._envelopes:
                self._arrived(arrived, arrived.about)
        for asked, since in list(self._at_node.items()):  # the SuperLink gives a message to a node once
            node = self._nodes.node_of(self._envelopes[asked.order].task.client)
            if node is not None and self._nodes.since(node) != since:
                self._forget(asked)
                self._lost(asked)
        waiting, self._unconnected = self._unconnected, {}
        for order, asked in waiting.items():
            site = self._envelopes[order].task.client
            if self._nodes.node_of(site) is None and self._nodes.missing_for(site) > self._absence:
                self._fail(
                    order, "its node is not connected; start it again with: atoll site join BUNDLE --data FOLDER"
                )
            else:
                self._post(asked)

    def _arrived(self, arrived: Arrived, asked: _Asked) -> None:
        envelope, sent = self._envelopes[asked.order], self._sizes.pop(asked.order)
        self._at_node.pop(asked, None)
        if arrived.error is not None:
            if arrived.code == NODE_GONE:
                self._nodes.gone(envelope.task.client)
                self._lost(asked)
            elif arrived.code in LOST and not asked.again:
                self._post(_Asked(asked.order, again=1))
            else:
                self._fail(asked.order, arrived.error)
            return
        self._worked(envelope.task.client, sent, len(arrived.frame))
        try:
            answer = wire.decode(arrived.frame, digests=False, limits=checks.limits(envelope.task.returns))
        except WireError as problem:
            del self._envelopes[asked.order]
            self._ready.append(refused(envelope, problem))
            return
        if answer.get("error") is None and answer.get("order") != asked.order:
            self._fail(asked.order, "the node answered another task than it was asked")
        elif answer.get("lacking") is True and not asked.again:
            self._post(_Asked(asked.order, again=1))  # its disk is new: the transport's cost, not the ledger's
        else:
            self._conclude(envelope, answer)

    def _lost(self, asked: _Asked) -> None:
        """The node that had the task has died. Its site may return and do it from the start: the same outcome."""
        if self._patient and asked.again < RETURNS:
            self._unconnected[asked.order] = _Asked(asked.order, asked.again + 1)
        else:
            self._fail(asked.order, ERRORS[NODE_GONE])

    def _conclude(self, envelope: Envelope, answer: Payload) -> None:
        order, site = envelope.order, envelope.task.client
        if answer.get("lost") is True and "version" in envelope.memory:
            self._forgotten[site] = envelope.memory["version"]  # it starts afresh with its next task
        error, payload = answer.get("error"), answer.get("payload")
        if isinstance(error, str):
            self._fail(order, error, prefix=False)
        elif not isinstance(payload, dict):
            self._fail(order, "the node's answer has no payload")
        else:
            # The memory itself never leaves the site: this names it.
            memory = {"version": order} if answer.get("remembers") is True else {}
            del self._envelopes[order]
            self._ready.append(Outcome(order, payload, memory, wire.size(payload, digests=False)))

    def _fail(self, order: int, reason: str, prefix: bool = True) -> None:
        site = self._envelopes.pop(order).task.client
        self._sizes.pop(order, None)
        text = f"site '{site}': {reason}" if prefix else reason
        self._ready.append(Outcome(order, error=text))
