"""Chromosomes of bits and reals: children stay in bounds, are new where asked, and come from their parents."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.algorithms.genetic import Genes, Operators, breed_mixed
from atoll.rng import stream

OPERATORS = Operators((0.01, 0.01), (0.3, 0.55))
STILL = Operators((0.0,), (1.0,), one_point=0, flip=0, sbx=0, polynomial=0)


def meaning(genes: Genes) -> tuple[bytes, tuple[float, ...]]:
    return genes[0].tobytes(), genes[1]


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 7), st.integers(1, 9))
def test_children_stay_in_bounds(seed: int, parents: int, n: int) -> None:
    rng = stream(seed, "breeding")
    pool = [(rng.random(12) < 0.5, tuple(rng.uniform((0.01, 0.01), (0.3, 0.55)).tolist())) for _ in range(parents)]
    children = breed_mixed(pool, None, None, n, OPERATORS, rng, same=meaning)
    assert len(children) == n
    for (bits, (lr, xi)), pair in children:
        assert all(0 <= place < parents for place in pair)
        assert bits.dtype == np.bool_ and bits.shape == (12,)
        assert 0.01 <= lr <= 0.3 and 0.01 <= xi <= 0.55
    assert (
        len({meaning(genes) for genes in (*pool, *(child.genes for child in children))})
        == len({meaning(p) for p in pool}) + n
    )


def test_without_operators_children_are_the_better_parent() -> None:
    """By hand: of two, the tournament always finds the one of the better front."""
    good, bad = (np.array([True, False]), (0.25,)), (np.array([False, True]), (0.75,))
    children = breed_mixed([bad, good], [1, 0], [np.inf, np.inf], 4, STILL, stream(1, "x"))
    assert [child.genes[0].tolist() for child in children] == [[True, False]] * 4
    assert [child.genes[1] for child in children] == [(0.25,)] * 4
    assert [child.parents for child in children] == [(1, 1)] * 4


def test_a_space_that_is_used_up_keeps_a_copy_instead_of_hanging() -> None:
    only = (np.array([True]), (0.5,))
    children = breed_mixed([only], None, None, 3, STILL, stream(1, "x"), same=meaning)
    assert [meaning(child.genes) for child in children] == [meaning(only)] * 3


def test_no_parents_to_breed_from() -> None:
    with pytest.raises(ValueError):
        breed_mixed([], None, None, 1, STILL, stream(1, "x"))
