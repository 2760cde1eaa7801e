"""Tensors without their zeros: the smallest coding by hand, every bit back, no bombs."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from atoll.core import sparse_coding, wire
from atoll.core.messages import Tensors
from atoll.core.sparse_coding import BITMASK, DENSE, POSITIONS
from atoll.errors import WireError
from atoll.rng import stream


def with_zeros(size: int, held: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    array = np.zeros(size, np.float32)
    array[np.linspace(0, size - 1, held).astype(int)] = 1.5
    return array


@pytest.mark.parametrize(
    ("size", "held", "coding", "carried"),
    [
        (1000, 1000, DENSE, 4000),
        (1000, 980, DENSE, 4000),  # 125 bytes of bits and 3920 of values would be more
        (1000, 700, BITMASK, 125 + 2800),
        (1000, 50, POSITIONS, 100 + 200),  # two bytes a place
        (100_000, 5_000, BITMASK, 12_500 + 20_000),  # four bytes a place would be 20,000
        (100_000, 1_000, POSITIONS, 4_000 + 4_000),
    ],
)
def test_the_smallest_coding_by_hand(size: int, held: int, coding: int, carried: int) -> None:
    array = with_zeros(size, held)
    assert sparse_coding.best(array)[0] == coding
    assert len(sparse_coding.write(array, coding)) == carried
    bare = len(wire.encode({"w": Tensors({"w": array})}, digests=False))
    whole = len(wire.encode({"w": Tensors({"w": np.ones(size, np.float32)})}, digests=False))
    assert bare - carried == pytest.approx(whole - 4 * size, abs=len(f",{held}"))


def test_bits_and_places_on_the_wire() -> None:
    array = np.array([0, 1, 0, 0, 0, 0, 0, 0, 2], np.float32)
    values = np.array([1, 2], np.float32).tobytes()
    assert sparse_coding.write(array, BITMASK) == b"\x40\x80" + values
    assert sparse_coding.write(array, POSITIONS) == b"\x01\x00\x08\x00" + values


@given(
    arrays_of.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        st.integers(0, 700),
        elements=st.sampled_from([0.0, 0.0, 0.0, -0.0, 1.5, float("nan"), float("inf")]),
    ),
    st.sampled_from([DENSE, BITMASK, POSITIONS]),
)
def test_every_bit_comes_back_in_every_coding(array: Any, coding: int) -> None:
    held = int(np.count_nonzero(array.view(f"u{array.dtype.itemsize}")))
    data = bytes(sparse_coding.write(array, coding))
    assert len(data) == sparse_coding.length(coding, array.dtype, array.size, held)
    assert sparse_coding.read(memoryview(data), coding, array.dtype, array.size, held).tobytes() == array.tobytes()


@given(st.integers(256, 3000), st.floats(0, 1), st.integers(0, 100))
def test_frames_carry_them_and_sizes_agree(size: int, share: float, seed: int) -> None:
    rng = stream(seed, "zeros")
    array = np.where(rng.random(size) < share, rng.random(size), 0).astype(np.float32)
    payload = {"weights": Tensors({"w": array, "n": np.arange(size)})}
    data = wire.encode(payload)
    assert len(data) == wire.size(payload)
    found = wire.decode(data)["weights"]
    assert found["w"].tobytes() == array.tobytes() and np.array_equal(found["n"], np.arange(size))
    assert found.digest("w") == payload["weights"].digest("w")


def test_a_tenth_of_the_weights_takes_less_than_a_fifth_of_the_bytes() -> None:
    rng = stream(1, "tenth")
    dense = rng.random((784, 200), dtype=np.float32) + np.float32(0.1)
    thin = dense * (rng.random(dense.shape) < 0.1)
    sizes = [len(wire.encode({"weights": Tensors({"w": w})}, digests=False)) for w in (dense, thin)]
    assert sizes[1] < 0.2 * sizes[0]


def announce(*row: Any) -> bytes:
    header = json.dumps({"v": {"w": {"$tensors": {"w": 0}}}, "a": [], "t": [row]}).encode()
    return wire.MAGIC + len(header).to_bytes(4, "little") + header


@pytest.mark.parametrize(
    ("row", "body"),
    [
        (["<f4", [2**38], "", POSITIONS, 0], b""),
        (["<f4", [2**38], "", POSITIONS, 1], b"\x00" * 8),
        (["<f4", [2**38], "", BITMASK, 0], b""),
        (["<f4", [2**30], "", POSITIONS, 2], b"\x00" * 16),
        (["<f4", [8], "", BITMASK, 2], b"\x01" + b"\x00" * 8),  # one bit, two values
        (["<f4", [8], "", BITMASK, 9], b"\xff" + b"\x00" * 36),
        (["<f4", [8], "", BITMASK, -1], b""),
        (["<f4", [8], "", BITMASK, True], b"\x01" + b"\x00" * 4),
        (["<f4", [8], "", 2.0, 1], b"\x01" + b"\x00" * 4),
        (["<f4", [8], "", 4, 1], b"\x01" + b"\x00" * 4),
        (["<f4", [8], "", BITMASK], b"\x01" + b"\x00" * 4),
        (["<f4", [8], "", DENSE, 8], b"\x00" * 32),
        (["<i4", [8], "", BITMASK, 1], b"\x01" + b"\x00" * 4),
        (["<f4", [8], "", POSITIONS, 1], b"\x08\x00" + b"\x00" * 4),  # place 8 of 8
        (["<f4", [8], "", POSITIONS, 2], b"\x03\x00\x03\x00" + b"\x00" * 8),  # the same place twice
        (["<f4", [8], "", POSITIONS, 2], b"\x04\x00\x03\x00" + b"\x00" * 8),
    ],
    ids=repr,
)
def test_frames_that_lie_are_refused_before_memory_is_taken(row: list[Any], body: bytes) -> None:
    data = announce(*row) + body
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            wire.decode(data)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_almost_nothing_of_a_large_tensor_is_still_sent_in_a_believable_coding() -> None:
    array = np.zeros(1_000_000, np.float32)
    array[5] = 1
    data = wire.encode({"w": Tensors({"w": array})})
    assert wire.decode(data)["w"]["w"].tobytes() == array.tobytes()
    assert len(data) < 130_000
