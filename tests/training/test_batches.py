"""Cutting rows into batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atoll.training.batches import Rows, bounds


def test_a_single_row_left_over_joins_the_batch_before() -> None:
    assert bounds(10, 5) == [(0, 5), (5, 10)]
    assert bounds(11, 5) == [(0, 5), (5, 11)]
    assert bounds(12, 5) == [(0, 5), (5, 10), (10, 12)]
    assert bounds(6, 5) == [(0, 6)]
    assert bounds(1, 5) == [(0, 1)]
    assert bounds(0, 5) == []
    assert bounds(3, 1) == [(0, 1), (1, 2), (2, 3)]


@given(st.integers(2, 500), st.integers(2, 120))
def test_every_row_once_and_never_one_alone(rows: int, batch: int) -> None:
    cuts = bounds(rows, batch)
    assert [row for start, stop in cuts for row in range(start, stop)] == list(range(rows))
    assert all(2 <= stop - start <= batch + 1 for start, stop in cuts)


def test_a_batch_of_no_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="0"):
        bounds(5, 0)


def test_images_come_back_in_their_own_shape() -> None:
    x, y = np.arange(4 * 3 * 2 * 5, dtype=np.float32).reshape(4, 3, 2, 5), np.arange(4)
    rows = Rows(x, y, torch.nn.Conv2d(3, 1, 1))
    assert rows.channels_last
    taken, labels = rows.take(torch.tensor([2, 0]))
    assert np.array_equal(taken.numpy(), x[[2, 0]])
    assert labels.tolist() == [2, 0]
    assert np.array_equal(rows.between(1, 3)[0].numpy(), x[1:3])
    assert taken.is_contiguous(memory_format=torch.channels_last)


def test_rows_without_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="3 rows"):
        Rows(np.zeros((3, 2), np.float32), np.zeros(2, np.int64), torch.nn.Linear(2, 2))
