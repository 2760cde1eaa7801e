"""Choice keys: two bits per block, most significant first."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.errors import ArchitectureError
from atoll.spaces.choice.keys import check_key, from_bits, random_keys, to_bits
from refusals import refused


def test_the_papers_example_reads_most_significant_bit_first() -> None:
    # Section III-B, Fig. 6: [0,0,0,1] is B0 and B1, [1,0,1,1] is B2 and B3.
    assert from_bits([0, 0, 0, 1]) == (0, 1)
    assert from_bits([1, 0, 1, 1]) == (2, 3)
    assert to_bits((2, 3)).tolist() == [True, False, True, True]


def test_bits_are_booleans_so_that_inverting_flips_them() -> None:
    bits = to_bits((1, 2))
    assert bits.dtype == np.bool_
    assert from_bits(~bits) == (2, 1)


@given(st.lists(st.integers(0, 3), max_size=20))
def test_coding_goes_both_ways(key: list[int]) -> None:
    bits = to_bits(key)
    assert len(bits) == 2 * len(key)
    assert from_bits(bits) == tuple(key)


@pytest.mark.parametrize("bits", [[0], [0, 1, 1], [True] * 23])
def test_an_odd_key_is_an_error_that_says_so(bits: list[int]) -> None:
    with refused(ArchitectureError, "odd-bit-count", len(bits)):
        from_bits(bits)


@pytest.mark.parametrize("bits", [[0, 2], [-1, 0], ["0", "1"]])
def test_only_bits_are_bits(bits: list[object]) -> None:
    with refused(ArchitectureError, "not-a-bit"):
        from_bits(bits)


@pytest.mark.parametrize("key", [[0, 4], [-1, 0], [True, 0], [1.0, 0], ["1", 0]])
def test_a_branch_out_of_range_is_an_error(key: list[object]) -> None:
    with refused(ArchitectureError, "unknown-branch", "0 to 3"):
        check_key(key, 2)
    with refused(ArchitectureError, "unknown-branch"):
        to_bits(key)  # type: ignore[arg-type]


def test_a_key_has_one_branch_per_block() -> None:
    assert check_key(np.array([3, 0]), 2) == (3, 0)
    with refused(ArchitectureError, "key-length-mismatch", "3", "2"):
        check_key([0, 1, 2], 2)
    with refused(ArchitectureError, "malformed-key", "'01'"):
        check_key("01", 2)


def test_random_keys_differ_while_there_are_enough() -> None:
    rng = np.random.default_rng(0)
    assert len(set(random_keys(16, 2, rng))) == 16
    few = random_keys(6, 1, rng)
    assert len(few) == 6
    assert set(few) == {(0,), (1,), (2,), (3,)}
    assert random_keys(5, 12, np.random.default_rng(7)) == random_keys(5, 12, np.random.default_rng(7))
