"""What a private task draws noise from: the work itself in a simulation, the system's randomness at a real site."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.core.messages import Payload, TaskSize
from atoll.federation.executor import perform
from atoll.testing import made_table
from atoll.training.client import Client

DATA = made_table(clients=1, rows=20, scale="none").client("client-00")
STREAM = (1, "client", 3, "client-00", 0)


def _draw(payload: Payload, client: Client) -> Payload:
    if payload.get("fails"):
        raise ValueError(f"cannot use a row with {client.data.part('train')[0][0]}")
    assert client.noise is not None
    return {"noise": client.noise.standard_normal(4).tolist(), "plain": client.rng.random(4).tolist()}


JOBS = {"draw": _draw}
JOB = f"{__name__}:draw"


def drawn(size: TaskSize | None = None, stream: tuple[int, str, int, str, int] = STREAM, **payload: Any) -> Payload:
    return perform(JOB, {"privacy": {"noise": 1.0}, **payload}, {}, DATA, stream, "cpu", size)[0]


def test_in_a_simulation_the_same_work_has_the_same_noise_and_other_work_another() -> None:
    """Work of the same number and round may differ after a round that failed: with common noise, the difference of two
    replies would be that of the exact values."""
    first = drawn()
    assert drawn() == first
    for other in (drawn(lr=0.5), drawn(privacy={"noise": 2.0})):
        assert not set(other["noise"]) & set(first["noise"])
        assert other["plain"] == first["plain"]  # which has nothing to hide
    for place, value in enumerate((2, "client", 4, "client-01", 1)):
        if value != STREAM[place]:
            named: Any = (*STREAM[:place], value, *STREAM[place + 1 :])
            assert not set(drawn(stream=named)["noise"]) & set(first["noise"])


def test_a_site_s_noise_does_not_follow_from_the_seed() -> None:
    first, second = drawn(TaskSize()), drawn(TaskSize())
    assert not set(first["noise"]) & set(second["noise"])
    assert not set(first["noise"]) & set(drawn()["noise"])


def test_the_text_of_a_failure_stays_with_the_client() -> None:
    """It may quote a row."""
    with pytest.raises(RuntimeError, match="the reason stays with the client") as problem:
        drawn(fails=True)
    assert problem.value.__cause__ is None and problem.value.__suppress_context__
