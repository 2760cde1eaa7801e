"""What a client's job is given: the client's own data, memory and random stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from atoll.core.messages import Array, Part, Schema, TaskSize


class ClientData(Protocol):
    """One client's data. See `atoll.data`."""

    @property
    def schema(self) -> Schema: ...

    def part(self, part: Part, /) -> tuple[Array, Array]:
        """Rows (float32) and labels (int64), freshly gathered."""
        ...


@dataclass
class Client:
    """`memory` lives on between the client's tasks; `rng` is this task's own stream.

    `size` is what the task declares to a real site, whose limits were compared with it; None in a simulation. A job
    whose payload can ask for more than a site can see must refuse what exceeds it.
    """

    data: ClientData
    memory: dict[str, Any]
    rng: np.random.Generator
    device: str = "cpu"
    size: TaskSize | None = None
