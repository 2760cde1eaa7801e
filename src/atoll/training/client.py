"""The arguments of a client job: the client's data, memory and random stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from atoll.core.messages import Array, Part, Schema


class LocalData(Protocol):
    """The data of one client, as a job sees it. See `atoll.data`."""

    @property
    def schema(self) -> Schema: ...

    def part(self, part: Part, /) -> tuple[Array, Array]:
        """Rows (float32) and labels (int64), as new arrays."""
        ...


@dataclass
class Client:
    """`memory` lives on between the client's tasks; `rng` is this task's own stream."""

    data: LocalData
    memory: dict[str, Any]
    rng: np.random.Generator
    device: str = "cpu"
