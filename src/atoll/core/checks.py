"""Every reply is checked against what its task expects, before a method sees it.

A task's `returns` has the structure of the expected payload, with a check in each leaf:

    {"weights": TensorsLike.of(weights), "correct": Count(120), "confusion": CountArray((10, 10), total=120)}

`inspect` returns None for a good payload and the reason for a bad one. Its first word names the rule: `schema`,
`shape`, `dtype`, `nonfinite`, `count`, `mask`, or a rule of the check itself, such as `genome`. A method or a plug-in
registers checks of its own with `register`.

`limits` says how long the frame of such a reply may be, so that a longer one is refused unread (`size`).
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from atoll.core import wire
from atoll.core.messages import Array, Tensors
from atoll.core.wire import FrameLimits
from atoll.errors import ConfigError

# Of a payload that no check describes, and of a client's memory: what a frame may take at most.
UNDESCRIBED = FrameLimits(header=16 * 2**20, arrays=2 * 2**30)
# Added to what a payload takes: error messages, the frame's own keys, and arrays that are only somewhat too large, for
# which another rule gives a better reason.
SPARE = FrameLimits(header=16 * 2**10, arrays=2**20)
NUMBER, ARRAY = 48, 256  # bytes in a header: of a number or an empty value, and of an array without its name


class Check(Protocol):
    """What one leaf of a payload must be: a frozen dataclass of JSON values and tuples.

    A check may also have `limits()`, the `FrameLimits` of a value that it accepts.
    """

    def problem(self, value: Any) -> str | None:
        """Why this value is refused, or None. The first word names the rule."""
        ...


Update = Literal["values", "change"]
CheckT = TypeVar("CheckT", bound=type[Any])
_kinds: dict[str, type[Any]] = {}


def _kind_of(check: type[Any]) -> str:
    return f"{check.__module__}:{check.__qualname__}"


def register(check: CheckT) -> CheckT:
    """Class decorator: a task in flight can be saved with this check. Its name is `module:Class`, as with jobs."""
    _kinds[_kind_of(check)] = check
    return check


@register
@dataclass(frozen=True)
class TensorsLike:
    """Tensors with exactly these names, dtypes and shapes, every value finite.

    `update` says that they are a client's update, whose size is compared with those of other clients (see
    `federation/trust.py`): new "values" of the tensors that the task holds under the same key, or the "change" itself.
    `longest` is the most that its training can have changed them, as the length (L2 norm) of all changes together.
    """

    model: Mapping[str, tuple[str, tuple[int, ...]]]
    update: Update | None = field(default=None, kw_only=True)
    longest: float | None = field(default=None, kw_only=True)

    @classmethod
    def of(
        cls, tensors: Mapping[str, Array], update: Update | None = None, longest: float | None = None
    ) -> TensorsLike:
        """Tensors with the names, dtypes and shapes of these."""
        model = {name: (array.dtype.str, array.shape) for name, array in tensors.items()}
        return cls(model, update=update, longest=longest)

    def limits(self) -> FrameLimits:
        names = sum(_text(name) + ARRAY for name in self.model)
        return FrameLimits(names, sum(_bytes(dtype, shape) for dtype, shape in self.model.values()))

    def problem(self, value: Any) -> str | None:
        if not isinstance(value, Tensors):
            return f"schema: {type(value).__name__} where tensors were expected"
        if value.keys() != self.model.keys():
            odd = sorted(value.keys() ^ self.model.keys())[:3]
            return f"schema: tensors differ from those expected at {', '.join(map(repr, odd))}"
        for name, (dtype, shape) in self.model.items():
            fault = _array_fault(value[name], np.dtype(dtype), shape)
            if fault:
                return f"{fault} in {name!r}"
        return None


@register
@dataclass(frozen=True)
class OnGraph(TensorsLike):
    """Tensors like these, where each one named in `connections` holds the weights of that number of connections.

    A sparse layer's weights are a vector with one entry per connection. A full matrix breaks this rule, and so does a
    vector of another length.
    """

    connections: Mapping[str, int]

    def problem(self, value: Any) -> str | None:
        if isinstance(value, Tensors):
            for name, count in self.connections.items():
                array = value.get(name)
                if array is not None and array.shape != (count,):
                    return f"mask: weights of shape {array.shape} for a graph of {count} connections in {name!r}"
        return super().problem(value)


@register
@dataclass(frozen=True)
class ArrayOf:
    """One array of this dtype and shape, every value finite."""

    dtype: str
    shape: tuple[int, ...]

    def limits(self) -> FrameLimits:
        return FrameLimits(ARRAY, _bytes(self.dtype, self.shape))

    def problem(self, value: Any) -> str | None:
        return _array_fault(value, np.dtype(self.dtype), self.shape)


@register
@dataclass(frozen=True)
class CountArray:
    """An int64 array of this shape without negative numbers, whose sum is `total`."""

    shape: tuple[int, ...]
    total: int
    each: int = 0  # number of leading axes that are summed separately: 1 means that every row adds up to `total`

    def limits(self) -> FrameLimits:
        return FrameLimits(ARRAY, _bytes("<i8", self.shape))

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


@register
@dataclass(frozen=True)
class CountsUpTo:
    """An int64 array of this shape, each number from 0 to `maximum`."""

    shape: tuple[int, ...]
    maximum: int

    def limits(self) -> FrameLimits:
        return FrameLimits(ARRAY, _bytes("<i8", self.shape))

    def problem(self, value: Any) -> str | None:
        fault = _array_fault(value, np.dtype(np.int64), self.shape)
        if fault:
            return fault
        if value.size and (value.min() < 0 or value.max() > self.maximum):
            return f"count: a number outside 0 to {self.maximum}"
        return None


@register
@dataclass(frozen=True)
class Count:
    """A whole number from 0 to `maximum`."""

    maximum: int

    def limits(self) -> FrameLimits:
        return FrameLimits(NUMBER, 0)

    def problem(self, value: Any) -> str | None:
        if type(value) is not int:
            return f"schema: {type(value).__name__} where a whole number was expected"
        if 0 <= value <= self.maximum:
            return None
        shown = value if abs(value) < 2**64 else "a huge number"
        return f"count: {shown} is outside 0 to {self.maximum}"


@register
@dataclass(frozen=True)
class Number:
    """A finite number within bounds. The usual ones leave room for sums that are still finite."""

    low: float = -1e100
    high: float = 1e100

    def limits(self) -> FrameLimits:
        return FrameLimits(NUMBER, 0)

    def problem(self, value: Any) -> str | None:
        if type(value) not in (int, float):
            return f"schema: {type(value).__name__} where a number was expected"
        if isinstance(value, float) and not math.isfinite(value):
            return "nonfinite: NaN or infinite number"
        if self.low <= value <= self.high:
            return None
        # A whole number may have thousands of digits, more than a float can hold.
        shown = value if isinstance(value, float) or abs(value) < 2**64 else "a huge number"
        return f"count: {shown} is outside {self.low} to {self.high}"


def limits(returns: Any) -> FrameLimits:
    """What the frame of a reply may take if its payload is to pass these checks."""
    return (_room(returns) or UNDESCRIBED) + SPARE


def _room(returns: Any) -> FrameLimits | None:
    """Without the spare; None if a part is not described."""
    if isinstance(returns, (Mapping, list)):
        values = returns.values() if isinstance(returns, Mapping) else returns
        parts = [_room(value) for value in values]
        keys = sum(map(_text, returns)) if isinstance(returns, Mapping) else 0
        known = [part for part in parts if part is not None]
        return sum(known, FrameLimits(keys + NUMBER, 0)) if len(known) == len(parts) else None
    own: FrameLimits | None = returns.limits() if hasattr(returns, "limits") else None
    return own


def _text(name: str) -> int:
    """The most bytes of a text in a header, with what separates it from others."""
    return 6 * len(name) + 8


def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    return np.dtype(dtype).itemsize * math.prod(shape)


def to_plain(returns: Any) -> Any:
    """The checks as plain data, so that a task in flight can be saved with them."""
    if returns is None:
        return None
    if isinstance(returns, Mapping):
        return {"table": {key: to_plain(value) for key, value in returns.items()}}
    if isinstance(returns, list):
        return {"list": [to_plain(value) for value in returns]}
    kind = _kind_of(type(returns))
    if kind not in _kinds:
        raise TypeError(f"reply check {kind!r} is not registered; decorate its class with @checks.register")
    return {"kind": kind, "values": json.loads(json.dumps(asdict(returns)))}


def from_plain(plain: Any) -> Any:
    """The inverse of `to_plain`. A `ConfigError` names a check that is not installed here."""
    if plain is None:
        return None
    if "table" in plain:
        return {key: from_plain(value) for key, value in plain["table"].items()}
    if "list" in plain:
        return [from_plain(value) for value in plain["list"]]
    values = {name: _with_tuples(value) for name, value in plain["values"].items()}
    return _find(plain["kind"])(**values)


def _find(kind: str) -> type[Any]:
    if kind not in _kinds:
        module = kind.partition(":")[0]
        try:
            importlib.import_module(module)  # registers its checks
        except (ImportError, ValueError) as problem:
            reason = f"module '{module}' cannot be imported ({problem}); install the package that it belongs to"
            raise ConfigError(f"reply check '{kind}': {reason}", code="unknown-reply-check") from None
    if kind not in _kinds:
        raise ConfigError(
            f"reply check '{kind}': not registered; decorate its class with @checks.register",
            code="unknown-reply-check",
        )
    return _kinds[kind]


def _with_tuples(value: Any) -> Any:
    """JSON has lists where a frozen dataclass has tuples."""
    if isinstance(value, list):
        return tuple(_with_tuples(item) for item in value)
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    return value


def inspect(payload: Any, returns: Any) -> str | None:
    """Why this payload is refused, or None. `returns=None` accepts every payload that the wire can carry."""
    if returns is None:
        return None
    if isinstance(returns, Mapping):
        if not isinstance(payload, dict):
            return f"schema: {type(payload).__name__} where a table was expected"
        if payload.keys() != returns.keys():
            odd = sorted(payload.keys() ^ returns.keys())[:3]
            return f"schema: keys differ from those expected at {', '.join(map(repr, odd))}"
        found = (inspect(payload[key], returns[key]) for key in returns)
        return next((reason for reason in found if reason), None)
    if isinstance(returns, list):
        if not isinstance(payload, list) or len(payload) != len(returns):
            return f"schema: a list of {len(returns)} was expected"
        found = (inspect(item, wanted) for item, wanted in zip(payload, returns, strict=True))
        return next((reason for reason in found if reason), None)
    check: Check = returns
    return check.problem(payload)


def inspect_memory(memory: Any, remembers: Any) -> str | None:
    """Why a client's memory is refused, or None. `remembers` describes it; else tensors must be finite, and no number
    may be NaN: a best value so far may well be minus infinity."""
    if not isinstance(memory, dict):
        return f"schema: a client's memory is a {type(memory).__name__}, not a table"
    try:
        parts = wire.take_apart(memory)
    except TypeError as problem:
        return f"schema: a client's memory: {problem}"
    arrays = [*parts.arrays, *(owner[name] for owner, name in parts.tensors)]
    nbytes = sum(array.nbytes for array in arrays)
    if nbytes > UNDESCRIBED.arrays:
        return f"size: a client's memory has arrays of {nbytes} bytes; at most {UNDESCRIBED.arrays} are accepted"
    if remembers is not None:
        reason = inspect(memory, remembers)
        return reason and f"{reason}, in a client's memory"
    sound = all(is_finite(owner[name]) for owner, name in parts.tensors)
    sound = sound and not any(array.dtype.kind == "f" and np.isnan(array).any() for array in parts.arrays)
    sound = sound and not any(map(math.isnan, _numbers(parts.tree)))
    return None if sound else "nonfinite: NaN, or tensors that are not finite, in a client's memory"


def _numbers(tree: Any) -> Iterator[float]:
    if isinstance(tree, (dict, list)):
        for value in tree.values() if isinstance(tree, dict) else tree:
            yield from _numbers(value)
    elif isinstance(tree, float):
        yield tree


def _array_fault(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> str | None:
    if not isinstance(value, np.ndarray):
        return f"schema: {type(value).__name__} where an array was expected"
    if value.dtype != dtype:
        return f"dtype: {value.dtype} instead of {dtype}"
    if value.shape != shape:
        return f"shape: {value.shape} instead of {shape}"
    return None if is_finite(value) else "nonfinite: NaN or infinite values"


def is_finite(array: Array) -> bool:
    """Whether no value is NaN or infinite."""
    if array.dtype.kind != "f":
        return True
    # A sum is finite only if no summand is NaN or infinite. The elements are tested only where it is not finite: finite
    # values can overflow, too.
    with np.errstate(all="ignore"):
        total = float(array.sum(dtype=np.float64))
    return math.isfinite(total) or bool(np.isfinite(array).all())
