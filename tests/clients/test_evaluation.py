"""Batch norm statistics that a client reports must be possible for its rows."""

from __future__ import annotations

import numpy as np
import pytest

from atoll.clients.evaluation import statistics_check
from atoll.core.checks import from_plain, to_plain
from atoll.core.messages import Tensors
from atoll.rng import stream
from atoll.spaces import initial
from atoll.training.calibration import calibrate
from atoll.training.networks import network

ARCH = {"space": "fixed", "model": "convnet", "input": [1, 8, 8], "classes": 2, "widths": [2, 2, 2, 2, 2, 2]}


def honest(rows: int = 7) -> Tensors:
    x = stream(1).random((rows, 1, 8, 8), dtype=np.float32)
    return calibrate(network(ARCH), initial(ARCH, stream(2)), x, batch=3)


def test_what_an_honest_client_reports_passes() -> None:
    check = statistics_check(ARCH, 7)
    assert check.problem(honest()) is None
    assert from_plain(to_plain(check)) == check


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("count", -1e9),
        ("count", 6.0),
        ("count", 1e300),
        ("count", 7.5),
        ("sum", 1e300),
        ("squares", -1.0),
        ("squares", 0.0),
        ("squares", 1e300),
        ("sum", np.nan),
    ],
)
def test_what_no_rows_can_give_is_refused(kind: str, value: float) -> None:
    found = honest()
    name = next(name for name in found if name.endswith(f".{kind}"))
    bad = found.replaced({name: np.full_like(found[name], value)})
    reason = statistics_check(ARCH, 7).problem(bad)
    assert reason is not None and reason.split(":")[0] in ("count", "nonfinite")


def test_statistics_of_more_rows_than_the_client_has_are_refused() -> None:
    assert statistics_check(ARCH, 7).problem(honest(8)) is not None
