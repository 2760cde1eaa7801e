"""Counts on a part of a client's data."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from atoll.core.messages import Tensors
from atoll.rng import stream
from atoll.spaces import initial
from atoll.spaces.layers import Perceptron
from atoll.training.evaluation import evaluate
from atoll.training.networks import network

IDENTITY = Tensors({"layers.0.weight": np.eye(2, dtype=np.float32), "layers.0.bias": np.zeros(2, np.float32)})
RESNET = {"space": "fixed", "model": "resnet18", "input": [1, 8, 8], "classes": 4, "widths": [4, 4, 4, 4]}


def test_counts_by_hand() -> None:
    x = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
    counts = evaluate(Perceptron([2, 2]), IDENTITY, x, np.array([0, 1, 1]))
    assert counts.confusion.tolist() == [[1, 0], [1, 1]]
    assert counts.confusion.dtype == np.int64
    assert (counts.correct, counts.rows) == (2, 3)
    right, wrong = math.log(1 + math.exp(-1)), math.log(1 + math.exp(1))
    assert counts.loss == pytest.approx(2 * right + wrong, rel=1e-6)


def test_batches_of_the_given_size_in_the_given_order() -> None:
    x, y = stream(1).random((21, 1, 8, 8), dtype=np.float32), stream(2).integers(0, 4, 21)
    module, weights = network(RESNET), initial(RESNET, stream(3))
    counts = evaluate(module, weights, x, y, batch=10)
    with torch.no_grad():  # the last row joins the second batch
        logits = torch.cat([module(torch.tensor(x[:10])), module(torch.tensor(x[10:]))])
    assert counts.correct == int((logits.argmax(1).numpy() == y).sum())
    assert counts.loss == pytest.approx(
        float(functional.cross_entropy(logits, torch.tensor(y), reduction="sum")), rel=1e-3
    )
    assert evaluate(module, weights, x, y, batch=7).loss != counts.loss


def test_without_batch_norm_the_batch_size_does_not_matter() -> None:
    x, y = stream(1).random((25, 2), dtype=np.float32), stream(2).integers(0, 2, 25)
    module = Perceptron([2, 2])
    small, large = evaluate(module, IDENTITY, x, y, batch=4), evaluate(module, IDENTITY, x, y)
    assert np.array_equal(small.confusion, large.confusion)
    assert small.loss == pytest.approx(large.loss, rel=1e-6)


def test_a_part_without_rows_needs_the_classes() -> None:
    nothing = np.zeros((0, 2), np.float32), np.zeros(0, np.int64)
    assert evaluate(Perceptron([2, 2]), IDENTITY, *nothing, classes=2).confusion.tolist() == [[0, 0], [0, 0]]
    with pytest.raises(ValueError):
        evaluate(Perceptron([2, 2]), IDENTITY, *nothing)


def test_another_forward_may_be_given() -> None:
    x, y = np.array([[1, 0], [0, 1]], np.float32), np.array([0, 1])
    module = Perceptron([2, 2])
    assert evaluate(module, IDENTITY, x, y, forward=lambda rows: -module(rows)).correct == 0
