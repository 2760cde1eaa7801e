"""Groups of clients: eight of them by hand, then what must hold for any."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.algorithms.sampling import distance, partition
from atoll.errors import ConfigError
from refusals import refused

# Eight clients, two classes, 80 + 80 rows in all: everybody's distribution is (1/2, 1/2).
EIGHT = [(40, 0), (0, 30), (20, 0), (0, 20), (0, 20), (10, 0), (10, 0), (0, 10)]
SIZES = [40, 30, 20, 20, 20, 10, 10, 10]


def test_eight_clients_by_hand() -> None:
    """Two groups, r = 1.1, clients in the order 0 to 7.

    0 and 1 fill the empty groups: A (40, 0), B (0, 30).
    2 (20, 0): A would be 60 against 30, 27 rows too many; B 50 against 40, 6 too many: B (20, 30).
    3 (0, 20): A 60 against 50, 5 too many; B 70 against 40, 26: A (40, 20).
    4 (0, 20): A 80 against 50, 25 too many; B 70 against 60, 4: B (20, 50).
    5 (10, 0): A 70 against 70, in balance; B 80 against 60 is not: A (50, 20).
    6 (10, 0): A or B would be 80 against 70, 3 too many either way; the distances decide. A goes from |5/7 - 1/2| * 2 =
      0.429 to |6/8 - 1/2| * 2 = 0.5, B from |2/7 - 1/2| * 2 = 0.429 to |3/8 - 1/2| * 2 = 0.25: B (30, 50).
    7 (0, 10): A 80 against 80, in balance; B 90 against 70 is not: A (50, 30).
    """
    groups = partition(SIZES, EIGHT, 2)
    assert groups == [[0, 3, 5, 7], [1, 2, 4, 6]]
    assert distance(EIGHT, groups[0]) == distance(EIGHT, groups[1]) == pytest.approx(0.25)


def test_labels_decide_where_sizes_do_not() -> None:
    """Four clients of ten rows: clients of the same class are separated, which sizes alone would not achieve."""
    labels = [(10, 0), (10, 0), (10, 0), (0, 10), (0, 10), (0, 10)]
    groups = partition([10] * 6, labels, 3)
    assert [sum(labels[member][0] for member in group) for group in groups] == [10, 10, 10]
    assert all(distance(labels, group) == 0 for group in groups)


def test_unreported_labels_count_as_the_mean_distribution() -> None:
    """Clients 2 and 3 report (5, 5) or nothing: the groups are the same."""
    told = [(10, 0), (0, 10), (5, 5), (5, 5), (10, 0), (0, 10)]
    silent = [(10, 0), (0, 10), None, None, (10, 0), (0, 10)]
    assert partition([10] * 6, told, 2) == partition([10] * 6, silent, 2) == [[0, 2, 5], [1, 3, 4]]


def test_no_client_reports_labels() -> None:
    """Sizes alone: the largest two apart, then to the smaller group, at a tie to the first."""
    assert partition([50, 40, 30, 20, 10], [None] * 5, 2) == [[0, 3, 4], [1, 2]]


def test_more_groups_than_clients() -> None:
    for count in (0, 4):
        with refused(ConfigError, "impossible-group-count", f"groups = {count}", "3 clients"):
            partition([1, 1, 1], [None] * 3, count)


CLIENTS = st.lists(st.one_of(st.none(), st.tuples(*[st.integers(0, 30)] * 3)), min_size=1, max_size=24)


@st.composite
def federations(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, ...] | None], int]:
    labels = draw(CLIENTS)
    sizes = [draw(st.integers(0, 90)) if row is None else sum(row) for row in labels]
    return sizes, labels, draw(st.integers(1, len(labels)))


@given(federations())
def test_every_client_is_in_one_group_and_no_group_is_empty(case: tuple[list[int], list[tuple[int, ...]], int]) -> None:
    sizes, labels, count = case
    groups = partition(sizes, labels, count)
    assert len(groups) == count and all(groups)
    assert sorted(member for group in groups for member in group) == list(range(len(sizes)))
    assert groups == partition(sizes, labels, count)


@given(federations())
def test_the_last_client_keeps_the_balance_if_it_can(case: tuple[list[int], list[tuple[int, ...]], int]) -> None:
    sizes, labels, count = case
    if len(sizes) <= count:
        return
    groups = partition(sizes, labels, count)
    last = max(range(len(sizes)), key=lambda number: (-sizes[number], number))
    without = [sum(sizes[member] for member in group if member != last) for group in groups]
    choices = [[d + sizes[last] * (i == j) for j, d in enumerate(without)] for i in range(count)]
    balanced = [max(d) <= 1.1 * min(d) + 1e-6 for d in choices]
    taken = next(number for number, group in enumerate(groups) if last in group)
    assert balanced[taken] or not any(balanced)


@given(st.integers(1, 8), st.integers(1, 12), st.integers(1, 50), st.data())
def test_equal_clients_are_balanced(count: int, each: int, size: int, data: st.DataObject) -> None:
    """If all clients have equally many rows and the groups divide evenly, the balance is never exceeded."""
    first = data.draw(st.lists(st.integers(0, size), min_size=count * each, max_size=count * each))
    labels = [(a, size - a) for a in first]
    totals = [len(group) * size for group in partition([size] * len(labels), labels, count)]
    assert max(totals) <= 1.1 * min(totals) + 1e-9


def test_the_greedy_partition_among_all_partitions() -> None:
    """All ways to put nine clients into three groups of three: fewer than one in five of them comes out closer."""
    labels = [(8, 2, 0), (0, 8, 2), (2, 0, 8), (6, 4, 0), (0, 6, 4), (4, 0, 6), (5, 5, 0), (0, 5, 5), (5, 0, 5)]

    def mean(groups: list[list[int]]) -> float:
        return sum(distance(labels, group) for group in groups) / 3

    found = mean(partition([10] * 9, labels, 3))
    others = []
    for rest in product(range(3), repeat=8):
        groups: list[list[int]] = [[], [], []]
        for member, number in enumerate((0, *rest)):
            groups[number].append(member)
        if {len(group) for group in groups} == {3}:
            others.append(mean(groups))
    assert min(others) <= found
    assert sum(other < found - 1e-9 for other in others) < 0.2 * len(others)
