"""The last tuning of a network's weights by CMA-ES (Hansen), with the structure fixed.

An evolution strategy of the package cma cannot be stored in plain data, so it is made again from its history: the seed
and the fitness of every candidate so far. Replaying draws the same candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from atoll.algorithms.neat.population import Population, joined
from atoll.rng import stream

STEP = 0.3  # first standard deviation of a weight

Values = npt.NDArray[np.float64]


class Polish:
    """CMA-ES on the weights and biases of one genome. `history` holds the fitness of each generation's candidates."""

    def __init__(self, genome: Population, bound: float, seed: int, history: Sequence[Sequence[float]] = ()) -> None:
        import cma

        self._genome, self._bound = genome, bound
        rng = stream(seed, "polish")
        start = np.concatenate([genome.weight, genome.bias]).astype(np.float64)
        options: dict[str, Any] = {
            "verbose": -9,
            "seed": np.nan,  # leave the global random state alone
            "randn": lambda *shape: rng.standard_normal(shape),
            "bounds": [-bound, bound],
        }
        self._strategy = cma.CMAEvolutionStrategy(start, STEP, options)
        self.best, self.best_fitness = genome, -np.inf
        self._asked: list[Values] = []
        for fitness in history:
            self.candidates()
            self.tell(fitness)

    def candidates(self) -> Population:
        """The genomes that are to be measured next."""
        self._asked = [np.asarray(values) for values in self._strategy.ask()]
        return joined([self._genome_of(values) for values in self._asked])

    def tell(self, fitness: Sequence[float]) -> None:
        """The fitness of the candidates, in their order; larger is better."""
        self._strategy.tell(self._asked, [-float(value) for value in fitness])
        leader = int(np.argmax(fitness))
        if fitness[leader] > self.best_fitness:
            self.best, self.best_fitness = self._genome_of(self._asked[leader]), float(fitness[leader])

    def _genome_of(self, values: Values) -> Population:
        within = np.clip(values, -self._bound, self._bound).astype(np.float32)
        count = len(self._genome.weight)
        return replace(self._genome, weight=within[:count], bias=within[count:])
