"""The Transport over Flower's Grid: a real federation, where every client is a site with a node of its own.

What a site's node lacks travels, and nothing else: tensors by name, as the ledger counts them. A client's memory stays
on its node; what the server keeps of it is the number of the task that wrote it. Errors are data, late replies are kept
until somebody wants them, and a node that was away is used again when it returns.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from atoll.core import wire
from atoll.core.ledger import Ledger
from atoll.core.messages import ClientInfo, Payload
from atoll.deploy.flower.mail import LOST, NODE_GONE, TASK, Arrived
from atoll.deploy.flower.nodes import Greeting, Nodes
from atoll.errors import WireError
from atoll.federation.client_cache import Holdings
from atoll.federation.envelopes import Envelope, Outcome
from atoll.federation.executor import words
from atoll.federation.journal import Journal, JournaledFederation

WINDOW = 16  # sites at work at once, and replies that may wait in memory
ABSENCE = 90.0  # seconds; a node that was killed may return after a minute
LIFETIME = 43_200.0  # seconds that a message lives on the link
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
    """A task under way. `again`: it has been asked for a second time because mail or tensors were lost."""

    order: int
    again: bool = False


class FlowerFederation(JournaledFederation):
    """The sites of a federation. Replies are journalled: here a real clock decides who answers in time."""

    def __init__(
        self,
        transport: FlowerTransport,
        clients: Sequence[ClientInfo],
        deadline: float | None = None,
        journal: Journal | None = None,
    ) -> None:
        super().__init__(transport, clients, Ledger(), deadline=deadline)
        self.journal = journal
        self._sites = transport
        self._saved: dict[str, int] = {}  # versions of the sites' memories in the last checkpoint

    def saved(self, snapshot: Payload) -> None:
        """Two checkpoints are kept: sites may forget what is older than the one before this."""
        super().saved(snapshot)
        self._sites.floors = self._saved
        self._saved = {site: memory["version"] for site, memory in snapshot["memory"].items()}


class FlowerTransport:
    """Carries envelopes to the sites' nodes."""

    def __init__(self, nodes: Nodes, context: RunContext, absence: float = ABSENCE, window: int = WINDOW) -> None:
        self.window = window
        self.nodes, self.mail = nodes, nodes.mail
        self.floors: Mapping[str, int] = {}  # site -> the oldest version of its memory that may still be asked for
        self._mission, self._absence = context, absence
        self._envelopes: dict[int, Envelope] = {}  # everything that is neither answered nor abandoned
        self._homeless: list[int] = []  # orders whose site is not connected
        self._holdings = Holdings()
        self._forgotten: dict[str, int] = {}  # site -> the version of its memory that it has lost
        self._ready: list[Outcome] = []

    def start(self, envelope: Envelope) -> None:
        self._envelopes[envelope.order] = envelope
        self._post(_Asked(envelope.order))

    def poll(self, timeout: float | None) -> list[Outcome]:
        end = None if timeout is None else time.monotonic() + timeout
        pause = SHORTEST_PAUSE
        while True:
            self._hear()
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
        self._homeless = [other for other in self._homeless if other != order]
        self._ready = [outcome for outcome in self._ready if outcome.order != order]
        for again in (False, True):
            self.mail.forget(_Asked(order, again))

    def close(self) -> None:
        self._envelopes = {}
        self._ready = []

    # -- sending ---------------------------------------------------------------------------------------------------

    def _post(self, asked: _Asked, whole: bool = False) -> None:
        """Send a task, with those of its tensors that its site lacks; or wait for a site that is away."""
        envelope = self._envelopes[asked.order]
        site = envelope.task.client
        node = self.nodes.node_of(site)
        if node is None:
            if asked.order not in self._homeless:
                self._homeless.append(asked.order)
            return
        frame = self._letter(envelope, whole)
        if not self.mail.send(node, TASK, frame, asked, ttl=LIFETIME):
            self.nodes.gone(site)
            self._fail(asked.order, "the link did not take the task; is the node registered and connected?")

    def _letter(self, envelope: Envelope, whole: bool) -> bytes:
        task, context = envelope.task, self._mission
        if whole:
            self._holdings.last.pop(task.client, None)
        held = self._holdings.of(task.client)
        if not task.test_evaluation:
            self._holdings.take(task.client, envelope.digests)
        version = envelope.memory.get("version")
        letter = {
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
            "floor": self.floors.get(task.client),
            "keep": sorted(self._holdings.of(task.client)),
            "preparation": context.preparations[task.client],
        }
        # Two layers: a node that lacks tensors of the inner one can still read who asks.
        inner = np.frombuffer(wire.encode(letter, held), np.uint8)
        return wire.encode({"run": context.run, "order": envelope.order, "letter": inner}, digests=False)

    # -- hearing ---------------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        for arrived in self.mail.collect():
            if isinstance(arrived.about, Greeting):
                self.nodes.greeted(arrived)
            elif isinstance(arrived.about, _Asked) and arrived.about.order in self._envelopes:
                self._arrived(arrived, arrived.about)
        waiting, self._homeless = self._homeless, []
        for order in waiting:
            site = self._envelopes[order].task.client
            if self.nodes.node_of(site) is None and self.nodes.missing_for(site) > self._absence:
                self._fail(
                    order, "its node is not connected; start it again with: atoll site join BUNDLE --data FOLDER"
                )
            else:
                self._post(_Asked(order))

    def _arrived(self, arrived: Arrived, asked: _Asked) -> None:
        envelope = self._envelopes[asked.order]
        if arrived.error is not None:
            if arrived.code == NODE_GONE:
                self.nodes.gone(envelope.task.client)
            if arrived.code in LOST and not asked.again:
                self._post(_Asked(asked.order, again=True), whole=True)
            else:
                self._fail(asked.order, arrived.error)
            return
        try:
            answer = wire.decode(arrived.frame, digests=False)
        except WireError as problem:
            self._fail(asked.order, words(problem))
            return
        if answer.get("error") is None and answer.get("order") != asked.order:
            self._fail(asked.order, "the node answered another task than it was asked")
        elif answer.get("lacking") is True and not asked.again:
            self._post(
                _Asked(asked.order, again=True), whole=True
            )  # its disk is new: the transport's cost, not the ledger's
        else:
            self._conclude(envelope, answer)

    def _conclude(self, envelope: Envelope, answer: Payload) -> None:
        order, site = envelope.order, envelope.task.client
        if answer.get("lost") is True and "version" in envelope.memory:
            self._forgotten[site] = envelope.memory["version"]  # it starts afresh with its next task
        error, payload = answer.get("error"), answer.get("payload")
        if isinstance(error, str):
            self._fail(order, " ".join(error.split())[:500], prefix=False)
        elif not isinstance(payload, dict):
            self._fail(order, "the node's answer has no payload")
        else:
            # The memory itself never leaves the site: this names it.
            memory = {"version": order} if answer.get("remembers") is True else {}
            del self._envelopes[order]
            self._ready.append(Outcome(order, payload, memory, wire.size(payload, digests=False)))

    def _fail(self, order: int, reason: str, prefix: bool = True) -> None:
        site = self._envelopes.pop(order).task.client
        text = f"site '{site}': {reason}" if prefix else reason
        self._ready.append(Outcome(order, error=text))
