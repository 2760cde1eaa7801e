"""An evolved network as SVG: the inputs that are used, nodes by level, connections with their weights."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from atoll.algorithms.neat.expression import ExpressedNode, nodes_in_order, used_inputs
from atoll.algorithms.neat.population import Population, is_hidden
from atoll.core.messages import Schema
from atoll.report.explain.formula import NodeNames, number
from atoll.report.explain.layered import GraphLayout, Route, Size, lay_out
from atoll.report.html.markup import Html, svg, tag

ACROSS = 170.0  # between the nodes of two columns
INPUT, NODE = Size(70, 16), Size(33, 33)
LOOP = 44.0  # above a node that reads itself
NAME = 150.0  # to the right of an output
LEGEND = 64.0
TIMES = "\u00d7"
LETTER, LINE = 6.4, 14.0  # pixels of a weight
PLACES = tuple(place / 100 for place in (50, 42, 58, 34, 66, 26, 74, 18, 82, 90))  # of a weight along its connection
STYLE = """
svg { background: #ffffff; font-family: system-ui, "DejaVu Sans", Arial, sans-serif; }
text { font-size: 12px; fill: #1b1f24; } text.faded { fill: #545d68; } text.small { font-size: 11px; }
.node { fill: #f0f1f3; stroke: #1b1f24; stroke-width: 1.25; }
.node.hiddenlayer { fill: #ffffff; } .node.output { fill: #d3e6f3; }
.edge { fill: none; stroke: currentColor; stroke-linejoin: round; } .edge.dashed { stroke-dasharray: 6 4; }
.edge.dotted { stroke-dasharray: 1.5 4; stroke-linecap: round; }
.arrow { fill: currentColor; } .pill { fill: #ffffff; opacity: 0.88; }
.c0 { color: #0072b2; } .c1 { color: #c84e00; } .ink { color: #1b1f24; }
"""


def drawing(network: Population, schema: Schema, recurrent: bool = False, steps: int = 1, bins: bool = False) -> str:
    """A file of its own. External names are escaped."""
    found = graph_of(network, schema, recurrent, steps, bins)
    return str(found.svg(tag("style", Html(STYLE)))) + "\n"


def graph_of(
    network: Population, schema: Schema, recurrent: bool = False, steps: int = 1, bins: bool = False
) -> NetworkGraph:
    """The nodes and connections of an expressed network, with places and routes."""
    nodes = nodes_in_order(network, recurrent)
    words = NodeNames.of(nodes, schema, steps, bins)
    inputs = used_inputs(network)
    connections = [(source, node.name, weight) for node in nodes for source, weight in node.connections]
    loops = {source for source, target, _ in connections if source == target}
    sizes = dict.fromkeys(inputs, INPUT) | {
        node.name: Size(NODE.half_width, NODE.half_height, LOOP if node.name in loops else 0.0) for node in nodes
    }
    hidden = [node.name for node in nodes if is_hidden(node.name)]
    outputs = sorted(node.name for node in nodes if not is_hidden(node.name))
    layout = lay_out(inputs, outputs, hidden, [(a, b) for a, b, _ in connections], sizes, ACROSS)
    weights = {(source, target): weight for source, target, weight in connections}
    names = {name: words[name] for name in (*inputs, *(node.name for node in nodes))}
    return NetworkGraph({node.name: node for node in nodes}, inputs, weights, names, layout)


@dataclass(frozen=True)
class NetworkGraph:
    """An evolved network, ready to be drawn."""

    nodes: dict[int, ExpressedNode]
    inputs: list[int]
    weights: dict[tuple[int, int], float]
    names: dict[int, str]
    layout: GraphLayout

    def svg(self, style: Html | None = None) -> Html:
        """The drawing; with a style it is a file of its own."""
        width, height = self.layout.width + NAME, self.layout.height + LEGEND
        width = max(width, 620.0)
        labels = _Labels(self)
        routes = [_connection(route, self.weights[route.source, route.target]) for route in self.layout.routes]
        loops = [_loop(self.layout.places[name], self.weights[name, name]) for name in self.layout.loops]
        return svg(
            "svg",
            style,
            tag(
                "title",
                f"Network of {len(self.inputs)} inputs, {len(self.nodes)} nodes, {len(self.weights)} connections",
            ),
            routes,
            loops,
            [self._input(name) for name in self.inputs],
            [self._node(node) for node in self.nodes.values()],
            labels.drawn(),
            self._legend(height - LEGEND + 14),
            xmlns="http://www.w3.org/2000/svg",
            view_box=f"0 0 {width:.0f} {height:.0f}",
            width=round(width),
            height=round(height),
            role="img",
        )

    def _input(self, name: int) -> Html:
        x, y = self.layout.places[name]
        word = self.names[name]
        return svg(
            "g",
            tag("title", word),
            svg("rect", x=x - 70, y=y - 16, width=140, height=32, rx=4, class_="node"),
            svg("text", _short(word, 20), x=x, y=y + 4, text_anchor="middle"),
        )

    def _node(self, node: ExpressedNode) -> Html:
        x, y = self.layout.places[node.name]
        inner = is_hidden(node.name)
        how = "" if node.aggregation == "sum" else f" {TIMES}"
        word = self.names[node.name]
        return svg(
            "g",
            tag("title", f"{word}: {node.activation} of the {node.aggregation}, bias {number(node.bias)}"),
            svg("circle", cx=x, cy=y, r=33, class_="node hiddenlayer" if inner else "node output"),
            svg("text", _short(word, 8), x=x, y=y - 13, text_anchor="middle", font_weight="bold") if inner else None,
            svg(
                "text", f"{node.activation}{how}", x=x, y=y + (3 if inner else -3), text_anchor="middle", class_="small"
            ),
            svg(
                "text",
                f"b {node.bias:.2g}",
                x=x,
                y=y + (18 if inner else 14),
                text_anchor="middle",
                class_="faded small",
            ),
            None if inner else svg("text", _short(word, 20), x=x + 42, y=y + 4, font_weight="bold"),
        )

    def _legend(self, top: float) -> Html:
        recurrent = any(route.reversed for route in self.layout.routes) or bool(self.layout.loops)
        entries = [("c0", "", "positive weight"), ("c1", " dashed", "negative weight")]
        if recurrent:
            entries.append(("ink", " dotted", "reads the step before"))
        parts, x = [], 20.0
        for look, style, word in entries:
            parts.append(svg("path", d=f"M{x} {top + 8}H{x + 34}", class_=f"edge {look}{style}", stroke_width=2))
            parts.append(svg("text", word, x=x + 42, y=top + 12, class_="faded"))
            x += 60 + 6.6 * len(word)
        words = "thicker: larger weight; b: bias"
        words += (
            f"; {TIMES}: product instead of sum"
            if any(node.aggregation != "sum" for node in self.nodes.values())
            else ""
        )
        parts.append(svg("text", words, x=20, y=top + 34, class_="faded"))
        return svg("g", parts)


def _path(points: list[tuple[float, float]]) -> str:
    """Curves between columns, straight lines within them."""
    (x, y), *_ = points
    parts = [f"M{x:.1f} {y:.1f}"]
    for place, ((x1, y1), (x2, y2)) in enumerate(pairwise(points)):
        if place % 2:
            parts.append(f"H{x2:.1f}")
        else:
            middle = (x1 + x2) / 2
            parts.append(f"C{middle:.1f} {y1:.1f} {middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}")
    return "".join(parts)


def _connection(route: Route, weight: float) -> Html:
    points = list(route.points)
    if route.reversed:
        (x, y), tip = points[0], "M{0:.1f} {1:.1f}l9 -4.5v9z"
        points[0] = (x + 8, y)
    else:
        (x, y), tip = points[-1], "M{0:.1f} {1:.1f}l-9 -4.5v9z"
        points[-1] = (x - 8, y)
    look = _look(weight)
    style = " dotted" if route.reversed else " dashed" if weight < 0 else ""
    return svg(
        "g",
        svg("path", d=_path(points), class_=f"edge{style}", stroke_width=_thickness(weight)),
        svg("path", d=tip.format(x, y), class_="arrow"),
        class_=look,
    )


def _loop(place: tuple[float, float], weight: float) -> Html:
    x, y = place
    curve = f"C{x + 46:.1f} {y - 80:.1f} {x - 46:.1f} {y - 80:.1f} {x - 17:.1f} {y - 34:.1f}"
    tip = f"M{x - 15:.1f} {y - 29:.1f}l-8 -5 8 -5z"
    return svg(
        "g",
        svg("path", d=f"M{x + 16:.1f} {y - 29:.1f}{curve}", class_="edge dotted", stroke_width=_thickness(weight)),
        svg("path", d=tip, class_="arrow", transform=f"rotate(60 {x - 15:.1f} {y - 29:.1f})"),
        class_=_look(weight),
    )


def _look(weight: float) -> str:
    return "c0" if weight >= 0 else "c1"


def _thickness(weight: float) -> float:
    return round(min(5.0, 1.1 + abs(weight) / 2), 2)


def _short(word: str, longest: int) -> str:
    return word if len(word) <= longest else word[: longest - 1] + "…"


Box = tuple[float, float, float, float]


class _Labels:
    """The weights beside their connections, where they fit without covering each other or a node."""

    def __init__(self, graph: NetworkGraph) -> None:
        self._graph = graph
        self._boxes: list[Box] = []
        for name, (x, y) in graph.layout.places.items():
            half = INPUT if name in graph.inputs else NODE
            self._boxes.append((x - half.half_width, y - half.half_height, x + half.half_width, y + half.half_height))

    def drawn(self) -> list[Html]:
        found = []
        for route in self._graph.layout.routes:
            weight = self._graph.weights[route.source, route.target]
            place = self._place(route, number(weight))
            if place is not None:
                found.append(self._label(place, number(weight)))
        for name in self._graph.layout.loops:
            x, y = self._graph.layout.places[name]
            found.append(self._label((x, y - 72), number(self._graph.weights[name, name])))
        return found

    def _place(self, route: Route, text: str) -> tuple[float, float] | None:
        """On the stretch before the target, or on an earlier one; None if it is crowded everywhere."""
        stretches = [(a, b) for place, (a, b) in enumerate(pairwise(route.points)) if place % 2 == 0]
        for (x1, y1), (x2, y2) in stretches[:1] if route.reversed else reversed(stretches):
            for share in PLACES:
                # The curve has horizontal ends: its height is the smooth step between them.
                x, y = x1 + share * (x2 - x1), y1 + (y2 - y1) * share * share * (3 - 2 * share)
                box = self._box((x, y), text)
                if not any(_overlap(box, other) for other in self._boxes):
                    self._boxes.append(box)
                    return x, y
        return None

    def _box(self, place: tuple[float, float], text: str) -> Box:
        half = LETTER * len(text) / 2 + 3
        return place[0] - half, place[1] - LINE / 2, place[0] + half, place[1] + LINE / 2

    def _label(self, place: tuple[float, float], text: str) -> Html:
        left, top, right, bottom = self._box(place, text)
        return svg(
            "g",
            svg(
                "rect",
                x=round(left, 1),
                y=round(top, 1),
                width=round(right - left, 1),
                height=round(bottom - top, 1),
                rx=3,
                class_="pill",
            ),
            svg("text", text, x=round(place[0], 1), y=round(place[1] + 4, 1), text_anchor="middle", class_="small"),
        )


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
