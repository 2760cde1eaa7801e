"""NSGA-II: non-dominated sorting, crowding distance, selection, hypervolume, and picks from the Pareto front.

The work is done by pymoo's array functions, which are imported on first use because the import takes a quarter of a
second. All objectives are minimised; column 0 is the error, column 1 the cost. A row with a non-finite value is not a
measurement. pymoo would rank NaN first; here such rows rank last and are picked only if there are no others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from atoll.errors import ConfigError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


def non_dominated_fronts(objectives: npt.ArrayLike, violations: npt.ArrayLike | None = None) -> list[Indices]:
    """Row indices of the first front, the second and so on, each ascending; non-finite rows form the last front.

    Constraint domination (Deb et al. 2002): rows with a violation above 0 follow all others, by rising violation.
    """
    from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

    values = _matrix(objectives)
    broken_by = np.zeros(len(values)) if violations is None else np.asarray(violations, dtype=np.float64)
    finite = np.isfinite(values).all(axis=1) & np.isfinite(broken_by)
    measured, broken = np.flatnonzero(finite & (broken_by <= 0)), np.flatnonzero(~finite)
    fronts = [measured[np.sort(front)] for front in NonDominatedSorting().do(values[measured])] if len(measured) else []
    outside = np.flatnonzero(finite & (broken_by > 0))
    fronts += [outside[broken_by[outside] == level] for level in np.unique(broken_by[outside])]
    return [*fronts, broken] if len(broken) else fronts


def crowding_distances(front: npt.ArrayLike) -> Floats:
    """Crowding distances within one front: the mean over the objectives of (next - previous) / range.

    The extremes of every objective get infinity, and so do fronts of one or two distinct points. Of duplicate points
    all but the first get 0, so that they are dropped first when a front is truncated. Non-finite points get 0.
    """
    from pymoo.operators.survival.rank_and_crowding.metrics import calc_crowding_distance

    values = _matrix(front)
    crowding = np.zeros(len(values))
    usable = np.flatnonzero(np.isfinite(values).all(axis=1))
    if not len(usable):
        return crowding
    first = usable[np.sort(np.unique(values[usable], axis=0, return_index=True)[1])]
    crowding[first] = np.inf if len(first) <= 2 else calc_crowding_distance(values[first])
    return crowding


def rank_and_crowding(
    objectives: npt.ArrayLike, violations: npt.ArrayLike | None = None, spacing: npt.ArrayLike | None = None
) -> tuple[Indices, Floats]:
    """For every row, the index of its front (0 is best) and its crowding distance within that front.

    `spacing` has the values by which distances are measured, if these are not the objectives: their logarithms, say.
    """
    values = _matrix(objectives)
    spaced = values if spacing is None else _matrix(spacing)
    rank, crowding = np.zeros(len(values), dtype=np.intp), np.zeros(len(values))
    for number, front in enumerate(non_dominated_fronts(values, violations)):
        rank[front] = number
        crowding[front] = crowding_distances(spaced[front])
    return rank, crowding


def select(
    objectives: npt.ArrayLike,
    count: int,
    violations: npt.ArrayLike | None = None,
    spacing: npt.ArrayLike | None = None,
) -> Indices:
    """NSGA-II's environmental selection: the best `count` rows by front, then crowding, then position.

    If parents come before offspring, a tie goes to the parent. The result is ordered best first.
    """
    rank, crowding = rank_and_crowding(objectives, violations, spacing)
    if not 0 <= count <= len(rank):
        raise ValueError(f"cannot select {count} of {len(rank)} rows")
    return np.lexsort((np.arange(len(rank)), -crowding, rank))[:count]


def hypervolume(objectives: npt.ArrayLike, reference: npt.ArrayLike) -> float:
    """The share, 0 to 1, of the box between 0 and the reference point that the rows dominate.

    Every axis is scaled by the reference: error 1, and the cost of the master or of the standard network. Rows that are
    not better than the reference in every objective contribute nothing.
    """
    from pymoo.indicators.hv import HV

    values, corner = _matrix(objectives), np.asarray(reference, dtype=np.float64)
    if corner.shape != (values.shape[1],) or not np.isfinite(corner).all() or (corner <= 0).any():
        raise ConfigError(
            f"reference point {corner.tolist()}: give one positive number for each objective",
            code="invalid-reference-point",
        )
    scaled = values[np.isfinite(values).all(axis=1)] / corner
    inside = scaled[(scaled < 1).all(axis=1)]
    return float(HV(ref_point=np.ones(len(corner)))(inside)) if len(inside) else 0.0


def by_error(objectives: npt.ArrayLike) -> Indices:
    """The first front by rising error; ties by the other objectives, then by position."""
    values = _matrix(objectives)
    front = _first_front(values)
    return front[np.lexsort((front, *values[front].T[::-1]))]


def by_knee(objectives: npt.ArrayLike) -> Indices:
    """The first front ordered from its knee: by distance from the chord between its extremes, the extremes last.

    On the front normalised to 0..1 the chord is the line (with more objectives, the plane) where the values sum to 1,
    so the point farthest towards the ideal point has the smallest sum. Points on the other side of the chord are poor
    compromises and come late. Ties, and fronts of extremes only, are ordered by cost.
    """
    values = _matrix(objectives)
    front = _first_front(values)
    points = values[front]
    if len(front) == 1:
        return front
    low = points.min(axis=0)
    spread = points.max(axis=0) - low
    normal = (points - low) / np.where(spread > 0, spread, 1)
    end = (points == low).any(axis=1)
    return front[np.lexsort((front, points[:, min(1, points.shape[1] - 1)], normal.sum(axis=1), end))]


def high(objectives: npt.ArrayLike) -> int:
    """The paper's High: the row with the lowest error."""
    return int(by_error(objectives)[0])


def knee(objectives: npt.ArrayLike) -> int:
    """The paper's Knee: the row farthest in front of the chord; High where no row is in front of it."""
    front = knees(objectives)
    return int(front[0]) if len(front) else high(objectives)


def finished(objectives: npt.ArrayLike) -> tuple[int, int]:
    """High and Knee of networks that were all trained further: the row with the lowest error, and of two rows the
    cheaper one, of more the knee."""
    values = _matrix(objectives)
    lowest = high(values)
    if len(values) != 2:
        return lowest, knee(values)
    return lowest, 1 - lowest if values[1 - lowest, 1] < values[lowest, 1] else lowest


def knees(objectives: npt.ArrayLike) -> Indices:
    """The rows of the first front that lie in front of the chord, the farthest first. There may be none."""
    values = _matrix(objectives)
    ordered = by_knee(values)
    points = values[ordered]
    spread = points.max(axis=0) - points.min(axis=0)
    normal = (points - points.min(axis=0)) / np.where(spread > 0, spread, 1)
    ahead = normal.sum(axis=1) < 1 - 1e-9
    end = (points == points.min(axis=0)).any(axis=1)
    return ordered[ahead & ~end] if len(points) > 2 else ordered[:0]


def _first_front(values: Floats) -> Indices:
    if not len(values):
        raise ValueError("no objectives: give at least one row")
    front = non_dominated_fronts(values)[0]
    # If no row is finite, none is better than another: take the first.
    return front if np.isfinite(values[front]).all() else front[:1]


def _matrix(objectives: Any) -> Floats:
    values = np.asarray(objectives, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] == 0:
        raise ValueError(f"objectives have shape {values.shape}: give a two-dimensional array, rows by objectives")
    return values
