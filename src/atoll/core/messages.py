"""The messages between the server and the clients.

A payload is a dict of JSON values, numpy arrays and `Tensors`; `wire.py` refuses anything else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Payload = dict[str, Any]

Part = Literal["train", "validation", "test"]
PARTS: tuple[Part, ...] = ("train", "validation", "test")

# The part of a task's or a reply's payload that serves the report only, as test evaluations do: its bytes are not
# charged to the search, and no fault strikes it.
REPORT = "report"

REJECTED = "rejected, "  # how the error of a reply begins that a rule has refused
LONGEST = 4000  # characters of a text that comes from a client

Late = Literal["drop", "use", "compensate"]  # what becomes of replies to earlier exchanges


class Tensors(Mapping[str, Array]):
    """Named arrays (a state dict, or a slice of one). Immutable: the arrays are marked read-only.

    On the wire a tensor is identified by its content, so it is not sent again to a receiver that holds it.
    """

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays: dict[str, Array] = {}
        self._digests: dict[str, str] = {}
        self._codings: dict[str, tuple[int, int]] = {}  # the coding of each, filled in by the wire
        for name, array in arrays.items():
            if not isinstance(name, str):
                raise TypeError(f"a tensor's name must be text, not {name!r}")
            if not isinstance(array, np.ndarray):
                raise TypeError(f"tensor {name!r} is a {type(array).__name__}, not a numpy array")
            fixed = np.ascontiguousarray(array).reshape(array.shape)
            if fixed is array and array.flags.writeable:
                fixed = array.view()
            fixed.flags.writeable = False
            self._arrays[name] = fixed

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        return f"Tensors({len(self)} arrays, {self.nbytes:,} bytes)"

    @cached_property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays.values())

    def digest(self, name: str) -> str:
        """The content digest of one tensor, computed once."""
        if name not in self._digests:
            self._digests[name] = content_name(self._arrays[name])
        return self._digests[name]

    def coding(self, name: str, best: Callable[[Array], tuple[int, int]]) -> tuple[int, int]:
        """The coding that `best` chooses for one tensor, computed once: the same weights go to many clients."""
        if name not in self._codings:
            self._codings[name] = best(self._arrays[name])
        return self._codings[name]

    def know(self, digests: Mapping[str, str]) -> None:
        """Accept digests that came with the tensors, to save hashing."""
        self._digests.update(digests)

    def slice(self, names: Mapping[str, Any] | list[str] | tuple[str, ...]) -> Tensors:
        """The tensors of these names, without copying; known digests are retained."""
        part = Tensors({})
        for name in names:
            part._arrays[name] = self._arrays[name]
            if name in self._digests:
                part._digests[name] = self._digests[name]
            if name in self._codings:
                part._codings[name] = self._codings[name]
        return part

    def replaced(self, changed: Mapping[str, Array]) -> Tensors:
        """These tensors with some of them replaced; the digests of the others are retained."""
        new = Tensors({name: changed.get(name, array) for name, array in self._arrays.items()})
        new._digests = {name: digest for name, digest in self._digests.items() if name not in changed}
        return new

    def whole_digest(self) -> str:
        """One digest for all tensors together."""
        digest = hashlib.blake2b(digest_size=16)
        for name in sorted(self._arrays):
            digest.update(f"{name}={self.digest(name)};".encode())
        return digest.hexdigest()


def content_name(array: Array) -> str:
    """128 bits over dtype, shape and bytes: equal digests mean equal tensors."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return digest.hexdigest()


@dataclass(frozen=True)
class Schema:
    """The form of the data, the same for all clients of a federation."""

    kind: Literal["image", "table"]
    shape: tuple[int, ...]  # image: channels, height, width; table: (features,)
    classes: tuple[str, ...]
    features: tuple[str, ...] = ()  # names of a table's columns

    @property
    def outputs(self) -> int:
        return len(self.classes)


@dataclass(frozen=True)
class ClientInfo:
    """All that the server may know about a client."""

    name: str
    sizes: Mapping[Part, int]
    schema: Schema
    labels: tuple[int, ...] | None = None  # training rows per class, if the client shares them
    bandwidth: float | None = None  # bytes per second
    speed: float | None = None  # multiply-accumulates per second


@dataclass(frozen=True)
class TaskSize:
    """What a task asks of its client, where the payload alone does not show it. A site compares it with its limits."""

    steps: int = 0  # training steps, or passes over the rows, for each member of the population
    parameters: int = 0  # weights of the largest network
    memory: int = 0  # bytes
    population: int = 1  # networks that are trained or evolved side by side

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 1 if name == "population" else 0
            if type(value) is not int or value < least:
                raise ValueError(f"{name} = {str(value)[:40]!r}: a task's size is a whole number of {least} or more")


@dataclass(frozen=True)
class Task:
    """One piece of work for one client.

    `job` names a function as `module:name`; the module's `JOBS` holds it. `macs` is the server's estimate of
    what the work costs the client. `returns` says what the reply may hold (see `core/checks.py`), `remembers` what the
    client's memory may be after it; without it the memory must hold no NaN. A `test_evaluation` measures for the report
    only and is not charged to the search.
    """

    id: str
    client: str
    job: str
    payload: Payload
    macs: int = 0
    returns: Any = None
    test_evaluation: bool = False
    size: TaskSize = TaskSize()
    remembers: Any = None


@dataclass(frozen=True)
class Reply:
    """The outcome of a task: a payload, or an error as text."""

    task: Task
    payload: Payload = field(default_factory=dict)
    error: str | None = None
    round: int = 0  # the round in which its task was sent
    asked: bool = True  # False: the task was not sent, because its client is not asked any more

    @property
    def ok(self) -> bool:
        return self.error is None


def printable(text: str) -> str:
    """Text without control characters and halves of surrogate pairs: `\\x1b` is written out. Every file can hold it."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def one_line(text: str) -> str:
    """A text that comes from a client, as every file, log and terminal can take it: one line, and not endless."""
    return printable(" ".join(text[: 4 * LONGEST].split()))[:LONGEST]


def charged(payload: Payload) -> Payload:
    """The payload without what serves the report only."""
    return {key: value for key, value in payload.items() if key != REPORT}
