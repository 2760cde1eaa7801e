"""A client holds the tensors of its last tasks, as far as they fit into the limit, and always those of two."""

from __future__ import annotations

import json

import pytest

from atoll.federation import client_cache
from atoll.federation.client_cache import MOST, ClientCache


def take(cache: ClientCache, client: str, digests: str, size: int = 1) -> None:
    cache.take(client, dict.fromkeys(digests, size))


def test_tasks_are_held_until_the_limit_pushes_the_oldest_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_cache, "LIMIT", 40)
    cache = ClientCache()
    assert cache.of("ann") == frozenset()
    for digests, held in (("ab", "ab"), ("bc", "abc"), ("d", "abcd"), ("e", "bcde"), ("a", "ade")):
        take(cache, "ann", digests, 10)
        assert cache.of("ann") == frozenset(held)
    take(cache, "ann", "xyz", 30)  # two tasks are held whatever they need
    assert cache.of("ann") == frozenset("axyz") and cache.of("bob") == frozenset()


def test_only_so_many_tasks_are_remembered() -> None:
    cache = ClientCache()
    for number in range(MOST + 3):
        cache.take("ann", {f"t{number}": 1})
    assert cache.of("ann") == {f"t{number}" for number in range(3, MOST + 3)}
    cache.lose("ann")
    assert cache.of("ann") == frozenset()


def test_a_set_that_many_clients_hold_is_written_once() -> None:
    cache = ClientCache()
    for client in ("ann", "bob"):
        cache.take(client, {"first": 4, "second": 8})
    tensors = [["first", 4], ["second", 8]]
    assert cache.to_plain() == {"tensors": tensors, "sets": [[0, 1]], "clients": {"ann": [0], "bob": [0]}}


def test_what_was_saved_goes_on_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_cache, "LIMIT", 3)
    cache = ClientCache()
    for client, digests in (("ann", "ab"), ("bob", "ab"), ("ann", "c"), ("bob", "d"), ("cid", "ab")):
        take(cache, client, digests)
    again = ClientCache.from_plain(json.loads(json.dumps(cache.to_plain())))
    for side in (cache, again):
        take(side, "ann", "e")
    assert [again.of(name) for name in ("ann", "bob", "cid")] == [frozenset("ce"), frozenset("abd"), frozenset("ab")]
    assert again.to_plain() == cache.to_plain()
