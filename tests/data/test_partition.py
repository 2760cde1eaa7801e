"""Partitions: facts one can count, then properties over random data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.data import partition
from atoll.data.partition import Indices, Partition
from atoll.errors import DataError
from atoll.rng import stream
from refusals import refused

TEN_EACH = np.repeat(np.arange(10), 100)  # ten classes of a hundred rows, sorted


def class_counts(assigned: Partition, labels: Indices) -> Indices:
    return np.stack(
        [np.bincount(labels[assigned.client(i)], minlength=labels.max() + 1) for i in range(assigned.clients)]
    )


def make(kind: str, labels: Indices, clients: int, seed: int) -> Partition:
    rng, total = stream(seed, "test"), int(labels.max()) + 1
    match kind:
        case "iid":
            return partition.iid(labels, clients, rng)
        case "quantity":
            return partition.quantity(labels, clients, 0.3, rng)
        case "shards":
            return partition.shards(labels, clients, 2, rng)
        case "classes":
            return partition.classes(labels, clients, 2, total, rng)
        case _:
            return partition.dirichlet(labels, clients, 0.1, total, rng)


KINDS = ["iid", "quantity", "shards", "classes", "dirichlet"]


@given(
    kind=st.sampled_from(KINDS), clients=st.integers(2, 12), per_class=st.integers(12, 40), seed=st.integers(0, 1000)
)
def test_every_row_goes_to_exactly_one_client_who_has_at_least_two(
    kind: str, clients: int, per_class: int, seed: int
) -> None:
    labels = stream(seed, "labels").permutation(np.repeat(np.arange(4), per_class))
    assigned = make(kind, labels, clients, seed)
    assert sorted(assigned.rows.tolist()) == list(range(len(labels)))
    assert assigned.clients == clients
    assert assigned.sizes.min() >= 2
    again = make(kind, labels, clients, seed)
    assert np.array_equal(assigned.rows, again.rows) and np.array_equal(assigned.offsets, again.offsets)


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_deals_differently(kind: str) -> None:
    one, other = (make(kind, TEN_EACH, 10, seed) for seed in (1, 2))
    assert [set(one.client(i)) for i in range(10)] != [set(other.client(i)) for i in range(10)]


def test_iid_pieces_are_equal_and_mixed() -> None:
    assigned = partition.iid(TEN_EACH, 3, stream(0))
    assert assigned.sizes.tolist() == [333, 333, 334]
    assert class_counts(assigned, TEN_EACH).min() > 15  # a third of a hundred, give or take


def test_shards_of_a_hundred_clients_are_two_hundred_fragments() -> None:
    """1000 rows, 10 classes, 100 clients, 2 shards: 200 fragments of 5 rows, each within one class."""
    assigned = partition.shards(TEN_EACH, 100, 2, stream(0))
    assert assigned.sizes.tolist() == [10] * 100
    counts = class_counts(assigned, TEN_EACH)
    assert set(counts.ravel().tolist()) <= {0, 5, 10}
    assert (counts > 0).sum(axis=1).max() == 2
    fragments = [set((assigned.client(client) // 5).tolist()) for client in range(100)]
    assert all(len(own) == 2 for own in fragments) and set().union(*fragments) == set(range(200))


@given(clients=st.integers(2, 40), per_client=st.integers(1, 10), seed=st.integers(0, 1000))
def test_classes_gives_every_client_exactly_k_and_every_class_as_many_holders(
    clients: int, per_client: int, seed: int
) -> None:
    if clients * per_client < 10:
        with refused(DataError, "classes-not-covered", clients, per_client, 10):
            partition.classes(TEN_EACH, clients, per_client, 10, stream(seed))
        return
    held = class_counts(partition.classes(TEN_EACH, clients, per_client, 10, stream(seed)), TEN_EACH)
    assert ((held > 0).sum(axis=1) == per_client).all()
    holders = (held > 0).sum(axis=0)
    assert holders.max() - holders.min() <= 1
    for label in range(10):
        shares = held[held[:, label] > 0, label]
        assert shares.max() - shares.min() <= 1


def test_five_of_ten_classes_come_in_many_combinations() -> None:
    labels = np.repeat(np.arange(10), 600)
    held = class_counts(partition.classes(labels, 100, 5, 10, stream(0)), labels) > 0
    assert len({tuple(row) for row in held.tolist()}) > 50


def test_dirichlet_is_even_for_large_and_lopsided_for_small_alpha() -> None:
    even = class_counts(partition.dirichlet(TEN_EACH, 10, 1e6, 10, stream(0)), TEN_EACH)
    assert even.min() >= 9 and even.max() <= 11
    lopsided = class_counts(partition.dirichlet(TEN_EACH, 10, 0.01, 10, stream(0)), TEN_EACH)
    assert np.sort(lopsided, axis=0)[-1].mean() > 85  # nearly all of a class with one client


@pytest.mark.parametrize("alpha", [1e-300, 1e-8, 0.001])
def test_dirichlet_stands_vanishing_alpha(alpha: float) -> None:
    assigned = partition.dirichlet(TEN_EACH, 20, alpha, 10, stream(0))
    assert assigned.sizes.min() >= 2 and assigned.sizes.sum() == 1000


def test_topping_up_takes_from_the_largest() -> None:
    owner = np.array([0] * 6 + [1] * 4)  # client 2 has nothing and needs two
    topped = partition._top_up(owner, 3, 2, stream(0))
    assert np.bincount(topped).tolist() == [4, 4, 2]


def test_natural_keeps_the_order_of_rows() -> None:
    assigned = partition.natural(np.array([1, 0, 1, 0, 1]))
    assert assigned.client(0).tolist() == [1, 3]
    assert assigned.client(1).tolist() == [0, 2, 4]


@pytest.mark.parametrize(
    ("call", "code", "named"),
    [
        (lambda: partition.iid(TEN_EACH, 0, stream(0)), "no-clients", [0]),
        (lambda: partition.iid(TEN_EACH, 501, stream(0)), "too-many-clients", [501, 1000, 500]),
        (lambda: partition.classes(TEN_EACH, 10, 11, 10, stream(0)), "invalid-partition-number", ["'classes:11'"]),
        (lambda: partition.shards(TEN_EACH, 400, 3, stream(0)), "too-many-shards", [1200, 1000]),
        (lambda: partition.shards(TEN_EACH, 10, 0, stream(0)), "invalid-partition-number", ["'shards:0'"]),
        (lambda: partition.dirichlet(TEN_EACH, 10, 0.0, 10, stream(0)), "invalid-partition-number", [0.0]),
        (lambda: partition.quantity(TEN_EACH, 10, float("nan"), stream(0)), "invalid-partition-number", ["nan"]),
        (
            lambda: partition.classes(np.array([0] * 50 + [1] * 3), 10, 2, 2, stream(0)),
            "class-rows-too-few",
            ["class number 1", "3 rows"],
        ),
    ],
)
def test_the_impossible_is_refused_in_one_line(call: object, code: str, named: list[object]) -> None:
    with refused(DataError, code, *named) as caught:
        call()  # type: ignore[operator]
    assert "\n" not in str(caught.value)
