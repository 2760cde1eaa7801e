"""Payloads as bytes and back, without pickle. Every byte count in the ledger comes from here.

    frame  = magic "ATL1" | length of the header, 4 bytes little-endian | header | arrays, one after the other
    header = {"v": tree, "a": [[dtype, shape], ...], "t": [[dtype, shape, digest, sent], ...]}

The tree is the payload with each array replaced by `{"$array": i}` and each `Tensors` by `{"$tensors": {name: j}}`.
A tensor that the receiver holds is named by its digest and not sent. One that is sent leaves out its zeros where that
is shorter, so the bytes of a sparse network fall with its number of connections: `sent` is then the coding (see
`sparse_coding`), and one more entry is the number of values that are not zero. Floats may be NaN or infinite (Python's
JSON dialect): `checks` decides whether that is acceptable, not the wire. The header is plain ASCII, so that a file name
that is not UTF-8 survives.
"""

from __future__ import annotations

import json
import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from atoll.core import sparse_coding
from atoll.core.messages import Array, Payload, Tensors
from atoll.errors import WireError

MAGIC = b"ATL1"
DTYPES = frozenset(
    ["|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"],
)
MAX_HEADER = 256 * 1024 * 1024
MAX_DIMENSIONS = 8
MAX_VALUES = 2**40  # in one array
MAX_DEPTH = 100  # of nested tables and lists; far below the limit of Python's stack


@dataclass(frozen=True)
class FrameLimits:
    """What a frame may take: bytes of its header, and bytes of its arrays after decoding."""

    header: int
    arrays: int

    @property
    def frame(self) -> int:
        """The most bytes of a whole frame. No coding is longer than the decoded array."""
        return len(MAGIC) + 4 + self.header + self.arrays

    def __add__(self, other: FrameLimits) -> FrameLimits:
        return FrameLimits(self.header + other.header, self.arrays + other.arrays)


@dataclass
class Parts:
    """A payload in two parts: a JSON tree and the arrays that it refers to."""

    tree: Any = None
    arrays: list[Array] = field(default_factory=list)
    tensors: list[tuple[Tensors, str]] = field(default_factory=list)  # (owner, name): the digest is the owner's


def take_apart(value: Any) -> Parts:
    """Separate the arrays of a payload from its plain values. Anything that is not wire-legal is a `TypeError`."""
    parts = Parts()
    parts.tree = _flatten(value, parts, "payload", 0)
    return parts


def put_together(tree: Any, arrays: list[Array], tensors: list[Array], digests: list[str] | None = None) -> Any:
    """The inverse of `take_apart`, which accepts every result. Invalid references are a `WireError`."""
    return _assemble(tree, arrays, tensors, digests, 0)


def encode(payload: Payload, held: Container[str] = (), digests: bool = True) -> bytes:
    """The payload as one frame; tensors whose digest is in `held` are only named.

    `digests=False` leaves the digests out, so every tensor is sent: replies need none, and hashing costs time.
    """
    header, blobs = _frame(payload, held, digests)
    parts = [sparse_coding.write(blob.array, blob.coding) for blob in blobs]
    return b"".join([MAGIC, len(header).to_bytes(4, "little"), header, *parts])


def size(payload: Payload, held: Container[str] = (), digests: bool = True) -> int:
    """The length of `encode(...)`, without building it."""
    header, blobs = _frame(payload, held, digests)
    return len(MAGIC) + 4 + len(header) + sum(blob.nbytes for blob in blobs)


def decode(
    data: bytes | bytearray | memoryview,
    held: Mapping[str, Array] | None = None,
    digests: bool = True,
    limits: FrameLimits | None = None,
) -> Payload:
    """The payload of a frame. Sizes are checked against the frame and the limits before any memory is allocated.

    Arrays are copies, independent of the frame's alignment and lifetime. `digests=False` ignores the digests in the
    frame: the sender of a reply could lie about them. A frame that does not fit into memory is a `WireError` too.
    """
    try:
        return _decode(memoryview(data), held, digests, limits)
    except MemoryError:
        raise WireError("the frame does not fit into this machine's memory", code="out-of-memory") from None


def _decode(view: memoryview, held: Mapping[str, Array] | None, digests: bool, limits: FrameLimits | None) -> Payload:
    if limits is not None and len(view) > limits.frame:
        raise WireError(f"the frame has {len(view)} bytes; at most {limits.frame} are accepted", code="frame-too-long")
    header, start = _read_header(view, MAX_HEADER if limits is None else limits.header)
    tree, array_rows, tensor_rows = header["v"], header["a"], header["t"]
    kinds = [_row(row, 2) for row in array_rows]
    tensor_kinds = [_row(row, 4) for row in tensor_rows]
    sent = [_Announced(*kind) for kind in kinds]
    sent += [_Announced(*kind, *row[3:]) for kind, row in zip(tensor_kinds, tensor_rows, strict=True) if row[3]]
    decoded = sum(one.decoded for one in sent)
    if limits is not None and decoded > limits.arrays:
        raise WireError(
            f"the frame announces arrays of {decoded} bytes; at most {limits.arrays} are accepted",
            code="arrays-too-large",
        )
    lengths = [one.nbytes for one in sent]
    if len(view) - start != sum(lengths):
        raise WireError(
            f"the frame announces {sum(lengths)} bytes of arrays and carries {len(view) - start}",
            code="frame-length-wrong",
        )
    blobs: list[Array] = []
    for one, length in zip(sent, lengths, strict=True):
        blobs.append(one.read(view[start : start + length]))
        start += length
    arrays, rest = blobs[: len(array_rows)], iter(blobs[len(array_rows) :])
    tensors = [
        next(rest) if row[3] else _lookup(row[2], kind, held)
        for kind, row in zip(tensor_kinds, tensor_rows, strict=True)
    ]
    payload = put_together(tree, arrays, tensors, [row[2] for row in tensor_rows] if digests else None)
    if not isinstance(payload, dict):
        raise WireError("a payload must be a table", code="payload-not-table")
    return payload


def canonical(value: Any) -> str:
    """JSON text that is equal for equal values: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def tensor_sizes(payload: Any) -> dict[str, int]:
    """Content names of all tensors in a payload, each with its bytes."""
    return {owner.digest(name): owner[name].nbytes for owner, name in take_apart(payload).tensors}


def tensor_digests(payload: Any) -> frozenset[str]:
    """Content names of all tensors in a payload."""
    return frozenset(tensor_sizes(payload))


def _flatten(value: Any, parts: Parts, where: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise TypeError(f"a payload's tables and lists must not be nested deeper than {MAX_DEPTH}")
    if value is None or isinstance(value, (bool, str)) or type(value) in (int, float):
        return value
    if isinstance(value, Tensors):
        table = {}
        for name in value:
            _check_array(value[name], f"{where}.{name}")
            table[name] = len(parts.tensors)
            parts.tensors.append((value, name))
        return {"$tensors": table}
    if isinstance(value, np.ndarray):
        _check_array(value, where)
        parts.arrays.append(value)
        return {"$array": len(parts.arrays) - 1}
    if isinstance(value, list):
        return [_flatten(item, parts, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str) or key.startswith("$"):
                raise TypeError(f"{where}: a key must be text that does not start with '$', not {key!r}")
        return {key: _flatten(item, parts, f"{where}.{key}", depth + 1) for key, item in value.items()}
    raise TypeError(
        f"{where} is a {type(value).__name__}; a payload holds JSON values, numpy arrays and Tensors only",
    )


def _assemble(tree: Any, arrays: list[Array], tensors: list[Array], digests: list[str] | None, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise WireError(f"the frame's values are nested deeper than {MAX_DEPTH}", code="nested-too-deep")
    if isinstance(tree, list):
        return [_assemble(item, arrays, tensors, digests, depth + 1) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.keys() == {"$array"}:
        return arrays[_position(tree["$array"], arrays)]
    if tree.keys() == {"$tensors"}:
        return _tensors(tree["$tensors"], tensors, digests)
    if any(key.startswith("$") for key in tree):
        raise WireError("the frame has an unknown key that starts with '$'", code="reserved-key")
    return {key: _assemble(item, arrays, tensors, digests, depth + 1) for key, item in tree.items()}


def _tensors(names: Any, tensors: list[Array], digests: list[str] | None) -> Tensors:
    if not isinstance(names, dict):
        raise WireError("a set of tensors must be a table of names", code="tensors-not-table")
    places = {name: _position(place, tensors) for name, place in names.items()}
    result = Tensors({name: tensors[place] for name, place in places.items()})
    if digests is not None:
        result.know({name: digests[place] for name, place in places.items() if digests[place]})
    return result


def _check_array(array: Array, where: str) -> None:
    if array.dtype.str not in DTYPES:
        raise TypeError(f"{where} has dtype {array.dtype.str!r}; the wire carries {', '.join(sorted(DTYPES))}")
    if array.ndim > MAX_DIMENSIONS:
        raise TypeError(f"{where} has {array.ndim} dimensions; the wire carries at most {MAX_DIMENSIONS}")


@dataclass(frozen=True)
class _Blob:
    """One array to be sent, and its coding."""

    array: Array
    coding: int = sparse_coding.DENSE
    held: int = 0

    @property
    def nbytes(self) -> int:
        return sparse_coding.length(self.coding, self.array.dtype, self.array.size, self.held)


@dataclass(frozen=True)
class _Announced:
    """One array as the frame's header announces it."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    coding: int = sparse_coding.DENSE
    held: int = 0

    @property
    def nbytes(self) -> int:
        return sparse_coding.check(self.coding, self.dtype, math.prod(self.shape), self.held)

    @property
    def decoded(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)

    def read(self, data: memoryview) -> Array:
        return sparse_coding.read(data, self.coding, self.dtype, math.prod(self.shape), self.held).reshape(self.shape)


def _frame(payload: Payload, held: Container[str], digests: bool) -> tuple[bytes, list[_Blob]]:
    parts = take_apart(payload)
    blobs = [_Blob(array) for array in parts.arrays]
    rows: list[list[Any]] = []
    for owner, name in parts.tensors:
        array = owner[name]
        digest = owner.digest(name) if digests else ""
        if digests and digest in held:
            rows.append([array.dtype.str, list(array.shape), digest, 0])
            continue
        blob = _Blob(array, *owner.coding(name, sparse_coding.best))
        own = [blob.coding, blob.held] if blob.coding != sparse_coding.DENSE else [blob.coding]
        rows.append([array.dtype.str, list(array.shape), digest, *own])
        blobs.append(blob)
    header = {"v": parts.tree, "a": [[a.dtype.str, list(a.shape)] for a in parts.arrays], "t": rows}
    return json.dumps(header, separators=(",", ":")).encode(), blobs


def _read_header(view: memoryview, most: int) -> tuple[dict[str, Any], int]:
    if len(view) < 8 or bytes(view[:4]) != MAGIC:
        raise WireError("not a frame: it does not start with 'ATL1'", code="not-a-frame")
    length = int.from_bytes(view[4:8], "little")
    if 8 + length > len(view):
        raise WireError(f"the frame's header announces {length} bytes, more than the frame has", code="frame-truncated")
    if length > most:
        raise WireError(f"the frame's header has {length} bytes; at most {most} are accepted", code="header-too-long")
    try:
        header = json.loads(bytes(view[8 : 8 + length]).decode())
    except (ValueError, RecursionError) as problem:
        raise WireError("the frame's header is not JSON", code="header-not-json") from problem
    form = {"v": dict, "a": list, "t": list}
    if not isinstance(header, dict) or not all(isinstance(header.get(key), kind) for key, kind in form.items()):
        raise WireError(
            "the frame's header lacks one of the keys v, a and t, or one of them has the wrong type",
            code="header-invalid",
        )
    return header, 8 + length


def _row(row: Any, length: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """dtype and shape of one announced array; refused unless both are known and plausible."""
    whole = isinstance(row, list) and len(row) == (length + 1 if length == 4 and _without_zeros(row) else length)
    plain = whole and isinstance(row[0], str) and row[0] in DTYPES
    if not plain or (length == 4 and not (isinstance(row[2], str) and (row[3] in (0, 1) or _without_zeros(row)))):
        raise WireError("the frame announces an array of an unknown kind", code="array-kind-unknown")
    shape = row[1]
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
        raise WireError("the frame announces an array of an impossible shape", code="array-shape-impossible")
    # Zero sides are left out of the product: numpy refuses a huge side even where another one is zero.
    if any(type(side) is not int or side < 0 for side in shape) or math.prod(filter(None, shape)) >= MAX_VALUES:
        raise WireError("the frame announces an array of an impossible shape", code="array-shape-impossible")
    return np.dtype(row[0]), tuple(shape)


def _without_zeros(row: list[Any]) -> bool:
    return len(row) == 5 and row[3] in (sparse_coding.BITMASK, sparse_coding.POSITIONS)


def _lookup(digest: str, kind: tuple[np.dtype[Any], tuple[int, ...]], held: Mapping[str, Array] | None) -> Array:
    """A tensor that was named and not sent, checked against the dtype and shape in the frame."""
    array = (held or {}).get(digest)
    if array is None:
        raise WireError(f"the frame names tensor {digest!r}, which is not held here", code="tensor-not-held")
    if (array.dtype, array.shape) != kind:
        raise WireError(
            f"the frame says that tensor {digest!r} is {kind}; it is {(array.dtype, array.shape)}",
            code="tensor-differs",
        )
    return array


def _position(place: Any, items: list[Array]) -> int:
    if type(place) is not int or not 0 <= place < len(items):
        raise WireError("the frame refers to an array that it does not carry", code="array-not-carried")
    return place
