"""Client jobs for engine tests: they reply, draw random numbers, use memory, fail, delay and kill their process."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from atoll.core.messages import Payload, Tensors
from atoll.training.client import Client


def echo(payload: Payload, client: Client) -> Payload:
    return {"value": payload["value"]}


def draw(payload: Payload, client: Client) -> Payload:
    """Numbers from the client's stream."""
    return {"numbers": client.rng.random(3)}


def remember(payload: Payload, client: Client) -> Payload:
    """Count the calls in the client's memory; then fail if the payload asks for it."""
    client.memory["calls"] = int(client.memory.get("calls", 0)) + 1
    if payload.get("fail"):
        raise ValueError("asked to fail after changing the memory")
    return {"calls": client.memory["calls"]}


def fail(payload: Payload, client: Client) -> Payload:
    raise ValueError("asked to fail")


def dawdle(payload: Payload, client: Client) -> Payload:
    """Answer after `seconds`."""
    time.sleep(payload["seconds"])
    return {"value": payload["value"]}


def die_once(payload: Payload, client: Client) -> Payload:
    """Kill the process that does the task, the first `times` times; a file counts them."""
    path = Path(payload["file"])
    deaths = len(path.read_text()) if path.exists() else 0
    if deaths < payload["times"]:
        path.write_text("x" * (deaths + 1))
        os.kill(os.getpid(), signal.SIGKILL)
    return {"numbers": client.rng.random(3)}


def own_rows(payload: Payload, client: Client) -> Payload:
    """Sums over the client's own data."""
    x, y = client.data.part("train")
    return {"rows": len(y), "sum": float(x.sum(dtype=np.float64)), "labels": np.bincount(y, minlength=3)}


def weights(payload: Payload, client: Client) -> Payload:
    """Return the given tensors plus one."""
    return {"weights": Tensors({name: array + 1 for name, array in payload["weights"].items()})}


def illegal(payload: Payload, client: Client) -> Payload:
    """Return a value that the wire format cannot carry."""
    return {"value": {1, 2, 3}}


def flood(payload: Payload, client: Client) -> Payload:
    """Return an array of this many bytes, whatever was asked for."""
    return {"value": np.ones(payload["bytes"], np.uint8)}


JOBS: dict[str, Any] = {
    job.__name__: job for job in (echo, draw, remember, fail, dawdle, die_once, own_rows, weights, illegal, flood)
}
