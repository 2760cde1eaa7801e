"""Payloads as bytes and back, without pickle. Every byte count in the ledger comes from here.

    frame  = magic "ATL1" | length of the header, 4 bytes little-endian | header | arrays, one after the other
    header = {"v": tree, "a": [[dtype, shape], ...], "t": [[dtype, shape, digest, sent], ...]}

The tree is the payload with each array replaced by `{"$array": i}` and each `Tensors` by `{"$tensors": {name: j}}`.
A tensor that the receiver holds is named by its digest and not sent. Floats may be NaN or infinite (Python's JSON
dialect): whether that is acceptable is for the guard to say, not for the wire.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from atoll.errors import WireError
from atoll.messages import Array, Payload, Tensors

MAGIC = b"ATL1"
DTYPES = frozenset(
    ["|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"],
)
MAX_HEADER = 256 * 1024 * 1024
MAX_DIMENSIONS = 8


@dataclass
class Parts:
    """A payload taken apart: a JSON tree and the arrays it refers to."""

    tree: Any = None
    arrays: list[Array] = field(default_factory=list)
    tensors: list[tuple[Tensors, str]] = field(default_factory=list)  # (owner, name): the digest is the owner's


def take_apart(value: Any) -> Parts:
    """Separate the arrays of a payload from its plain values. Anything that is not wire-legal is a `TypeError`."""
    parts = Parts()
    parts.tree = _flatten(value, parts, "payload")
    return parts


def put_together(tree: Any, arrays: list[Array], tensors: list[Array], digests: list[str] | None = None) -> Any:
    """The inverse of `take_apart`."""
    if isinstance(tree, list):
        return [put_together(item, arrays, tensors, digests) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "$array" in tree:
        return arrays[_position(tree["$array"], arrays)]
    if "$tensors" in tree:
        names = tree["$tensors"]
        if not isinstance(names, dict):
            raise WireError("a set of tensors must be a table of names")
        places = {name: _position(place, tensors) for name, place in names.items()}
        result = Tensors({name: tensors[place] for name, place in places.items()})
        if digests is not None:
            result.know({name: digests[place] for name, place in places.items() if digests[place]})
        return result
    return {key: put_together(item, arrays, tensors, digests) for key, item in tree.items()}


def encode(payload: Payload, held: Container[str] = (), digests: bool = True) -> bytes:
    """The payload as one frame; tensors whose digest is in `held` are only named.

    `digests=False` leaves content names out (and nothing can be held): replies need none, and hashing costs time.
    """
    header, blobs = _frame(payload, held, digests)
    return b"".join([MAGIC, len(header).to_bytes(4, "little"), header, *map(_raw, blobs)])


def size(payload: Payload, held: Container[str] = (), digests: bool = True) -> int:
    """The length of `encode(...)`, without building it."""
    header, blobs = _frame(payload, held, digests)
    return len(MAGIC) + 4 + len(header) + sum(blob.nbytes for blob in blobs)


def decode(data: bytes | memoryview, held: Mapping[str, Array] | None = None) -> Payload:
    """The payload of a frame. Sizes are checked against the frame before any memory is allocated.

    Arrays are fresh copies, so that neither their place in the frame nor its lifetime matters.
    """
    view = memoryview(data)
    header, start = _read_header(view)
    try:
        tree, array_rows, tensor_rows = header["v"], header["a"], header["t"]
        sent = [_row(row, 2) for row in array_rows] + [_row(row, 4) for row in tensor_rows if row[3]]
    except (KeyError, TypeError, IndexError) as problem:
        raise WireError("the frame's header has not the form of one of ours") from problem
    expected = sum(dtype.itemsize * math.prod(shape) for dtype, shape in sent)
    if len(view) - start != expected:
        raise WireError(f"the frame announces {expected} bytes of arrays and carries {len(view) - start}")
    blobs: list[Array] = []
    for dtype, shape in sent:
        count = math.prod(shape)
        blobs.append(np.frombuffer(view, dtype=dtype, count=count, offset=start).reshape(shape).copy())
        start += dtype.itemsize * count
    arrays, rest = blobs[: len(array_rows)], iter(blobs[len(array_rows) :])
    tensors = [next(rest) if row[3] else _lookup(row, held) for row in tensor_rows]
    try:
        payload = put_together(tree, arrays, tensors, [row[2] for row in tensor_rows])
    except RecursionError as problem:
        raise WireError("the frame's values are nested too deeply") from problem
    if not isinstance(payload, dict):
        raise WireError("a payload must be a table")
    return payload


def canonical(value: Any) -> str:
    """JSON text that is equal for equal values: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def tensor_digests(payload: Any) -> frozenset[str]:
    """Content names of all tensors in a payload."""
    return frozenset(owner.digest(name) for owner, name in take_apart(payload).tensors)


def _flatten(value: Any, parts: Parts, where: str) -> Any:
    if value is None or isinstance(value, (bool, str)) or type(value) in (int, float):
        return value
    if isinstance(value, Tensors):
        table = {}
        for name in value:
            _check_dtype(value[name], f"{where}.{name}")
            table[name] = len(parts.tensors)
            parts.tensors.append((value, name))
        return {"$tensors": table}
    if isinstance(value, np.ndarray):
        _check_dtype(value, where)
        parts.arrays.append(value)
        return {"$array": len(parts.arrays) - 1}
    if isinstance(value, list):
        return [_flatten(item, parts, f"{where}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str) or key.startswith("$"):
                raise TypeError(f"{where}: a key must be text that does not start with '$', not {key!r}")
        return {key: _flatten(item, parts, f"{where}.{key}") for key, item in value.items()}
    raise TypeError(
        f"{where} is a {type(value).__name__}; a payload holds JSON values, numpy arrays and Tensors only",
    )


def _check_dtype(array: Array, where: str) -> None:
    if array.dtype.str not in DTYPES:
        raise TypeError(f"{where} has dtype {array.dtype.str!r}; the wire carries {', '.join(sorted(DTYPES))}")


def _frame(payload: Payload, held: Container[str], digests: bool) -> tuple[bytes, list[Array]]:
    parts = take_apart(payload)
    blobs = list(parts.arrays)
    rows: list[list[Any]] = []
    for owner, name in parts.tensors:
        array = owner[name]
        digest = owner.digest(name) if digests else ""
        sent = not (digests and digest in held)
        rows.append([array.dtype.str, list(array.shape), digest, int(sent)])
        if sent:
            blobs.append(array)
    header = {"v": parts.tree, "a": [[a.dtype.str, list(a.shape)] for a in parts.arrays], "t": rows}
    return json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode(), blobs


def _raw(array: Array) -> memoryview | bytes:
    return memoryview(np.ascontiguousarray(array)).cast("B") if array.size else b""


def _read_header(view: memoryview) -> tuple[dict[str, Any], int]:
    if len(view) < 8 or bytes(view[:4]) != MAGIC:
        raise WireError("not a frame: it does not start with ATL1")
    length = int.from_bytes(view[4:8], "little")
    if length > MAX_HEADER or 8 + length > len(view):
        raise WireError(f"the frame's header announces {length} bytes, more than there are")
    try:
        header = json.loads(bytes(view[8 : 8 + length]).decode())
    except (ValueError, RecursionError) as problem:
        raise WireError("the frame's header is not JSON") from problem
    if not isinstance(header, dict) or not isinstance(header.get("a"), list) or not isinstance(header.get("t"), list):
        raise WireError("the frame's header has not the form of one of ours")
    return header, 8 + length


def _row(row: Any, length: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """dtype and shape of one announced array, refused unless both are plain and small enough to be meant."""
    if not isinstance(row, list) or len(row) != length or row[0] not in DTYPES:
        raise WireError("the frame announces an array of an unknown kind")
    shape = row[1]
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise WireError("the frame announces an array of an impossible shape")
    if any(type(side) is not int or not 0 <= side < 2**40 for side in shape):
        raise WireError("the frame announces an array of an impossible shape")
    return np.dtype(row[0]), tuple(shape)


def _lookup(row: list[Any], held: Mapping[str, Array] | None) -> Array:
    """A tensor that was only named, checked against what the row says of it."""
    dtype, shape = _row(row, 4)
    array = (held or {}).get(row[2])
    if array is None:
        raise WireError(f"the frame names tensor {row[2]!r}, which is not held here")
    if array.dtype != dtype or array.shape != shape:
        raise WireError(f"the frame calls tensor {row[2]!r} {dtype}{shape}; it is {array.dtype}{array.shape}")
    return array


def _position(place: Any, items: list[Array]) -> int:
    if type(place) is not int or not 0 <= place < len(items):
        raise WireError("the frame refers to an array that it does not carry")
    return place
