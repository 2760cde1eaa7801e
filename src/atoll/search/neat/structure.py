"""Mutation of structure: nodes and links added and taken away."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from atoll.rng import Generator
from atoll.search.neat.functions import ACTIVATIONS, AGGREGATIONS
from atoll.search.neat.names import is_hidden, split_name
from atoll.search.neat.population import LINK_GENES, NODE_GENES, Population, gathered
from atoll.search.neat.settings import NeatSettings
from atoll.search.neat.start import start_codes

Row = list[Any]  # a node or link gene, in the order of NODE_GENES or LINK_GENES
Drawn = Sequence[float]  # numbers from 0 to 1
EVENTS, DRAWS = 4, 10  # whether each event happens, then what it chooses


def mutate_structure(population: Population, settings: NeatSettings, rng: Generator) -> Population:
    """In this order, each with its probability: add a node, take one away, add a link, take one away."""
    drawn = rng.random((len(population), DRAWS))
    activations = start_codes(len(population), settings.activation_start, ACTIVATIONS, settings.activations, rng)
    aggregations = start_codes(len(population), settings.aggregation_start, AGGREGATIONS, settings.aggregations, rng)
    rates = np.array([settings.node_add, settings.node_delete, settings.link_add, settings.link_delete])
    happens = (drawn[:, :EVENTS] < rates).tolist()
    choices = drawn[:, EVENTS:].tolist()
    nodes, links = _rows(population)
    for position, (node_add, node_delete, link_add, link_delete) in enumerate(happens):
        own_nodes, own_links, draws = nodes[position], links[position], choices[position]
        if node_add:
            functions = [int(activations[position]), int(aggregations[position])]
            add_node(own_nodes, own_links, functions, settings, draws[0])
        if node_delete:
            delete_node(own_nodes, own_links, settings, draws[1])
        if link_add:
            weight = _normal(draws[4], draws[5], settings.bound)
            add_link(own_nodes, own_links, weight, settings, draws[2:4])
        if link_delete and own_links:
            del own_links[_pick(len(own_links), draws[1])]
    return gathered(nodes, links)


def add_node(nodes: list[Row], links: list[Row], functions: list[int], settings: NeatSettings, drawn: float) -> None:
    """Split a link: it is disabled, and a node with bias 0 takes its place, entered with weight 1 and left with the
    link's own weight."""
    room = len(nodes) < settings.outputs + settings.max_hidden and len(links) + 2 <= settings.max_links
    if not links or not room:
        return
    link = links[_pick(len(links), drawn)]
    source, target, weight, _ = link
    present = {row[0] for row in nodes}
    occurrence = 1
    while (name := split_name(source, target, occurrence)) in present:
        occurrence += 1
    link[3] = False
    nodes.append([name, 0.0, 1.0, *functions])
    links.append([source, name, 1.0, True])
    links.append([name, target, weight, True])


def delete_node(nodes: list[Row], links: list[Row], settings: NeatSettings, drawn: float) -> None:
    """Take a hidden node away, and all its links."""
    hidden = len(nodes) - settings.outputs
    if not hidden:
        return
    name = nodes.pop(settings.outputs + _pick(hidden, drawn))[0]
    links[:] = [link for link in links if link[0] != name and link[1] != name]


def add_link(nodes: list[Row], links: list[Row], weight: float, settings: NeatSettings, drawn: Drawn) -> None:
    """Connect an input or hidden node with a hidden node or output; nothing happens if they are connected already, or
    if that would close a circle in a feed-forward network."""
    target = nodes[_pick(len(nodes), drawn[0])][0]
    hidden = len(nodes) - settings.outputs
    number = _pick(settings.inputs + hidden, drawn[1])
    source = number if number < settings.inputs else nodes[settings.outputs + number - settings.inputs][0]
    if len(links) >= settings.max_links or any(link[0] == source and link[1] == target for link in links):
        return
    if not settings.recurrent and is_hidden(source) and closes_circle(links, source, target):
        return
    links.append([source, target, weight, True])


def closes_circle(links: Sequence[Row], source: int, target: int) -> bool:
    """Whether `source` can be reached from `target`."""
    if source == target:
        return True
    after: dict[int, list[int]] = {}
    for link in links:
        after.setdefault(link[0], []).append(link[1])
    seen, waiting = {target}, [target]
    while waiting:
        for name in after.get(waiting.pop(), ()):
            if name == source:
                return True
            if name not in seen:
                seen.add(name)
                waiting.append(name)
    return False


def _pick(count: int, drawn: float) -> int:
    return int(drawn * count)


def _normal(first: float, second: float, bound: float) -> float:
    """A standard normal number from two uniform ones (Box and Muller), within the bound."""
    value = float(np.sqrt(-2.0 * np.log1p(-first)) * np.cos(2.0 * np.pi * second))
    return max(-bound, min(bound, value))


def _rows(population: Population) -> tuple[list[list[Row]], list[list[Row]]]:
    """The genes as lists, genome by genome."""
    found = []
    for names, ends in ((NODE_GENES, population.node_ends), (LINK_GENES, population.link_ends)):
        columns = [getattr(population, name).tolist() for name in names]
        rows = [list(row) for row in zip(*columns, strict=True)]
        places = ends.tolist()
        found.append([rows[start:end] for start, end in pairwise(places)])
    return found[0], found[1]
