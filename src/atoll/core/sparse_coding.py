"""How the values of one tensor are written on the wire: whole, or without the zeros in them, whichever is smallest.

    DENSE      every value
    BITMASK    one bit per value (1: not zero, first value in the highest bit), then the values that are not zero
    POSITIONS  the place of each value that is not zero (uint16 up to 65,536 values, else uint32), then the values

Zero means all bits zero, so that -0.0 survives. A frame could announce an enormous tensor of almost nothing: a coding
is believed only up to `MAX_GROWTH` times the bytes that it carries, and never used beyond that.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from atoll.core.messages import Array
from atoll.errors import WireError

DENSE, BITMASK, POSITIONS = 1, 2, 3
CODINGS = (DENSE, BITMASK, POSITIONS)
SMALLEST = 1024  # bytes: below that the zeros are not worth the look
MAX_GROWTH = 1024
MAX_PLACES = 2**32
BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}  # only these widths are coded: weights


def best(array: Array) -> tuple[int, int]:
    """The smallest coding of this array, and how many of its values are not zero (0 where all are sent)."""
    if array.nbytes < SMALLEST or array.dtype.kind != "f":
        return DENSE, 0
    held = int(np.count_nonzero(_bits(array)))
    choices = [(length(coding, array.dtype, array.size, held), coding) for coding in CODINGS]
    _, coding = min(choice for choice in choices if _believable(choice[1], array.dtype, array.size, choice[0]))
    return coding, held if coding != DENSE else 0


def length(coding: int, dtype: np.dtype[Any], size: int, held: int) -> int:
    """The bytes of a coding."""
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
    """The bytes that a coding announced in a frame must carry; refused before anything is allocated."""
    if type(coding) is not int or coding not in CODINGS or type(held) is not int or not 0 <= held <= size:
        raise WireError("the frame announces a tensor in an unknown coding", code="unknown-coding")
    if coding != DENSE and dtype.kind != "f":
        raise WireError(
            f"the frame announces a tensor of {dtype} without its zeros; only floats are sent like that",
            code="coding-needs-floats",
        )
    carried = length(coding, dtype, size, held)
    if not _believable(coding, dtype, size, carried):
        raise WireError(
            f"the frame announces {size} values in {carried} bytes, which is more than it may",
            code="coding-implausible",
        )
    return carried


def read(data: memoryview, coding: int, dtype: np.dtype[Any], size: int, held: int) -> Array:
    """The values of a checked coding, as a fresh vector."""
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
                f"a tensor's bits name {int(np.count_nonzero(present))} values and it carries {held}",
                code="bit-count-differs",
            )
        whole[present] = values
        return whole
    index = np.frombuffer(data, dtype=_place(size), count=held).astype(np.int64)
    if held and (index[-1] >= size or (np.diff(index) <= 0).any()):
        raise WireError("a tensor's positions are not in order or point outside of it", code="positions-invalid")
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
