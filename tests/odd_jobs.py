"""Client jobs that misbehave, for engine tests. Workers find them because tests/ is on the path."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from atoll.clients import jobs
from atoll.core.messages import Payload, Tensors
from atoll.training.client import Client


def shout(payload: Payload, client: Client) -> Payload:
    """Write to every output stream, and try to read the messages of the engine."""
    print("shouted on the standard output", flush=True)
    os.write(1, b"ATL1 and on its file descriptor\n")
    return {"read": sys.stdin.read() + os.read(0, 10).decode()}


def leave(payload: Payload, client: Client) -> Payload:
    sys.exit("a job must not end its process")


def forget(payload: Payload, client: Client) -> Payload:
    """Count to two in the client's memory, then clear it."""
    client.memory["count"] = client.memory.get("count", 0) + 1
    count = client.memory["count"]
    if count == 2:
        client.memory.clear()
    return {"count": count}


def no_table(payload: Payload, client: Client) -> Any:
    return [1, 2]


def whose_process(payload: Payload, client: Client) -> Payload:
    return {"pid": os.getpid()}


def train_or_ruin(payload: Payload, client: Client) -> Payload:
    """Training, but one client sends weights that would ruin the average."""
    if client.data.name != payload["ruined_by"]:
        return jobs.train(payload, client)
    ruined = Tensors({name: np.full_like(array, 3e38) for name, array in payload["weights"].items()})
    return {"weights": ruined} | jobs.measured(payload, client)


def labels(payload: Payload, client: Client) -> Payload:
    """What the client takes for its labels."""
    payload["into"] |= {part: client.data.part(part)[1] for part in ("train", "validation")}  # type: ignore[arg-type]
    return {}


def remember(payload: Payload, client: Client) -> Payload:
    """Put this into the client's memory; the reply is what was there before."""
    before = client.memory.get("value", 0)
    value = payload["value"]
    client.memory["value"] = np.array([1.0, float(value)]) if isinstance(value, str) else value
    return {"before": before}


ODD = (shout, leave, forget, no_table, whose_process, train_or_ruin, labels, remember)
JOBS: dict[str, Any] = {job.__name__: job for job in ODD}
