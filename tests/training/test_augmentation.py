"""Random changes of images: by hand with known draws, and what they leave alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atoll import spaces
from atoll.core.messages import Schema
from atoll.errors import ConfigError
from atoll.training.augmentation import Augmentation
from atoll.training.networks import network
from atoll.training.sgd import TrainSettings, train
from refusals import refused

IMAGE = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])


class Told:
    """A generator that gives the numbers it was told, one list a call."""

    def __init__(self, *answers: Sequence[float]) -> None:
        self.answers = list(answers)

    def integers(self, low: int, high: int, size: tuple[int, ...]) -> Any:
        return self._next(size)

    def random(self, size: tuple[int, ...]) -> Any:
        return self._next(size)

    def _next(self, size: tuple[int, ...]) -> Any:
        return np.array(self.answers.pop(0)).reshape(size)


def changed(augment: Augmentation, rng: Any, rows: int = 1) -> Any:
    x = torch.stack([IMAGE] * rows)[:, None]
    return augment(x, rng)[:, 0].tolist()


def test_a_crop_by_hand() -> None:
    """Two images, border 1: the first moved down and right (offsets 0), the second up (offset 2 down, 1 across)."""
    found = changed(Augmentation(crop=1), Told([0, 2, 0, 1]), rows=2)
    assert found[0] == [[0, 0, 0], [0, 1, 2], [0, 4, 5]]
    assert found[1] == [[4, 5, 6], [7, 8, 9], [0, 0, 0]]


def test_a_mirror_image_by_hand() -> None:
    found = changed(Augmentation(flip=0.5), Told([0.4, 0.5]), rows=2)
    assert found[0] == [[3, 2, 1], [6, 5, 4], [9, 8, 7]] and found[1] == IMAGE.tolist()


def test_a_crop_is_mirrored() -> None:
    assert changed(Augmentation(crop=1, flip=1.0), Told([0, 0], [0.1])) == [[[0, 0, 0], [2, 1, 0], [5, 4, 0]]]


@pytest.mark.parametrize(
    ("side", "centre", "left"),
    [
        (2, (1, 1), [[0, 0, 3], [0, 0, 6], [7, 8, 9]]),  # from the pixel before the centre on, as DARTS counts
        (2, (0, 2), [[1, 0, 0], [4, 5, 6], [7, 8, 9]]),  # over the edge
        (1, (2, 0), [[1, 2, 3], [4, 5, 6], [0, 8, 9]]),
    ],
)
def test_cutout_by_hand(side: int, centre: tuple[int, int], left: list[list[float]]) -> None:
    assert changed(Augmentation(cutout=side), Told([centre[0]], [centre[1]])) == [left]


def test_all_channels_are_changed_alike_and_the_input_stays() -> None:
    x = torch.arange(2 * 3 * 8 * 8.0).reshape(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    before = x.clone()
    found = Augmentation(crop=2, flip=0.5, cutout=3)(x, np.random.default_rng(0))
    assert torch.equal(x, before) and found.is_contiguous(memory_format=torch.channels_last)
    kept = (found != 0).all(dim=1)  # a pixel came along with all its channels, each 64 above the one before
    assert torch.equal((found[:, 1] - found[:, 0])[kept], torch.full((int(kept.sum()),), 64.0))
    assert 0 < int(kept.sum()) < kept.numel()


@given(st.integers(0, 2**32), st.integers(0, 3), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 4))
def test_same_stream_same_images(seed: int, crop: int, flip: float, cutout: int) -> None:
    augment = Augmentation(crop, flip, cutout)
    x = torch.tensor(np.random.default_rng(1).normal(size=(5, 2, 6, 5)).astype(np.float32))
    first, second = (augment(x, np.random.default_rng(seed)) for _ in range(2))
    assert torch.equal(first, second) and first.shape == x.shape
    values = set(x.flatten().tolist()) | {0.0}
    assert set(first.flatten().tolist()) <= values


def test_how_often() -> None:
    """A thousand images: mirror images about as often as asked for, every offset alike."""
    x = torch.stack([IMAGE] * 1000)[:, None]
    mirrored = Augmentation(flip=0.3)(x, np.random.default_rng(0))[:, 0, 0, 0] == 3
    assert 250 < int(mirrored.sum()) < 350
    moved = Augmentation(crop=1)(x, np.random.default_rng(0))[:, 0, 1, 1]  # the pixel that came into the middle
    assert sorted(set(moved.tolist())) == list(range(1, 10))
    assert all(70 < int((moved == value).sum()) < 155 for value in range(1, 10))


def test_nothing_to_do_draws_nothing() -> None:
    x = IMAGE[None, None]
    assert Augmentation()(x, Told()) is x  # type: ignore[arg-type]
    assert Augmentation().payload() == {} and Augmentation.from_payload({}) == Augmentation()
    there = Augmentation(4, 0.5, 16)
    assert Augmentation.from_payload(there.payload()) == there


def test_training_on_changed_images() -> None:
    """Without changes the same bits as ever; with them others, and the same ones again from the same stream."""
    arch = {"space": "fixed", "model": "convnet", "input": [1, 16, 16], "classes": 2, "widths": [4, 4, 4, 4, 4, 4]}
    weights = spaces.initial(arch, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(12, 1, 16, 16)).astype(np.float32), np.arange(12) % 2
    how = TrainSettings(epochs=2, batch=4)

    def trained(**options: Any) -> Any:
        return train(network(arch), weights, x, y, how, np.random.default_rng(2), **options).weights

    plain, again, changed_ones = trained(), trained(augment=Augmentation()), trained(augment=Augmentation(4, 0.5, 8))
    assert all(np.array_equal(plain[name], again[name]) for name in plain)
    assert any(not np.array_equal(plain[name], changed_ones[name]) for name in plain)
    twice = trained(augment=Augmentation(4, 0.5, 8))
    assert all(np.array_equal(twice[name], changed_ones[name]) for name in plain)


@pytest.mark.parametrize(
    ("augment", "schema", "code", "named"),
    [
        (Augmentation(flip=0.5), Schema("table", (4,), ("a", "b")), "inapplicable-setting", ["flip = 0.5"]),
        (Augmentation(crop=8), Schema("image", (1, 8, 9), ("a", "b")), "exceeds-image-size", ["crop = 8", "8x9", "7"]),
        (Augmentation(cutout=16), Schema("image", (1, 8, 8), ("a", "b")), "exceeds-image-size", ["cutout = 16", "8x8"]),
    ],
)
def test_what_does_not_suit_the_data(augment: Augmentation, schema: Schema, code: str, named: list[str]) -> None:
    with refused(ConfigError, code, *named):
        augment.check(schema)
    Augmentation().check(schema)
