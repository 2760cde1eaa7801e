"""From network outputs to predicted classes, confusion matrices and fitness."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from atoll.algorithms.neat.evaluation import outputs, recurrent_outputs
from atoll.algorithms.neat.functions import Values
from atoll.algorithms.neat.population import Population

Confusions = npt.NDArray[np.int64]  # genomes x true class x predicted class
Fitness = Callable[[Confusions], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Readout:
    """How rows are presented to a network and how its outputs are interpreted.

    Without `edges` there is one output per class and the largest wins (ties: the first). Otherwise a single output is
    divided into class ranges at the edges; a value on an edge belongs to the lower class. `steps`: time steps per row,
    with equally many features each. `passes`: how often a recurrent network runs on each step.
    """

    classes: int
    recurrent: bool = False
    steps: int = 1
    passes: int = 1
    edges: tuple[float, ...] = ()

    @property
    def outputs(self) -> int:
        return 1 if self.edges else self.classes


def output_values(population: Population, x: npt.NDArray[np.floating], reading: Readout) -> Values:
    """Output values: genomes x outputs x rows."""
    if not reading.recurrent:
        return outputs(population, x, reading.outputs)
    series = x.reshape(len(x), reading.steps, -1)
    return recurrent_outputs(population, np.repeat(series, reading.passes, axis=1), reading.outputs)


def predicted_classes(values: Values, edges: Sequence[float]) -> npt.NDArray[np.int64]:
    """The predicted class of every row: genomes x rows."""
    if edges:
        return np.searchsorted(np.asarray(edges), values[:, 0], side="left")
    if values.shape[1] == 2:  # fast path for two classes
        return (values[:, 1] > values[:, 0]).astype(np.int64)
    best: npt.NDArray[np.int64] = values.argmax(axis=1)
    return best


def class_scores(values: Values, edges: Sequence[float]) -> Values:
    """A score for each class, of which the largest marks the predicted one: genomes x classes x rows.

    They are the outputs themselves or, with edges, the distance to the nearest end of each class's range, negative
    outside of it.
    """
    if not edges:
        return values
    low, high = (np.array(ends)[:, None] for ends in ([-np.inf, *edges], [*edges, np.inf]))
    found: Values = np.minimum(values - low, high - values)
    return found


def confusions(
    population: Population, x: npt.NDArray[np.floating], y: npt.NDArray[np.int64], reading: Readout
) -> Confusions:
    """The confusion matrix of each genome on these rows."""
    count = reading.classes
    found = predicted_classes(output_values(population, x, reading), reading.edges)
    pairs = np.arange(len(population))[:, None] * count * count + y * count + found
    counts = np.bincount(pairs.ravel(), minlength=len(population) * count * count)
    return counts.reshape(len(population), count, count).astype(np.int64)


SOFTNESS = 4.0  # the factor of outputs before the softmax
FIXED_POINT = 1 << 20  # soft counts travel as whole numbers of this fraction of a row


def soft_confusions(
    population: Population, x: npt.NDArray[np.floating], y: npt.NDArray[np.int64], reading: Readout
) -> Confusions:
    """Confusion matrices of probabilities, softmax(4 x scores), instead of answers, in fixed point.

    Their weighted F1 changes with every weight, where that of answers changes only when an answer does.
    """
    values = SOFTNESS * class_scores(output_values(population, x, reading), reading.edges)
    values -= values.max(axis=1, keepdims=True)
    np.exp(values, out=values)
    values /= values.sum(axis=1, keepdims=True)
    true = np.eye(reading.classes)[y]  # rows x classes
    found: Confusions = np.rint(np.matmul(values, true).swapaxes(1, 2) * FIXED_POINT).astype(np.int64)
    return found


def weighted_f1(found: Confusions) -> npt.NDArray[np.float64]:
    """F1 per class, weighted by class frequency (Eq. 2 without its factor 1/c)."""
    hits = np.diagonal(found, axis1=1, axis2=2).astype(np.float64)
    support = found.sum(axis=2)
    total = (support + found.sum(axis=1)).astype(np.float64)
    f1 = np.divide(2 * hits, total, out=np.zeros_like(hits), where=total > 0)
    score: npt.NDArray[np.float64] = (f1 * support).sum(axis=1) / support.sum(axis=1)
    return score


def accuracy(found: Confusions) -> npt.NDArray[np.float64]:
    score: npt.NDArray[np.float64] = np.trace(found, axis1=1, axis2=2) / found.sum(axis=(1, 2))
    return score


def balanced_accuracy(found: Confusions) -> npt.NDArray[np.float64]:
    """Mean recall over the classes that occur."""
    hits = np.diagonal(found, axis1=1, axis2=2).astype(np.float64)
    support = found.sum(axis=2)
    share = np.divide(hits, support, out=np.zeros_like(hits), where=support > 0)
    score: npt.NDArray[np.float64] = share.sum(axis=1) / (support > 0).sum(axis=1)
    return score


# By the objective that a search is given: 1 minus the error, or minus the mean of the classes' errors.
FITNESS: dict[str, Fitness] = {
    "weighted_f1": weighted_f1,
    "error": accuracy,
    "balanced_error": balanced_accuracy,
}


def find_fitness(name: str) -> Fitness:
    """A built-in fitness by its objective, or a user's as `module:function`; every worker imports it by this name.

    A fitness maps confusion matrices (genomes x true x predicted) to one number per genome; larger is better.
    """
    if name in FITNESS:
        return FITNESS[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"fitness {name!r} is unknown; give {', '.join(FITNESS)} or module:function")
    found: Fitness = getattr(importlib.import_module(module), attribute)
    return found
