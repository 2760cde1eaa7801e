"""What a method has seen of a federation is on the disk first, and is not asked for again after a kill."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from atoll.core.messages import Reply, Task
from atoll.data import Federated
from atoll.errors import RunDamaged
from atoll.federation.base import Federation
from atoll.federation.exchange import ExchangeRules
from atoll.federation.journal import Journal
from atoll.federation.local import SerialTransport
from atoll.federation.transport import Envelope, Outcome
from atoll.testing import made_table
from refusals import refused

DATA = made_table(clients=3)
ONE, TWO, THREE = DATA.names


class Counting(SerialTransport):
    """The serial engine, which counts what it is asked and may leave some of it unanswered for a while."""

    window = 10

    def __init__(self, data: Federated, slow: tuple[str, ...] = ()) -> None:
        super().__init__(data, 1, "cpu")
        self.asked: list[int] = []
        self.slow = slow
        self._late: list[Envelope] = []

    def start(self, envelope: Envelope) -> None:
        self.asked.append(envelope.order)
        if envelope.task.client in self.slow:
            self._late.append(envelope)
        else:
            super().start(envelope)

    def poll(self, timeout: float | None) -> list[Outcome]:
        outcomes = super().poll(timeout)
        if not outcomes and timeout is not None:
            time.sleep(min(timeout, 0.05))
        return outcomes

    def hurry(self) -> None:
        """The slow ones answer now."""
        self.slow = ()
        for envelope in self._late:
            super().start(envelope)
        self._late = []


def opened(folder: Path, deadline: float | None = None, slow: tuple[str, ...] = ()) -> Federation:
    folder.mkdir(exist_ok=True)
    clients = [DATA.info(name) for name in DATA.names]
    return Federation(
        Counting(DATA, slow), clients, rules=ExchangeRules(deadline=deadline), journal=Journal(folder / "journal")
    )


def transport(federation: Federation) -> Counting:
    assert isinstance(federation.transport, Counting)
    return federation.transport


def task(client: str, job: str = "draw", **payload: Any) -> Task:
    return Task(f"{job}:{client}", client, f"atoll.testing.jobs:{job}", payload)


def values(replies: list[Reply]) -> list[Any]:
    return [
        (reply.task.client, reply.round, reply.error, {k: np.asarray(v).tolist() for k, v in reply.payload.items()})
        for reply in replies
    ]


def test_a_map_is_told_again_and_only_the_rest_is_asked(tmp_path: Path) -> None:
    tasks = [task(name) for name in DATA.names]
    first = opened(tmp_path, slow=(THREE,))
    first.begin(1)
    replies = first.map(tasks)
    seen = [next(replies), next(replies)]  # and here the process is killed: nothing is closed
    assert transport(first).asked == [0, 1, 2]
    again = opened(tmp_path)
    again.begin(1)
    found = list(again.map(tasks))
    assert values(found[:2]) == values(seen) and all(reply.ok for reply in found)
    assert transport(again).asked == [2]
    assert again.ledger.current.replies["used"] == 3


def test_memory_goes_on_from_what_was_told(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.begin(1)
    list(first.map([task(ONE, "remember"), task(TWO, "remember")]))
    again = opened(tmp_path)
    again.begin(1)
    list(again.map([task(ONE, "remember"), task(TWO, "remember")]))
    assert transport(again).asked == []
    assert [reply.payload["calls"] for reply in again.map([task(ONE, "remember")])] == [2]


def test_a_quorum_has_the_same_members_again(tmp_path: Path) -> None:
    """The slow one comes in the second handful, though after the kill it is known from the start."""

    def script(federation: Federation) -> Iterator[list[Reply]]:
        federation.begin(1)
        federation.send([task(name) for name in DATA.names])
        yield federation.receive(at_least=2)
        transport(federation).hurry()
        federation.begin(2)
        federation.send([task(TWO)])
        yield federation.receive(at_least=1)
        yield federation.receive(at_least=0, deadline=0.2)

    first = opened(tmp_path, slow=(ONE,))
    before = [values(handful) for handful in script(first)]
    assert [[row[:2] for row in handful] for handful in before] == [
        [(TWO, 1), (THREE, 1)],
        [(ONE, 1), (TWO, 2)],
        [],
    ]
    again = opened(tmp_path)
    assert [values(handful) for handful in script(again)] == before
    assert transport(again).asked == []
    assert again.ledger.to_plain() == first.ledger.to_plain()


def test_a_deadline_that_passed_has_passed(tmp_path: Path) -> None:
    first = opened(tmp_path, deadline=0.3, slow=(ONE,))
    first.begin(1)
    before = values(list(first.map([task(ONE), task(TWO)])))
    assert before[0][2] == "no reply within 0.3 s"
    again = opened(tmp_path, deadline=60)
    again.begin(1)
    start = time.monotonic()
    assert values(list(again.map([task(ONE), task(TWO)]))) == before
    assert time.monotonic() - start < 30 and transport(again).asked == []


def test_a_checkpoint_takes_its_part_over(tmp_path: Path) -> None:
    first = opened(tmp_path)
    snapshots = []
    for number in range(1, 5):
        first.begin(number)
        list(first.map([task(ONE, "remember")]))
        snapshots.append((first.snapshot(), first.ledger.to_plain()))
        first.saved(snapshots[-1][0])
        assert len(list((tmp_path / "journal").iterdir())) <= 2
    first.begin(5)
    (last,) = first.map([task(ONE, "remember")])
    for older, (snapshot, _) in enumerate(reversed(snapshots[-2:])):  # the newest may be damaged: then the one before
        again = opened(tmp_path)
        again.restore(snapshot)
        for number in range(5 - older, 6):
            again.begin(number)
            (reply,) = again.map([task(ONE, "remember")])
        assert reply.payload == last.payload == {"calls": 5}
        assert transport(again).asked == []
        again.close()


def test_a_pause_is_not_repeated(tmp_path: Path) -> None:
    """A run that stopped because nobody answered tries again when it is resumed."""
    first = opened(tmp_path)
    first.begin(1)
    list(first.map([task(ONE)]))
    snapshot = first.snapshot()
    first.saved(snapshot)
    first.begin(2)
    assert not next(iter(first.map([task(ONE, "fail")]))).ok
    first.saved(snapshot)  # the loop pauses with the state before the round
    again = opened(tmp_path)
    again.restore(snapshot)
    again.begin(2)
    list(again.map([task(ONE, "fail")]))
    assert transport(again).asked == [1]


def test_another_way_than_before_is_gone_for_real(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.begin(1)
    list(first.map([task(ONE, "echo", value=1), task(TWO, "echo", value=1)]))
    again = opened(tmp_path)
    again.begin(1)
    replies = list(again.map([task(ONE, "echo", value=2), task(TWO, "echo", value=1)]))
    assert [reply.payload["value"] for reply in replies] == [2, 1]
    assert transport(again).asked == [0, 1]


def test_a_late_reply_of_a_run_that_diverges_is_asked_for_again(tmp_path: Path) -> None:
    """Its outcome was to be replayed at a later call, which never comes."""

    def script(federation: Federation, value: int) -> list[Reply]:
        federation.begin(1)
        federation.send([task(ONE), task(TWO)])
        assert [reply.task.client for reply in federation.receive(at_least=1)] == [TWO]
        transport(federation).hurry()
        federation.begin(2)
        federation.send([task(THREE, "echo", value=value)])
        return federation.receive()

    first = opened(tmp_path, slow=(ONE,))
    assert [reply.task.client for reply in script(first, 1)] == [ONE, THREE]
    again = opened(tmp_path)
    late, new = script(again, 2)
    assert late.task.client == ONE and late.ok and new.payload == {"value": 2}
    assert transport(again).asked == [0, 2]


def test_a_record_cut_by_the_kill_is_asked_for_again(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.begin(1)
    before = values(list(first.map([task(ONE), task(TWO)])))
    (path,) = (tmp_path / "journal").iterdir()
    os.truncate(path, path.stat().st_size - 3)
    again = opened(tmp_path)
    again.begin(1)
    assert values(list(again.map([task(ONE), task(TWO)]))) == before
    assert transport(again).asked == [1]
    third = opened(tmp_path)
    third.begin(1)
    assert values(list(third.map([task(ONE), task(TWO)]))) == before and transport(third).asked == []


def test_damage_in_the_middle_is_said(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.begin(1)
    list(first.map([task(ONE), task(TWO)]))
    (path,) = (tmp_path / "journal").iterdir()
    data = bytearray(path.read_bytes())
    data[40] ^= 1
    path.write_bytes(data)
    with refused(RunDamaged, "journal-damaged", path, "byte 0"):
        opened(tmp_path)
