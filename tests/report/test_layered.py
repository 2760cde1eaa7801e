"""Layouts of graphs: columns, slots for long connections, and no connection behind a node."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from atoll.report.explain.layered import GraphLayout, Size, lay_out
from atoll.rng import stream

SIZE = Size(30, 20)


def laid_out(connections: list[tuple[int, int]], first: list[int], last: list[int]) -> GraphLayout:
    nodes = {name for pair in connections for name in pair} | {*first, *last}
    others = sorted(nodes - {*first, *last})
    return lay_out(first, last, others, connections, dict.fromkeys(nodes, SIZE), 100.0)


def boxes_hit(layout: GraphLayout) -> list[tuple[tuple[int, int], int]]:
    """Connections that run through the box of a node. Curves lie between the heights of their ends."""
    hit = []
    for route in layout.routes:
        for place, ((x1, y1), (x2, y2)) in enumerate(pairwise(route.points)):
            for name, (x, y) in layout.places.items():
                crosses = x1 < x + 30 and x - 30 < x2 and min(y1, y2) < y + 20 and y - 20 < max(y1, y2)
                if crosses and (place % 2 == 1 or not (x2 <= x - 30 or x1 >= x + 30)):
                    hit.append(((route.source, route.target), name))
    return hit


def test_a_chain_stands_in_columns_on_one_line() -> None:
    layout = laid_out([(0, 1), (1, 2)], [0], [2])
    # Edge 20, half width 30; then 60 of a node and 100 between two.
    assert [x for x, _ in layout.places.values()] == [50.0, 210.0, 370.0]
    assert {y for _, y in layout.places.values()} == {40.0}
    assert layout.routes[0].points == [(80.0, 40.0), (180.0, 40.0)] and layout.width == 420.0


def test_a_connection_over_a_column_gets_a_slot_of_its_own() -> None:
    layout = laid_out([(0, 1), (1, 2), (0, 2)], [0], [2])
    (route,) = [route for route in layout.routes if (route.source, route.target) == (0, 2)]
    assert len(route.points) == 4, "to the column, through it, and on"
    height = route.points[1][1]
    assert abs(height - layout.places[1][1]) >= 30, "the slot is beside the node, not behind it"
    assert not boxes_hit(layout)


def test_outputs_stand_in_the_last_column_unless_something_reads_them() -> None:
    layout = laid_out([(0, 1), (1, 2), (0, 3)], [0], [2, 3])
    assert layout.places[3][0] == layout.places[2][0]
    layout = laid_out([(0, 2), (2, 3)], [0], [2, 3])
    assert layout.places[2][0] < layout.places[3][0]


def test_a_cycle_is_a_connection_back_and_a_loop_is_named() -> None:
    layout = laid_out([(0, 1), (1, 2), (2, 1), (1, 1)], [0], [2])
    assert [route.reversed for route in layout.routes] == [False, False, True]
    assert layout.loops == [1]


def test_crossings_that_can_be_avoided_are() -> None:
    layout = laid_out([(0, 3), (1, 2)], [0, 1], [2, 3])
    ends = {(route.source, route.points[0][1], route.points[-1][1]) for route in layout.routes}
    (_, a, b), (_, c, d) = sorted(ends)
    assert (a - c) * (b - d) > 0


@pytest.mark.parametrize("seed", range(30))
def test_no_connection_runs_behind_a_node(seed: int) -> None:
    rng = stream(seed, "graph")
    inputs, outputs, hidden = list(range(4)), list(range(100, 103)), list(range(10, 10 + seed % 9))
    order = [*inputs, *hidden, *outputs]
    connections = [
        (a, b)
        for place, a in enumerate(order)
        for b in order[place + 1 :]
        if b not in inputs and a not in outputs and rng.random() < 0.35
    ]
    if seed % 3 == 0 and hidden:  # a recurrent one
        connections += [(b, a) for a in hidden for b in hidden if rng.random() < 0.1]
    layout = laid_out(list(dict.fromkeys(connections)), inputs, outputs)
    assert len(layout.routes) + len(layout.loops) == len(set(connections))
    assert not boxes_hit(layout)
    for (x, y), (u, v) in pairwise(sorted(layout.places.values())):
        assert x != u or v - y >= 40, "nodes of a column do not touch"
    assert all(np.isfinite(value) for route in layout.routes for point in route.points for value in point)
