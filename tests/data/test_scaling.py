"""Scaling: hand-computed means and deviations, and that pooling equals having all rows in one place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.data.preprocess import Moments, fit, moments, to_float
from atoll.rng import stream

ANNA = np.array([[1.0, 5.0], [3.0, 5.0]], dtype=np.float32)
BEN = np.array([[8.0, 5.0], [8.0, 5.0]], dtype=np.float32)


def test_each_client_by_its_own_rows() -> None:
    scaling = fit("client", False, 2, lambda client: (ANNA, BEN)[client])
    assert scaling.mean.tolist() == [[2, 5], [8, 5]]
    assert scaling.deviation.tolist() == [[1, 1], [1, 1]]  # constant features keep their width
    assert scaling.apply(ANNA, 0).tolist() == [[-1, 0], [1, 0]]
    assert scaling.apply(ANNA, 1).tolist() == [[-7, 0], [-5, 0]]


def test_all_clients_by_pooled_statistics() -> None:
    """1, 3, 8, 8: mean 5, squared deviations 16 + 4 + 9 + 9 = 38, variance 9.5."""
    scaling = fit("federated", False, 2, lambda client: (ANNA, BEN)[client])
    assert scaling.mean.tolist() == [[5, 5]]
    assert scaling.deviation[0].tolist() == pytest.approx([9.5**0.5, 1])
    assert scaling.apply(BEN, 1)[:, 0].tolist() == pytest.approx([3 / 9.5**0.5] * 2)


def test_constant_up_to_rounding_is_constant() -> None:
    """Seven times 0.1 have a mean that is not quite 0.1; blowing up that difference would make noise of nothing."""
    assert Moments(7, np.array([0.1]), np.array([1e-32])).deviation().tolist() == [1.0]
    assert Moments(4, np.array([1e6]), np.array([4.0])).deviation().tolist() == [1.0]  # a true deviation of 1
    assert Moments(4, np.array([1e6]), np.array([16.0])).deviation().tolist() == [2.0]


@given(sizes=st.lists(st.integers(1, 20), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_pooled_moments_are_those_of_all_rows_together(sizes: list[int], seed: int) -> None:
    rng = stream(seed)
    pieces = [(rng.normal(1e4, 1.0, (size, 3))).astype(np.float32) for size in sizes]
    total = Moments(0, np.zeros(3), np.zeros(3))
    for piece in pieces:
        total = total.plus(moments(piece))
    together = np.concatenate(pieces).astype(np.float64)
    assert total.count == len(together)
    assert total.mean == pytest.approx(together.mean(axis=0), rel=1e-12)
    assert total.squares == pytest.approx(((together - together.mean(axis=0)) ** 2).sum(axis=0), rel=1e-6, abs=1e-8)


def test_images_are_scaled_channel_by_channel() -> None:
    images = np.zeros((2, 2, 2, 2), dtype=np.uint8)
    images[:, 1] = 255
    images[0, 0] = 51  # channel 0: four pixels of 0.2 and four of 0
    scaling = fit("federated", False, 1, lambda _: images)
    assert scaling.mean[0].tolist() == pytest.approx([0.1, 1.0])
    scaled = scaling.apply(images, 0)
    assert scaled.shape == images.shape and scaled.dtype == np.float32 and scaled.flags.c_contiguous
    assert scaled[0, 0].ravel().tolist() == pytest.approx([1.0] * 4)
    assert scaled[:, 1].tolist() == np.zeros((2, 2, 2)).tolist()


def test_bytes_of_images_become_zero_to_one_and_numbers_of_tables_stay() -> None:
    assert to_float(np.full((1, 1, 1, 1), 255, np.uint8), False).item() == 1.0
    assert to_float(np.full((1, 1, 1, 1), 65535, np.uint16), False).item() == 1.0
    assert to_float(np.full((1, 1), 255, np.uint8), False).item() == 255.0


def test_logarithm_keeps_the_sign() -> None:
    found = to_float(np.array([[np.e - 1, 0.0, 1 - np.e]], dtype=np.float32), True)
    assert found[0].tolist() == pytest.approx([1, 0, -1])


def test_what_is_given_is_never_changed() -> None:
    given_rows = ANNA.copy()
    fit("client", True, 1, lambda _: given_rows).apply(given_rows, 0)
    assert np.array_equal(given_rows, ANNA)
