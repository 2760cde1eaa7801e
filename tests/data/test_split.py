"""A client's own split: shares, strata, blocks of time, and nothing that depends on other clients."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.data.partition import Indices, Partition, iid, natural
from atoll.data.split import Blocks, Shares, counts, split
from atoll.errors import DataError
from atoll.rng import stream
from refusals import refused

USUAL: Shares = (0.6, 0.2, 0.2)


def one_client(rows: int) -> Partition:
    return Partition(np.arange(rows), np.array([0, rows]))


def parts(rows: Indices, bounds: Indices, client: int = 0) -> list[list[int]]:
    return [rows[bounds[client, part] : bounds[client, part + 1]].tolist() for part in range(3)]


@pytest.mark.parametrize(
    ("rows", "shares", "expected"),
    [
        (10, USUAL, [6, 2, 2]),
        (100, (0.8, 0.2, 0.0), [80, 20, 0]),
        (2, USUAL, [2, 0, 0]),  # nothing to spare
        (3, USUAL, [3, 0, 0]),
        (5, USUAL, [3, 2, 0]),  # one row each would be too few: validation takes two, test is dropped
        (6, USUAL, [2, 2, 2]),
        (7, (0.7, 0.0, 0.3), [5, 0, 2]),
        (4, (1.0, 0.0, 0.0), [4, 0, 0]),
    ],
)
def test_counts(rows: int, shares: Shares, expected: list[int]) -> None:
    assert counts(np.array([rows]), shares).tolist() == [expected]


@given(
    labels=st.lists(st.integers(0, 3), min_size=2, max_size=80),
    blocks=st.sampled_from(["random", "shuffled", "contiguous", "by_class"]),
    shares=st.sampled_from([USUAL, (0.8, 0.2, 0.0), (0.34, 0.33, 0.33), (0.1, 0.0, 0.9)]),
    seed=st.integers(0, 99),
)
def test_every_row_is_in_one_part_and_parts_have_none_or_two(
    labels: list[int], blocks: Blocks, shares: Shares, seed: int
) -> None:
    rows, bounds = split(one_client(len(labels)), np.array(labels), ["a"], shares, seed, blocks)
    assert sorted(rows.tolist()) == list(range(len(labels)))
    sizes = np.diff(bounds[0])
    assert sizes.tolist() == counts(np.array([len(labels)]), shares)[0].tolist()
    assert all(size == 0 or size >= 2 for size in sizes)


@given(sizes=st.lists(st.integers(1, 60), min_size=2, max_size=5), seed=st.integers(0, 200))
def test_every_class_has_its_share_of_every_part(sizes: list[int], seed: int) -> None:
    labels = stream(seed, "mix").permutation(np.repeat(np.arange(len(sizes)), sizes))
    rows, bounds = split(one_client(len(labels)), labels, ["a"], USUAL, seed)
    wanted = np.diff(bounds[0])
    for part, own in enumerate(parts(rows, bounds)):
        found = np.bincount(labels[own], minlength=len(sizes))
        exact = np.array(sizes) * wanted[part] / len(labels)
        assert (abs(found - exact) < 2).all()


def test_ten_of_each_class_split_exactly() -> None:
    labels = np.tile([0, 1, 2], 10)
    rows, bounds = split(one_client(30), labels, ["a"], USUAL, 0)
    assert [np.bincount(labels[own]).tolist() for own in parts(rows, bounds)] == [[6] * 3, [2] * 3, [2] * 3]


def test_random_blocks_are_random_within_a_class() -> None:
    rows, bounds = split(one_client(100), np.zeros(100, int), ["a"], USUAL, 0)
    distances = np.diff(sorted(parts(rows, bounds)[2]))
    assert len(set(distances.tolist())) > 3  # twenty rows, not every fifth one


def test_small_clients_do_not_always_give_the_same_class_away() -> None:
    """1000 clients with one row of each of six classes: two test rows each, a third of every class in all."""
    labels = np.tile(np.arange(6), 1000)
    assigned = natural(np.repeat(np.arange(1000), 6))
    rows, bounds = split(assigned, labels, [f"c{i}" for i in range(1000)], (0.67, 0.0, 0.33), 0)
    test = np.concatenate([labels[parts(rows, bounds, client)[2]] for client in range(1000)])
    assert np.bincount(test).min() > 270 and np.bincount(test).sum() == 2000


def test_shuffled_blocks_say_nothing_of_labels() -> None:
    """One label decides where other rows go if the split is by class, and not if it is shuffled."""
    labels = np.tile([0, 1, 2], 10)
    other = np.array([2, *labels[1:]])
    for blocks, same in (("random", False), ("shuffled", True)):
        found = [split(one_client(30), own, ["a"], USUAL, 0, blocks)[0].tolist() for own in (labels, other)]
        assert (found[0] == found[1]) == same


def test_contiguous_blocks_follow_time() -> None:
    rows, bounds = split(one_client(10), np.zeros(10, int), ["a"], USUAL, 0, "contiguous")
    assert parts(rows, bounds) == [[0, 1, 2, 3, 4, 5], [6, 7], [8, 9]]


def test_blocks_by_class_follow_time_within_each_class() -> None:
    labels = np.array([0] * 10 + [1] * 10)
    rows, bounds = split(one_client(20), labels, ["a"], USUAL, 0, "by_class")
    assert parts(rows, bounds) == [[*range(6), *range(10, 16)], [6, 7, 16, 17], [8, 9, 18, 19]]


def test_a_clients_split_depends_on_nobody_else() -> None:
    labels = np.tile([0, 1], 30)
    both = natural(np.repeat([0, 1], 30))
    rows, bounds = split(both, labels, ["a", "b"], USUAL, 7)
    alone_rows, alone_bounds = split(Partition(both.client(1), np.array([0, 30])), labels, ["b"], USUAL, 7)
    assert parts(rows, bounds, 1) == parts(alone_rows, alone_bounds)
    other, other_bounds = split(both, labels, ["a", "b"], USUAL, 8)
    assert parts(rows, bounds, 1) != parts(other, other_bounds, 1)


def test_ten_thousand_clients_are_split_in_seconds() -> None:
    labels = stream(0, "labels").integers(0, 10, 60_000)
    assigned = iid(labels, 10_000, stream(0))
    start = time.process_time()
    _, bounds = split(assigned, labels, [f"c{i}" for i in range(10_000)], (0.8, 0.2, 0.0), 0)
    assert time.process_time() - start < 5  # 0.4 s when nothing else runs; client by client it took far longer
    assert np.diff(bounds, axis=1).tolist() == [[4, 2, 0]] * 10_000


@pytest.mark.parametrize(
    ("shares", "named"),
    [((0.6, 0.2, 0.1), "0.6/0.2/0.1"), ((0.0, 0.5, 0.5), "0/0.5/0.5"), ((1.2, -0.2, 0.0), "1.2/-0.2/0")],
)
def test_impossible_shares(shares: Shares, named: str) -> None:
    with refused(DataError, "invalid-split", named):
        split(one_client(10), np.zeros(10, int), ["a"], shares, 0)


def test_a_client_with_one_row_is_named() -> None:
    with refused(DataError, "too-few-rows", "'lonely'"):
        split(Partition(np.arange(5), np.array([0, 4, 5])), np.zeros(5, int), ["a", "lonely"], USUAL, 0)
