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
    """CMA-ES on the weights and biases of one genome. `history` holds the fitness of each generation's candidates.

    The genome itself is measured beside the first generation, so that the best is never worse than it.
    """

    def __init__(
        self,
        genome: Population,
        bound: float,
        seed: int,
        history: Sequence[Sequence[float]] = (),
        size: int | None = None,  # of a generation; None: the strategy's own, which grows with the number of weights
    ) -> None:
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
        options |= {} if size is None else {"popsize": size}
        self._strategy = cma.CMAEvolutionStrategy(start, STEP, options)
        self.best, self.best_fitness = genome, -np.inf  # not measured yet
        self._asked: list[Values] = []
        for fitness in history:
            self.candidates()
            self.tell(fitness)

    def candidates(self) -> Population:
        """The genomes that are to be measured next."""
        self._asked = [np.asarray(values) for values in self._strategy.ask()]
        drawn = [self._genome_of(values) for values in self._asked]
        return joined(drawn if np.isfinite(self.best_fitness) else [*drawn, self._genome])

    def tell(self, fitness: Sequence[float]) -> None:
        """The fitness of the candidates, in their order; larger is better."""
        drawn, start = fitness[: len(self._asked)], fitness[len(self._asked) :]
        self._strategy.tell(self._asked, [-float(value) for value in drawn])
        self.best_fitness = max([self.best_fitness, *start])
        leader = int(np.argmax(drawn))
        if drawn[leader] > self.best_fitness:
            self.best, self.best_fitness = self._genome_of(self._asked[leader]), float(fitness[leader])

    def _genome_of(self, values: Values) -> Population:
        within = np.clip(values, -self._bound, self._bound).astype(np.float32)
        count = len(self._genome.weight)
        return replace(self._genome, weight=within[:count], bias=within[count:])
