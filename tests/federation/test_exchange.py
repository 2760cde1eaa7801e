"""Exchanges that end with a quorum, on clients whose times can be computed by hand: A takes 10 s, B 1 s, C 5 s."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from atoll.federation.base import Federation
from atoll.federation.exchange import Enough, ExchangeRules
from paced_clients import A, B, C, now, paced, task, values

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
    """In the first exchange it would be refused: nobody could ever meet it."""
    with federation(quorum=0.9) as found:
        assert len(exchange(found, 1)) == 3 and now(found) == 10
        found.rules = replace(found.rules, deadline=2.0)
        assert exchange(found, 2) == [(f"{B}2", 0)] and now(found) == 12 and found.busy == {A, C}


def test_at_the_end_all_are_waited_for() -> None:
    with federation(quorum=0.3, late="use") as found:
        exchange(found, 1, takes_late=True)
        found.wait_for_all()
        assert len(exchange(found, 2)) == 3


def test_how_many_replies_are_needed() -> None:
    assert [ExchangeRules(quorum=share).needed(10) for share in (1.0, 0.8, 0.55, 0.01)] == [10, 8, 6, 1]
    assert ExchangeRules(quorum=0.8).needed(5) == 4 and ExchangeRules(quorum=0.1).needed(0) == 1


def test_a_wait_is_over_when_nothing_more_can_come() -> None:
    enough = Enough(counted={1, 2, 3}, needed=3)
    assert not enough.met({}, (), {1}) and enough.met({}, (), ()) and enough.met({}, {1, 2, 3}, {9})
    assert not Enough({1}, 0, awaited={2}).met({}, (), {2}) and Enough({1}, 0, awaited={2}).met({}, (), {1})
