"""Doing one task on a client's data: the same few lines on every engine."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from atoll import wire
from atoll.messages import Payload
from atoll.rng import stream

if TYPE_CHECKING:
    from atoll.data import ClientData
    from atoll.learning.client import Client

Job = Callable[[Payload, "Client"], Payload]


def find_job(name: str) -> Job:
    """The function behind `module:name`, from the module's own `JOBS` table."""
    module_name, _, job_name = name.partition(":")
    jobs: dict[str, Job] = importlib.import_module(module_name).JOBS
    return jobs[job_name]


def perform(
    job: str,
    payload: Payload,
    memory: Payload,
    data: ClientData,
    stream_name: tuple[int, str, int, str, int],
    device: str,
) -> tuple[Payload, Payload]:
    """The job's reply and the client's new memory, both checked to be wire-legal."""
    from atoll.learning.client import Client

    # A job may change its memory in place, and a failed task must leave it as it was: it works on a copy.
    own = wire.decode(wire.encode(memory, digests=False)) if memory else {}
    client = Client(data=data, memory=own, rng=stream(*stream_name), device=device)
    answer = find_job(job)(payload, client)
    for what, value in (("reply", answer), ("memory", client.memory)):
        if not isinstance(value, dict):
            raise TypeError(f"a job's {what} must be a table, not a {type(value).__name__}")
        wire.take_apart(value)
    return answer, client.memory


def words(problem: BaseException) -> str:
    """A client's failure in one line: what it was and where."""
    frames = traceback.extract_tb(problem.__traceback__)
    where = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    text = " ".join(str(problem).split())[:300]
    return f"{type(problem).__name__}: {text}{where}"


def stream_name(seed: int, round_number: int, client: str, number: int) -> tuple[int, str, int, str, int]:
    """Contract, point 4: what a client's random stream is named by."""
    return (seed, "client", round_number, client, number)
