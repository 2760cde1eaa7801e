"""A client holds the tensors of its last two tasks."""

from __future__ import annotations

import json

from atoll.federation.client_cache import ClientCache


def test_two_tasks_are_held_and_a_third_pushes_the_first_out() -> None:
    cache = ClientCache()
    assert cache.of("ann") == frozenset()
    cache.take("ann", frozenset("ab"))
    assert cache.of("ann") == frozenset("ab")
    cache.take("ann", frozenset("bc"))
    assert cache.of("ann") == frozenset("abc")
    cache.take("ann", frozenset("d"))
    assert cache.of("ann") == frozenset("bcd")
    assert cache.of("bob") == frozenset()


def test_a_set_that_many_clients_hold_is_written_once() -> None:
    cache = ClientCache()
    for client in ("ann", "bob"):
        cache.take(client, frozenset(["first", "second"]))
    assert cache.to_plain() == {"sets": [[], ["first", "second"]], "clients": {"ann": [0, 1], "bob": [0, 1]}}


def test_what_was_saved_goes_on_alike() -> None:
    cache = ClientCache()
    for client, digests in (("ann", "ab"), ("bob", "ab"), ("ann", "c"), ("bob", "d"), ("cid", "ab")):
        cache.take(client, frozenset(digests))
    again = ClientCache.from_plain(json.loads(json.dumps(cache.to_plain())))
    for side in (cache, again):
        side.take("ann", frozenset("e"))
    assert [again.of(name) for name in ("ann", "bob", "cid")] == [frozenset("ce"), frozenset("abd"), frozenset("ab")]
    assert again.to_plain() == cache.to_plain()
