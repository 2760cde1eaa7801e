"""A client holds the tensors of its last two tasks."""

from __future__ import annotations

import json

from atoll.federation.client_cache import Holdings


def test_two_tasks_are_held_and_a_third_pushes_the_first_out() -> None:
    holdings = Holdings()
    assert holdings.of("ann") == frozenset()
    holdings.take("ann", frozenset("ab"))
    assert holdings.of("ann") == frozenset("ab")
    holdings.take("ann", frozenset("bc"))
    assert holdings.of("ann") == frozenset("abc")
    holdings.take("ann", frozenset("d"))
    assert holdings.of("ann") == frozenset("bcd")
    assert holdings.of("bob") == frozenset()


def test_a_set_that_many_clients_hold_is_written_once() -> None:
    holdings = Holdings()
    for client in ("ann", "bob"):
        holdings.take(client, frozenset(["first", "second"]))
    assert holdings.to_plain() == {"sets": [[], ["first", "second"]], "clients": {"ann": [0, 1], "bob": [0, 1]}}


def test_what_was_saved_goes_on_alike() -> None:
    holdings = Holdings()
    for client, digests in (("ann", "ab"), ("bob", "ab"), ("ann", "c"), ("bob", "d"), ("cid", "ab")):
        holdings.take(client, frozenset(digests))
    again = Holdings.from_plain(json.loads(json.dumps(holdings.to_plain())))
    for side in (holdings, again):
        side.take("ann", frozenset("e"))
    assert [again.of(name) for name in ("ann", "bob", "cid")] == [frozenset("ce"), frozenset("abd"), frozenset("ab")]
    assert again.to_plain() == holdings.to_plain()
