"""The arguments of a client job: the client's data, memory and random stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from atoll.core.messages import Array, Part, Schema, TaskSize


class LocalData(Protocol):
    """The data of one client, as a job sees it. See `atoll.data`."""

    @property
    def schema(self) -> Schema: ...

    def part(self, part: Part, /) -> tuple[Array, Array]:
        """Rows (float32) and labels (int64), as new arrays."""
        ...


@dataclass
class Client:
    """`memory` lives on between the client's tasks; `rng` is this task's own stream. `noise` is for `[privacy]` only:
    noise and batches are drawn from it, and no other work has the same stream.

    `size` is what the task declares to a real site, whose limits were compared with it; None in a simulation. A job
    whose payload can ask for more than a site can see must refuse what exceeds it.
    """

    data: LocalData
    memory: dict[str, Any]
    rng: np.random.Generator
    device: str = "cpu"
    size: TaskSize | None = None
    noise: np.random.Generator | None = None
