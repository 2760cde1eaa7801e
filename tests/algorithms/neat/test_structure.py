"""Mutations of structure, by hand and over random configurations."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.neat.islands import configurations, grown
from atoll.algorithms.neat.coding import GenomeLimits, problem_of
from atoll.algorithms.neat.population import OUTPUTS_FROM, population_from_rows, split_name
from atoll.algorithms.neat.settings import NeatSettings
from atoll.algorithms.neat.variation import add_connection, add_node, creates_cycle, delete_node, mutate_structure
from atoll.rng import stream

OUT = OUTPUTS_FROM
TOLD = NeatSettings(inputs=2, outputs=1)


def test_a_split_disables_the_connection_and_puts_a_node_in_its_place() -> None:
    nodes, connections = [[OUT, 0.5, 1.0, 0, 0]], [[1, OUT, 0.25, True]]
    add_node(nodes, connections, [2, 1], TOLD, 0.0)
    middle = split_name(1, OUT, 1)
    assert nodes == [[OUT, 0.5, 1.0, 0, 0], [middle, 0.0, 1.0, 2, 1]]
    assert connections == [[1, OUT, 0.25, False], [1, middle, 1.0, True], [middle, OUT, 0.25, True]]


def test_a_second_split_of_the_same_connection_has_another_name() -> None:
    nodes, connections = [[OUT, 0.5, 1.0, 0, 0]], [[1, OUT, 0.25, True]]
    add_node(nodes, connections, [0, 0], TOLD, 0.0)
    add_node(nodes, connections, [0, 0], TOLD, 0.0)
    assert [row[0] for row in nodes[1:]] == [split_name(1, OUT, 1), split_name(1, OUT, 2)]


def test_a_node_goes_with_its_connections_and_outputs_stay() -> None:
    nodes, connections = [[OUT, 0.5, 1.0, 0, 0]], [[1, OUT, 0.25, True]]
    add_node(nodes, connections, [0, 0], TOLD, 0.0)
    delete_node(nodes, connections, TOLD, 0.99)
    assert nodes == [[OUT, 0.5, 1.0, 0, 0]] and connections == [[1, OUT, 0.25, False]]
    delete_node(nodes, connections, TOLD, 0.99)
    assert len(nodes) == 1


def test_the_removal_of_a_node_says_nothing_about_that_of_a_connection() -> None:
    """Four hidden nodes that no connection touches, and four connections: every pair is removed by some genome."""
    chances = NeatSettings(inputs=4, outputs=1, node_add=0, connection_add=0, node_delete=1, connection_delete=1)
    hidden = [split_name(number, OUT, 1) for number in range(4)]
    nodes = [[name, 0.0, 1.0, 0, 0] for name in (OUT, *hidden)]
    connections = [[number, OUT, 1.0, True] for number in range(4)]
    many = population_from_rows([[list(row) for row in nodes]] * 300, [[list(row) for row in connections]] * 300)
    after = mutate_structure(many, chances, stream(1, "removal"))
    left_nodes = np.split(after.node, after.node_ends[1:-1])
    left_sources = np.split(after.source, after.connection_ends[1:-1])
    pairs = {
        (*(set(hidden) - set(own.tolist())), *(set(range(4)) - set(sources.tolist())))
        for own, sources in zip(left_nodes, left_sources, strict=True)
    }
    assert pairs == {(name, source) for name in hidden for source in range(4)}


def test_cycles_occur_only_in_recurrent_networks() -> None:
    first, second = split_name(0, OUT, 1), split_name(1, OUT, 1)
    connections = [[first, second, 1.0, True], [second, OUT, 1.0, True]]
    assert creates_cycle(connections, second, first) and creates_cycle(connections, first, first)
    assert not creates_cycle(connections, first, second)
    nodes = [[name, 0.0, 1.0, 0, 0] for name in (OUT, first, second)]
    # Target: the second of three nodes; source: the last of two inputs and two hidden nodes.
    add_connection(nodes, connections, 0.5, TOLD, [0.4, 0.99])
    assert len(connections) == 2
    add_connection(nodes, connections, 0.5, NeatSettings(inputs=2, outputs=1, recurrent=True), [0.4, 0.99])
    assert connections[2] == [second, first, 0.5, True]


def test_limits_hold() -> None:
    nodes, connections = [[OUT, 0.5, 1.0, 0, 0]], [[1, OUT, 0.25, True]]
    add_node(nodes, connections, [0, 0], NeatSettings(inputs=2, outputs=1, max_hidden=0), 0.0)
    add_connection(nodes, connections, 1.0, NeatSettings(inputs=2, outputs=1, max_connections=1), [0.0, 0.0])
    assert len(nodes) == len(connections) == 1


@given(configurations, st.integers(0, 10_000))
@settings(max_examples=40)
def test_all_offspring_are_valid(told: NeatSettings, seed: int) -> None:
    population = grown(told, seed, 0)
    for place in range(len(population)):
        assert problem_of(population[place], GenomeLimits.of(told)) == ""
