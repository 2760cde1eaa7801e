"""A task as a server sends it to a site."""

from __future__ import annotations

import numpy as np

from atoll.core import wire
from atoll.core.messages import Payload


def task_frame(
    run: str, order: int, client: str, job: str, payload: Payload, preparation: Payload, since: int | None = None
) -> bytes:
    """The frame of a small `fedavg` task in round 1, without memory. Orders below `since` are not asked again."""
    inner: Payload = {
        "client": client,
        "method": "fedavg",
        "job": job,
        "payload": payload,
        "size": {},
        "seed": 1,
        "round": 1,
        "number": 0,
        "device": "cpu",
        "memory": None,
        "floor": None,
        "since": since,
        "keep": [],
        "preparation": preparation,
    }
    return wire.encode({"run": run, "order": order, "message": np.frombuffer(wire.encode(inner), np.uint8)})
