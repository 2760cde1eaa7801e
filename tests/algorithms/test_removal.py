"""The removal rule: floor(xi x non-zeros) of the smallest, by hand and in general."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from atoll.spaces.sparse.graph import remove_smallest


def test_by_hand() -> None:
    weights = np.array([0.5, -0.1, 0.0, 0.3, -0.2, 0.4], np.float32)
    # five are not zero, floor(0.5 x 5) = 2 go: -0.1 and -0.2
    assert remove_smallest(weights, 0.5).tolist() == pytest.approx([0.5, 0, 0, 0.3, 0, 0.4])
    assert remove_smallest(weights, 0.19) is weights  # floor(0.95) is none
    assert np.count_nonzero(remove_smallest(weights, 0.2)) == 4
    assert weights[1] == np.float32(-0.1)


def test_of_equals_the_first_go() -> None:
    assert remove_smallest(np.array([1.0, -1.0, 1.0, 1.0]), 0.5).tolist() == [0, 0, 1, 1]


def test_a_share_that_floats_miss_by_a_hair() -> None:
    assert np.count_nonzero(remove_smallest(np.arange(1.0, 101), 0.29)) == 71  # 0.29 x 100 is 28.999999999999996


def test_matrices_keep_their_shape() -> None:
    assert remove_smallest(np.array([[3.0, 1.0], [2.0, 4.0]]), 0.5).tolist() == [[3, 0], [0, 4]]


@given(
    arrays_of.arrays(np.float32, st.integers(0, 60), elements=st.floats(-2, 2, width=32)),
    st.floats(0, 0.99),
)
def test_in_general(weights: np.ndarray, fraction: float) -> None:  # type: ignore[type-arg]
    left = remove_smallest(weights, fraction)
    before, after = np.count_nonzero(weights), np.count_nonzero(left)
    assert before - after == math.floor(fraction * before + 1e-9)
    kept, gone = left != 0, (left == 0) & (weights != 0)
    assert np.array_equal(left[kept], weights[kept])
    if kept.any() and gone.any():
        assert np.abs(weights[gone]).max() <= np.abs(weights[kept]).min()


@pytest.mark.parametrize("fraction", [1, -0.1, float("nan")])
def test_impossible_shares(fraction: float) -> None:
    with pytest.raises(ValueError, match=str(fraction)):
        remove_smallest(np.ones(3), fraction)
