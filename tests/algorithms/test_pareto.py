"""Fronts, crowding, selection, hypervolume and picks, on points one can place on paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.algorithms import nsga2
from atoll.errors import ConfigError
from refusals import refused

NAN, INF = math.nan, math.inf

# Three fronts: (1,4) (2,2) (4,1) | (3,3) | (4,4)
POINTS = [[4, 4], [1, 4], [3, 3], [2, 2], [4, 1]]


def _lists(fronts: list[nsga2.Indices]) -> list[list[int]]:
    return [front.tolist() for front in fronts]


def test_fronts_by_hand() -> None:
    assert _lists(nsga2.non_dominated_fronts(POINTS)) == [[1, 3, 4], [2], [0]]


def test_equal_points_share_a_front() -> None:
    assert _lists(nsga2.non_dominated_fronts([[1, 1], [1, 1], [1, 2]])) == [[0, 1], [2]]


@pytest.mark.parametrize("broken", [NAN, INF, -INF])
def test_what_is_not_finite_comes_last_even_if_the_rest_is_perfect(broken: float) -> None:
    objectives = np.array([[broken, 0], [5, 5], [0, broken], [1, 1]])
    assert _lists(nsga2.non_dominated_fronts(objectives)) == [[3], [1], [0, 2]]
    assert nsga2.select(objectives, 2).tolist() == [3, 1]
    assert nsga2.high(objectives) == nsga2.knee(objectives) == 3
    assert nsga2.rank_and_crowding(objectives)[1][[0, 2]].tolist() == [0, 0]


def test_no_rows_and_only_broken_rows() -> None:
    assert nsga2.non_dominated_fronts(np.zeros((0, 2))) == []
    assert _lists(nsga2.non_dominated_fronts([[NAN, 1], [1, NAN]])) == [[0, 1]]
    assert nsga2.knee([[NAN, 1], [1, NAN]]) == 0
    with pytest.raises(ValueError):
        nsga2.high(np.zeros((0, 2)))
    with pytest.raises(ValueError, match=r"\(2,\)"):
        nsga2.high([1.0, 2.0])


def test_crowding_by_hand() -> None:
    # Ranges 10 and 10. (2,6): (5-0)/10 + (10-3)/10 = 1.2, mean 0.6. (5,3): (10-2)/10 + (6-0)/10 = 1.4, mean 0.7.
    crowding = nsga2.crowding_distances([[5, 3], [0, 10], [10, 0], [2, 6]])
    assert crowding.tolist() == pytest.approx([0.7, INF, INF, 0.6])


def test_crowding_of_small_fronts_and_copies() -> None:
    assert nsga2.crowding_distances([[1, 1]]).tolist() == [INF]
    assert nsga2.crowding_distances([[1, 2], [2, 1]]).tolist() == [INF, INF]
    assert nsga2.crowding_distances([[1, 2], [2, 1], [1, 2]]).tolist() == [INF, INF, 0]
    # A copy neither crowds its original nor survives it: (5,3) as above with one copy more.
    copies = nsga2.crowding_distances([[5, 3], [0, 10], [10, 0], [2, 6], [5, 3]])
    assert copies.tolist() == pytest.approx([0.7, INF, INF, 0.6, 0])


def test_an_objective_that_is_the_same_for_all_adds_nothing() -> None:
    # Only one such point can be non-dominated in two objectives, but not in three.
    crowding = nsga2.crowding_distances([[0, 10, 1], [10, 0, 1], [5, 3, 1]])
    assert crowding.tolist() == pytest.approx([INF, INF, 2 / 3])


def test_selection_takes_fronts_then_crowding_then_the_earlier() -> None:
    assert nsga2.select(POINTS, 4).tolist() == [1, 4, 3, 2]
    # One front, one place fewer than points: the most crowded one goes.
    assert nsga2.select([[5, 3], [0, 10], [10, 0], [2, 6]], 3).tolist() == [1, 2, 0]
    # Equal crowding: parents, who stand first, stay.
    assert nsga2.select([[1, 1], [1, 1], [1, 1]], 2).tolist() == [0, 1]
    assert nsga2.select(POINTS, 0).tolist() == []
    with pytest.raises(ValueError, match="6 of 5"):
        nsga2.select(POINTS, 6)


def test_hypervolume_is_the_share_of_the_reference_box() -> None:
    assert nsga2.hypervolume([[0.5, 100]], [1, 200]) == pytest.approx(0.25)
    # Two steps: 0.5 x 0.5 plus what (0.75, 50) adds: 0.25 x 0.25.
    assert nsga2.hypervolume([[0.5, 100], [0.75, 50], [0.9, 150]], [1, 200]) == pytest.approx(0.3125)
    assert nsga2.hypervolume([[0, 0]], [1, 200]) == pytest.approx(1)


def test_points_beyond_the_reference_and_broken_ones_add_nothing() -> None:
    assert nsga2.hypervolume([[1.0, 0], [0, 300], [NAN, 0]], [1, 200]) == 0
    assert nsga2.hypervolume([[0.5, 100], [0.1, 300], [0.0, NAN]], [1, 200]) == pytest.approx(0.25)
    assert nsga2.hypervolume(np.zeros((0, 2)), [1, 200]) == 0
    for reference in ([1.0], [1, 0], [1, NAN]):
        with refused(ConfigError, "invalid-reference-point", [float(value) for value in reference]):
            nsga2.hypervolume([[0.5, 0.5]], reference)


def test_high_has_the_lowest_error_and_of_equals_the_cheapest() -> None:
    assert nsga2.high([[0.2, 5], [0.1, 9], [0.3, 1]]) == 1
    assert nsga2.high([[0.1, 9], [0.1, 5]]) == 1
    assert nsga2.by_error([[0.2, 5], [0.1, 9], [0.3, 1], [0.5, 6]]).tolist() == [1, 0, 2]


def test_knee_is_farthest_from_the_chord() -> None:
    # Normalised: (0,1) (.1,.3) (.5,.2) (1,0): sums 1, .4, .7, 1.
    front = [[0.0, 100], [0.1, 30], [0.5, 20], [1.0, 0]]
    assert nsga2.knee(front) == 1
    assert nsga2.by_knee(front).tolist() == [1, 2, 3, 0]
    # A dominated point never is the knee, and scales do not matter.
    assert nsga2.knee([*front, [0.15, 31]]) == 1
    assert nsga2.knee([[100 * error, cost / 7] for error, cost in front]) == 1


def test_a_point_far_on_the_wrong_side_of_the_chord_is_not_the_knee() -> None:
    # Sums: .9 (just below the chord) and 1.7 (far above it, but non-dominated).
    assert nsga2.knee([[0.0, 1.0], [0.05, 0.95], [0.8, 0.9], [0.1, 0.8], [1.0, 0.0]]) == 3


def test_without_a_point_in_front_of_the_chord_the_knee_is_high() -> None:
    assert nsga2.knee([[1.0, 0.0], [0.9, 0.8], [0.0, 1.0]]) == 2 and not len(nsga2.knees([[0.0, 1.0], [1.0, 0.0]]))
    assert nsga2.knee([[0.5, 3]]) == 0
    assert nsga2.knee([[0.5, 3], [0.1, 9]]) == 1
    assert nsga2.knee([[0.5, 3], [0.5, 3], [0.6, 4]]) == 0
    # Points on the chord are not in front of it.
    assert nsga2.knee([[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]) == 0
    assert nsga2.knees([[0.0, 100], [0.1, 30], [0.5, 20], [1.0, 0]]).tolist() == [1, 2]


VALUES = st.one_of(st.integers(0, 4).map(float), st.sampled_from([NAN, INF]))
TABLES = st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=12)


def _dominates(one: tuple[float, float], two: tuple[float, float]) -> bool:
    return all(a <= b for a, b in zip(one, two, strict=True)) and one != two


@given(TABLES)
def test_ranks_follow_the_definition(rows: list[tuple[float, float]]) -> None:
    rank, _ = nsga2.rank_and_crowding(rows)
    finite = [all(map(math.isfinite, row)) for row in rows]
    for index, row in enumerate(rows):
        if not finite[index]:
            assert all(rank[index] > rank[other] for other in range(len(rows)) if finite[other])
            continue
        above = [rank[o] for o, other in enumerate(rows) if finite[o] and _dominates(other, row)]
        assert rank[index] == max(above, default=-1) + 1


@given(TABLES, st.data())
def test_selection_is_a_set_of_rows_and_keeps_the_first_front_first(
    rows: list[tuple[float, float]], data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(rows)))
    taken = nsga2.select(rows, count)
    rank, _ = nsga2.rank_and_crowding(rows)
    assert len(set(taken.tolist())) == count
    assert sorted(rank[taken].tolist()) == sorted(rank.tolist())[:count]
    assert {nsga2.high(rows), nsga2.knee(rows)} <= set(np.flatnonzero(rank == 0).tolist())
