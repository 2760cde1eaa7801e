"""Mutations of structure, by hand and over random configurations."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.search.neat.checking import Limits, problem_of
from atoll.search.neat.names import OUTPUTS_FROM, split_name
from atoll.search.neat.settings import NeatSettings
from atoll.search.neat.structure import add_link, add_node, closes_circle, delete_node
from search.neat.islands import configurations, grown

OUT = OUTPUTS_FROM
TOLD = NeatSettings(inputs=2, outputs=1)


def test_a_split_disables_the_link_and_puts_a_node_in_its_place() -> None:
    nodes, links = [[OUT, 0.5, 1.0, 0, 0]], [[1, OUT, 0.25, True]]
    add_node(nodes, links, [2, 1], TOLD, 0.0)
    middle = split_name(1, OUT, 1)
    assert nodes == [[OUT, 0.5, 1.0, 0, 0], [middle, 0.0, 1.0, 2, 1]]
    assert links == [[1, OUT, 0.25, False], [1, middle, 1.0, True], [middle, OUT, 0.25, True]]


def test_a_second_split_of_the_same_link_has_another_name() -> None:
    nodes, links = [[OUT, 0.5, 1.0, 0, 0]], [[1, OUT, 0.25, True]]
    add_node(nodes, links, [0, 0], TOLD, 0.0)
    add_node(nodes, links, [0, 0], TOLD, 0.0)
    assert [row[0] for row in nodes[1:]] == [split_name(1, OUT, 1), split_name(1, OUT, 2)]


def test_a_node_goes_with_its_links_and_outputs_stay() -> None:
    nodes, links = [[OUT, 0.5, 1.0, 0, 0]], [[1, OUT, 0.25, True]]
    add_node(nodes, links, [0, 0], TOLD, 0.0)
    delete_node(nodes, links, TOLD, 0.99)
    assert nodes == [[OUT, 0.5, 1.0, 0, 0]] and links == [[1, OUT, 0.25, False]]
    delete_node(nodes, links, TOLD, 0.99)
    assert len(nodes) == 1


def test_a_circle_is_closed_only_in_recurrent_networks() -> None:
    first, second = split_name(0, OUT, 1), split_name(1, OUT, 1)
    links = [[first, second, 1.0, True], [second, OUT, 1.0, True]]
    assert closes_circle(links, second, first) and closes_circle(links, first, first)
    assert not closes_circle(links, first, second)
    nodes = [[name, 0.0, 1.0, 0, 0] for name in (OUT, first, second)]
    # Target: the second of three nodes; source: the last of two inputs and two hidden nodes.
    add_link(nodes, links, 0.5, TOLD, [0.4, 0.99])
    assert len(links) == 2
    add_link(nodes, links, 0.5, NeatSettings(inputs=2, outputs=1, recurrent=True), [0.4, 0.99])
    assert links[2] == [second, first, 0.5, True]


def test_limits_hold() -> None:
    nodes, links = [[OUT, 0.5, 1.0, 0, 0]], [[1, OUT, 0.25, True]]
    add_node(nodes, links, [0, 0], NeatSettings(inputs=2, outputs=1, max_hidden=0), 0.0)
    add_link(nodes, links, 1.0, NeatSettings(inputs=2, outputs=1, max_links=1), [0.0, 0.0])
    assert len(nodes) == len(links) == 1


@given(configurations, st.integers(0, 10_000))
@settings(max_examples=40)
def test_whatever_is_bred_is_sound(told: NeatSettings, seed: int) -> None:
    population = grown(told, seed, 0)
    for place in range(len(population)):
        assert problem_of(population[place], Limits.of(told)) == ""
