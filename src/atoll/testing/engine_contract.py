"""What every engine promises, as tests. The numbers are those of `atoll/federation/base.py`.

`JournalContract` is for federations with a journal, on any engine and any clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from atoll.core.checks import Count, TensorsLike
from atoll.core.messages import Reply, Task, Tensors
from atoll.data import Federated
from atoll.federation.base import Federation
from atoll.federation.exchange import ExchangeRules
from atoll.federation.journal import Journal
from atoll.rng import stream
from atoll.testing.data import made_table
from atoll.testing.scripted import FaultyTransport

SEED = 11


def _task(client: str, job: str, number: int = 0, returns: Any = None, **payload: Any) -> Task:
    return Task(f"{job}:{client}:{number}", client, f"atoll.testing.jobs:{job}", payload, 5, returns)


class EngineContract:
    """Subclass this and implement `federation`.

    Set `interrupts` if the engine can abandon a running task, and `processes` if a client's task runs in a process that
    may die.
    """

    interrupts = False
    processes = False

    def federation(self, data: Federated, seed: int, deadline: float | None = None) -> Federation:
        raise NotImplementedError

    def test_replies_come_in_task_order(self) -> None:
        data = made_table(clients=4)
        names = [data.names[i] for i in (2, 0, 3, 1)]
        with self.federation(data, SEED) as federation:
            federation.begin(1)
            tasks = [_task(name, "echo", value=name) for name in names]
            assert [reply.payload["value"] for reply in federation.map(tasks)] == names
            federation.send(tasks)
            assert [reply.payload["value"] for reply in federation.receive()] == names

    def test_the_slowest_first_does_not_change_the_order(self) -> None:
        data = made_table(clients=3)
        with self.federation(data, SEED) as federation:
            federation.begin(1)
            seconds = dict(zip(data.names, (0.4, 0.2, 0.0), strict=True))
            tasks = [_task(name, "dawdle", seconds=seconds[name], value=name) for name in data.names]
            assert [reply.payload["value"] for reply in federation.map(tasks)] == data.names

    def test_a_quorum_is_of_the_last_send_and_late_replies_come_along(self) -> None:
        """Point 1."""
        data = made_table(clients=3)
        slow, *quick = data.names
        with self.federation(data, SEED) as federation:
            federation.begin(1)
            federation.send(
                [_task(slow, "dawdle", seconds=0.8, value="slow")] + [_task(n, "echo", value=n) for n in quick]
            )
            first = federation.receive(at_least=2)
            assert len(first) >= 2
            federation.begin(2)
            federation.send([_task(name, "echo", value=name) for name in quick])
            seen = [*first, *federation.receive()]
            while len(seen) < 5:
                seen += federation.receive(at_least=0)
                time.sleep(0.05)
            assert sorted(reply.round for reply in seen) == [1, 1, 1, 2, 2]
            assert sum(reply.payload["value"] == "slow" for reply in seen) == 1
            total = federation.ledger.total().replies
            assert total["used"] + total["late"] == 5

    def test_an_exchange_ends_with_its_quorum_and_late_replies_are_dropped_or_used(self) -> None:
        """By the engine's rules, the same for every method. A client that is not done is busy and is not asked."""
        if not self.interrupts:
            return
        data = made_table(clients=3)
        *quick, slow = data.names
        with self.federation(data, SEED) as federation:
            list(federation.map([_task(name, "echo", value=0) for name in data.names]))  # the engine has started
            for number, late in ((1, "drop"), (3, "use")):
                federation.rules = ExchangeRules(quorum=0.6, late=late)  # type: ignore[arg-type]
                federation.begin(number)
                tasks = [_task(name, "dawdle", seconds=0.6 * (name == slow), value=name) for name in data.names]
                found = list(federation.collect(tasks, takes_late=True))
                assert [reply.task.client for reply in found] == quick and federation.busy == {slow}
                federation.begin(number + 1)
                while federation.busy or len(found) == len(quick):
                    asked = [_task(name, "echo", value=name) for name in quick if name not in federation.busy]
                    found += federation.collect(asked, 0, takes_late=True, participating=3)
                assert sum(reply.task.client == slow for reply in found) == (late == "use")
            total = federation.ledger.total().replies
            assert (total["late"], total["stale"]) == (1, 1)

    def test_older_rounds_come_first(self) -> None:
        data = made_table(clients=2)
        with self.federation(data, SEED) as federation:
            federation.begin(1)
            federation.send([_task(data.names[1], "echo", value=1)])
            federation.begin(2)
            federation.send([_task(data.names[0], "echo", value=2), _task(data.names[1], "echo", value=3)])
            replies = federation.receive()
            assert [reply.payload["value"] for reply in replies] == [1, 2, 3]

    def test_failures_are_replies(self) -> None:
        """Point 2."""
        data = made_table(clients=3)
        bad, good, _ = data.names
        with self.federation(data, SEED) as federation:
            federation.begin(1)
            tasks = [
                _task(bad, "fail"),
                _task(good, "echo", value=1),
                _task("unknown", "echo", value=1),
                _task(bad, "illegal"),
                _task(good, "no_such_job"),
            ]
            replies = list(federation.map(tasks))
            assert [reply.ok for reply in replies] == [False, True, False, False, False]
            assert "asked to fail" in str(replies[0].error)
            assert federation.ledger.total().replies["failed"] == 3

    def test_a_quorum_that_cannot_be_met_returns_what_there_is(self) -> None:
        data = made_table(clients=2)
        with self.federation(data, SEED) as federation:
            federation.begin(1)
            federation.send([_task(name, "fail") for name in data.names])
            assert len(federation.receive(at_least=10)) == 2

    def test_rejected_replies_carry_the_reason(self) -> None:
        data = made_table(clients=2)
        with self.federation(data, SEED) as federation:
            federation.begin(1)
            tasks = [
                _task(name, "echo", returns={"value": Count(5)}, value=value)
                for name, value in zip(data.names, (5, 6), strict=True)
            ]
            good, bad = federation.map(tasks)
            assert good.ok and bad.error == "rejected, count: 6 is outside 0 to 5"
            assert federation.ledger.total().replies["rejected"] == 1

    def test_a_silent_client_is_left_behind(self) -> None:
        """Point 2: a round takes no longer than its deadline, and the next one is served."""
        if not self.interrupts:
            return
        data = made_table(clients=3)
        with self.federation(data, SEED, 4.0) as federation:
            federation.begin(1)
            list(federation.map([_task(name, "echo", value=0) for name in data.names]))  # the engine has started
            start = time.monotonic()
            tasks = [_task(data.names[0], "dawdle", seconds=600, value=0)]
            tasks += [_task(name, "echo", value=1) for name in data.names[1:]]
            replies = list(federation.map(tasks))
            assert [reply.ok for reply in replies] == [False, True, True] and "within 4 s" in str(replies[0].error)
            assert time.monotonic() - start < 60

    def test_memory_lives_on_and_a_failed_task_leaves_it(self) -> None:
        """Point 3."""
        data = made_table(clients=2)
        one, two = data.names
        with self.federation(data, SEED) as federation:
            federation.begin(1)
            replies = list(
                federation.map([_task(one, "remember", 0), _task(two, "remember", 0), _task(one, "remember", 1)])
            )
            assert [reply.payload["calls"] for reply in replies] == [1, 1, 2]
            federation.begin(2)
            replies = list(federation.map([_task(one, "remember", 2, fail=True), _task(one, "remember", 3)]))
            assert not replies[0].ok and replies[1].payload["calls"] == 3

    def test_streams_are_named_by_seed_round_client_and_number(self) -> None:
        """Point 4."""
        data = made_table(clients=2)
        with self.federation(data, SEED) as federation:
            federation.begin(3)
            tasks = [_task(data.names[0], "draw", 0), _task(data.names[1], "draw", 0), _task(data.names[0], "draw", 1)]
            drawn = [reply.payload["numbers"] for reply in federation.map(tasks)]
        wanted = [stream(SEED, "client", 3, data.names[i], number).random(3) for i, number in ((0, 0), (1, 0), (0, 1))]
        assert all(np.array_equal(a, b) for a, b in zip(drawn, wanted, strict=True))

    def test_each_client_sees_its_own_rows(self) -> None:
        data = made_table(clients=3)
        with self.federation(data, SEED) as federation:
            federation.begin(1)
            for reply in federation.map([_task(name, "own_rows") for name in data.names]):
                x, y = data.client(reply.task.client).part("train")
                assert reply.payload["rows"] == len(y) and reply.payload["sum"] == float(x.sum(dtype=np.float64))
                assert np.array_equal(reply.payload["labels"], np.bincount(y, minlength=3))

    def test_replies_stream(self) -> None:
        """Point 5: while the first of many replies is processed, few others are waiting in memory."""
        data = made_table(clients=40, rows=8)
        with self.federation(data, SEED) as federation:
            federation.begin(1)
            for count, _ in enumerate(federation.map([_task(name, "echo", value=0) for name in data.names])):
                if count in (0, 20):
                    time.sleep(0.3)
                    assert federation.undelivered <= 16

    def test_what_a_client_holds_is_not_sent_again(self) -> None:
        data = made_table(clients=2)
        tensors = Tensors({"a": np.arange(1000, dtype=np.float32), "b": np.zeros(10, np.float32)})
        with self.federation(data, SEED) as federation:
            down = []
            for number in range(1, 4):
                federation.begin(number)
                sent = tensors.slice(["a"]) if number == 3 else tensors
                returns = {"weights": TensorsLike.of(sent)}
                (reply,) = federation.map([_task(data.names[0], "weights", returns=returns, weights=sent)])
                assert np.array_equal(reply.payload["weights"]["a"], tensors["a"] + 1)
                account = federation.ledger.current
                down.append(account.bytes_down)
                assert account.bytes_up > 4000 and account.client_macs == 5 and account.tasks == 1
            assert down[0] > 4040 and down[1] == down[0] - 4040 and down[2] < down[1]

    def test_a_reply_beyond_what_its_task_may_return_is_rejected_unread(self) -> None:
        data = made_table(clients=2)
        with self.federation(data, SEED) as federation:
            federation.begin(1)
            tasks = [_task(name, "flood", returns={"value": Count(5)}, bytes=3 * 2**20) for name in data.names]
            for reply in federation.map(tasks):
                assert str(reply.error).startswith("rejected, size: ")
            assert federation.ledger.current.replies["rejected"] == 2
            (reply,) = federation.map([_task(data.names[0], "echo", returns={"value": Count(5)}, value=3)])
            assert reply.payload == {"value": 3}

    def test_a_snapshot_takes_memory_and_tasks_in_flight_along(self) -> None:
        data = made_table(clients=3)
        tasks = [_task(name, "remember", 1) for name in data.names] + [_task(data.names[0], "draw", 2)]
        with self.federation(data, SEED) as federation:
            federation.begin(1)
            list(federation.map([_task(data.names[0], "remember", 0)]))
            federation.send(tasks)
            saved = federation.snapshot()
            expected = federation.receive()
        with self.federation(data, SEED) as other:
            other.restore(saved)
            other.begin(2)
            other.send([])
            found: list[Any] = []
            while len(found) < len(tasks):
                found += other.receive(at_least=0, deadline=0.2)
        found.sort(
            key=lambda reply: [task.id for task in tasks].index(reply.task.id)
        )  # they arrived in several batches
        assert [r.payload.get("calls") for r in found] == [r.payload.get("calls") for r in expected] == [2, 1, 1, None]
        assert np.array_equal(found[3].payload["numbers"], expected[3].payload["numbers"])

    def test_a_dead_process_is_replaced(self, tmp_path: Path) -> None:
        """Point 2: its task is done again once, with the same stream; the second death is a failure."""
        if not self.processes:
            return
        data = made_table(clients=2)
        with self.federation(data, SEED) as federation:
            federation.begin(1)
            one = _task(data.names[0], "die_once", file=str(tmp_path / "one"), times=1)
            two = _task(data.names[1], "die_once", file=str(tmp_path / "two"), times=2)
            good, bad = federation.map([one, two])
            assert np.array_equal(good.payload["numbers"], stream(SEED, "client", 1, data.names[0], 0).random(3))
            assert "died twice" in str(bad.error)
            (after,) = federation.map([_task(data.names[1], "echo", value=7)])
            assert after.payload["value"] == 7


class JournalContract:
    """Derive, and implement `federation`. Set `virtual` if its clock is virtual: then the same run has the same replies
    even without a journal."""

    virtual = False
    calls = (1, 5, 11)  # the process is killed after this many items of the script

    def federation(self, data: Federated, seed: int, journal: Journal) -> Federation:
        raise NotImplementedError

    def test_after_a_kill_the_same_replies_come_and_no_work_is_done_twice(self, tmp_path: Path) -> None:
        data = made_table(clients=4)
        whole, _ = self._play(data, tmp_path / "whole")
        for count in self.calls:
            before, _ = self._play(data, tmp_path / str(count), count)
            again, started = self._play(data, tmp_path / str(count))
            assert again[:count] == before
            assert not started & {reply["id"] for replies, _, _ in before for reply in replies}
            assert not self.virtual or again == whole

    def _play(self, data: Federated, folder: Path, count: int | None = None) -> tuple[list[Any], set[str]]:
        """The first `count` items of the script, and the tasks that were started."""
        folder.mkdir(exist_ok=True)
        started: set[str] = set()

        def note(task: Task, _: int) -> bool:
            started.add(task.id)
            return False

        federation = self.federation(data, SEED, Journal(folder / "journal"))
        federation.transport = FaultyTransport(federation.transport, note)
        seen = list(islice(self._script(federation), count))
        federation.transport.close()  # its processes end as by a kill; the journal is not closed
        return seen, started

    def _script(self, federation: Federation) -> Iterator[tuple[list[Any], Any, Any]]:
        """Rounds with a quorum of one, so that replies are in flight between them, and a streamed exchange in each."""
        names = [info.name for info in federation.clients()]
        for number in (1, 2, 3):
            federation.begin(number)
            free = [name for name in names if name not in federation.busy]
            federation.send([_task(name, "remember", number) for name in free])
            yield self._seen(federation.receive(at_least=1)), sorted(federation.busy), None
            for reply in federation.map([_task(name, "draw", number) for name in names[:2]]):
                yield self._seen([reply]), None, None
            replies = federation.receive(at_least=0)
            yield self._seen(replies), federation.engine_events(), federation.ledger.to_plain()
            # An exchange that ends with a quorum: who is late is decided by the clock, and must be decided again alike.
            federation.rules = ExchangeRules(quorum=0.5, late="use" if number == 2 else "drop")
            tasks = [_task(name, "draw", number + 10) for name in names]
            found = federation.collect(tasks, 0, takes_late=number == 2)
            yield self._seen(list(found)), sorted(federation.busy), None
            federation.rules = ExchangeRules()

    def _seen(self, replies: list[Reply]) -> list[Any]:
        return [
            {"id": reply.task.id, "round": reply.round, "error": reply.error}
            | {key: np.asarray(value).tolist() for key, value in reply.payload.items()}
            for reply in replies
        ]
