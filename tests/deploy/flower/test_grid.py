"""The Flower engine on a grid of threads: the contract of all engines, and what goes wrong on the way to sites."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Error, Message, RecordDict

from atoll import spaces
from atoll.clients import jobs
from atoll.core import wire
from atoll.core.checks import Count, TensorsLike
from atoll.core.messages import Reply, Task, Tensors
from atoll.data import Federated
from atoll.deploy.flower import transport
from atoll.deploy.flower.frames import content, frame_of
from atoll.deploy.flower.node_program import app
from atoll.deploy.flower.nodes import Nodes
from atoll.deploy.flower.transport import FlowerTransport, RunContext
from atoll.deploy.site import Site, SiteNode
from atoll.deploy.worker_socket import NAME
from atoll.federation import client_cache
from atoll.federation.base import Federation
from atoll.federation.exchange import ExchangeRules
from atoll.federation.journal import Journal
from atoll.federation.local import local_federation
from atoll.rng import stream
from atoll.testing import EngineContract, made_table
from deploy.flower.thread_grid import Handler, ThreadGrid

RUN = "0123456789abcdef"


def handler(data: Federated, name: str, folder: Path) -> Handler:
    """A site that plays one client of `data`. Each message gets a new node, as after a restart of its worker."""

    def handle(message: Message) -> Message:
        node = SiteNode(Site(name, folder / "nowhere", folder), lambda site, _, __: data.client(site.name))
        frame = frame_of(message)
        assert frame is not None
        return Message(content(node.answer(message.metadata.message_type.partition(".")[2], frame)), reply_to=message)

    return handle


class Sites:
    """Sites with folders of their own on one grid, and federations of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.grid = ThreadGrid()
        self.nodes: dict[str, int] = {}

    def join(self, data: Federated, name: str) -> None:
        self.nodes[name] = self.grid.connect(handler(data, name, self.root / name))

    def federation(
        self, data: Federated, seed: int, deadline: float | None = None, journal: Journal | None = None, **options: Any
    ) -> Federation:
        for name in data.names:
            if name not in self.nodes:
                self.join(data, name)
        context = RunContext(RUN, "testing", seed, "cpu", {name: {} for name in data.names})
        carrier = FlowerTransport(Nodes(self.grid, look_every=0.02), context, **options)
        return Federation(
            carrier, [data.info(name) for name in data.names], rules=ExchangeRules(deadline=deadline), journal=journal
        )


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path)


class TestContract(EngineContract):
    interrupts = True

    @pytest.fixture(autouse=True)
    def _sites(self, sites: Sites) -> Iterator[None]:
        self.sites = sites
        yield

    def federation(self, data: Federated, seed: int, deadline: float | None = None) -> Federation:
        return self.sites.federation(data, seed, deadline, window=8)  # two tasks each


# -- what goes wrong on the way --------------------------------------------------------------------------------------

DATA = made_table(clients=2)
ONE, TWO = DATA.names
WEIGHTS = Tensors({"a": np.arange(600, dtype=np.float32)})
ARCH = {
    "space": "fixed",
    "model": "mlp",
    "input": list(DATA.schema.shape),
    "classes": DATA.schema.outputs,
    "hidden": [90],
}
MODEL = spaces.initial(ARCH, stream(1, "model"))


def task(client: str, job: str, **payload: Any) -> Task:
    return Task(f"{job}:{client}", client, f"atoll.testing.jobs:{job}", payload)


def ask(federation: Federation, *tasks: Task) -> list[Reply]:
    federation.begin(federation.round + 1)
    return list(federation.map(tasks))


def frames(grid: ThreadGrid) -> list[int]:
    """Bytes of every task that was sent."""
    sent = [message for message in grid.sent if message.metadata.message_type == "train.task"]
    return [len(frame_of(message) or b"") for message in sent]


def test_only_what_a_site_lacks_travels_and_a_new_disk_is_sent_everything(sites: Sites) -> None:
    with sites.federation(DATA, 1) as federation, local_federation(DATA, 1, 0) as local:
        for number in range(4):
            if number == 3:
                shutil.rmtree(sites.root / ONE / "runs")
            (reply,) = ask(federation, task(ONE, "weights", weights=WEIGHTS))
            ask(local, task(ONE, "weights", weights=WEIGHTS))
            assert reply.ok and np.array_equal(reply.payload["weights"]["a"], WEIGHTS["a"] + 1)
        whole, second, third, in_vain, again = frames(sites.grid)
        assert whole > 2400 > second == third == in_vain and again > 2400
        assert federation.ledger.to_plain() == local.ledger.to_plain()


def test_a_worker_that_cannot_be_reached_is_an_error_on_both_sides(
    sites: Sites, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the program that Flower starts for each message."""
    (tmp_path / NAME).write_text("mine")
    context = Context(7, 0, {"folder": str(tmp_path)}, RecordDict(), {})
    sites.nodes[ONE] = sites.grid.connect(lambda message: app(message, context), name=ONE)
    with sites.federation(DATA, 1) as federation:
        (reply,) = ask(federation, task(ONE, "weights", weights=WEIGHTS))
    assert f"{tmp_path / NAME}: not a socket" in str(reply.error)
    assert f"atoll: {tmp_path / NAME}: not a socket" in capsys.readouterr().err


def test_what_a_site_received_and_sent_is_reported(sites: Sites) -> None:
    worked: list[tuple[str, int, int]] = []
    with sites.federation(DATA, 1, worked=lambda *one: worked.append(one)) as federation:
        ask(federation, task(ONE, "weights", weights=WEIGHTS))
    ((site, down, up),) = worked
    assert site == ONE and down > WEIGHTS["a"].nbytes and up > WEIGHTS["a"].nbytes


def test_a_damaged_tensor_is_asked_for_again(sites: Sites) -> None:
    with sites.federation(DATA, 1) as federation:
        ask(federation, task(ONE, "weights", weights=WEIGHTS))
        (path,) = (sites.root / ONE / "runs" / RUN / "tensors").glob("*.npy")
        path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")
        (reply,) = ask(federation, task(ONE, "weights", weights=WEIGHTS))
        assert np.array_equal(reply.payload["weights"]["a"], WEIGHTS["a"] + 1)
        assert len(frames(sites.grid)) == 3


def test_a_site_keeps_the_tensors_of_its_last_tasks(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_cache, "LIMIT", 35)  # bytes: two sets of 16, and not three
    sets = [Tensors({"a": np.full(4, number, np.float32)}) for number in range(3)]
    with sites.federation(DATA, 1) as federation:
        for weights in sets:
            ask(federation, task(ONE, "weights", weights=weights))
    kept = {path.stem for path in (sites.root / ONE / "runs" / RUN / "tensors").glob("*.npy")}
    assert kept == {sets[1].digest("a"), sets[2].digest("a")}


def test_a_site_that_returns_under_another_number_is_known_by_its_name(sites: Sites) -> None:
    with sites.federation(DATA, 1) as federation:
        assert [reply.payload["calls"] for reply in ask(federation, task(ONE, "remember"))] == [1]
        sites.grid.disconnect(sites.nodes[ONE])
        old = sites.nodes[ONE]
        sites.join(DATA, ONE)
        assert sites.nodes[ONE] != old
        (reply,) = ask(federation, task(ONE, "remember"))
        assert reply.payload == {"calls": 2}  # its memory was on its disk


def test_a_site_that_is_away_fails_and_is_used_again_when_it_returns(sites: Sites) -> None:
    with sites.federation(DATA, 1, absence=3.0) as federation:
        sites.grid.disconnect(sites.nodes[ONE])
        start = time.monotonic()
        away, there = ask(federation, task(ONE, "echo", value=1), task(TWO, "echo", value=2))
        assert f"site '{ONE}': its node is not connected" in str(away.error) and there.payload == {"value": 2}
        assert time.monotonic() - start < 60
        start = time.monotonic()
        assert not ask(federation, task(ONE, "echo", value=1))[0].ok
        assert time.monotonic() - start < 2  # it has been waited for already
        sites.join(DATA, ONE)
        end = time.monotonic() + 60
        while not (reply := ask(federation, task(ONE, "echo", value=3))[0]).ok:  # its name is being asked for
            assert time.monotonic() < end, reply.error
            time.sleep(0.02)
        assert reply.payload == {"value": 3}


def test_a_node_killed_in_the_middle_is_an_error_and_the_others_go_on(sites: Sites) -> None:
    with sites.federation(DATA, 1, absence=0.1) as federation:
        ask(federation, task(ONE, "echo", value=0), task(TWO, "echo", value=0))  # their names are known from now on
        federation.begin(2)
        federation.send([task(ONE, "dawdle", seconds=5, value=1), task(TWO, "echo", value=2)])
        time.sleep(0.2)
        sites.grid.disconnect(sites.nodes[ONE])
        gone, there = federation.receive()
        assert f"site '{ONE}': its node is not connected; start it again" in str(gone.error) and there.ok


def test_the_task_of_a_killed_node_waits_for_its_return_unless_a_quorum_goes_on(sites: Sites) -> None:
    """It is sent whole again: what was on its way to the node is lost."""
    for patient in (True, False):
        with sites.federation(DATA, 1, patient=patient) as federation:
            ask(federation, task(ONE, "weights", weights=WEIGHTS), task(TWO, "echo", value=0))
            federation.begin(2)
            federation.send([task(ONE, "dawdle", seconds=0.5, value=1, weights=WEIGHTS)])
            time.sleep(0.1)
            sites.grid.disconnect(sites.nodes[ONE])
            sites.join(DATA, ONE)
            (reply,) = federation.receive()
            if patient:
                assert reply.ok and frames(sites.grid)[-1] > WEIGHTS["a"].nbytes > frames(sites.grid)[-2]
            else:
                assert reply.error == f"site '{ONE}': the node is not connected any more"


def test_a_node_that_was_restarted_between_two_looks_gets_its_task_again(sites: Sites) -> None:
    """The SuperLink gives a message to a node once, and the node's successor has the same number."""
    with sites.federation(DATA, 1) as federation:
        ask(federation, task(ONE, "echo", value=0))
        sites.grid.tamper = lambda reply: []  # it died with the reply
        federation.begin(2)
        federation.send([task(ONE, "echo", value=1)])
        time.sleep(0.1)
        assert federation.receive(deadline=0.2) == []
        sites.grid.tamper = lambda reply: [reply]
        sites.grid.activated[sites.nodes[ONE]] = "later"
        assert [reply.payload for reply in federation.receive()] == [{"value": 1}]


# -- two tasks at a site --------------------------------------------------------------------------------------------


def shared(client: str, number: int, weights: Tensors, **more: Any) -> Task:
    """A task of Atoll's own jobs, which leave a client's memory as it is."""
    payload = {"architecture": ARCH, "weights": weights, "part": "train", "batch": 10, **more}
    return Task(f"count:{number}:{client}", client, jobs.COUNT_CORRECT, payload)


def held_back(sites: Sites, name: str) -> threading.Event:
    """A site that does nothing until this is set."""
    go, work = threading.Event(), handler(DATA, name, sites.root / name)

    def handle(message: Message) -> Message:
        if message.metadata.message_type == "train.task":
            go.wait(30)
        return work(message)

    sites.nodes[name] = sites.grid.connect(handle, name=name)
    return go


def test_a_site_is_given_a_second_task_before_it_has_answered(sites: Sites) -> None:
    go = held_back(sites, ONE)
    with sites.federation(DATA, 1) as federation:
        federation.begin(1)
        federation.send([shared(ONE, number, MODEL) for number in range(3)])
        assert federation.receive(deadline=0.2) == [] and len(frames(sites.grid)) == 2
        go.set()
        replies = federation.receive()
    assert [reply.task.id for reply in replies] == [f"count:{number}:{ONE}" for number in range(3)]
    whole, second, third = frames(sites.grid)
    assert whole > second == third, "the tensors of the first are on their way"


@pytest.mark.parametrize("which", ["remembers", "memory", "foreign"])
def test_tasks_that_may_need_or_change_a_memory_are_given_one_by_one(sites: Sites, which: str) -> None:
    with sites.federation(DATA, 1) as federation:
        if which == "memory":
            assert ask(federation, task(ONE, "remember"))[0].ok
        sites.grid.disconnect(sites.nodes[ONE])
        go, before = held_back(sites, ONE), len(frames(sites.grid))
        first = shared(ONE, 0, MODEL)
        if which != "memory":
            first = task(ONE, "echo", value=1) if which == "foreign" else replace(first, remembers={"calls": Count(5)})
        federation.begin(2)
        federation.send([first, shared(ONE, 1, MODEL)])
        assert federation.receive(deadline=0.2) == [] and len(frames(sites.grid)) == before + 1
        go.set()
        assert all(reply.ok for reply in federation.receive())


def test_of_two_tasks_at_a_site_the_first_is_lost(sites: Sites) -> None:
    """The second came without the tensors that the first had: it is sent again, whole, and so is the first."""
    lost: list[str] = []

    def lose_the_first(message: Message) -> Message:
        if message.metadata.message_type == "train.task" and not lost:
            lost.append(message.metadata.message_id)
            return Message(Error(3, "expired"), reply_to=message)
        return work(message)

    work = handler(DATA, ONE, sites.root / ONE)
    sites.nodes[ONE] = sites.grid.connect(lose_the_first, name=ONE)
    with sites.federation(DATA, 1) as federation, local_federation(DATA, 1, 0) as local:
        tasks = [shared(ONE, number, MODEL) for number in range(3)]
        there, here = ask(federation, *tasks), ask(local, *tasks)
        assert [reply.payload for reply in there] == [reply.payload for reply in here]
        assert federation.ledger.to_plain() == local.ledger.to_plain()
    assert len(lost) == 1 and 4 <= len(frames(sites.grid)) <= 5


def test_more_sites_than_the_window_work_at_once_if_their_replies_fit(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "WINDOW", 1)
    for room, started in ((transport.ROOM, 2), (WEIGHTS["a"].nbytes, 1)):
        monkeypatch.setattr(transport, "ROOM", room)
        monkeypatch.setattr(transport.FlowerTransport, "queue", 1)
        grid = Sites(sites.root / str(room))
        going = [held_back(grid, name) for name in (ONE, TWO)]
        with grid.federation(DATA, 1) as federation:
            returns = {"weights": TensorsLike.of(WEIGHTS)}
            tasks = [replace(task(name, "weights", weights=WEIGHTS), returns=returns) for name in (ONE, TWO)]
            federation.begin(1)
            federation.send(tasks)
            assert federation.receive(deadline=0.2) == [] and len(frames(grid.grid)) == started
            for go in going:
                go.set()
            assert all(reply.ok for reply in federation.receive())


@pytest.mark.parametrize(
    ("code", "words"),
    [(1, "could not load Atoll"), (2, "the client's program failed (boom)"), (8, "crashed or was killed")],
)
def test_flowers_errors_are_told_in_words(sites: Sites, code: int, words: str) -> None:
    def tamper(reply: Message) -> list[Message]:
        return [_instead(reply, error=Error(code, "boom"))]

    with sites.federation(DATA, 1) as federation:
        ask(federation, task(ONE, "echo", value=1))
        sites.grid.tamper = tamper
        (reply,) = ask(federation, task(ONE, "echo", value=1))
        assert words in str(reply.error) and f"site '{ONE}'" in str(reply.error)


def test_a_reply_that_the_link_lost_is_asked_for_once_more(sites: Sites) -> None:
    lost: list[str] = []

    def tamper(reply: Message) -> list[Message]:
        lost.append(reply.metadata.reply_to_message_id)
        return [_instead(reply, error=Error(3, "expired"))] if len(lost) in (1, 3, 4) else [reply]

    with sites.federation(DATA, 1) as federation:
        ask(federation, task(ONE, "echo", value=0))
        sites.grid.tamper = tamper
        assert ask(federation, task(ONE, "remember"))[0].payload == {"calls": 1}  # the same answer, not one call more
        assert "lost on the SuperLink" in str(ask(federation, task(ONE, "remember"))[0].error)
        assert len(lost) == 4


def test_duplicates_strangers_and_misdirected_replies_are_ignored(sites: Sites) -> None:
    def tamper(reply: Message) -> list[Message]:
        stranger = _instead(reply, content=content(wire.encode({"order": 0, "payload": {"value": "stolen"}})), node=99)
        return [stranger, reply, reply]

    with sites.federation(DATA, 1) as federation:
        ask(federation, task(ONE, "echo", value=0), task(TWO, "echo", value=0))
        sites.grid.tamper = tamper
        for value in range(3):
            replies = ask(federation, task(ONE, "echo", value=value), task(TWO, "echo", value=value + 10))
            assert [reply.payload["value"] for reply in replies] == [value, value + 10]
        assert federation.ledger.total().replies == {"used": 8, "late": 0, "stale": 0, "rejected": 0, "failed": 0}


@pytest.mark.parametrize(
    "answer",
    [b"rubbish", wire.encode({}), wire.encode({"order": 1, "error": None}), wire.encode({"order": 7, "payload": {}})],
)
def test_an_answer_that_makes_no_sense_is_a_failure(sites: Sites, answer: bytes) -> None:
    with sites.federation(DATA, 1) as federation:
        ask(federation, task(ONE, "echo", value=0))
        sites.grid.tamper = lambda reply: [_instead(reply, content=content(answer))]
        (reply,) = ask(federation, task(ONE, "echo", value=0))
        assert (not reply.ok and ONE in str(reply.error)) or str(reply.error).startswith("rejected, frame: ")


def test_a_lost_memory_is_said_and_the_site_starts_afresh(sites: Sites) -> None:
    with sites.federation(DATA, 1) as federation:
        assert [ask(federation, task(ONE, "remember"))[0].payload["calls"] for _ in range(2)] == [1, 2]
        shutil.rmtree(sites.root / ONE / "runs")
        assert "is no longer on this site's disk" in str(ask(federation, task(ONE, "remember"))[0].error)
        assert [ask(federation, task(ONE, "remember"))[0].payload["calls"] for _ in range(2)] == [1, 2]


def test_old_memories_go_once_two_checkpoints_are_newer(sites: Sites) -> None:
    with sites.federation(DATA, 1) as federation:
        for _ in range(5):
            ask(federation, task(ONE, "remember"))
            federation.saved(federation.snapshot())
        kept = sorted(path.stem for path in (sites.root / ONE / "runs" / RUN / "memory").glob("*.memory"))
    assert [int(name) for name in kept] == [2, 3, 4]  # checkpoints know of 3 and 4; the last task still named 2


def test_memory_stays_on_the_site(sites: Sites) -> None:
    with sites.federation(DATA, 1) as federation:
        ask(federation, task(ONE, "remember"))
        assert federation.snapshot()["memory"] == {ONE: {"version": 0}}


def _instead(reply: Message, content: Any = None, error: Error | None = None, node: int | None = None) -> Message:
    """A reply with the same address and something else in it."""
    other = Message(reply.content, reply_to=reply)
    other.__dict__["_content"], other.__dict__["_error"] = content, error
    other.metadata.__dict__.update(reply.metadata.__dict__)
    if node is not None:
        other.metadata.__dict__ = {**reply.metadata.__dict__, "_src_node_id": node}
    return other
