"""Crossover, and mutation of attributes and structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from atoll.algorithms.neat.functions import ACTIVATIONS, AGGREGATIONS
from atoll.algorithms.neat.population import (
    CONNECTION_GENES,
    MISSING,
    NODE_GENES,
    Alignment,
    Codes,
    Ends,
    GeneTable,
    Population,
    Reals,
    allowed_codes,
    is_hidden,
    normal,
    population_from_rows,
    spans,
    split_name,
    start_codes,
)
from atoll.algorithms.neat.settings import NeatSettings
from atoll.rng import Generator

STAYS_DISABLED = 0.75  # probability in the child, for a connection that is disabled in either parent


def cross(population: Population, alignment: Alignment, fitter: Ends, other: Ends, rng: Generator) -> Population:
    """One child per pair of positions.

    It has the fitter parent's structure. Each attribute of a gene that both parents have comes from either at random.
    """
    node_places, node_ends = spans(population.node_ends, fitter)
    connection_places, connection_ends = spans(population.connection_ends, fitter)
    node_match = _matches(alignment.nodes, node_places, np.repeat(other, np.diff(node_ends)))
    connection_match = _matches(alignment.connections, connection_places, np.repeat(other, np.diff(connection_ends)))

    def mixed(name: str) -> npt.NDArray[Any]:
        own, match = (connection_places, connection_match) if name in CONNECTION_GENES else (node_places, node_match)
        values: npt.NDArray[Any] = getattr(population, name)
        return values[np.where(rng.random(len(own)) < 0.5, own, match)]

    enabled = mixed("enabled")
    both = population.enabled[connection_places] & population.enabled[connection_match]
    enabled &= both | (rng.random(len(both)) >= STAYS_DISABLED)
    return Population(
        node_ends=node_ends,
        node=population.node[node_places],
        bias=mixed("bias"),
        response=mixed("response"),
        activation=mixed("activation"),
        aggregation=mixed("aggregation"),
        connection_ends=connection_ends,
        source=population.source[connection_places],
        target=population.target[connection_places],
        weight=mixed("weight"),
        enabled=enabled,
    )


def _matches(table: GeneTable, places: Ends, other: Ends) -> Ends:
    """The index of each gene in the other parent, or its own index if the other parent lacks it."""
    match = table.place[other, table.number[places]].astype(np.int64)
    return np.where(match == MISSING, places, match)


def mutate_attributes(population: Population, settings: NeatSettings, rng: Generator) -> Population:
    """Mutate every attribute of every gene independently, with the probabilities in the settings."""
    enabled = population.enabled.copy()
    changed = rng.random(len(enabled)) < settings.enabled_mutation
    enabled[changed] = rng.random(int(changed.sum())) < 0.5
    return replace(
        population,
        weight=_reals(population.weight, settings, "weight", rng),
        enabled=enabled,
        bias=_reals(population.bias, settings, "bias", rng),
        response=_reals(population.response, settings, "response", rng),
        activation=_codes(
            population.activation, settings.activation_mutation, allowed_codes(ACTIVATIONS, settings.activations), rng
        ),
        aggregation=_codes(
            population.aggregation,
            settings.aggregation_mutation,
            allowed_codes(AGGREGATIONS, settings.aggregations),
            rng,
        ),
    )


def _reals(values: Reals, settings: NeatSettings, what: str, rng: Generator) -> Reals:
    """Shift some values by a normal step and replace others (a response by 1, the rest by new draws)."""
    rate, replace_rate = getattr(settings, f"{what}_mutation"), getattr(settings, f"{what}_replace")
    if rate == 0 and replace_rate == 0:
        return values
    drawn = rng.random(len(values))
    step = rng.standard_normal(len(values)) * getattr(settings, f"{what}_power")
    shifted = np.clip(values + step, -settings.bound, settings.bound).astype(np.float32)
    fresh = np.ones_like(values) if what == "response" else normal(len(values), settings.bound, rng)
    return np.where(drawn < rate, shifted, np.where(drawn < rate + replace_rate, fresh, values))


def _codes(codes: Codes, rate: float, allowed: Codes, rng: Generator) -> Codes:
    """Replace some codes by random allowed ones, possibly the same."""
    changed = rng.random(len(codes)) < rate
    new = codes.copy()
    new[changed] = allowed[rng.integers(0, len(allowed), int(changed.sum()))]
    return new


Row = list[Any]  # a node or connection gene, in the order of NODE_GENES or CONNECTION_GENES
Drawn = Sequence[float]  # uniform draws from [0, 1)
EVENTS, DRAWS = 4, 11  # draws for whether each event happens, then draws for its choices


def mutate_structure(population: Population, settings: NeatSettings, rng: Generator) -> Population:
    """In this order, each with its probability: add a node, delete a node, add a connection, delete a connection."""
    drawn = rng.random((len(population), DRAWS))
    activations = start_codes(len(population), settings.activation_start, ACTIVATIONS, settings.activations, rng)
    aggregations = start_codes(len(population), settings.aggregation_start, AGGREGATIONS, settings.aggregations, rng)
    rates = np.array([settings.node_add, settings.node_delete, settings.connection_add, settings.connection_delete])
    happens = (drawn[:, :EVENTS] < rates).tolist()
    choices = drawn[:, EVENTS:].tolist()
    nodes, connections = _rows(population)
    for position, (node_add, node_delete, connection_add, connection_delete) in enumerate(happens):
        own_nodes, own_connections, draws = nodes[position], connections[position], choices[position]
        if node_add:
            functions = [int(activations[position]), int(aggregations[position])]
            add_node(own_nodes, own_connections, functions, settings, draws[0])
        if node_delete:
            delete_node(own_nodes, own_connections, settings, draws[1])
        if connection_add:
            weight = _normal(draws[4], draws[5], settings.bound)
            add_connection(own_nodes, own_connections, weight, settings, draws[2:4])
        if connection_delete and own_connections:
            del own_connections[_pick(len(own_connections), draws[6])]
    return population_from_rows(nodes, connections)


def add_node(
    nodes: list[Row], connections: list[Row], functions: list[int], settings: NeatSettings, drawn: float
) -> None:
    """Split a connection: disable it and insert a node with bias 0.

    The connection into the node has weight 1, the one out of it the weight of the split connection.
    """
    fits = len(nodes) < settings.outputs + settings.max_hidden and len(connections) + 2 <= settings.max_connections
    if not connections or not fits:
        return
    connection = connections[_pick(len(connections), drawn)]
    source, target, weight, _ = connection
    present = {row[0] for row in nodes}
    occurrence = 1
    while (name := split_name(source, target, occurrence)) in present:
        occurrence += 1
    connection[3] = False
    nodes.append([name, 0.0, 1.0, *functions])
    connections.append([source, name, 1.0, True])
    connections.append([name, target, weight, True])


def delete_node(nodes: list[Row], connections: list[Row], settings: NeatSettings, drawn: float) -> None:
    """Delete a hidden node and all its connections."""
    hidden = len(nodes) - settings.outputs
    if not hidden:
        return
    name = nodes.pop(settings.outputs + _pick(hidden, drawn))[0]
    connections[:] = [connection for connection in connections if connection[0] != name and connection[1] != name]


def add_connection(
    nodes: list[Row], connections: list[Row], weight: float, settings: NeatSettings, drawn: Drawn
) -> None:
    """Connect an input or hidden node to a hidden node or output.

    Does nothing if they are connected already or if the connection would create a cycle in a feed-forward network.
    """
    target = nodes[_pick(len(nodes), drawn[0])][0]
    hidden = len(nodes) - settings.outputs
    number = _pick(settings.inputs + hidden, drawn[1])
    source = number if number < settings.inputs else nodes[settings.outputs + number - settings.inputs][0]
    if len(connections) >= settings.max_connections or any(
        connection[0] == source and connection[1] == target for connection in connections
    ):
        return
    if not settings.recurrent and is_hidden(source) and creates_cycle(connections, source, target):
        return
    connections.append([source, target, weight, True])


def creates_cycle(connections: Sequence[Row], source: int, target: int) -> bool:
    """Whether `source` can be reached from `target`."""
    if source == target:
        return True
    after: dict[int, list[int]] = {}
    for connection in connections:
        after.setdefault(connection[0], []).append(connection[1])
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
    """A standard normal number from two uniform ones (Box-Muller), clipped to the bound."""
    value = float(np.sqrt(-2.0 * np.log1p(-first)) * np.cos(2.0 * np.pi * second))
    return max(-bound, min(bound, value))


def _rows(population: Population) -> tuple[list[list[Row]], list[list[Row]]]:
    """Node rows and connection rows as lists, genome by genome."""
    found = []
    for names, ends in ((NODE_GENES, population.node_ends), (CONNECTION_GENES, population.connection_ends)):
        columns = [getattr(population, name).tolist() for name in names]
        rows = [list(row) for row in zip(*columns, strict=True)]
        places = ends.tolist()
        found.append([rows[start:end] for start, end in pairwise(places)])
    return found[0], found[1]
