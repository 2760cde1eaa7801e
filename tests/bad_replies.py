"""Replies that break a rule: a good reply, and one thing wrong in it, drawn at random."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from atoll.core.checks import Count, CountArray, CountsUpTo, Number, TensorsLike
from atoll.core.messages import Payload, Tensors
from atoll.rng import Generator

Path = tuple[Any, ...]
Change = Callable[[Any, Any, Generator], Any]  # a good value, its check: a bad value


def leaves(returns: Any, payload: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """Every described value: where it is, its check, and the value."""
    if isinstance(returns, (Mapping, list)):
        for key in returns if isinstance(returns, Mapping) else range(len(returns)):
            yield from leaves(returns[key], payload[key], (*path, key))
    else:
        yield path, returns, payload


def _one(array: Any, value: Any, rng: Generator) -> Any:
    """The array with one element replaced."""
    changed = array.copy()
    changed.reshape(-1)[rng.integers(changed.size)] = value
    return changed


def _tensor(change: Callable[[Any, Generator], Any]) -> Change:
    """Changes one of the tensors."""

    def changed(value: Any, check: Any, rng: Generator) -> Any:
        name = sorted(value)[int(rng.integers(len(value)))]
        return value.replaced({name: change(value[name], rng)})

    return changed


TENSORS: list[Change] = [
    _tensor(lambda array, rng: _one(array, np.nan, rng)),
    _tensor(lambda array, rng: _one(array, np.inf, rng)),
    _tensor(lambda array, rng: _one(array, -np.inf, rng)),
    _tensor(lambda array, rng: np.full_like(array, np.nan)),
    _tensor(lambda array, rng: array.astype(np.float16)),
    _tensor(lambda array, rng: array.astype(np.int64)),
    _tensor(lambda array, rng: array[None]),
    _tensor(lambda array, rng: array[..., :-1] if array.ndim else array[None]),
    _tensor(lambda array, rng: np.zeros((*array.shape, 2), array.dtype)),
    lambda value, check, rng: Tensors(dict(list(value.items())[1:])),
    lambda value, check, rng: Tensors({**value, "another": np.zeros(1, np.float32)}),
    lambda value, check, rng: Tensors({f"{name}x": array for name, array in value.items()}),
    lambda value, check, rng: dict(value),
    lambda value, check, rng: None,
]
UPDATES: list[Change] = [  # need others to compare with
    _tensor(lambda array, rng: np.full_like(array, 3e38)),
    _tensor(lambda array, rng: np.full_like(array, -1e30)),
    _tensor(lambda array, rng: _one(array, 1e30, rng)),
]
COUNTS: list[Change] = [
    lambda value, check, rng: _one(value, -1, rng),
    lambda value, check, rng: _one(value, 2**62, rng),
    lambda value, check, rng: value.astype(np.float64),
    lambda value, check, rng: value.astype(np.int32),
    lambda value, check, rng: value[None],
    lambda value, check, rng: value[:-1],
    lambda value, check, rng: value.tolist(),
    lambda value, check, rng: "all of them",
]
SUMS: list[Change] = [
    lambda value, check, rng: value + 1,
    lambda value, check, rng: _one(value, int(check.total) + 1, rng),
    lambda value, check, rng: value * 0 - 1,
]
NUMBERS: list[Change] = [
    lambda value, check, rng: -1,
    lambda value, check, rng: check.maximum + 1,
    lambda value, check, rng: 10**400,
    lambda value, check, rng: -(2**63),
    lambda value, check, rng: float(value),
    lambda value, check, rng: float("nan"),
    lambda value, check, rng: True,
    lambda value, check, rng: None,
    lambda value, check, rng: str(value),
    lambda value, check, rng: [value],
    lambda value, check, rng: np.array(value),
]
FLOATS: list[Change] = [
    lambda value, check, rng: float("nan"),
    lambda value, check, rng: float("inf"),
    lambda value, check, rng: 10**400,
    lambda value, check, rng: 1e308,
    lambda value, check, rng: None,
    lambda value, check, rng: "0.5",
]
OTHERS: list[Change] = [  # bytes of genomes, and other checks of methods
    lambda value, check, rng: None,
    lambda value, check, rng: 7,
    lambda value, check, rng: {"a": 1},
]
BYTES: list[Change] = [
    lambda value, check, rng: value[:-1],
    lambda value, check, rng: value[:0],
    lambda value, check, rng: np.concatenate([value, value]),
    lambda value, check, rng: value.astype(np.int64),
    lambda value, check, rng: value * 0 + np.uint8(255),
]
WHOLE: list[Callable[[Payload], Any]] = [  # of the table itself
    lambda payload: {**payload, "more": 1},
    lambda payload: {f"{key}s": value for key, value in payload.items()} or {"less": 0},
    lambda payload: {key: payload[key] for key in list(payload)[1:]} if payload else {"more": []},
    lambda payload: {"payload": payload},
    lambda payload: dict.fromkeys(payload) or {"none": None},
]


def _changes(check: Any, value: Any, compared: bool) -> list[Change]:
    if isinstance(check, TensorsLike):
        some = [*TENSORS, *(UPDATES if check.update and compared else [])] if len(value) else OTHERS
        return [change for change in some if change is not TENSORS[9] or len(value)]
    if isinstance(check, CountArray):
        return [*COUNTS, *SUMS] if value.size else OTHERS
    if isinstance(check, CountsUpTo):
        return COUNTS if value.size else OTHERS
    if isinstance(check, Count):
        return NUMBERS
    if isinstance(check, Number):
        return FLOATS
    return BYTES if isinstance(value, np.ndarray) and value.dtype == np.uint8 else OTHERS


def spoiled(payload: Payload, returns: Any, rng: Generator, compared: bool = True) -> Any:
    """The payload with one thing wrong. `compared`: at least three other clients send updates in the same exchange."""
    found = [leaf for leaf in leaves(returns, payload) if leaf[1] is not None]
    if not found or rng.random() < 0.1:
        return WHOLE[int(rng.integers(len(WHOLE)))](payload)
    path, check, value = found[int(rng.integers(len(found)))]
    changes = _changes(check, value, compared)
    bad = changes[int(rng.integers(len(changes)))](value, check, rng)
    return _with(payload, path, bad)


def _with(payload: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    changed = copy.copy(payload)
    changed[path[0]] = _with(payload[path[0]], path[1:], value)
    return changed
