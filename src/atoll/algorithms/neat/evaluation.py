"""Network outputs: all genomes of a population on a whole batch of rows in one pass.

Nodes of all genomes are sorted by level (longest path from an input), then by aggregation, then by activation, so that
every step works on one block of a nodes x rows matrix. Only nodes that reach an output are computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from atoll.algorithms.neat.functions import IN_PLACE, Values
from atoll.algorithms.neat.population import OUTPUTS_FROM, Ends, Population

SUM, PRODUCT, NO_SUM, NO_PRODUCT = range(4)  # the last two: nodes without incoming connections
BLOCK = 1 << 17  # values per step: about the size of a core's cache


@dataclass(frozen=True)
class EvaluationStep:
    """Nodes `start:stop` (rows of the value matrix) with one aggregation, and their connections `first:last`."""

    start: int
    stop: int
    how: int
    first: int
    last: int
    begins: Ends  # the first connection of each node, relative to `first`
    groups: list[tuple[int, int, int]]  # activation, start, stop: rows with the same activation


@dataclass(frozen=True)
class EvaluationPlan:
    """The order of computation for a population. Row `i` of the values is input `i`; nodes follow the inputs."""

    inputs: int
    rows: int
    steps: list[EvaluationStep]
    source: Ends  # the row that each connection reads
    weight: Values
    bias: Values
    response: Values
    outputs: Ends  # genomes x outputs: rows of the output nodes


def outputs(population: Population, x: npt.NDArray[np.floating], number: int) -> Values:
    """Outputs of feed-forward networks with `number` output nodes: genomes x outputs x rows of `x`."""
    plan = evaluation_plan(population, x.shape[1], number)
    results = np.empty((len(population), number, len(x)))
    for start, stop in blocks(len(x), plan):
        values = np.empty((plan.rows, stop - start))
        values[: plan.inputs] = x[start:stop].T
        for step in plan.steps:
            compute(step, plan, values, values)
        results[:, :, start:stop] = values[plan.outputs]
    return results


def blocks(rows: int, plan: EvaluationPlan) -> Iterator[tuple[int, int]]:
    """Ranges of rows that are small enough for the cache."""
    widest = max([step.last - step.first for step in plan.steps] + [1])
    size = max(16, BLOCK // widest)
    yield from ((start, min(start + size, rows)) for start in range(0, rows, size))


def compute(step: EvaluationStep, plan: EvaluationPlan, before: Values, after: Values) -> None:
    """Compute one block of nodes: `after[start:stop]` from `before`."""
    own = after[step.start : step.stop]
    with np.errstate(all="ignore"):
        if step.how in (SUM, PRODUCT):
            reached = before[plan.source[step.first : step.last]]
            reached *= plan.weight[step.first : step.last, None]
            reduce = np.add if step.how == SUM else np.multiply
            reduce.reduceat(reached, step.begins, axis=0, out=own)
        else:
            own[:] = 0.0 if step.how == NO_SUM else 1.0
        places = slice(step.start - plan.inputs, step.stop - plan.inputs)
        own *= plan.response[places, None]
        own += plan.bias[places, None]
        for activation, start, stop in step.groups:
            IN_PLACE[activation](after[start:stop])


def evaluation_plan(population: Population, inputs: int, number: int, recurrent: bool = False) -> EvaluationPlan:
    """Sort nodes and connections into the order of computation.

    In recurrent networks all nodes are on one level, because each time step reads the values of the previous one. A
    node without incoming connections stays 0 there (neat-python's rule) and is left out.
    """
    source, target = _places(population)
    on = population.enabled.copy()
    if recurrent:
        entered = np.bincount(target[on], minlength=len(population.node)) > 0
        needed, level = entered, np.zeros(len(population.node), np.int64)
    else:
        needed = _needed(population, source, target, on)
        on &= needed[target]
        level = _levels(source, target, on, len(population.node))
    return _sorted(population, inputs, number, source, target, on, needed, level)


def _places(population: Population) -> tuple[Ends, Ends]:
    """Indices of each connection's source and target among the population's nodes; input i is -1 - i."""
    names, ranks = np.unique(
        np.concatenate([population.node, population.source, population.target]), return_inverse=True
    )
    nodes, connections = len(population.node), len(population.source)
    keys = population.node_owner * len(names) + ranks[:nodes]
    order = np.argsort(keys, kind="stable")
    owner = population.connection_owner * len(names)
    found = np.searchsorted(keys[order], np.concatenate([owner, owner]) + ranks[nodes:])
    places = order[np.minimum(found, max(nodes - 1, 0))] if nodes else found
    from_input = population.source < OUTPUTS_FROM
    source = np.where(from_input, -1 - population.source.astype(np.int64), places[:connections])
    return source, places[connections:]


def _needed(population: Population, source: Ends, target: Ends, on: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Nodes whose value reaches an output, and the outputs themselves."""
    needed = (population.node >= OUTPUTS_FROM) & (population.node < 1 << 63)
    inner = on & (source >= 0)
    tail, head = source[inner], target[inner]
    while True:
        more = tail[needed[head] & ~needed[tail]]
        if not len(more):
            return needed
        needed[more] = True


def _levels(source: Ends, target: Ends, on: npt.NDArray[np.bool_], nodes: int) -> Ends:
    """The longest path to each node from an input or a node without incoming connections."""
    inner = on & (source >= 0)
    tail, head = source[inner], target[inner]
    level = np.zeros(nodes, np.int64)
    for _ in range(nodes + 1):
        higher = level.copy()
        np.maximum.at(higher, head, level[tail] + 1)
        if np.array_equal(higher, level):
            return level
        level = higher
    raise ValueError("a feed-forward network must not have cycles")


def _sorted(
    population: Population,
    inputs: int,
    number: int,
    source: Ends,
    target: Ends,
    on: npt.NDArray[np.bool_],
    needed: npt.NDArray[np.bool_],
    level: Ends,
) -> EvaluationPlan:
    nodes = len(population.node)
    entering = np.bincount(target[on], minlength=nodes)
    how = population.aggregation.astype(np.int64) + np.where(entering > 0, 0, NO_SUM)
    order = np.lexsort((np.arange(nodes), population.activation, how, level))
    order = order[needed[order]]
    row = np.full(nodes, -1, np.int64)
    row[order] = inputs + np.arange(len(order))
    connections = np.flatnonzero(on & needed[target])
    connections = connections[np.argsort(row[target[connections]], kind="stable")]
    tail = source[connections]
    # A node that is not computed (recurrent, without incoming connections) reads as 0 from a spare last row.
    spare = inputs + len(order)
    reads = np.where(tail < 0, -1 - tail, row[np.maximum(tail, 0)])
    output_rows = row[population.node_ends[:-1, None] + np.arange(number)]
    return EvaluationPlan(
        inputs=inputs,
        rows=spare + 1,
        steps=_steps(inputs, level[order], how[order], population.activation[order], entering[order]),
        source=np.where(reads < 0, spare, reads),
        weight=population.weight[connections].astype(np.float64),
        bias=population.bias[order].astype(np.float64),
        response=population.response[order].astype(np.float64),
        outputs=np.where(output_rows < 0, spare, output_rows),
    )


def _steps(
    inputs: int, level: Ends, how: Ends, activation: npt.NDArray[np.uint8], entering: Ends
) -> list[EvaluationStep]:
    """Split the sorted nodes where level, aggregation or activation changes."""
    ends: Ends = np.concatenate([[0], np.cumsum(entering)])
    steps = []
    for start, stop in _runs(level * 4 + how):
        groups = [
            (int(activation[start + a]), inputs + start + a, inputs + start + b)
            for a, b in _runs(activation[start:stop])
        ]
        first, last = int(ends[start]), int(ends[stop])
        begins = ends[start:stop] - first
        steps.append(EvaluationStep(inputs + start, inputs + stop, int(how[start]), first, last, begins, groups))
    return steps


def _runs(values: npt.NDArray[np.generic]) -> list[tuple[int, int]]:
    """Start and end of every run of equal values."""
    cuts = np.flatnonzero(values[1:] != values[:-1]) + 1
    edges = [0, *cuts.tolist(), len(values)] if len(values) else []
    return list(pairwise(edges))


def recurrent_outputs(population: Population, x: npt.NDArray[np.floating], number: int) -> Values:
    """Outputs after the last step of each sequence: genomes x outputs x sequences.

    `x` is sequences x steps x inputs. All nodes start at 0 in every sequence; a node reads the values of the previous
    step.
    """
    plan = evaluation_plan(population, x.shape[2], number, recurrent=True)
    results = np.empty((len(population), number, len(x)))
    for start, stop in blocks(len(x), plan):
        before, after = np.zeros((2, plan.rows, stop - start))
        for time in range(x.shape[1]):
            before[: plan.inputs] = after[: plan.inputs] = x[start:stop, time].T
            for step in plan.steps:
                compute(step, plan, before, after)
            before, after = after, before
        results[:, :, start:stop] = before[plan.outputs]
    return results
