"""Exact times: who arrives when, who is waited for, who is late, who never answers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from atoll.core.messages import Task, Tensors
from atoll.federation.exchange import ExchangeRules
from atoll.rng import stream
from atoll.simulation.links import Link
from atoll.simulation.traces import Trace
from paced_clients import DATA, SEED, A, B, C, now, paced, task, times, values

# -- order of arrival, quorum, deadline ------------------------------------------------------------------------------


def test_a_quorum_is_met_by_those_who_arrive_first() -> None:
    """10 MACs take A 10 s, B 1 s and C 5 s: two replies are there after 5 s, and A's is not."""
    with paced({A: 1, B: 10, C: 2}) as federation:
        federation.begin(1)
        federation.send([task(A), task(B), task(C)])
        assert values(federation.receive(at_least=2)) == [B, C] and now(federation) == 5
        assert federation.ledger.current.simulated_seconds == 5
        federation.begin(2)
        federation.send([task(B)])  # 5 to 6
        assert values(federation.receive()) == [B] and now(federation) == 6
        federation.begin(3)
        federation.send([task(C)])  # 6 to 11: A arrives at 10, meanwhile
        late, fresh = federation.receive()
        assert (late.payload["value"], late.round, fresh.round) == (A, 1, 3) and now(federation) == 11
        replies = [account.replies for account in federation.ledger.rounds]
        assert [row["used"] for row in replies] == [2, 1, 1] and [row["late"] for row in replies] == [0, 0, 1]
        assert [account.simulated_seconds for account in federation.ledger.rounds] == [5, 1, 5]
        assert federation.ledger.total().client_macs == 50


def test_a_late_reply_alone_does_not_end_a_wait() -> None:
    with paced({A: 1, B: 1, C: 10}) as federation:
        federation.begin(1)
        federation.send([task(A), task(C)])
        federation.receive(at_least=1)  # C at 1; A comes at 10
        federation.begin(2)
        federation.send([task(B, macs=20)])  # 1 to 21
        assert values(federation.receive(at_least=1)) == [A, B] and now(federation) == 21


def test_a_client_does_one_task_at_a_time() -> None:
    """A is at work until 10; what it is sent at 1 begins then."""
    with paced({A: 1, B: 10, C: 1}) as federation:
        federation.begin(1)
        federation.send([task(A), task(B)])
        federation.receive(at_least=1)
        federation.begin(2)
        federation.send([task(A, value="second", macs=3)])
        assert values(federation.receive()) == [A, "second"] and now(federation) == 13
        assert [row[2:6] for row in times(federation)] == [[0, 0, 10, 10], [10, 10, 13, 13]]


def test_who_is_busy_and_waiting_for_them_when_nobody_is_free() -> None:
    with paced({A: 1, B: 10, C: 2}) as federation:
        federation.begin(1)
        federation.send([task(A), task(B), task(C)])
        assert federation.busy == {A, B, C}
        federation.receive(at_least=1)  # B at 1
        assert federation.busy == {A, C}
        federation.begin(2)
        federation.send([])
        assert federation.receive() == [] and now(federation) == 1
        assert values(federation.receive(at_least=1)) == [C] and now(federation) == 5 and federation.busy == {A}
        assert federation.receive(at_least=1, deadline=2) == [] and now(federation) == 7
    with paced({A: 1, B: 10, C: 2}, staleness=[0, 1]) as federation:
        federation.begin(1)
        federation.send([task(B)])
        assert federation.receive(deadline=1) == [] and now(federation) == 1  # it is done and does not arrive
        assert federation.busy == frozenset() and federation.receive(at_least=1) == []


def test_a_deadline_is_virtual_and_what_misses_it_comes_later() -> None:
    with paced({A: 1, B: 10, C: 2}) as federation:
        federation.begin(1)
        federation.send([task(A), task(B), task(C)])
        assert values(federation.receive(deadline=4)) == [B] and now(federation) == 4
        assert federation.receive(at_least=0) == [] and now(federation) == 4  # looking takes no time
        assert values(federation.receive(deadline=1)) == [C] and now(federation) == 5  # just in time
        assert values(federation.receive()) == [A] and now(federation) == 10
        assert federation.receive() == [] and now(federation) == 10


def test_map_streams_in_task_order_and_gives_up_at_the_deadline() -> None:
    with paced({A: 1, B: 10, C: 2}, deadline=6) as federation:
        federation.begin(1)
        assert values(list(federation.map([task(A), task(C), task(B)]))) == ["no reply within 6 s", C, B]
        assert now(federation) == 6 and federation.ledger.current.replies["failed"] == 1
        assert federation.ledger.current.client_macs == 20
        federation.begin(2)  # A was interrupted and is free again
        assert values(list(federation.map([task(A, macs=5)]))) == [A] and now(federation) == 11
        assert federation.receive() == []


def test_a_round_takes_as_long_as_its_slowest_client() -> None:
    with paced({A: 1, B: 10, C: 2}) as federation:
        federation.begin(1)
        assert values(list(federation.map([task(B), task(A), task(C)]))) == [B, A, C]
        assert now(federation) == 10
        assert values(list(federation.map([task(A, macs=1), task(A, macs=2)]))) == [A, A] and now(federation) == 13


def test_bytes_travel_over_the_line_and_what_is_held_does_not() -> None:
    """The reply is as large as the ledger says; the same weights sent again need no time."""
    line = Trace.constant(1000.0)
    weights = Tensors({"w": np.arange(1, 1001, dtype=np.float32)})
    with paced({}, {A: Link(line, line), B: Link(), C: Link()}) as federation:
        federation.begin(1)
        federation.send([Task("t", A, "atoll.testing.jobs:weights", {"weights": weights}, 0)])
        federation.receive()
        account = federation.ledger.current
        assert account.bytes_down > 4000 and account.bytes_up > 4000
        assert now(federation) == pytest.approx((account.bytes_down + account.bytes_up) / 1000)
        down, up = account.bytes_down, account.bytes_up
        federation.begin(2)
        federation.send([Task("t", A, "atoll.testing.jobs:weights", {"weights": weights}, 0)])
        federation.receive()
        assert federation.ledger.current.simulated_seconds == pytest.approx((down - 4000 + up) / 1000)


def test_clients_show_their_data_rate_at_the_beginning_of_the_round() -> None:
    line = Trace(np.array([1.0, 1.0]), np.array([300.0, 0.0]), np.zeros(2))
    with paced({A: 10, B: 10, C: 10}, {A: Link(line, line, offset=0.5, speed=10)}) as federation:
        assert [(info.bandwidth, info.speed) for info in federation.clients()] == [(300, 10), (None, 10), (None, 10)]
        federation.begin(1)
        list(federation.map([task(B)]))  # one second
        assert federation.clients()[0].bandwidth == 300  # as the round began
        federation.begin(2)
        assert federation.clients()[0].bandwidth == 0 and federation.clients()[0].sizes == DATA.sizes(A)


def test_test_evaluations_cost_nothing_and_are_always_answered() -> None:
    with paced({A: 1, B: 1, C: 1}, dropout=1.0) as federation:
        federation.begin(1)
        test_evaluation = Task(
            "test_evaluation", A, "atoll.testing.jobs:echo", {"value": 1}, 10**9, test_evaluation=True
        )
        assert values(list(federation.map([test_evaluation]))) == [1] and now(federation) == 0
        assert times(federation) == [] and federation.ledger.total().tasks == 0


def test_failures_and_unknown_clients_are_replies_in_time() -> None:
    with paced({A: 1, B: 10, C: 2}) as federation:
        federation.begin(1)
        federation.send([task(A, job="fail"), task(B), task("nobody")])
        failed, good, unknown = federation.receive()
        assert "asked to fail" in str(failed.error) and good.ok and "no client 'nobody'" in str(unknown.error)
        assert now(federation) == 10 and [row[-1] for row in times(federation)] == ["failed", "used"]


def test_memory_is_the_clients_own_while_its_reply_is_on_its_way() -> None:
    with paced({A: 1, B: 100, C: 1}) as federation:
        federation.begin(1)
        federation.send([task(A, job="remember"), task(B)])
        federation.receive(at_least=1)
        federation.begin(2)
        federation.send([task(A, job="remember")])
        assert [reply.payload["calls"] for reply in federation.receive()] == [1, 2]


# -- silence ---------------------------------------------------------------------------------------------------------


def test_a_client_silent_for_ever_never_blocks_a_round() -> None:
    with paced({A: 1, B: 1, C: 1}, dropout=1.0) as federation:
        for number in (1, 2):
            federation.begin(number)
            federation.send([task(A), task(B)])
            assert values(federation.receive(at_least=2)) == ["no reply"] * 2
            assert values(list(federation.map([task(A)]))) == ["no reply"]
        assert federation.ledger.total().replies["failed"] == 6 and now(federation) == 0


def dropping(tasks: int) -> list[bool]:
    """Which of A's first tasks of rounds 1, 2, ... get no answer at a probability of a half."""
    return [bool(stream(SEED, "dropout", number, A, 0).random() < 0.5) for number in range(1, tasks + 1)]


def test_dropout_is_drawn_for_each_task() -> None:
    with paced({A: 1, B: 1, C: 1}, dropout=0.5) as federation:
        found = []
        for number in range(1, 41):
            federation.begin(number)
            found += [not reply.ok for reply in federation.map([task(A)])]
        assert found == dropping(40) and 10 < sum(found) < 30


def test_silence_ends_at_the_deadline_or_with_the_round() -> None:
    silent = 1 + dropping(20).index(True)
    with paced({A: 1, B: 1, C: 1}, dropout=0.5) as federation:
        federation.begin(silent)
        federation.send([task(A)])
        assert values(federation.receive(deadline=7)) == ["no reply within 7 s"] and now(federation) == 7
    quick = next(name for name in (B, C) if stream(SEED, "dropout", silent, name, 0).random() >= 0.5)
    with paced({A: 1, B: 1, C: 1}, dropout=0.5) as federation:
        federation.begin(silent)
        federation.send([task(A), task(quick)])
        assert values(federation.receive(at_least=1)) == [quick] and now(federation) == 10
        federation.begin(silent + 1)
        federation.send([])
        assert values(federation.receive()) == ["no reply within 10 s"]
        assert times(federation) == [[A, silent, 0, None, None, 10, "failed"]]


def test_silence_in_map_waits_for_the_deadline_if_there_is_one() -> None:
    silent = 1 + dropping(20).index(True)
    with paced({A: 1, B: 1, C: 1}, dropout=0.5, deadline=30) as federation:
        federation.begin(silent)
        assert values(list(federation.map([task(A)]))) == ["no reply within 30 s"] and now(federation) == 30


# -- staleness by rounds ---------------------------------------------------------------------------------------------


def test_each_reply_is_exactly_so_many_rounds_late_as_was_drawn() -> None:
    """Every client is asked in every round, also while its last reply is on its way."""
    shares = [0.3, 0.4, 0.2, 0.1]
    rounds, found = 300, Counter[int]()
    with paced({A: 1, B: 10, C: 2}, staleness="heavy") as federation:
        for number in range(1, rounds + 1):
            federation.begin(number)
            federation.send([task(name, macs=1) for name in (A, B, C)])
            for reply in federation.receive():
                drawn = stream(SEED, "staleness", reply.round, reply.task.client, 0).choice(4, p=shares)
                assert number - reply.round == drawn
                found[number - reply.round] += 1
        total = federation.ledger.total().replies
        assert total["used"] == found[0] and total["late"] == found[1] + found[2] + found[3]
    for lateness, share in enumerate(shares):
        assert found[lateness] / 900 == pytest.approx(share, abs=4 * (share * (1 - share) / 900) ** 0.5 + 4 / 900)


def test_tasks_of_map_are_never_late_by_rounds() -> None:
    with paced({A: 1, B: 1, C: 1}, staleness=[0, 1]) as federation:
        federation.begin(1)
        assert values(list(federation.map([task(A)]))) == [A]
        federation.send([task(A)])
        assert federation.receive() == []
        federation.begin(2)
        federation.send([])
        (late,) = federation.receive()
        assert late.round == 1
        federation.forget(late)
        assert federation.ledger.current.replies == {"used": 0, "late": 0, "stale": 1, "rejected": 0, "failed": 0}
        assert times(federation)[0][6] == "stale"


def test_a_reply_held_back_by_a_mix_takes_its_time_first() -> None:
    """A works 10 s and its reply is a round late: the round lasts those 10 s, and in the next one it is there."""
    with paced({A: 1, B: 10, C: 2}, staleness=[0, 1]) as federation:
        federation.begin(1)
        federation.send([task(A), task(B)])
        assert federation.receive() == [] and now(federation) == 10 and federation.busy == frozenset()
        federation.begin(2)
        federation.send([task(C)])  # 10 to 15, held back too
        assert values(federation.receive()) == [A, B] and now(federation) == 15
        assert federation.ledger.current.simulated_seconds == 5
        # The line's own times, and then when the mix let the reply through.
        assert [row[2:] for row in times(federation)] == [[0, 0, 10, 10, "late", 10], [0, 0, 1, 1, "late", 10]]
    with paced({A: 1, B: 10, C: 2}, staleness=[0, 1]) as federation:
        federation.begin(1)
        federation.send([task(A), task(B)])
        federation.receive(deadline=4)  # A is at work until 10
        federation.begin(2)
        federation.send([task(B)])  # 4 to 5
        assert values(federation.receive()) == [B] and now(federation) == 5  # of round 1; A's cannot be there yet


def test_after_the_search_nothing_is_held_back() -> None:
    """There is no later round in which such a reply could count."""
    with paced({A: 1, B: 10, C: 2}, staleness=[0, 1]) as federation:
        federation.wait_for_all()
        federation.begin(1)
        assert values(federation.collect([task(A), task(B)])) == [A, B] and now(federation) == 10


def test_after_the_search_a_deadline_is_for_one_task() -> None:
    """C needs 5 s for a task: of two the second is done after 10 s, which two deadlines of 6 s allow."""
    with paced({A: 1, B: 10, C: 2}, rules=ExchangeRules(deadline=6)) as federation:
        federation.begin(1)
        assert values(federation.collect([task(C), task(C, value="second")])) == [C]
        federation.wait_for_all()
        federation.begin(2)
        assert values(federation.collect([task(C), task(C, value="second")])) == [C, "second"]


def test_silent_clients_take_no_room_before_they_are_asked_for() -> None:
    with paced({A: 1, B: 1, C: 1}, dropout=1.0) as federation:
        federation.begin(1)
        replies = federation.map([task(A), task(B), task(C)])
        assert not next(replies).ok and federation.undelivered == 0
        assert [reply.error for reply in replies] == ["no reply", "no reply"]


def test_a_download_that_was_cut_off_starts_again() -> None:
    """100 bytes a second and 10 s: a tensor of 4 kB does not arrive, so it is not there in the next attempt either."""
    weights = Tensors({"w": np.arange(1, 1001, dtype=np.float32)})
    line = Link(Trace.constant(100.0), Trace.constant(1e9))
    with paced({B: 10.0}, dict.fromkeys((A, C), line), deadline=10.0) as federation:
        federation.begin(1)
        for _ in range(2):
            reply, _ = federation.map([task(A, weights=weights), task(B)])
            assert reply.error == "no reply within 10 s"


def test_what_a_mix_holds_back_is_no_answer_for_those_who_wait_for_late_ones() -> None:
    """B's second reply is here and held back until round 3; A, at work since round 1, can still be waited for."""
    with paced({A: 0.1, B: 10, C: 2}, staleness=[0, 1]) as federation:
        federation.begin(1)
        federation.send([task(A), task(B)])  # A until 100
        federation.receive(deadline=4)
        federation.begin(2)
        federation.send([task(B)])  # 4 to 5
        assert values(federation.receive()) == [B] and federation.busy == {A}
        federation.send([])
        assert values(federation.receive(at_least=1)) == [A] and now(federation) == 100


def test_nothing_is_known_to_have_reached_a_client_that_dropped_out() -> None:
    weights = Tensors({"w": np.arange(1, 1001, dtype=np.float32)})
    with paced({A: 1, B: 1, C: 1}, dropout=1.0) as federation:
        for number in (1, 2):
            federation.begin(number)
            federation.send([task(A, weights=weights)])
            assert federation.busy == {A} and not federation.receive()[0].ok
        assert [account.bytes_down > 4000 for account in federation.ledger.rounds] == [True, True]
