"""The wire carries payloads unchanged, refuses what it does not know, and believes no stranger."""

from __future__ import annotations

import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from atoll.core import wire
from atoll.core.messages import Tensors
from atoll.errors import WireError
from atoll.rng import stream
from refusals import refused

TENSORS = Tensors({"layer.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.zeros(3, np.float32)})

arrays = st.sampled_from(sorted(wire.DTYPES)).flatmap(
    lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)),
)
tensors = st.dictionaries(st.text(max_size=5), arrays, max_size=3).map(Tensors)
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), arrays, tensors)
keys = st.text(max_size=5).filter(lambda key: not key.startswith("$"))
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))
payloads = st.dictionaries(keys, values, max_size=4)


def same(one: Any, two: Any) -> bool:
    """Equal in value and in kind, bit for bit: -0.0 is not 0.0, 1 is not 1.0, and NaN is NaN."""
    if type(one) is not type(two):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes()
    if isinstance(one, (dict, Tensors)):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(two)) or (one == two and math.copysign(1, one) == math.copysign(1, two))
    return bool(one == two)


def frame(header: Any, body: bytes = b"") -> bytes:
    """A frame as a stranger might make it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return wire.MAGIC + len(text).to_bytes(4, "little") + text + body


@given(payloads)
@example({"name of a file that is not UTF-8": "client-\udcff"})
@example({"zero dimensions": np.array(1.5), "empty": np.zeros((0, 2), np.uint8), "none": Tensors({})})
def test_what_goes_in_comes_out(payload: dict[str, Any]) -> None:
    data = wire.encode(payload)
    assert same(wire.decode(data), payload)
    assert wire.size(payload) == len(data)
    assert wire.encode(wire.decode(data)) == data
    bare = wire.encode(payload, digests=False)
    assert same(wire.decode(bare), payload) and wire.size(payload, digests=False) == len(bare)


@given(payloads)
def test_what_the_receiver_holds_is_not_sent(payload: dict[str, Any]) -> None:
    parts = wire.take_apart(payload).tensors
    held = {owner.digest(name): owner[name] for owner, name in parts}
    data = wire.encode(payload, held)
    assert len(wire.encode(payload)) - len(data) == sum(owner[name].nbytes for owner, name in parts)
    assert wire.size(payload, held) == len(data)
    assert same(wire.decode(data, held), payload)
    assert wire.tensor_digests(payload) == held.keys()


def test_the_bytes_of_a_frame() -> None:
    """By hand: 4 bytes magic, 4 bytes length, the header, then the arrays in order."""
    header = b'{"v":{"x":{"$array":0}},"a":[["<i2",[2]]],"t":[]}'
    expected = b"ATL1" + len(header).to_bytes(4, "little") + header + b"\x01\x00\x02\x00"
    assert wire.encode({"x": np.array([1, 2], "<i2")}) == expected


def test_arrays_are_fresh_and_tensors_keep_their_names() -> None:
    data = bytearray(wire.encode({"array": np.zeros(3), "weights": TENSORS}))
    found = wire.decode(data)
    data[-12:] = b"\xff" * 12
    assert not found["weights"]["bias"].any()
    assert found["array"].flags.writeable and not found["weights"]["bias"].flags.writeable
    assert found["weights"].digest("bias") == TENSORS.digest("bias")


def test_a_reply_that_lies_about_content_names_is_not_believed() -> None:
    row = ["<f4", [1], TENSORS.digest("bias"), 1]
    lie = frame({"v": {"w": {"$tensors": {"bias": 0}}}, "a": [], "t": [row]}, np.float32(7).tobytes())
    believed, checked = wire.decode(lie), wire.decode(lie, digests=False)
    assert believed["w"].digest("bias") == TENSORS.digest("bias")
    assert checked["w"].digest("bias") != TENSORS.digest("bias")


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1, 2},
        b"bytes",
        np.float32(1),
        np.int64(1),
        np.bool_(True),
        1j,
        object(),
        np.array([object()]),
        np.array(["text"]),
        np.array([1j]),
        np.array([1.0], ">f4"),
        np.array(["2020-01-01"], "M8[D]"),
        np.zeros(1, [("a", "<f4")]),
        np.zeros((1,) * 9),
        {1: "a number as a key"},
        {"$array": 0},
        {"$anything": 0},
        Tensors({"a": np.array([1j])}),
    ],
    ids=lambda value: type(value).__name__,  # not repr: an address in a name is another one in each process
)
def test_anything_else_is_a_type_error_that_says_where(value: object) -> None:
    with pytest.raises(TypeError, match=r"payload\.outer\[1\]"):
        wire.encode({"outer": [0, value]})


def test_too_deep_is_an_error_on_both_sides() -> None:
    deep: Any = 0
    for _ in range(wire.MAX_DEPTH - 1):
        deep = [deep]
    assert wire.decode(wire.encode({"x": deep})) == {"x": deep}
    with pytest.raises(TypeError, match=str(wire.MAX_DEPTH)):
        wire.encode({"x": [deep]})
    for levels in (wire.MAX_DEPTH + 1, 500, 100_000):
        text = b'{"v":{"x":' + b"[" * levels + b"]" * levels + b'},"a":[],"t":[]}'
        with pytest.raises(WireError):
            wire.decode(frame(text))


GOOD_ROW = ["<f4", [2, 3], "a" * 32, 0]
BAD_HEADERS: dict[str, Any] = {
    "not a table": [],
    "nothing": {},
    "no tree": {"a": [], "t": []},
    "tree is a list": {"v": [], "a": [], "t": []},
    "tree is an array": {"v": {"$array": 0}, "a": [["<f4", [0]]], "t": []},
    "tree is tensors": {"v": {"$tensors": {}}, "a": [], "t": []},
    "arrays are no list": {"v": {}, "a": {}, "t": []},
    "row is no list": {"v": {}, "a": [5], "t": []},
    "row is too short": {"v": {}, "a": [["<f4"]], "t": []},
    "row is too long": {"v": {}, "a": [["<f4", [0], 1]], "t": []},
    "dtype is a list": {"v": {}, "a": [[["<f4"], [0]]], "t": []},
    "dtype of objects": {"v": {}, "a": [["|O", [0]]], "t": []},
    "dtype of text": {"v": {}, "a": [["<U5", [0]]], "t": []},
    "byte order": {"v": {}, "a": [[">f4", [0]]], "t": []},
    "negative side": {"v": {}, "a": [["<f4", [-1]]], "t": []},
    "two negative sides": {"v": {}, "a": [["<f4", [-1, -1]]], "t": []},
    "side of a half": {"v": {}, "a": [["<f4", [0.5]]], "t": []},
    "side is true": {"v": {}, "a": [["<f4", [True]]], "t": []},
    "shape is a number": {"v": {}, "a": [["<f4", 0]], "t": []},
    "nine dimensions": {"v": {}, "a": [["<f4", [0] * 9]], "t": []},
    "a bomb": {"v": {}, "a": [["<f4", [2**39]]], "t": []},
    "many bombs": {"v": {}, "a": [["<f4", [2**39]]] * 1000, "t": []},
    "a bomb times zero": {"v": {}, "a": [["<f4", [0, 2**39, 2**39]]], "t": []},
    "an endless side times zero": {"v": {}, "a": [["<f4", [0, 10**30]]], "t": []},
    "unknown tensor": {"v": {}, "a": [], "t": [GOOD_ROW]},
    "named dtype is a list": {"v": {}, "a": [], "t": [[[], [2, 3], "a" * 32, 0]]},
    "digest is a list": {"v": {}, "a": [], "t": [["<f4", [2, 3], [], 0]]},
    "digest is a number": {"v": {}, "a": [], "t": [["<f4", [0], 5, 1]]},
    "sent is a word": {"v": {}, "a": [], "t": [["<f4", [0], "", "yes"]]},
    "tensor row is a table": {"v": {}, "a": [], "t": [{"3": 1}]},
    "refers to no array": {"v": {"x": {"$array": 0}}, "a": [], "t": []},
    "refers to a negative array": {"v": {"x": {"$array": -1}}, "a": [["<f4", [0]]], "t": []},
    "refers by a word": {"v": {"x": {"$array": "0"}}, "a": [["<f4", [0]]], "t": []},
    "refers by truth": {"v": {"x": {"$array": False}}, "a": [["<f4", [0]]], "t": []},
    "refers to no tensor": {"v": {"x": {"$tensors": {"w": 0}}}, "a": [], "t": []},
    "tensors are a list": {"v": {"x": {"$tensors": [0]}}, "a": [], "t": []},
    "foreign mark": {"v": {"x": {"$ref": 1}}, "a": [], "t": []},
    "mark with company": {"v": {"x": {"$array": 0, "y": 1}}, "a": [["<f4", [0]]], "t": []},
}


@pytest.mark.parametrize("header", BAD_HEADERS.values(), ids=BAD_HEADERS.keys())
def test_lying_headers_are_refused_without_a_large_allocation(header: Any) -> None:
    data = frame(header)
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            wire.decode(data, {"b" * 32: np.zeros(2)})
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_limits_are_checked_before_memory_is_taken() -> None:
    """A sparse tensor of 400 MB in 0.5 MB, and a header of 20 MB: refused within a few kilobytes."""
    row = json.dumps(["<f4", [10**8], "", 3, 10**5]).encode()
    sparse = frame(b'{"v":{"x":{"$tensors":{"w":0}}},"a":[],"t":[' + row + b"]}") + bytes(8 * 10**5)
    wordy = wire.encode({"x": [{}] * 5_000_000})
    limits = wire.FrameLimits(header=1000, arrays=10**6)
    tracemalloc.start()
    try:
        with refused(WireError, "arrays-too-large", 4 * 10**8, 10**6):
            wire.decode(sparse, limits=limits)
        with refused(WireError, "header-too-long", 1000):
            wire.decode(wordy, limits=wire.FrameLimits(1000, 10**9))
        with refused(WireError, "frame-too-long", len(wordy), limits.frame):
            wire.decode(wordy, limits=limits)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_frame_at_its_limits_is_read() -> None:
    data = wire.encode({"x": np.zeros(10)}, digests=False)
    header = len(data) - 8 - 80
    assert wire.decode(data, limits=wire.FrameLimits(header, 80))["x"].shape == (10,)
    for limits in (wire.FrameLimits(header - 1, 81), wire.FrameLimits(header + 1, 79)):
        with pytest.raises(WireError):
            wire.decode(data, limits=limits)


def test_a_frame_that_does_not_fit_into_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(wire.sparse_coding, "read", none_left)
    with refused(WireError, "out-of-memory"):
        wire.decode(wire.encode({"x": np.zeros(10)}))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"ATL",
        b"ATL1",
        b"ATL1\x00\x00\x00",
        b"ATL2\x02\x00\x00\x00{}",
        b"ATL1\xff\xff\xff\xff{}",
        b"ATL1\x03\x00\x00\x00{}",
        frame(b"not JSON"),
        frame(b"\xff\xfe"),
        frame(b'{"v":{},"a":[],"t":[]'),
        frame(b'{"v":{"x":' + b"1" * 5000 + b'},"a":[],"t":[]}'),
    ],
)
def test_bytes_that_are_no_frame(data: bytes) -> None:
    with pytest.raises(WireError):
        wire.decode(data)


def test_every_cut_and_every_addition_is_noticed() -> None:
    data = wire.encode({"weights": TENSORS, "rows": np.arange(3), "note": "text"})
    for length in range(len(data)):
        with pytest.raises(WireError):
            wire.decode(data[:length])
    with refused(WireError, "frame-length-wrong"):
        wire.decode(data + b"\x00")


def test_a_held_tensor_must_be_what_the_frame_says_it_is() -> None:
    digest = TENSORS.digest("bias")
    data = wire.encode({"weights": TENSORS.slice(["bias"])}, {digest})
    with refused(WireError, "tensor-not-held", digest):
        wire.decode(data)
    for wrong in (np.zeros(4, np.float32), np.zeros(3, np.float64), np.zeros((3, 1), np.float32)):
        with refused(WireError, "tensor-differs", digest):
            wire.decode(data, {digest: wrong})


def decodes_or_is_refused(data: bytes, limits: wire.FrameLimits | None = None) -> None:
    """Nothing but a `WireError`; and what does decode can be encoded, for it will be saved and counted."""
    try:
        found = wire.decode(data, {TENSORS.digest("bias"): TENSORS["bias"]}, limits=limits)
    except WireError:
        return
    assert same(wire.decode(wire.encode(found)), found)


@given(st.binary(max_size=200), st.booleans())
def test_random_bytes(data: bytes, framed: bool) -> None:
    decodes_or_is_refused(frame(data) if framed else data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["<f4", "|b1", "", "$array"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["v", "a", "t", "$array", "$tensors", "x"]), inner, max_size=4)
    ),
)


@given(json_values, json_values, json_values, st.binary(max_size=16))
def test_random_headers(tree: Any, array_rows: Any, tensor_rows: Any, body: bytes) -> None:
    decodes_or_is_refused(frame({"v": tree, "a": array_rows, "t": tensor_rows}, body))


@settings(max_examples=300)
@given(st.data())
def test_flipped_bits(data: st.DataObject) -> None:
    payload = {"weights": TENSORS, "rows": np.arange(3), "table": {"list": [1, 2.5, None, "text"]}}
    flipped = bytearray(wire.encode(payload, {TENSORS.digest("bias")}))
    for place in data.draw(st.lists(st.integers(0, len(flipped) * 8 - 1), min_size=1, max_size=3)):
        flipped[place // 8] ^= 1 << place % 8
    decodes_or_is_refused(bytes(flipped))


@pytest.mark.parametrize("number", [200, pytest.param(100_000, marks=pytest.mark.soak)])
def test_spoiled_frames(number: int) -> None:
    """Good frames with some bytes changed, taken out, repeated or added, often in the header, within limits."""
    rng, limits = stream(1, "frames"), wire.FrameLimits(10_000, 10_000)
    sparse = np.zeros(500, np.float32)
    sparse[3] = 1
    table = {"list": [1, 2.5, None, "text"], "deep": {"a": {"b": [[]]}}, "rows": np.arange(3)}
    good = wire.encode({"weights": TENSORS, "sparse": Tensors({"w": sparse}), **table}, {TENSORS.digest("bias")})
    digits = b'0123456789[]{},:"-.eE$'
    for _ in range(number):
        data = bytearray(good)
        for _ in range(int(rng.integers(1, 4))):
            place = int(rng.integers(len(data)))
            kind = int(rng.integers(5))
            if kind == 0:
                data[place] = int(rng.integers(256))
            elif kind == 1:
                data[place] = digits[int(rng.integers(len(digits)))]
            elif kind == 2:
                del data[place : place + int(rng.integers(1, 20))]
            elif kind == 3:
                data[place:place] = data[place : place + int(rng.integers(1, 20))]
            else:
                data[place:place] = rng.bytes(int(rng.integers(1, 5)))
        if rng.random() < 0.7:  # with the right length of the header, so that more of it is read
            end = data.rfind(b"}") + 1
            data[:8] = wire.MAGIC + max(0, end - 8).to_bytes(4, "little")
        decodes_or_is_refused(bytes(data), limits)


def test_canonical_text_is_equal_for_equal_values() -> None:
    assert wire.canonical({"b": 1, "a": [1.5, None]}) == wire.canonical({"a": [1.5, None], "b": 1})
    assert wire.canonical({"b": 1, "a": "é"}) == '{"a":"\\u00e9","b":1}'
