"""How the values of one tensor are written on the wire: all of them, or without zeros, whichever is shortest.

    DENSE      every value
    BITMASK    one bit per value (1: not zero, first value in the highest bit), then the values that are not zero
    POSITIONS  the position of each value that is not zero (uint16 up to 65,536 values, else uint32), then the values

Zero means that all bits are zero, so that -0.0 survives. A malicious frame could announce an enormous tensor in a few
bytes: a coding is accepted only up to `MAX_GROWTH` times the bytes that it carries, and never used beyond that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from atoll.core.messages import Array
from atoll.errors import WireError

DENSE, BITMASK, POSITIONS = 1, 2, 3
CODINGS = (DENSE, BITMASK, POSITIONS)
SMALLEST = 1024  # bytes; smaller tensors are always dense
MAX_GROWTH = 1024
MAX_PLACES = 2**32
BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}  # item size -> unsigned type of that size; only floats are coded


def best(array: Array) -> tuple[int, int]:
    """The shortest coding of this array, and its number of values that are not zero (0 for DENSE)."""
    if array.nbytes < SMALLEST or array.dtype.kind != "f":
        return DENSE, 0
    held = int(np.count_nonzero(_bits(array)))
    choices = [(length(coding, array.dtype, array.size, held), coding) for coding in CODINGS]
    _, coding = min(choice for choice in choices if _believable(choice[1], array.dtype, array.size, choice[0]))
    return coding, held if coding != DENSE else 0


def length(coding: int, dtype: np.dtype[Any], size: int, held: int) -> int:
    """The length of a coding in bytes."""
    if coding == DENSE:
        return dtype.itemsize * size
    places = math.ceil(size / 8) if coding == BITMASK else _place(size).itemsize * held
    return places + dtype.itemsize * held


def write(array: Array, coding: int) -> bytes | memoryview:
    """The array's values in this coding."""
    if coding == DENSE:
        return np.ascontiguousarray(array).data.cast("B") if array.size else b""
    flat = np.ascontiguousarray(array).reshape(-1)
    present = _bits(flat) != 0
    if coding == BITMASK:
        places = np.packbits(present).tobytes()
    else:
        places = np.flatnonzero(present).astype(_place(flat.size)).tobytes()
    return bytes(places + flat[present].tobytes())


def check(coding: Any, dtype: np.dtype[Any], size: int, held: Any) -> int:
    """The length in bytes of a coding announced in a frame; refused here before memory is allocated."""
    if type(coding) is not int or coding not in CODINGS or type(held) is not int or not 0 <= held <= size:
        raise WireError("the frame announces a tensor in an unknown coding", code="unknown-coding")
    if coding != DENSE and dtype.kind != "f":
        raise WireError(
            f"the frame announces a tensor of {dtype} without its zeros; only floats may be",
            code="coding-needs-floats",
        )
    carried = length(coding, dtype, size, held)
    if not _believable(coding, dtype, size, carried):
        raise WireError(
            f"the frame announces {size} values in {carried} bytes; at most {MAX_GROWTH} times the bytes are accepted",
            code="coding-implausible",
        )
    return carried


def read(data: memoryview, coding: int, dtype: np.dtype[Any], size: int, held: int) -> Array:
    """The values of a checked coding, as a new vector."""
    if coding == DENSE:
        return np.frombuffer(data, dtype=dtype, count=size).copy()
    places = len(data) - dtype.itemsize * held
    values = np.frombuffer(data, dtype=dtype, count=held, offset=places)
    whole = np.zeros(size, dtype)
    if coding == BITMASK:
        packed = np.frombuffer(data, dtype=np.uint8, count=places)
        present = np.unpackbits(packed, count=size).astype(np.bool_)
        if int(np.count_nonzero(present)) != held:
            raise WireError(
                f"a tensor's bit mask marks {int(np.count_nonzero(present))} values, but it carries {held}",
                code="bit-count-differs",
            )
        whole[present] = values
        return whole
    index = np.frombuffer(data, dtype=_place(size), count=held).astype(np.int64)
    if held and (index[-1] >= size or (np.diff(index) <= 0).any()):
        raise WireError(
            "a tensor's positions are not in ascending order or lie outside the tensor", code="positions-invalid"
        )
    whole[index] = values
    return whole


def _believable(coding: int, dtype: np.dtype[Any], size: int, carried: int) -> bool:
    if coding == POSITIONS and size > MAX_PLACES:
        return False
    return coding == DENSE or dtype.itemsize * size <= MAX_GROWTH * carried


def _place(size: int) -> np.dtype[Any]:
    return np.dtype(np.uint16 if size <= 2**16 else np.uint32)


def _bits(array: Array) -> Array:
    return array.view(BITS[array.dtype.itemsize])
