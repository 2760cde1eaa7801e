"""Answers of recurrent networks over sequences, all genomes and all sequences at once, step by step in time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from atoll.search.neat.evaluation import blocks, compute, plan
from atoll.search.neat.functions import Values
from atoll.search.neat.population import Population


def recurrent_outputs(population: Population, x: npt.NDArray[np.floating], number: int) -> Values:
    """Answers after the last step of each sequence: genomes x outputs x sequences, for `x` of sequences x steps x
    inputs. Every sequence begins with all nodes at 0; a node reads what the others were one step ago."""
    ready = plan(population, x.shape[2], number, recurrent=True)
    answers = np.empty((len(population), number, len(x)))
    for start, stop in blocks(len(x), ready):
        before, after = np.zeros((2, ready.rows, stop - start))
        for time in range(x.shape[1]):
            before[: ready.inputs] = after[: ready.inputs] = x[start:stop, time].T
            for step in ready.steps:
                compute(step, ready, before, after)
            before, after = after, before
        answers[:, :, start:stop] = before[ready.outputs]
    return answers
