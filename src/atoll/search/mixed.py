"""Breeding chromosomes of bits and real numbers (Zhu & Jin, section III-C): two parents by tournament, two children.

One-point crossover and bit flips on the bits, simulated binary crossover and polynomial mutation on the reals.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from atoll.search.genetic import MUTATION_ATTEMPTS, Bits, flip, one_point, polynomial, sbx, tournament

Genes = tuple[Bits, tuple[float, ...]]


@dataclass(frozen=True)
class Operators:
    """Section IV-A's figures. Crossover is per pair, mutation per gene."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    one_point: float = 0.9
    flip: float = 0.1
    sbx: float = 0.9
    sbx_eta: float = 2.0
    polynomial: float = 0.1
    polynomial_eta: float = 20.0


def breed_mixed(
    parents: Sequence[Genes],
    rank: npt.ArrayLike | None,
    crowding: npt.ArrayLike | None,
    n: int,
    operators: Operators,
    rng: np.random.Generator,
    *,
    same: Callable[[Genes], Hashable] | None = None,
) -> list[Genes]:
    """`n` children. Without ranks (nothing was evaluated yet) parents are drawn by a coin flip.

    `same` gives equal values for chromosomes that mean the same: a child equal to a parent or sibling is then mutated
    again until it is new, because training it would tell nothing. Without it, copies stay.
    """
    if not parents:
        raise ValueError("no parents to breed from")
    seen = {same(parent) for parent in parents} if same else set()
    children: list[Genes] = []
    while len(children) < n:
        one, two = (parents[tournament(len(parents), rank, crowding, rng)] for _ in range(2))
        for child in _crossed(one, two, operators, rng)[: n - len(children)]:
            child = _mutated(child, operators, rng)
            for _ in range(MUTATION_ATTEMPTS if same else 0):
                if same and same(child) not in seen:
                    break
                child = _mutated(child, operators, rng)
            if same:
                seen.add(same(child))
            children.append(child)
    return children


def _crossed(one: Genes, two: Genes, operators: Operators, rng: np.random.Generator) -> list[Genes]:
    first, second = one_point(one[0], two[0], operators.one_point, rng)
    left, right = sbx(
        one[1], two[1], operators.low, operators.high, rng, probability=operators.sbx, eta=operators.sbx_eta
    )
    return [(first, tuple(left.tolist())), (second, tuple(right.tolist()))]


def _mutated(child: Genes, operators: Operators, rng: np.random.Generator) -> Genes:
    bits = flip(child[0], operators.flip, rng)
    reals = polynomial(
        child[1],
        operators.low,
        operators.high,
        rng,
        probability=operators.polynomial,
        eta=operators.polynomial_eta,
    )
    return bits, tuple(reals.tolist())
