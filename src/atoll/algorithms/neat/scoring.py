"""How good networks are: from answers to classes, confusion matrices and fitness."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from atoll.algorithms.neat.evaluation import outputs, recurrent_outputs
from atoll.algorithms.neat.functions import Values
from atoll.algorithms.neat.population import Population

Confusions = npt.NDArray[np.int64]  # genomes x true class x answered class
Fitness = Callable[[Confusions], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Readout:
    """How a row is shown to a network and its answer is read.

    `edges` empty: one output a class, the largest wins (of equals the first). Otherwise one output, cut into class
    ranges at the edges; a value on an edge belongs below. `steps`: a row is so many steps in time of equally many
    features each; `passes`: a recurrent network is run so many times on each step.
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
    """Values of the outputs: genomes x outputs x rows."""
    if not reading.recurrent:
        return outputs(population, x, reading.outputs)
    series = x.reshape(len(x), reading.steps, -1)
    return recurrent_outputs(population, np.repeat(series, reading.passes, axis=1), reading.outputs)


def predicted_classes(values: Values, edges: Sequence[float]) -> npt.NDArray[np.int64]:
    """The class that each genome gives each row."""
    if edges:
        return np.searchsorted(np.asarray(edges), values[:, 0], side="left")
    if values.shape[1] == 2:  # the common case, several times faster
        return (values[:, 1] > values[:, 0]).astype(np.int64)
    best: npt.NDArray[np.int64] = values.argmax(axis=1)
    return best


def confusions(
    population: Population, x: npt.NDArray[np.floating], y: npt.NDArray[np.int64], reading: Readout
) -> Confusions:
    """What each genome gets right and wrong on these rows."""
    count = reading.classes
    found = predicted_classes(output_values(population, x, reading), reading.edges)
    pairs = np.arange(len(population))[:, None] * count * count + y * count + found
    counts = np.bincount(pairs.ravel(), minlength=len(population) * count * count)
    return counts.reshape(len(population), count, count).astype(np.int64)


def weighted_f1(found: Confusions) -> npt.NDArray[np.float64]:
    """The classes' F1, weighted by how often each class occurs (Eq. 2 without its 1/c)."""
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
    """The mean over the classes that occur of the share that is found."""
    hits = np.diagonal(found, axis1=1, axis2=2).astype(np.float64)
    support = found.sum(axis=2)
    share = np.divide(hits, support, out=np.zeros_like(hits), where=support > 0)
    score: npt.NDArray[np.float64] = share.sum(axis=1) / (support > 0).sum(axis=1)
    return score


FITNESS: dict[str, Fitness] = {
    "weighted_f1": weighted_f1,
    "accuracy": accuracy,
    "balanced_accuracy": balanced_accuracy,
}


def find_fitness(name: str) -> Fitness:
    """One of ours, or one's own as `module:function`: from confusion matrices (genomes x true x answered) to one
    number a genome, the larger the better. Every worker imports it by this name."""
    if name in FITNESS:
        return FITNESS[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"fitness {name!r} is unknown; write {', '.join(FITNESS)} or module:function")
    found: Fitness = getattr(importlib.import_module(module), attribute)
    return found
