"""Genetic operators: what they may and may not do, on bits and on reals."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.algorithms import genetic
from atoll.algorithms.genetic import Bits

SEEDS = st.integers(0, 2**32 - 1)


def _bits(text: str) -> Bits:
    return np.array([letter == "1" for letter in text], dtype=np.bool_)


def _text(bits: Bits) -> str:
    return "".join("1" if bit else "0" for bit in bits)


KEYS = st.integers(1, 10).flatmap(
    lambda length: st.lists(st.text("01", min_size=2 * length, max_size=2 * length).map(_bits), min_size=1, max_size=6)
)


def test_a_tournament_of_two_is_won_by_rank_then_crowding() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert genetic.tournament(2, [1, 0], [np.inf, 0.0], rng) == 1
        assert genetic.tournament(2, [0, 0], [0.1, np.inf], rng) == 1
        assert genetic.tournament(2, [0, 0], [0.3, 0.1], rng) == 0


@pytest.mark.parametrize(("rank", "crowding"), [(None, None), ([0, 0], [np.inf, np.inf])])
def test_without_fitness_and_between_equals_it_is_a_coin_flip(
    rank: list[int] | None, crowding: list[float] | None
) -> None:
    rng = np.random.default_rng(0)
    wins = sum(genetic.tournament(2, rank, crowding, rng) for _ in range(1000))
    assert 430 < wins < 570
    assert genetic.tournament(1, rank, crowding, rng) == 0


def test_the_worst_never_wins_because_the_two_are_different() -> None:
    rng = np.random.default_rng(0)
    assert 2 not in {genetic.tournament(3, [0, 0, 1], [1.0, 1.0, 1.0], rng) for _ in range(200)}


def test_one_point_crossover_of_all_ones_and_all_zeros_shows_its_cut() -> None:
    rng, cuts = np.random.default_rng(0), set()
    for _ in range(200):
        one, two = genetic.one_point(_bits("1111"), _bits("0000"), 1.0, rng)
        assert (one ^ two).all()
        cuts.add(_text(one))
    assert cuts == {"1000", "1100", "1110"}  # a cut at either end would only copy


def test_crossover_happens_as_often_as_asked() -> None:
    rng = np.random.default_rng(0)
    children = [genetic.one_point(_bits("11"), _bits("00"), 0.9, rng)[0] for _ in range(1000)]
    assert 870 < sum(_text(child) == "10" for child in children) < 930
    assert _text(genetic.one_point(_bits("1111"), _bits("0000"), 0.0, rng)[0]) == "1111"


def test_flips_happen_per_bit() -> None:
    flipped = genetic.flip(np.zeros(10_000, dtype=np.bool_), 0.1, np.random.default_rng(0))
    assert 900 < flipped.sum() < 1100
    assert _text(genetic.flip(_bits("0110"), 1.0, np.random.default_rng(0))) == "1001"
    assert _text(genetic.flip(_bits("0110"), 0.0, np.random.default_rng(0))) == "0110"


def test_bits_must_be_booleans_of_one_length() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(TypeError):
        genetic.flip(np.array([0, 1]), 0.1, rng)
    with pytest.raises(ValueError):
        genetic.one_point(_bits("01"), _bits("0101"), 0.9, rng)
    with pytest.raises(ValueError):
        genetic.breed([], None, None, 1, rng)


@given(KEYS, SEEDS)
def test_crossover_moves_bits_but_makes_none(keys: list[Bits], seed: int) -> None:
    first, second = keys[0], keys[-1]
    before = first.copy(), second.copy()
    one, two = genetic.one_point(first, second, 0.9, np.random.default_rng(seed))
    assert (one.astype(int) + two == first.astype(int) + second).all()
    assert (first == before[0]).all()
    assert (second == before[1]).all()


@settings(deadline=None)
@given(KEYS, st.integers(0, 8), SEEDS)
def test_offspring_are_bits_of_the_right_number_and_length(keys: list[Bits], n: int, seed: int) -> None:
    children = genetic.breed(keys, None, None, n, np.random.default_rng(seed))
    again = genetic.breed(keys, None, None, n, np.random.default_rng(seed))
    assert len(children) == n
    assert all(child.dtype == np.bool_ and len(child) == len(keys[0]) for child in children)
    assert [_text(child) for child in children] == [_text(child) for child in again]


@settings(deadline=None)
@given(st.lists(st.text("01", min_size=24, max_size=24), min_size=1, max_size=10), SEEDS)
def test_no_offspring_equals_a_parent_or_a_sibling(texts: list[str], seed: int) -> None:
    children = genetic.breed([_bits(text) for text in texts], None, None, 10, np.random.default_rng(seed))
    words = {_text(child) for child in children}
    assert len(words) == 10
    assert words.isdisjoint(texts)


def test_duplicates_can_be_allowed() -> None:
    parents = [_bits("010101")] * 2
    children = genetic.breed(parents, None, None, 4, np.random.default_rng(0), duplicates="keep", mutation=0.0)
    assert {_text(child) for child in children} == {"010101"}


def test_a_space_that_is_used_up_gives_copies_instead_of_hanging() -> None:
    parents = [_bits(text) for text in ("00", "01", "10", "11")]
    assert len(genetic.breed(parents, None, None, 3, np.random.default_rng(0))) == 3
    # One key is left: the first child finds it.
    children = genetic.breed(parents[:3], None, None, 1, np.random.default_rng(0))
    assert _text(children[0]) == "11"


def test_better_parents_have_more_children() -> None:
    """Parent 0 is alone in the first front: it wins every tournament it is drawn for, 2 of 4 of the pairs."""
    parents = [_bits(text * 6) for text in ("1111", "0000", "0000", "0000")]
    children = genetic.breed(
        parents, [0, 1, 1, 1], [1.0] * 4, 2000, np.random.default_rng(0), crossover=0.0, mutation=0.0, duplicates="keep"
    )
    assert 930 < sum(bool(child[0]) for child in children) < 1070


Reals = npt.NDArray[np.float64]
UNIT = st.lists(st.floats(0, 1), min_size=3, max_size=3).map(np.array)


@settings(deadline=None)
@given(UNIT, UNIT, SEEDS)
def test_reals_stay_within_their_bounds(first: Reals, second: Reals, seed: int) -> None:
    low, high = np.array([-2.0, 0.0, 5.0]), np.array([3.0, 1.0, 5.0])
    one, two = (low + (high - low) * part for part in (first, second))
    rng = np.random.default_rng(seed)
    for child in genetic.sbx(one, two, low, high, rng, per_gene=1.0):
        mutated = genetic.polynomial(child, low, high, rng, probability=1.0)
        for genes in (child, mutated):
            assert ((low <= genes) & (genes <= high)).all()
            assert genes[2] == 5


def test_sbx_of_a_whole_pair_happens_as_often_as_asked_and_keeps_the_middle() -> None:
    rng, low, high = np.random.default_rng(0), np.full(4, -1e6), np.full(4, 1e6)
    first, second = np.zeros(4), np.ones(4)
    crossed = 0
    for _ in range(1000):
        one, two = genetic.sbx(first, second, low, high, rng, per_gene=1.0)
        assert one + two == pytest.approx(1)  # far from its bounds the spread is symmetric
        crossed += bool((one != first).any())
    assert 870 < crossed < 930
    assert first.tolist() == [0, 0, 0, 0]


def test_a_small_eta_spreads_wider() -> None:
    def spread(eta: float) -> float:
        rng, low, high = np.random.default_rng(0), np.full(500, -1e6), np.full(500, 1e6)
        one, two = genetic.sbx(np.zeros(500), np.ones(500), low, high, rng, probability=1.0, eta=eta, per_gene=1.0)
        return float(np.abs(one - two).std())

    assert spread(2.0) > 2 * spread(20.0)


def test_polynomial_mutation_is_per_gene_not_per_individual() -> None:
    rng, low, high = np.random.default_rng(0), np.zeros(1000), np.ones(1000)
    changed = [(genetic.polynomial(np.full(1000, 0.5), low, high, rng) != 0.5).sum() for _ in range(10)]
    assert all(60 < count < 140 for count in changed)
    unchanged = genetic.polynomial(np.full(1000, 0.5), low, high, rng, probability=0.0)
    assert (unchanged == 0.5).all()


def test_genes_outside_their_bounds_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"\[2\.0\]"):
        genetic.polynomial([2.0], [0.0], [1.0], rng)
    with pytest.raises(ValueError, match=r"\[nan\]"):
        genetic.sbx([0.5], [np.nan], [0.0], [1.0], rng)
    with pytest.raises(ValueError, match=r"\[1\.0\] to \[0\.0\]"):
        genetic.sbx([0.5], [0.5], [1.0], [0.0], rng)
