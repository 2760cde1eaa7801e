"""The network a genome expresses: enabled connections and nodes that reach an output, in order of computation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atoll.algorithms.neat.functions import ACTIVATIONS, AGGREGATIONS
from atoll.algorithms.neat.population import (
    HIDDEN_FROM,
    OUTPUTS_FROM,
    Population,
    is_hidden,
    is_input,
    population_from_rows,
)


@dataclass(frozen=True)
class ExpressedNode:
    """One node; its value is `activation(bias + response * aggregation(weight * value of each source))`."""

    name: int
    activation: str
    aggregation: str
    bias: float
    response: float
    connections: tuple[tuple[int, float], ...]  # source and weight


def node_label(name: int) -> str:
    """A node's name as text: `i3` (input), `o0` (output), `h` and 16 hexadecimal digits (hidden)."""
    if is_input(name):
        return f"i{name}"
    return f"h{name:016x}" if is_hidden(name) else f"o{name - OUTPUTS_FROM}"


def name_from_label(text: str) -> int:
    """The inverse of `node_label`; raises a `ValueError` for anything else."""
    kind, digits = text[:1], text[1:]
    if kind == "h" and len(digits) == 16:
        name = int(digits, 16)
        if name >= HIDDEN_FROM:
            return name
    elif kind in ("i", "o") and digits.isdecimal() and int(digits) < OUTPUTS_FROM:
        return int(digits) + (OUTPUTS_FROM if kind == "o" else 0)
    raise ValueError(f"{text!r} is not a node label: give i3, o0, or h and 16 hexadecimal digits")


def expressed(genome: Population) -> Population:
    """The genome without genes that have no effect: disabled connections and nodes that reach no output."""
    connections = [
        [source, target, weight, True]
        for source, target, weight, enabled in zip(
            genome.source.tolist(), genome.target.tolist(), genome.weight.tolist(), genome.enabled.tolist(), strict=True
        )
        if enabled
    ]
    needed = {name for name in genome.node.tolist() if not is_hidden(name)}
    while (
        more := {connection[0] for connection in connections if connection[1] in needed and is_hidden(connection[0])}
        - needed
    ):
        needed |= more
    columns = (genome.node, genome.bias, genome.response, genome.activation, genome.aggregation)
    rows = [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]
    effective = [connection for connection in connections if connection[1] in needed]
    return population_from_rows([[row for row in rows if row[0] in needed]], [effective])


def nodes_in_order(genome: Population, recurrent: bool = False) -> list[ExpressedNode]:
    """The nodes of an expressed genome: sources before targets if it is feed-forward, in genome order if recurrent."""
    entering: dict[int, list[tuple[int, float]]] = {name: [] for name in genome.node.tolist()}
    for source, target, weight in zip(
        genome.source.tolist(), genome.target.tolist(), genome.weight.tolist(), strict=True
    ):
        entering[target].append((source, weight))
    made = [
        ExpressedNode(name, ACTIVATIONS[activation], AGGREGATIONS[aggregation], bias, response, tuple(entering[name]))
        for name, bias, response, activation, aggregation in zip(
            genome.node.tolist(),
            genome.bias.tolist(),
            genome.response.tolist(),
            genome.activation.tolist(),
            genome.aggregation.tolist(),
            strict=True,
        )
    ]
    return made if recurrent else _ordered(made)


def _ordered(nodes: list[ExpressedNode]) -> list[ExpressedNode]:
    done: dict[int, ExpressedNode] = {}
    waiting = list(nodes)
    while waiting:
        ready = [node for node in waiting if all(is_input(name) or name in done for name, _ in node.connections)]
        if not ready:
            raise ValueError("a feed-forward network must not have cycles")
        done |= {node.name: node for node in ready}
        waiting = [node for node in waiting if node.name not in done]
    return list(done.values())


def used_inputs(network: Population) -> list[int]:
    """Indices of the inputs that an expressed network reads, ascending."""
    return sorted({name for name in network.source.tolist() if is_input(name)})


def structure(network: Population) -> dict[str, Any]:
    """An expressed genome's structure as plain data: node labels with functions, and the ends of each connection."""
    nodes = zip(network.node.tolist(), network.activation.tolist(), network.aggregation.tolist(), strict=True)
    return {
        "nodes": [[node_label(name), ACTIVATIONS[code], AGGREGATIONS[how]] for name, code, how in nodes],
        "connections": [
            [node_label(source), node_label(target)]
            for source, target in zip(network.source.tolist(), network.target.tolist(), strict=True)
        ],
    }
