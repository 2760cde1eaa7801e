"""What a genome from elsewhere must be, checked before anything is done with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from atoll.search.neat.functions import ACTIVATIONS, AGGREGATIONS
from atoll.search.neat.names import HIDDEN_FROM, OUTPUTS_FROM
from atoll.search.neat.population import Population
from atoll.search.neat.settings import NeatSettings


@dataclass(frozen=True)
class Limits:
    """The frame a genome must keep within."""

    inputs: int
    outputs: int
    hidden: int
    links: int
    bound: float
    recurrent: bool

    @classmethod
    def of(cls, settings: NeatSettings) -> Limits:
        return cls(
            settings.inputs,
            settings.outputs,
            settings.max_hidden,
            settings.max_links,
            settings.bound,
            settings.recurrent,
        )


def problem_of(genome: Population, limits: Limits) -> str:
    """Why this genome must not be used; empty if nothing is wrong. The cost grows with its size only linearly."""
    hidden = genome.node[limits.outputs :]
    if len(hidden) > limits.hidden or len(genome.source) > limits.links:
        return f"{len(hidden)} hidden nodes and {len(genome.source)} links, at most {limits.hidden} and {limits.links}"
    wanted = np.arange(limits.outputs, dtype=np.uint64) + np.uint64(OUTPUTS_FROM)
    if not np.array_equal(genome.node[: limits.outputs], wanted):
        return f"its first nodes are not the {limits.outputs} outputs"
    if (hidden < HIDDEN_FROM).any() or len(np.unique(hidden)) != len(hidden):
        return "a hidden node's name is not one, or comes twice"
    return _values(genome, limits) or _links(genome, hidden, limits)


def _values(genome: Population, limits: Limits) -> str:
    for what in ("bias", "response", "weight"):
        values: npt.NDArray[np.float32] = getattr(genome, what)
        if not np.isfinite(values).all():
            return f"a {what} is not a finite number"
        if len(values) and float(np.abs(values).max()) > limits.bound:
            return f"a {what} is outside +-{limits.bound:g}"
    if (genome.activation >= len(ACTIVATIONS)).any() or (genome.aggregation >= len(AGGREGATIONS)).any():
        return "a node has an unknown activation or aggregation"
    return ""


def _links(genome: Population, hidden: npt.NDArray[np.uint64], limits: Limits) -> str:
    source, target = genome.source, genome.target
    if not (np.isin(source, hidden) | (source < limits.inputs)).all():
        return "a link comes from a node that is not there, or from an output"
    if not np.isin(target, genome.node).all():
        return "a link leads to a node that is not there"
    pairs = set(zip(source.tolist(), target.tolist(), strict=True))
    if len(pairs) != len(source):
        return "two links join the same nodes"
    if not limits.recurrent and has_circle(pairs):
        return "its links form a circle, and the network is feed-forward"
    return ""


def has_circle(pairs: set[tuple[int, int]]) -> bool:
    """Nodes that nothing enters are taken away, with their links, until none is left (Kahn)."""
    entering: dict[int, int] = {}
    after: dict[int, list[int]] = {}
    for source, target in pairs:
        entering[target] = entering.get(target, 0) + 1
        after.setdefault(source, []).append(target)
    free = [name for name in after if name not in entering]
    gone = 0
    while free:
        for name in after.get(free.pop(), ()):
            gone += 1
            entering[name] -= 1
            if not entering[name]:
                free.append(name)
    return gone != len(pairs)
