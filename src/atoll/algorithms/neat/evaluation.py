"""What networks answer: all genomes of a population on a whole batch of rows in one pass.

Nodes of all genomes are sorted by level (longest way from an input), then by how they aggregate, then by activation,
so that every step works on one block of a matrix nodes x rows. Only what reaches an output is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from atoll.algorithms.neat.functions import IN_PLACE, Values
from atoll.algorithms.neat.population import OUTPUTS_FROM, Ends, Population

SUM, PRODUCT, NO_SUM, NO_PRODUCT = range(4)  # the last two: nodes that nothing enters
BLOCK = 1 << 17  # numbers a step works on at once: about what a core's cache holds


@dataclass(frozen=True)
class EvaluationStep:
    """Nodes `start:stop` (rows of the matrix of values) with one aggregation; their connections are `first:last`."""

    start: int
    stop: int
    how: int
    first: int
    last: int
    begins: Ends  # of each node's connections, counted from `first`
    groups: list[tuple[int, int, int]]  # activation, start, stop: rows of the same activation


@dataclass(frozen=True)
class EvaluationPlan:
    """How to compute a population. Row `i` of the values is input `i`; nodes come after the inputs."""

    inputs: int
    rows: int
    steps: list[EvaluationStep]
    source: Ends  # row that each connection reads
    weight: Values
    bias: Values
    response: Values
    outputs: Ends  # genomes x outputs: rows of the answers


def outputs(population: Population, x: npt.NDArray[np.floating], number: int) -> Values:
    """Answers of feed-forward networks with `number` outputs: genomes x outputs x rows of `x`."""
    plan = evaluation_plan(population, x.shape[1], number)
    answers = np.empty((len(population), number, len(x)))
    for start, stop in blocks(len(x), plan):
        values = np.empty((plan.rows, stop - start))
        values[: plan.inputs] = x[start:stop].T
        for step in plan.steps:
            compute(step, plan, values, values)
        answers[:, :, start:stop] = values[plan.outputs]
    return answers


def blocks(rows: int, plan: EvaluationPlan) -> Iterator[tuple[int, int]]:
    """Pieces of the rows, small enough to stay in the cache."""
    widest = max([step.last - step.first for step in plan.steps] + [1])
    size = max(16, BLOCK // widest)
    yield from ((start, min(start + size, rows)) for start in range(0, rows, size))


def compute(step: EvaluationStep, plan: EvaluationPlan, before: Values, after: Values) -> None:
    """One block of nodes: `after[start:stop]` from `before`."""
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
    """Sort nodes and connections for computing. In recurrent networks all nodes are on one level: each step reads the
    values of the step before; a node that nothing enters stays 0 there (neat-python's rule) and is left out."""
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
    """Where each connection's ends are among the population's nodes; inputs are -1 - their number."""
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
    """Nodes whose value reaches an output; the outputs themselves always count."""
    needed = (population.node >= OUTPUTS_FROM) & (population.node < 1 << 63)
    inner = on & (source >= 0)
    tail, head = source[inner], target[inner]
    while True:
        more = tail[needed[head] & ~needed[tail]]
        if not len(more):
            return needed
        needed[more] = True


def _levels(source: Ends, target: Ends, on: npt.NDArray[np.bool_], nodes: int) -> Ends:
    """The longest way from an input or from a node that nothing enters; there are no circles."""
    inner = on & (source >= 0)
    tail, head = source[inner], target[inner]
    level = np.zeros(nodes, np.int64)
    for _ in range(nodes + 1):
        higher = level.copy()
        np.maximum.at(higher, head, level[tail] + 1)
        if np.array_equal(higher, level):
            return level
        level = higher
    raise ValueError("a feed-forward network must not have circles")


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
    # A node that is not computed (recurrent, nothing enters it) reads as 0 from a spare last row.
    spare = inputs + len(order)
    reads = np.where(tail < 0, -1 - tail, row[np.maximum(tail, 0)])
    answers = row[population.node_ends[:-1, None] + np.arange(number)]
    return EvaluationPlan(
        inputs=inputs,
        rows=spare + 1,
        steps=_steps(inputs, level[order], how[order], population.activation[order], entering[order]),
        source=np.where(reads < 0, spare, reads),
        weight=population.weight[connections].astype(np.float64),
        bias=population.bias[order].astype(np.float64),
        response=population.response[order].astype(np.float64),
        outputs=np.where(answers < 0, spare, answers),
    )


def _steps(
    inputs: int, level: Ends, how: Ends, activation: npt.NDArray[np.uint8], entering: Ends
) -> list[EvaluationStep]:
    """Cut the sorted nodes where level, aggregation or activation change."""
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
    """Where equal neighbours begin and end."""
    cuts = np.flatnonzero(values[1:] != values[:-1]) + 1
    edges = [0, *cuts.tolist(), len(values)] if len(values) else []
    return list(pairwise(edges))


def recurrent_outputs(population: Population, x: npt.NDArray[np.floating], number: int) -> Values:
    """Answers after the last step of each sequence: genomes x outputs x sequences, for `x` of sequences x steps x
    inputs. Every sequence begins with all nodes at 0; a node reads what the others were one step ago."""
    plan = evaluation_plan(population, x.shape[2], number, recurrent=True)
    answers = np.empty((len(population), number, len(x)))
    for start, stop in blocks(len(x), plan):
        before, after = np.zeros((2, plan.rows, stop - start))
        for time in range(x.shape[1]):
            before[: plan.inputs] = after[: plan.inputs] = x[start:stop, time].T
            for step in plan.steps:
                compute(step, plan, before, after)
            before, after = after, before
        answers[:, :, start:stop] = before[plan.outputs]
    return answers
