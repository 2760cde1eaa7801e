"""Genetic operators on bits and on real numbers. All randomness comes from the passed generator.

Bits are boolean arrays: on integers `~` gives -1 and -2. The operators on reals are pymoo's functions, which take
probabilities per gene; the probability of a whole pair is applied here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Duplicates = Literal["mutate", "keep"]

# A space that is almost used up may have no new key within reach; then a duplicate is better than a hang.
MUTATION_ATTEMPTS = 100


def tournament(size: int, rank: npt.ArrayLike | None, crowding: npt.ArrayLike | None, rng: np.random.Generator) -> int:
    """Of two different individuals the one of the better front, then of the larger crowding, else a coin flip.

    Without ranks (nothing was evaluated yet) it is a coin flip.
    """
    if size == 1:
        return 0
    one, two = (int(index) for index in rng.choice(size, 2, replace=False))
    # The pair comes in random order, so keeping the first of equals is the coin flip.
    if rank is None or crowding is None:
        return one
    ranks, distances = np.asarray(rank), np.asarray(crowding)
    return two if (ranks[two], -distances[two]) < (ranks[one], -distances[one]) else one


def one_point(first: Bits, second: Bits, probability: float, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """Two children that exchange their tails behind one cut, with this probability; else copies of the parents."""
    _check_bits(first, second)
    one, two = first.copy(), second.copy()
    if len(first) >= 2 and rng.random() < probability:
        cut = int(rng.integers(1, len(first)))
        one[cut:], two[cut:] = second[cut:], first[cut:]
    return one, two


def flip(bits: Bits, probability: float, rng: np.random.Generator) -> Bits:
    """Every bit flipped with this probability, each by itself."""
    _check_bits(bits)
    return bits ^ (rng.random(bits.shape) < probability)


def breed(
    keys: Sequence[Bits] | Bits,
    rank: npt.ArrayLike | None,
    crowding: npt.ArrayLike | None,
    n: int,
    rng: np.random.Generator,
    *,
    duplicates: Duplicates = "mutate",
    crossover: float = 0.9,
    mutation: float = 0.1,
) -> list[Bits]:
    """`n` offspring of these parents: tournament, one-point crossover, bit flips.

    Equal keys would spend clients on nothing new: an offspring equal to a parent or to an earlier sibling is mutated
    again until it is new (`duplicates="keep"` leaves it, as the paper is silent). Where no new key is found in
    `MUTATION_ATTEMPTS` the copy stays.
    """
    parents = list(keys)
    if not parents:
        raise ValueError("no parents to breed from")
    seen = {parent.tobytes() for parent in parents}
    children: list[Bits] = []
    while len(children) < n:
        pair = [parents[tournament(len(parents), rank, crowding, rng)] for _ in range(2)]
        for child in one_point(pair[0], pair[1], crossover, rng)[: n - len(children)]:
            child = flip(child, mutation, rng)
            if duplicates == "mutate":
                child = _made_new(child, seen, mutation, rng)
            seen.add(child.tobytes())
            children.append(child)
    return children


def _made_new(child: Bits, seen: set[bytes], mutation: float, rng: np.random.Generator) -> Bits:
    for _ in range(MUTATION_ATTEMPTS):
        if child.tobytes() not in seen:
            break
        child = flip(child, mutation, rng)
    return child


def sbx(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    rng: np.random.Generator,
    *,
    probability: float = 0.9,
    eta: float = 2.0,
    per_gene: float = 0.5,
) -> tuple[Floats, Floats]:
    """Simulated binary crossover of two parents within bounds.

    `probability` is that of crossing the pair at all; within a crossed pair each gene takes part with `per_gene`.
    """
    from pymoo.operators.crossover.sbx import cross_sbx

    bounds = _bounds(low, high)
    parents = np.stack([_within(first, bounds), _within(second, bounds)])
    if rng.random() >= probability:
        return parents[0], parents[1]
    # One mating: pymoo wants (parents, matings, genes), and its probabilities as columns with a row per mating.
    children = cross_sbx(
        parents[:, None, :],
        *bounds,
        np.full((1, 1), eta),
        np.full((1, 1), per_gene),
        np.full((1, 1), 0.5),
        random_state=rng,
    )
    return children[0, 0], children[1, 0]


def polynomial(
    values: npt.ArrayLike,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    rng: np.random.Generator,
    *,
    probability: float = 0.1,
    eta: float = 20.0,
) -> Floats:
    """Polynomial mutation within bounds; `probability` is that of each gene."""
    from pymoo.operators.mutation.pm import mut_pm

    bounds = _bounds(low, high)
    row = _within(values, bounds)[None, :]
    # The function's `prob` is per gene; it is the PM class that reads its `prob` as that of a whole individual.
    mutated = mut_pm(row, *bounds, np.array([eta]), np.array([probability]), at_least_once=False, random_state=rng)
    return np.asarray(mutated[0], dtype=np.float64)


def _bounds(low: npt.ArrayLike, high: npt.ArrayLike) -> tuple[Floats, Floats]:
    lower, upper = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    if lower.ndim != 1 or lower.shape != upper.shape or not (lower <= upper).all():
        raise ValueError(
            f"bounds {lower.tolist()} to {upper.tolist()}: give as many lows as highs, none above its high"
        )
    return lower, upper


def _within(values: npt.ArrayLike, bounds: tuple[Floats, Floats]) -> Floats:
    """The genes as floats; outside the bounds pymoo's powers of negative numbers would turn into NaN."""
    genes = np.array(values, dtype=np.float64)
    if genes.shape != bounds[0].shape or not ((bounds[0] <= genes) & (genes <= bounds[1])).all():
        raise ValueError(f"genes {genes.tolist()} are not within {bounds[0].tolist()} to {bounds[1].tolist()}")
    return genes


def _check_bits(*arrays: Any) -> None:
    for array in arrays:
        if not isinstance(array, np.ndarray) or array.dtype != np.bool_ or array.ndim != 1:
            raise TypeError(f"bits are a one-dimensional boolean array, not {array!r}")
    if len({len(array) for array in arrays}) > 1:
        raise ValueError("keys of different length cannot be crossed")


Genes = tuple[Bits, tuple[float, ...]]


@dataclass(frozen=True)
class Operators:
    """The values of section IV-A. Crossover is per pair, mutation per gene."""

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
    again until it is new, because training it would add nothing. Without it, copies stay.
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
