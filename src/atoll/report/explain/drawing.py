"""An evolved network as SVG: the inputs that are used, nodes by level, connections with their weights."""

from __future__ import annotations

from html import escape

from atoll.algorithms.neat.expression import ExpressedNode, nodes_in_order, used_inputs
from atoll.algorithms.neat.population import Population, is_hidden, is_input
from atoll.core.messages import Schema
from atoll.report.explain.formula import NodeNames, number

ACROSS, DOWN, EDGE = 230, 94, 50
INPUT, HIDDEN, OUTPUT = "#d9d9d9", "#ffffff", "#a6cee3"  # as in the paper's Fig. 3
POSITIVE, NEGATIVE = "#2166ac", "#b2182b"


def drawing(network: Population, schema: Schema, recurrent: bool = False, steps: int = 1, bins: bool = False) -> str:
    """SVG text. External names are escaped."""
    nodes = nodes_in_order(network, recurrent)
    words = NodeNames.of(nodes, schema, steps, bins)
    places, width, height = _places(nodes, used_inputs(network), recurrent)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    parts += [_connection(places, source, node.name, weight) for node in nodes for source, weight in node.connections]
    parts += [_input(places[name], words[name]) for name in used_inputs(network)]
    parts += [_node(places[node.name], node, words[node.name]) for node in nodes]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _places(
    nodes: list[ExpressedNode], inputs: list[int], recurrent: bool
) -> tuple[dict[int, tuple[float, float]], int, int]:
    """Columns by level, outputs last; each column centred."""
    level: dict[int, int] = {}
    for node in nodes:
        before = [level.get(source, 0) for source, _ in node.connections if not is_input(source)]
        level[node.name] = 1 if recurrent else 1 + max(before, default=0)
    last = max([level[name] for name in level if is_hidden(name)], default=0) + 1
    columns: dict[int, list[int]] = {0: list(inputs)} if inputs else {}
    for node in nodes:
        columns.setdefault(level[node.name] if is_hidden(node.name) else last, []).append(node.name)
    tallest = max(len(column) for column in columns.values())
    height = 2 * EDGE + DOWN * tallest
    places: dict[int, tuple[float, float]] = {}
    for column, names in columns.items():
        top = height / 2 - DOWN * (len(names) - 1) / 2
        places |= {name: (EDGE + 70 + ACROSS * column, top + DOWN * row) for row, name in enumerate(names)}
    return places, 2 * EDGE + 140 + ACROSS * last, height


def _connection(places: dict[int, tuple[float, float]], source: int, target: int, weight: float) -> str:
    (x1, y1), (x2, y2) = places[source], places[target]
    colour = POSITIVE if weight >= 0 else NEGATIVE
    thick = min(5.0, 0.8 + abs(weight) / 2)
    if source == target:
        path = f"M {x1 - 12} {y1 - 22} C {x1 - 50} {y1 - 75}, {x1 + 50} {y1 - 75}, {x1 + 12} {y1 - 22}"
        middle = (x1, y1 - 62)
    else:
        path = f"M {x1} {y1} L {x2} {y2}"
        middle = (x1 + 0.62 * (x2 - x1), y1 + 0.62 * (y2 - y1) - 4)
    return (
        f'<path d="{path}" stroke="{colour}" stroke-width="{thick:.2f}" fill="none" opacity="0.75"/>'
        f'<text x="{middle[0]:.1f}" y="{middle[1]:.1f}" text-anchor="middle" fill="{colour}">{number(weight)}</text>'
    )


def _input(place: tuple[float, float], name: str) -> str:
    x, y = place
    short = name if len(name) <= 18 else name[:17] + "…"
    return (
        f'<rect x="{x - 66}" y="{y - 15}" width="132" height="30" fill="{INPUT}" stroke="black"/>'
        f'<text x="{x}" y="{y + 4}" text-anchor="middle">{escape(short)}<title>{escape(name)}</title></text>'
    )


def _node(place: tuple[float, float], node: ExpressedNode, name: str) -> str:
    x, y = place
    fill = HIDDEN if is_hidden(node.name) else OUTPUT
    how = "" if node.aggregation == "sum" else " *"
    return (
        f'<circle cx="{x}" cy="{y}" r="32" fill="{fill}" stroke="black"/>'
        f'<text x="{x}" y="{y - 3}" text-anchor="middle">{node.activation}{how}</text>'
        f'<text x="{x}" y="{y + 11}" text-anchor="middle" font-size="10">B {number(node.bias)}</text>'
        f'<text x="{x}" y="{y + 46}" text-anchor="middle" font-weight="bold">{escape(name)}</text>'
    )
