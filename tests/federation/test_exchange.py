"""Exchanges that end with a quorum, on clients whose times can be computed by hand: A takes 10 s, B 1 s, C 5 s."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from atoll.core import wire
from atoll.core.checks import TensorsLike
from atoll.core.messages import Task, Tensors
from atoll.federation.base import Federation
from atoll.federation.exchange import Enough, ExchangeRules
from atoll.federation.transport import Envelope, Transport
from atoll.testing import FaultyTransport, ScriptedFederation
from paced_clients import A, B, C, now, paced, task, times, values

SPEEDS = {A: 1.0, B: 10.0, C: 2.0}


def federation(**rules: Any) -> Federation:
    return paced(SPEEDS, rules=ExchangeRules(**rules))


def exchange(found: Federation, number: int, names: tuple[str, ...] = (A, B, C), **options: Any) -> list[Any]:
    """The good replies of a round's only exchange, with the rounds that they are late."""
    found.begin(number)
    replies = found.collect([task(name, value=f"{name}{number}") for name in names], minimum=0, **options)
    return [(reply.payload["value"], number - reply.round) for reply in replies]


def fates(found: Federation) -> dict[str, int]:
    return {name: count for name, count in found.ledger.current.replies.items() if count}


def update(client: str, longest: float | None) -> Task:
    """The weights come back changed by one each. A change that is longer than the `longest` is rejected."""
    weights = Tensors({"w": np.zeros(4, np.float32)})
    returns = {"weights": TensorsLike.of(weights, "values", longest)}
    return Task(f"update:{client}", client, "atoll.testing.jobs:weights", {"weights": weights}, 10, returns)


class SilentTransport(FaultyTransport):
    """Some clients never answer."""

    def __init__(self, inner: Transport, silent: set[str]) -> None:
        super().__init__(inner, lambda task, number: False)
        self._silent, self.window = silent, 9

    def start(self, envelope: Envelope) -> None:
        if envelope.task.client not in self._silent:
            super().start(envelope)


def test_a_round_ends_with_the_reply_that_completes_the_quorum() -> None:
    """Of three, 0.6 are two: B at 1 s and C at 5 s. A goes on, is not asked, and its late reply is dropped."""
    with federation(quorum=0.6) as found:
        assert exchange(found, 1) == [(f"{B}1", 0), (f"{C}1", 0)] and now(found) == 5 and found.busy == {A}
        assert exchange(found, 2) == [(f"{B}2", 0), (f"{C}2", 0)] and now(found) == 10
        assert fates(found) == {"used": 2, "stale": 1}, "A's reply came at 10 s, with C's"
        assert exchange(found, 3) == [(f"{B}3", 0), (f"{C}3", 0)] and now(found) == 15 and found.busy == {A}


def test_late_replies_that_are_used_count() -> None:
    """In round 2, B answers at 6 s and A, a round late, at 10 s together with C: the quorum of two is met by then."""
    with federation(quorum=0.6, late="use") as found:
        exchange(found, 1, takes_late=True)
        assert exchange(found, 2, takes_late=True) == [(f"{A}1", 1), (f"{B}2", 0), (f"{C}2", 0)] and now(found) == 10
        assert fates(found) == {"used": 2, "late": 1} and not found.busy


def test_the_quorum_is_a_share_of_all_that_participate_not_of_those_that_are_free() -> None:
    """Two of three again: with A busy both others are waited for, though 0.6 of two would be two anyway; of four
    participants, as the method counts them, three would be needed and all that may come are waited for."""
    with federation(quorum=0.75, late="use") as found:
        exchange(found, 1, (A, B, C), takes_late=True)
        assert now(found) == 10, "three of three"
    with federation(quorum=0.5, late="use") as found:
        exchange(found, 1, takes_late=True)
        assert exchange(found, 2, (B,), takes_late=True, participating=6) == [(f"{A}1", 1), (f"{B}2", 0)]


def test_an_exchange_that_takes_no_late_replies_leaves_them_to_one_that_does() -> None:
    with federation(quorum=0.6, late="use") as found:
        exchange(found, 1, takes_late=True)
        assert exchange(found, 2, (B, C)) == [(f"{B}2", 0), (f"{C}2", 0)] and found.undelivered == 1
        assert (f"{A}1", 2) in exchange(found, 3, takes_late=True)


def test_a_client_that_was_left_out_of_enough_rounds_is_waited_for() -> None:
    """Left out of round 1 at 5 s. With `fair = 1` round 2 waits until A is free at 10 s, then for it at 20 s."""
    with federation(quorum=0.6, fair=1) as found:
        exchange(found, 1)
        assert exchange(found, 2) == [(f"{A}2", 0), (f"{B}2", 0), (f"{C}2", 0)] and now(found) == 20
        exchange(found, 3)
        assert found.busy == {A}, "its turn is over"
    with federation(quorum=0.6, fair=2) as found:
        exchange(found, 1)
        assert exchange(found, 2) == [(f"{B}2", 0), (f"{C}2", 0)] and now(found) == 10
        assert len(exchange(found, 3)) == 3 and now(found) == 20, "left out of two rounds, and free at 10 s"


def test_free_clients_are_asked_before_the_one_whose_turn_it_is() -> None:
    """A is busy until 10 s and does its task of round 2 then. B and C begin theirs at 5 s, with the round."""
    with federation(quorum=0.6, fair=1) as found:
        exchange(found, 1)
        exchange(found, 2)
        began = {row[0]: row[2] for row in times(found) if row[1] == 2}
        assert began == {A: 10, B: 5, C: 5}


def test_nobody_waits_for_what_belongs_to_an_earlier_phase() -> None:
    """A's turn has come in round 2, but its task of round 1 is of no use any more: B and C end round 2 at 10 s."""
    with federation(quorum=0.6, fair=1) as found:
        exchange(found, 1)
        found.begin(2)
        found.new_phase()
        assert values(list(found.collect([task(name) for name in (A, B, C)]))) == [B, C] and now(found) == 10
        assert [value for value, _ in exchange(found, 3)] == [f"{A}3", f"{B}3", f"{C}3"] and now(found) == 20
    with federation(quorum=0.6, fair=1, late="use") as found:
        exchange(found, 1, takes_late=True)
        found.begin(2)
        found.new_phase()
        replies = found.collect([task(name) for name in (B, C)], takes_late=True, participating=3)
        assert values(list(replies)) == [B, C] and now(found) == 10
        assert fates(found) == {"used": 2, "stale": 1}, "A's reply of round 1"


def test_the_phase_survives_a_snapshot() -> None:
    with federation(quorum=0.6, fair=1, late="use") as found:
        exchange(found, 1, takes_late=True)
        found.new_phase()
        saved = found.snapshot()
    with federation(quorum=0.6, fair=1, late="use") as again:
        again.restore(saved)
        assert exchange(again, 2, takes_late=True) == [(f"{B}2", 0), (f"{C}2", 0)]


def test_a_reply_that_was_discarded_has_not_been_used() -> None:
    """In round 2 A's late reply is waited for until 10 s. If it is of no use, A is waited for in round 3 again."""
    for discarded, seconds in ((True, 20), (False, 15)):
        with federation(quorum=0.6, fair=1, late="use") as found:
            exchange(found, 1, takes_late=True)
            found.begin(2)
            for reply in found.collect([task(name) for name in (B, C)], takes_late=True, participating=3):
                if discarded and reply.task.client == A:
                    found.forget(reply)
            assert now(found) == 10
            exchange(found, 3, takes_late=True)
            assert now(found) == seconds


def test_a_reply_that_a_rule_rejects_has_not_been_used() -> None:
    """C's update of round 1 is longer than it can be. In round 2 it is waited for, until 10 s instead of 6 s."""
    for longest, seconds in ((0.1, 10), (None, 6)):
        with federation(quorum=0.6, fair=1) as found:
            found.begin(1)
            replies = found.collect([update(A, None), update(B, None), update(C, longest)])
            assert [reply.task.client for reply in replies] == [B] + [C] * (longest is None) and now(found) == 5
            found.begin(2)
            list(found.collect([task(name) for name in (B, C)], participating=1))
            assert now(found) == seconds


def test_in_its_turn_a_client_is_waited_for_in_every_exchange_of_the_round() -> None:
    with federation(quorum=0.6, fair=1) as found:
        exchange(found, 1)
        exchange(found, 2)
        again = found.collect([task(name) for name in (A, B, C)])
        assert len(list(again)) == 3


def test_fairness_survives_a_snapshot() -> None:
    with federation(quorum=0.6, fair=2) as found:
        exchange(found, 1)
        exchange(found, 2)
        saved = found.snapshot()
    with federation(quorum=0.6, fair=2) as again:
        again.restore(saved)
        assert len(exchange(again, 3)) == 3


def test_a_quorum_is_of_clients_that_have_done_all_their_tasks() -> None:
    """Three models each: B is done at 3 s, C at 15 s, A at 30 s. A's first reply, at 10 s, would make models that are
    compared meet different clients."""
    for late in ("drop", "use"):
        with federation(quorum=0.6, late=late) as found:
            found.begin(1)
            tasks = [task(name, value=f"{name} {model}") for model in range(3) for name in (A, B, C)]
            replies = list(found.collect(tasks))
            assert values(replies) == [f"{name} {model}" for model in range(3) for name in (B, C)]
            assert now(found) == 15 and fates(found) == {"used": 6, "stale": 1} and found.busy == {A}


def test_a_client_with_a_failure_counts_if_it_has_done_something_else() -> None:
    """B fails in one of two tasks, C in both: B at 2 s does not make two clients, A at 20 s does."""
    with federation(quorum=0.6) as found:
        found.begin(1)
        tasks = [task(A), task(B, job="fail"), task(C, job="fail"), task(A), task(B), task(C, job="fail")]
        assert values(list(found.collect(tasks))) == [A, A, B] and now(found) == 20


def test_late_replies_are_for_exchanges_that_take_them_and_from_such_ones() -> None:
    """What A answers in the first exchange is of no use to the second, which asks for something else."""
    with federation(quorum=0.6, late="use") as found:
        assert exchange(found, 1) == [(f"{B}1", 0), (f"{C}1", 0)] and now(found) == 5
        assert exchange(found, 2, (B, C), takes_late=True, participating=3) == [(f"{B}2", 0), (f"{C}2", 0)]
        assert now(found) == 10 and fates(found) == {"used": 2, "stale": 1}


def test_who_can_be_asked() -> None:
    """Those that are free and those whose turn it is. When all are busy, time passes until one is free."""
    with federation(quorum=0.6, fair=2) as found:
        exchange(found, 1)
        assert [info.name for info in found.available()] == [B, C] and now(found) == 5
        exchange(found, 2, (B,))
        exchange(found, 3, (B,))
        assert now(found) == 7 and [info.name for info in found.available()] == [A, B, C], "A was left out twice"
    with federation() as found:
        found.begin(1)
        found.send([task(name) for name in (A, B, C)])
        assert [info.name for info in found.available()] == [B] and now(found) == 1


def test_when_all_are_busy_the_first_that_is_done_is_asked() -> None:
    with federation(quorum=0.3) as found:
        found.begin(1)
        found.send([task(name) for name in (A, B, C)])
        replies = found.collect([task(name, value=f"{name}again") for name in (A, B, C)])
        assert values(list(replies)) == [f"{B}again"] and now(found) == 2


def test_failures_do_not_complete_a_quorum() -> None:
    """B fails at 1 s: the good replies of C and A are waited for."""
    with federation(quorum=0.6) as found:
        found.begin(1)
        tasks = [task(A), task(B, job="fail"), task(C)]
        assert values(list(found.collect(tasks))) == [A, C] and now(found) == 10


def test_a_deadline_ends_an_exchange_before_its_quorum() -> None:
    """In the first exchange it would be refused: nobody could ever meet it. What missed it is given up."""
    with federation(quorum=0.9) as found:
        assert len(exchange(found, 1)) == 3 and now(found) == 10
        found.rules = replace(found.rules, deadline=2.0)
        assert exchange(found, 2) == [(f"{B}2", 0)] and now(found) == 12 and not found.busy
        assert fates(found) == {"used": 1, "failed": 2}


def test_what_a_quorum_leaves_behind_is_given_up_at_the_deadline_of_its_exchange() -> None:
    """B answers at 1 s and ends the exchange; C answers at 5 s, too late; A is given up at 6 s, and asked again."""
    with federation(quorum=0.3, deadline=6.0) as found:
        assert exchange(found, 1) == [(f"{B}1", 0)] and now(found) == 1 and found.busy == {A, C}
        assert [exchange(found, number) for number in (2, 3, 4, 5)] == [
            [(f"{B}{number}", 0)] for number in (2, 3, 4, 5)
        ]
        assert now(found) == 5 and found.busy == {A}
        assert exchange(found, 6) == [(f"{B}6", 0)] and now(found) == 6
        assert (times(found)[0][0], times(found)[0][-1]) == (A, "failed") and found.busy == {C}
        exchange(found, 7)
        assert found.busy == {A, C}, "A does its second task"


def test_late_replies_that_can_be_used_are_not_given_up() -> None:
    with federation(quorum=0.9, late="use", deadline=6.0) as found:
        assert exchange(found, 1, takes_late=True) == [(f"{B}1", 0), (f"{C}1", 0)] and now(found) == 6
        assert (f"{A}1", 1) in exchange(found, 2, takes_late=True)


def test_in_real_time_what_a_quorum_leaves_behind_is_given_up_as_well() -> None:
    with ScriptedFederation([A, B, C], lambda task: {"value": task.client}) as found:
        found.transport = SilentTransport(found.transport, {A})
        found.rules = ExchangeRules(quorum=0.6, deadline=0.05)
        assert len(exchange(found, 1)) == 2 and found.busy == {A}
        time.sleep(0.06)
        exchange(found, 2)
        assert fates(found) == {"used": 2, "failed": 1}
        exchange(found, 3)
        assert found.busy == {A}, "it is asked again"
        saved = wire.decode(wire.encode(found.snapshot()))
    with ScriptedFederation([A, B, C], lambda task: {"value": task.client}) as again:
        again.transport = SilentTransport(again.transport, {A})
        again.rules = ExchangeRules(quorum=0.6)
        again.restore(saved)
        exchange(again, 4)
        time.sleep(0.06)
        exchange(again, 5)
        assert again.ledger.total().replies["failed"] == 1, "the limit was saved"


def test_at_the_end_all_are_waited_for() -> None:
    with federation(quorum=0.3, late="use") as found:
        exchange(found, 1, takes_late=True)
        found.wait_for_all()
        assert len(exchange(found, 2)) == 3


def test_how_many_replies_are_needed() -> None:
    assert [ExchangeRules(quorum=share).needed(10) for share in (1.0, 0.8, 0.55, 0.01)] == [10, 8, 6, 1]
    assert ExchangeRules(quorum=0.8).needed(5) == 4 and ExchangeRules(quorum=0.1).needed(0) == 1


def test_a_wait_is_over_when_nothing_more_can_come() -> None:
    enough = Enough(counted={1: A, 2: B, 3: C}, needed=3)
    assert not enough.met({}, (), {1}) and enough.met({}, (), ()) and enough.met({}, {1, 2, 3}, {9})
    assert not Enough({1: A}, 0, awaited={2}).met({}, (), {2}) and Enough({1: A}, 0, awaited={2}).met({}, (), {1})
