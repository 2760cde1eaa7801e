"""A place for every node of a graph and a route for every connection, such that no connection runs behind a node.

Nodes stand in columns, each to the right of all that it reads. A connection over several columns gets a slot of its own
in every column between (Sugiyama's method), and runs straight through it; between two columns there are no nodes. The
order within columns is found by barycentres, the one with the fewest crossings counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Slot = tuple[int, int]  # a connection's place in a column between its ends: its number, and the column
Item = int | Slot

SWEEPS = 12
SLOT = 20.0  # height of a connection's slot in a column
GAP = 14.0  # between two neighbours of a column


@dataclass(frozen=True)
class Size:
    """Half of a node's width and height, and what it needs above itself (for a loop)."""

    half_width: float
    half_height: float
    above: float = 0.0


@dataclass(frozen=True)
class Route:
    """A connection: the points that it runs through, in pairs of a horizontal stretch each but the first and last.

    `reversed`: it leads from a later column back; its points are still from left to right.
    """

    source: int
    target: int
    points: list[tuple[float, float]]
    reversed: bool = False


@dataclass(frozen=True)
class GraphLayout:
    """Centres of the nodes, routes of the connections between different nodes, and the size of it all."""

    places: dict[int, tuple[float, float]]
    routes: list[Route]
    loops: list[int]  # nodes that read themselves
    width: float
    height: float


def lay_out(
    first: Sequence[int],
    last: Sequence[int],
    others: Sequence[int],
    connections: Sequence[tuple[int, int]],
    sizes: Mapping[int, Size],
    across: float,
    edge: float = 20.0,
) -> GraphLayout:
    """Columns are `across` apart from edge to edge of their nodes. `first` are in the first column; of `last`, those
    that nothing reads are in the last."""
    nodes = [*first, *others, *last]
    loops = list(dict.fromkeys(source for source, target in connections if source == target))
    plain = [pair for pair in dict.fromkeys(connections) if pair[0] != pair[1]]
    forward, backward = _without_cycles(nodes, plain)
    columns = _columns(nodes, set(first), last, [*forward, *((b, a) for a, b in backward)])
    graph = _Proper(nodes, columns, forward, backward)
    graph.order()
    return graph.routed(sizes, across, edge, loops)


def _without_cycles(
    nodes: Sequence[int], connections: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Connections that lead forward in a walk over the graph, and those that close a cycle."""
    after: dict[int, list[int]] = {node: [] for node in nodes}
    for source, target in connections:
        after[source].append(target)
    state: dict[int, int] = {}  # 1: on the way, 2: done
    back: set[tuple[int, int]] = set()
    for start in nodes:
        if start in state:
            continue
        state[start] = 1
        stack = [(start, iter(after[start]))]
        while stack:
            node, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                state[node] = 2
                stack.pop()
            elif state.get(following) == 1:
                back.add((node, following))
            elif following not in state:
                state[following] = 1
                stack.append((following, iter(after[following])))
    return [pair for pair in connections if pair not in back], [pair for pair in connections if pair in back]


def _columns(
    nodes: Sequence[int], first: set[int], last: Sequence[int], connections: Sequence[tuple[int, int]]
) -> dict[int, int]:
    """The longest way to a node, counted from the first column."""
    before: dict[int, list[int]] = {node: [] for node in nodes}
    for source, target in connections:
        before[target].append(source)
    column: dict[int, int] = {}
    waiting = list(nodes)
    while waiting:
        for node in [node for node in waiting if all(source in column for source in before[node])]:
            column[node] = 0 if node in first else 1 + max((column[source] for source in before[node]), default=0)
        waiting = [node for node in waiting if node not in column]
    read = {source for source, _ in connections}
    end = max(column.values(), default=0)
    return column | {node: end for node in last if node not in read}


class _Proper:
    """The graph with a slot in every column that a connection crosses."""

    def __init__(
        self,
        nodes: Sequence[int],
        column: Mapping[int, int],
        forward: Sequence[tuple[int, int]],
        backward: Sequence[tuple[int, int]],
    ) -> None:
        self.column = column
        self.chains: list[tuple[int, int, bool, list[Item]]] = []
        count = max(column.values(), default=0) + 1
        self.levels: list[list[Item]] = [[] for _ in range(count)]
        for node in nodes:
            self.levels[column[node]].append(node)
        ends = [(source, target, False) for source, target in forward]
        ends += [(source, target, True) for source, target in backward]
        for number, (source, target, is_back) in enumerate(ends):
            left, right = (target, source) if is_back else (source, target)
            slots: list[Slot] = [(number, level) for level in range(column[left] + 1, column[right])]
            for slot in slots:
                self.levels[slot[1]].append(slot)
            self.chains.append((source, target, is_back, [left, *slots, right]))
        self.left: dict[Item, list[Item]] = {}
        self.right: dict[Item, list[Item]] = {}
        for *_, chain in self.chains:
            for a, b in pairwise(chain):
                self.right.setdefault(a, []).append(b)
                self.left.setdefault(b, []).append(a)

    def order(self) -> None:
        """Sort every column by the mean place of its neighbours, to and fro, and keep the order of fewest crossings."""
        best, fewest = [list(level) for level in self.levels], self._crossings()
        for sweep in range(SWEEPS):
            numbers = range(1, len(self.levels)) if sweep % 2 == 0 else range(len(self.levels) - 2, -1, -1)
            for number in numbers:
                beside = self.left if sweep % 2 == 0 else self.right
                other = self.levels[number - 1 if sweep % 2 == 0 else number + 1]
                places = {item: place for place, item in enumerate(other)}
                self.levels[number] = self._sorted(self.levels[number], beside, places)
            crossings = self._crossings()
            if crossings < fewest:
                best, fewest = [list(level) for level in self.levels], crossings
        self.levels = best

    def _sorted(
        self,
        level: list[Item],
        beside: Mapping[Item, list[Item]],
        places: Mapping[Item, int],
    ) -> list[Item]:
        def mean(pair: tuple[int, Item]) -> tuple[float, int]:
            here, item = pair
            known = [places[other] for other in beside.get(item, []) if other in places]
            return (sum(known) / len(known) if known else float(here), here)

        return [item for _, item in sorted(enumerate(level), key=mean)]

    def _crossings(self) -> int:
        total = 0
        for level, after in pairwise(self.levels):
            places = {item: place for place, item in enumerate(after)}
            ends = [
                (here, places[other])
                for here, item in enumerate(level)
                for other in self.right.get(item, [])
                if other in places
            ]
            total += sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for place, a in enumerate(ends) for b in ends[:place])
        return total

    def routed(self, sizes: Mapping[int, Size], across: float, edge: float, loops: list[int]) -> GraphLayout:
        slot = Size(0.0, SLOT / 2)
        size: dict[Item, Size] = {
            item: slot if isinstance(item, tuple) else sizes[item] for level in self.levels for item in level
        }
        ys = self._heights(size)
        halves = [max((size[item].half_width for item in level), default=0.0) for level in self.levels]
        xs, x = [], edge
        for half in halves:
            xs.append(x + half)
            x += 2 * half + across
        lowest = min(ys[item] - size[item].half_height - size[item].above for level in self.levels for item in level)
        ys = {item: y - lowest + edge for item, y in ys.items()}
        bottom = max(ys[item] + size[item].half_height for level in self.levels for item in level) + edge
        places = {node: (xs[self.column[node]], ys[node]) for node in self.column}
        return GraphLayout(places, self._routes(places, ys, sizes, xs, halves), loops, x - across + edge, bottom)

    def _heights(self, size: Mapping[Item, Size]) -> dict[Item, float]:
        """Each item near the mean of its neighbours, as far as its column has space."""
        ys: dict[Item, float] = {}
        for level in self.levels:
            ys |= _stacked(level, dict.fromkeys(level, 0.0), size)
        for sweep in range(SWEEPS):
            for level in self.levels if sweep % 2 else reversed(self.levels):
                wanted = {}
                for item in level:
                    beside = [*self.left.get(item, []), *self.right.get(item, [])]
                    wanted[item] = sum(ys[other] for other in beside) / len(beside) if beside else ys[item]
                ys |= _stacked(level, wanted, size)
        return ys

    def _routes(
        self,
        places: Mapping[int, tuple[float, float]],
        ys: Mapping[Item, float],
        sizes: Mapping[int, Size],
        xs: Sequence[float],
        halves: Sequence[float],
    ) -> list[Route]:
        leaving: dict[int, list[tuple[float, int]]] = {}
        entering: dict[int, list[tuple[float, int]]] = {}
        for number, (left, right, chain) in enumerate(self._ends()):
            leaving.setdefault(left, []).append((ys[chain[1]], number))
            entering.setdefault(right, []).append((ys[chain[-2]], number))
        ports: dict[tuple[int, bool], float] = {}
        for begins, held in ((True, leaving), (False, entering)):
            for node, found in held.items():
                room = sizes[node].half_height * (1.3 if len(found) > 1 else 0)
                for place, (_, number) in enumerate(sorted(found)):
                    share = place / (len(found) - 1) - 0.5 if len(found) > 1 else 0.0
                    ports[number, begins] = places[node][1] + share * room
        routes = []
        for number, (left, right, chain) in enumerate(self._ends()):
            points = [(places[left][0] + sizes[left].half_width, ports[number, True])]
            for item in chain:
                if isinstance(item, tuple):
                    level = item[1]
                    points += [(xs[level] - halves[level], ys[item]), (xs[level] + halves[level], ys[item])]
            points.append((places[right][0] - sizes[right].half_width, ports[number, False]))
            source, target, is_back, _ = self.chains[number]
            routes.append(Route(source, target, points, is_back))
        return routes

    def _ends(self) -> Iterator[tuple[int, int, list[Item]]]:
        """Of every connection its left and its right node, and all that it runs through."""
        for source, target, is_back, chain in self.chains:
            yield (target, source, chain) if is_back else (source, target, chain)


def _stacked(level: Sequence[Item], wanted: Mapping[Item, float], size: Mapping[Item, Size]) -> dict[Item, float]:
    """Places near the wanted ones, in this order, with space between neighbours: pushed down from the first, and pushed
    up from the last, and the mean of both."""
    apart = [size[a].half_height + GAP + size[b].above + size[b].half_height for a, b in pairwise(level)]
    down = [wanted[item] for item in level]
    up = list(down)
    for place in range(1, len(level)):
        down[place] = max(down[place], down[place - 1] + apart[place - 1])
    for place in range(len(level) - 2, -1, -1):
        up[place] = min(up[place], up[place + 1] - apart[place])
    return {item: (a + b) / 2 for item, a, b in zip(level, down, up, strict=True)}
