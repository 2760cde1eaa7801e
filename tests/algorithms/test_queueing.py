"""Candidates and groups: random idle groups first, then the group that becomes idle first."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from atoll.algorithms.netadapt import assign_groups
from atoll.rng import stream

NONE: list[int | None] = [None] * 9


def test_free_groups_are_taken_at_random_and_each_once() -> None:
    firsts = Counter()
    for seed in range(300):
        groups = assign_groups([1.0] * 3, NONE[:3], NONE[:3], [1.0] * 5, stream(seed, "test"))
        assert len(set(groups)) == 3
        firsts[groups[0]] += 1
    assert set(firsts) == set(range(5)) and min(firsts.values()) > 30


def test_the_next_goes_to_the_group_that_is_free_first() -> None:
    """Group 1 works twice as fast. After one each at 10 and 5, the third goes to 1 (10), the fourth to 0 (20 or 10)."""
    for seed in range(5):
        groups = assign_groups([10.0] * 4, NONE[:4], NONE[:4], [1.0, 0.5], stream(seed, "test"))
        assert sorted(groups[:2]) == [0, 1] and groups[2:] == [1, 0]


def test_groups_are_retained_and_their_work_counts() -> None:
    """Groups 0 and 1 are busy until 10 and 12, so the one without a place takes group 2, and the next one too."""
    groups = assign_groups([10.0, 12.0, 4.0, 4.0], [0, 1, None, None], NONE[:4], [1.0] * 3, stream(1, "test"))
    assert groups == [0, 1, 2, 2]


def test_a_group_to_avoid_is_avoided_while_there_is_another() -> None:
    for seed in range(20):
        assert assign_groups([1.0], [None], [0], [1.0, 1.0], stream(seed, "test")) == [1]
    assert assign_groups([1.0], [None], [0], [1.0], stream(1, "test")) == [0]


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=20), st.integers(1, 6), st.integers(0, 99))
def test_no_group_idles_while_another_has_a_queue(work: list[float], groups: int, seed: int) -> None:
    nobody: list[int | None] = [None] * len(work)
    places = assign_groups(work, nobody, nobody, [1.0] * groups, stream(seed, "test"))
    load = [sum(cost for cost, place in zip(work, places, strict=True) if place == group) for group in range(groups)]
    assert len(set(places)) == min(groups, len(work))
    # Whoever was put last into a group found it the first to be free: it ends at most its own work after any other.
    assert max(load) <= min(load) + max(work) + 1e-9
