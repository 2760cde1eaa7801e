"""Every reply is checked against what its task asked for, before a method sees it.

A task's `returns` is a table of the same form as the payload that may come back, with a description in each leaf:

    {"weights": TensorsLike.of(weights), "correct": Count(120), "confusion": Counts((10, 10), total=120)}

`inspect` gives None for a good payload and a reason in words for a bad one; the first word says which rule:
`schema`, `shape`, `dtype`, `nonfinite`, `count`, `mask` or `genome`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from atoll.algorithms.neat.coding import GenomeLimits
from atoll.algorithms.neat.coding import read as read_genome
from atoll.core.messages import Array, Tensors


class Description(Protocol):
    """What one leaf of a payload must be."""

    def problem(self, value: Any) -> str | None: ...


@dataclass(frozen=True)
class TensorsLike:
    """Tensors with exactly these names, dtypes and shapes, every value finite."""

    model: Mapping[str, tuple[str, tuple[int, ...]]]

    @classmethod
    def of(cls, tensors: Mapping[str, Array]) -> TensorsLike:
        """Tensors of the same form as these."""
        return cls({name: (array.dtype.str, array.shape) for name, array in tensors.items()})

    def problem(self, value: Any) -> str | None:
        if not isinstance(value, Tensors):
            return f"schema: {type(value).__name__} where tensors were asked for"
        if value.keys() != self.model.keys():
            odd = sorted(value.keys() ^ self.model.keys())[:3]
            return f"schema: tensors differ from those asked for at {', '.join(map(repr, odd))}"
        for name, (dtype, shape) in self.model.items():
            fault = _array_fault(value[name], np.dtype(dtype), shape)
            if fault:
                return f"{fault} in {name!r}"
        return None


@dataclass(frozen=True)
class OnGraph(TensorsLike):
    """Tensors like these, where each one named in `connections` is the vector of weights along a graph of that many.

    A graph's weights have no place for one outside of it: a whole matrix, or another number of them, breaks this rule.
    """

    connections: Mapping[str, int]

    def problem(self, value: Any) -> str | None:
        if isinstance(value, Tensors):
            for name, count in self.connections.items():
                array = value.get(name)
                if array is not None and array.shape != (count,):
                    return f"mask: weights of shape {array.shape} for a graph of {count} connections in {name!r}"
        return super().problem(value)


@dataclass(frozen=True)
class ArrayOf:
    """One array of this dtype and shape, every value finite."""

    dtype: str
    shape: tuple[int, ...]

    def problem(self, value: Any) -> str | None:
        return _array_fault(value, np.dtype(self.dtype), self.shape)


@dataclass(frozen=True)
class Counts:
    """An int64 array of this shape, nothing negative, adding up to `total` (along all axes, or the last ones)."""

    shape: tuple[int, ...]
    total: int
    each: int = 0  # how many leading axes count separately: 1 means every row adds up to `total`

    def problem(self, value: Any) -> str | None:
        fault = _array_fault(value, np.dtype(np.int64), self.shape)
        if fault:
            return fault
        if value.size and (value.min() < 0 or value.max() > self.total):
            return f"count: a number outside 0 to {self.total}"
        sums = value.sum(axis=tuple(range(self.each, value.ndim)))
        if not np.all(sums == self.total):
            return f"count: numbers do not add up to {self.total}"
        return None


@dataclass(frozen=True)
class CountsUpTo:
    """An int64 array of this shape, each number from 0 to `maximum`."""

    shape: tuple[int, ...]
    maximum: int

    def problem(self, value: Any) -> str | None:
        fault = _array_fault(value, np.dtype(np.int64), self.shape)
        if fault:
            return fault
        if value.size and (value.min() < 0 or value.max() > self.maximum):
            return f"count: a number outside 0 to {self.maximum}"
        return None


@dataclass(frozen=True)
class Count:
    """A whole number from 0 to `maximum`."""

    maximum: int

    def problem(self, value: Any) -> str | None:
        if type(value) is not int:
            return f"schema: {type(value).__name__} where a whole number was asked for"
        return None if 0 <= value <= self.maximum else f"count: {value} is outside 0 to {self.maximum}"


@dataclass(frozen=True)
class Number:
    """A finite number within bounds."""

    low: float = -math.inf
    high: float = math.inf

    def problem(self, value: Any) -> str | None:
        if type(value) not in (int, float):
            return f"schema: {type(value).__name__} where a number was asked for"
        if isinstance(value, float) and not math.isfinite(value):
            return "nonfinite: NaN or infinite number"
        return None if self.low <= value <= self.high else f"count: {value} is outside {self.low} to {self.high}"


@dataclass(frozen=True)
class GenomeBytes:
    """The bytes of one sound genome within these limits (see `atoll.algorithms.neat.coding`)."""

    inputs: int
    outputs: int
    hidden: int
    connections: int
    bound: float
    recurrent: bool

    def problem(self, value: Any) -> str | None:
        if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or value.ndim != 1:
            return "schema: something else where the bytes of a genome were asked for"
        reason, _ = read_genome(value, GenomeLimits(**asdict(self)))
        return f"genome: {reason}" if reason else None


DESCRIPTIONS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (TensorsLike, OnGraph, ArrayOf, Counts, CountsUpTo, Count, Number, GenomeBytes)
}


def to_plain(returns: Any) -> Any:
    """A description as plain data, so that a task in flight can be saved with what it may return."""
    if returns is None:
        return None
    if isinstance(returns, Mapping):
        return {"table": {key: to_plain(value) for key, value in returns.items()}}
    if isinstance(returns, list):
        return {"list": [to_plain(value) for value in returns]}
    return {"kind": type(returns).__name__, "values": json.loads(json.dumps(asdict(returns)))}


def from_plain(plain: Any) -> Any:
    """The inverse of `to_plain`."""
    if plain is None:
        return None
    if "table" in plain:
        return {key: from_plain(value) for key, value in plain["table"].items()}
    if "list" in plain:
        return [from_plain(value) for value in plain["list"]]
    values = dict(plain["values"])
    if "shape" in values:
        values["shape"] = tuple(values["shape"])
    if "model" in values:
        values["model"] = {name: (dtype, tuple(shape)) for name, (dtype, shape) in values["model"].items()}
    return DESCRIPTIONS[plain["kind"]](**values)


def inspect(payload: Any, returns: Any) -> str | None:
    """Why this payload must not be used, or None. `returns=None` accepts any payload that the wire has carried."""
    if returns is None:
        return None
    if isinstance(returns, Mapping):
        if not isinstance(payload, dict):
            return f"schema: {type(payload).__name__} where a table was asked for"
        if payload.keys() != returns.keys():
            odd = sorted(payload.keys() ^ returns.keys())[:3]
            return f"schema: keys differ from those asked for at {', '.join(map(repr, odd))}"
        found = (inspect(payload[key], returns[key]) for key in returns)
        return next((reason for reason in found if reason), None)
    if isinstance(returns, list):
        if not isinstance(payload, list) or len(payload) != len(returns):
            return f"schema: a list of {len(returns)} was asked for"
        found = (inspect(item, wanted) for item, wanted in zip(payload, returns, strict=True))
        return next((reason for reason in found if reason), None)
    description: Description = returns
    return description.problem(payload)


def _array_fault(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> str | None:
    if not isinstance(value, np.ndarray):
        return f"schema: {type(value).__name__} where an array was asked for"
    if value.dtype != dtype:
        return f"dtype: {value.dtype} instead of {dtype}"
    if value.shape != shape:
        return f"shape: {value.shape} instead of {shape}"
    # A sum is finite only if nothing in it is NaN or infinite; the full look is needed only when it is not
    # (it may overflow by itself).
    if dtype.kind == "f":
        with np.errstate(all="ignore"):
            total = float(value.sum(dtype=np.float64))
        if not math.isfinite(total) and not np.isfinite(value).all():
            return "nonfinite: NaN or infinite values"
    return None
