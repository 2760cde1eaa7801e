"""Genetic operators on bit strings and on real vectors. All randomness comes from the `rng` argument.

Bits are boolean arrays, because on integers `~` gives -1 and -2. The operators on reals are pymoo's functions, which
take probabilities per gene; the probability of crossing a pair is applied here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Duplicates = Literal["mutate", "keep"]

# In an almost exhausted space no new key may be reachable. A duplicate is then better than an endless loop.
MUTATION_ATTEMPTS = 100


def tournament(size: int, rank: npt.ArrayLike | None, crowding: npt.ArrayLike | None, rng: np.random.Generator) -> int:
    """Binary tournament: the index with the better front, then the larger crowding distance, else a random one.

    Without ranks (nothing has been evaluated yet) the winner is random.
    """
    if size == 1:
        return 0
    one, two = (int(index) for index in rng.choice(size, 2, replace=False))
    # The pair is in random order, so returning the first of equals is a fair choice.
    if rank is None or crowding is None:
        return one
    ranks, distances = np.asarray(rank), np.asarray(crowding)
    return two if (ranks[two], -distances[two]) < (ranks[one], -distances[one]) else one


def one_point(first: Bits, second: Bits, probability: float, rng: np.random.Generator) -> tuple[Bits, Bits]:
    """One-point crossover with this probability; otherwise copies of the parents."""
    _check_bits(first, second)
    one, two = first.copy(), second.copy()
    if len(first) >= 2 and rng.random() < probability:
        cut = int(rng.integers(1, len(first)))
        one[cut:], two[cut:] = second[cut:], first[cut:]
    return one, two


def flip(bits: Bits, probability: float, rng: np.random.Generator) -> Bits:
    """Flip every bit independently with this probability."""
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

    Evaluating a duplicate wastes clients, so an offspring equal to a parent or to an earlier sibling is mutated again
    until it is new. The paper does not say; `duplicates="keep"` leaves duplicates. If no new key is found within
    `MUTATION_ATTEMPTS`, the duplicate stays.
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

    A pair is crossed with `probability`; within a crossed pair each gene is crossed with `per_gene`.
    """
    from pymoo.operators.crossover.sbx import cross_sbx

    bounds = _bounds(low, high)
    parents = np.stack([_within(first, bounds), _within(second, bounds)])
    if rng.random() >= probability:
        return parents[0], parents[1]
    # One mating: pymoo expects (parents, matings, genes) and probabilities as columns with one row per mating.
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
    """Polynomial mutation within bounds; `probability` is per gene."""
    from pymoo.operators.mutation.pm import mut_pm

    bounds = _bounds(low, high)
    row = _within(values, bounds)[None, :]
    # `prob` of this function is per gene; only pymoo's PM class treats `prob` as per individual.
    mutated = mut_pm(row, *bounds, np.array([eta]), np.array([probability]), at_least_once=False, random_state=rng)
    return np.asarray(mutated[0], dtype=np.float64)


def _bounds(low: npt.ArrayLike, high: npt.ArrayLike) -> tuple[Floats, Floats]:
    lower, upper = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    if lower.ndim != 1 or lower.shape != upper.shape or not (lower <= upper).all():
        raise ValueError(
            f"bounds {lower.tolist()} to {upper.tolist()}: give two lists of equal length with low <= high"
        )
    return lower, upper


def _within(values: npt.ArrayLike, bounds: tuple[Floats, Floats]) -> Floats:
    """The genes as floats, checked: outside the bounds pymoo raises negative numbers to powers and returns NaN."""
    genes = np.array(values, dtype=np.float64)
    if genes.shape != bounds[0].shape or not ((bounds[0] <= genes) & (genes <= bounds[1])).all():
        raise ValueError(f"genes {genes.tolist()} are outside the bounds {bounds[0].tolist()} to {bounds[1].tolist()}")
    return genes


def _check_bits(*arrays: Any) -> None:
    for array in arrays:
        if not isinstance(array, np.ndarray) or array.dtype != np.bool_ or array.ndim != 1:
            raise TypeError(f"{array!r} is not a bit string: give a one-dimensional boolean array")
    if len({len(array) for array in arrays}) > 1:
        raise ValueError("keys of different lengths cannot be crossed")


Genes = tuple[Bits, tuple[float, ...]]


class Child(NamedTuple):
    """An offspring and the positions of its two parents, which may be the same."""

    genes: Genes
    parents: tuple[int, int]


@dataclass(frozen=True)
class Operators:
    """The parameters of section IV-A. Crossover probabilities are per pair, mutation probabilities per gene."""

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
) -> list[Child]:
    """`n` offspring. Without ranks (nothing has been evaluated yet) parents are chosen at random.

    `same` maps equivalent chromosomes to equal values. An offspring equivalent to a parent or sibling is then mutated
    again until it is new, because training it would add no information. Without `same`, duplicates stay.
    """
    if not parents:
        raise ValueError("no parents to breed from")
    seen = {same(parent) for parent in parents} if same else set()
    children: list[Child] = []
    while len(children) < n:
        one, two = (tournament(len(parents), rank, crowding, rng) for _ in range(2))
        for child in _crossed(parents[one], parents[two], operators, rng)[: n - len(children)]:
            child = _mutated(child, operators, rng)
            for _ in range(MUTATION_ATTEMPTS if same else 0):
                if same and same(child) not in seen:
                    break
                child = _mutated(child, operators, rng)
            if same:
                seen.add(same(child))
            children.append(Child(child, (one, two)))
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
