"""Every reason for which a reply is refused, and that good replies are not."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from atoll.core import checks, wire
from atoll.core.checks import ArrayOf, Count, CountArray, CountsUpTo, Number, TensorsLike, from_plain, inspect, to_plain
from atoll.core.messages import Tensors
from atoll.errors import ConfigError
from refusals import refused

WEIGHTS = Tensors({"w": np.zeros((2, 3), np.float32), "b": np.zeros(3, np.float32)})
ASKED = {
    "weights": TensorsLike.of(WEIGHTS),
    "vector": ArrayOf("<f8", (2,)),
    "confusion": CountArray((2, 2), 10),
    "each": CountArray((3, 2), 4, each=1),
    "right": CountsUpTo((2,), 4),
    "correct": Count(5),
    "loss": Number(0.0),
    "list": [Count(1), Number(-1.0, 1.0)],
}


def good() -> dict[str, Any]:
    return {
        "weights": WEIGHTS,
        "vector": np.zeros(2),
        "confusion": np.array([[4, 1], [0, 5]]),
        "each": np.array([[4, 0], [1, 3], [2, 2]]),
        "right": np.array([0, 4]),
        "correct": 5,
        "loss": 0.25,
        "list": [0, 1],
    }


def test_a_good_reply_passes() -> None:
    assert inspect(good(), ASKED) is None
    assert inspect({"whatever": [1]}, None) is None


def test_the_same_after_a_detour_over_json() -> None:
    """A task in flight is saved with what it may return."""
    again = from_plain(json.loads(json.dumps(to_plain(ASKED))))
    assert again == ASKED and inspect(good(), again) is None
    assert from_plain(to_plain(None)) is None


def tensors(**changes: Any) -> Tensors:
    return Tensors({**WEIGHTS, **changes})


HUGE = 10**400  # a whole number that no float can hold

BAD: list[tuple[str, Any, str]] = [
    ("weights", {"w": np.zeros((2, 3), np.float32)}, "schema: dict where tensors"),
    ("weights", None, "schema: NoneType where tensors"),
    ("weights", WEIGHTS.slice(["w"]), "schema: tensors differ from those expected at 'b'"),
    ("weights", tensors(extra=np.zeros(1)), "schema: tensors differ from those expected at 'extra'"),
    ("weights", tensors(w=np.zeros((3, 2), np.float32)), "shape: (3, 2) instead of (2, 3) in 'w'"),
    ("weights", tensors(w=np.zeros((2, 3))), "dtype: float64 instead of float32 in 'w'"),
    ("weights", tensors(b=np.array([0, np.nan, 0], np.float32)), "nonfinite: NaN or infinite values in 'b'"),
    ("weights", tensors(b=np.array([np.inf, -np.inf, 0], np.float32)), "nonfinite"),
    ("vector", [0.0, 0.0], "schema: list where an array"),
    ("vector", np.zeros(2, ">f8"), "dtype: >f8 instead of float64"),
    ("vector", np.zeros((2, 1)), "shape"),
    ("vector", np.array([np.nan, 1.0]), "nonfinite"),
    ("confusion", np.array([[4.0, 1.0], [0.0, 5.0]]), "dtype"),
    ("confusion", np.array([[4, 1], [0, 5]], np.int32), "dtype"),
    ("confusion", np.array([[11, -1], [0, 0]]), "count: a number outside 0 to 10"),
    ("confusion", np.array([[4, 1], [0, 4]]), "count: numbers do not add up to 10"),
    ("confusion", np.array([[2**62, 2**62], [2**62, 2**62 + 10]]), "count"),
    ("confusion", np.array([4, 1, 0, 5]), "shape"),
    ("each", np.array([[4, 0], [1, 3], [2, 3]]), "count: numbers do not add up to 4"),
    ("each", np.array([[8, 0], [0, 0], [2, 2]]), "count"),
    ("right", np.array([0, 5]), "count: a number outside 0 to 4"),
    ("right", np.array([-1, 0]), "count"),
    ("right", np.array([1.0, 2.0]), "dtype"),
    ("correct", 6, "count: 6 is outside 0 to 5"),
    ("correct", -1, "count"),
    ("correct", HUGE, "count"),
    ("correct", True, "schema: bool where a whole number"),
    ("correct", 5.0, "schema: float where a whole number"),
    ("correct", "5", "schema"),
    ("loss", -0.5, "count"),
    ("loss", float("nan"), "nonfinite"),
    ("loss", float("inf"), "nonfinite"),
    ("loss", -HUGE, "count"),
    ("loss", True, "schema: bool where a number"),
    ("loss", None, "schema"),
    ("list", [0], "schema: a list of 2"),
    ("list", {"0": 0, "1": 1}, "schema: a list of 2"),
    ("list", [0, 2], "count: 2 is outside -1.0 to 1.0"),
]


@pytest.mark.parametrize(("key", "value", "reason"), BAD)
def test_each_reason(key: str, value: Any, reason: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a client must not be able to write on the server's screen
        found = inspect({**good(), key: value}, ASKED)
    assert found is not None and found.startswith(reason)


def test_keys_must_be_those_asked_for() -> None:
    assert inspect({**good(), "more": 1}, ASKED) == "schema: keys differ from those expected at 'more'"
    missing = good()
    del missing["loss"]
    assert inspect(missing, ASKED) == "schema: keys differ from those expected at 'loss'"
    assert inspect([good()], ASKED) == "schema: list where a table was expected"


def test_large_finite_values_are_finite() -> None:
    """Their sum is not: the check must look again."""
    large = np.full(2, np.finfo(np.float64).max)
    assert inspect({"vector": large}, {"vector": ASKED["vector"]}) is None
    half = np.full(3, 60000, np.float16)
    assert inspect({"x": half}, {"x": ArrayOf("<f2", (3,))}) is None


def test_empty_arrays_pass() -> None:
    assert inspect({"x": np.zeros((0, 2))}, {"x": ArrayOf("<f8", (0, 2))}) is None
    assert inspect({"x": np.zeros((0,), np.int64)}, {"x": CountArray((0,), 0)}) is None


@checks.register
@dataclass(frozen=True)
class EvenNumbers:
    """A check as a plug-in would write it."""

    places: tuple[tuple[int, int], ...]

    def problem(self, value: Any) -> str | None:
        return None if all(value[row][column] % 2 == 0 for row, column in self.places) else "schema: an odd number"


def test_a_plug_in_registers_its_own_check() -> None:
    plain = json.loads(json.dumps(to_plain({"x": EvenNumbers(((0, 1),))})))
    assert plain["table"]["x"] == {"kind": f"{__name__}:EvenNumbers", "values": {"places": [[0, 1]]}}
    again = from_plain(plain)
    assert again == {"x": EvenNumbers(((0, 1),))}
    assert inspect({"x": [[1, 2]]}, again) is None and inspect({"x": [[2, 1]]}, again) == "schema: an odd number"


def test_a_check_is_imported_when_it_is_needed() -> None:
    """The module of a saved check registers it: the server that resumes has not imported it yet."""
    program = (
        "import sys; from atoll.core.checks import from_plain; before = set(sys.modules);"
        "values = dict(inputs=2, outputs=1, hidden=10, connections=20, bound=30.0, recurrent=False);"
        "assert not any('neat' in name for name in before);"
        "print(from_plain({'kind': 'atoll.algorithms.neat.coding:GenomeBytes', 'values': values}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("GenomeBytes(inputs=2"), done.stderr


@pytest.mark.parametrize("kind", ["no_such_module:Check", "json:JSONDecoder", "atoll.core.checks:Check", "Counts", ":"])
def test_an_unknown_check_is_refused_by_its_name(kind: str) -> None:
    with refused(ConfigError, "unknown-reply-check", f"'{kind}'"):
        from_plain({"kind": kind, "values": {}})


def test_a_check_that_is_not_registered_is_not_saved() -> None:
    with pytest.raises(TypeError, match=r"Unregistered.*checks\.register"):
        to_plain(Unregistered())


class Unregistered:
    def problem(self, value: Any) -> str | None:
        return None


def test_the_limits_of_a_reply_follow_from_what_it_may_hold() -> None:
    """Arrays: 4 x (6 + 3) for the weights, 8 x (2 + 4 + 6 + 2) for the others. A megabyte is to spare."""
    limits = checks.limits(ASKED)
    assert limits.arrays - checks.SPARE.arrays == 36 + 112
    frame = wire.encode(good(), digests=False)
    assert inspect(wire.decode(frame, digests=False, limits=limits), ASKED) is None
    assert len(frame) < limits.frame < 2**21


@pytest.mark.parametrize(
    "names", [["w"], ["\U0001f600" * 50, "\x00" * 200], [f"layers.{i}.weight" for i in range(3000)]]
)
def test_honest_replies_are_within_the_limits_without_the_spare(names: list[str]) -> None:
    model = Tensors({name: np.ones((3, 1, 2), np.float32) for name in names})
    returns = {name: TensorsLike.of(model) for name in ("one", "other")} | {"n": Count(2**62), "x": Number()}
    returns |= {"a": ArrayOf("<f8", (1,) * 8)}
    payload = {"one": model, "other": model, "n": 2**62, "x": -1.2345678901234567e-300, "a": np.ones((1,) * 8)}
    limits = checks.limits(returns)
    spare = checks.SPARE
    tight = wire.FrameLimits(limits.header - spare.header, limits.arrays - spare.arrays)
    assert inspect(wire.decode(wire.encode(payload, digests=False), digests=False, limits=tight), returns) is None


def test_what_is_not_described_has_general_limits() -> None:
    assert checks.limits(None) == checks.limits({"a": None, "b": Count(1)}) == checks.UNDESCRIBED + checks.SPARE
    assert checks.limits([]).arrays == checks.SPARE.arrays


@pytest.mark.parametrize("value", [10**400, -(10**400), 1e308, -1e308, math.inf, math.nan])
def test_a_number_that_would_leave_the_finite_ones_is_refused_in_a_short_line(value: float) -> None:
    reason = inspect({"loss": value}, {"loss": Number()})
    assert reason is not None and reason.split(":")[0] in ("count", "nonfinite") and len(reason) < 100
    assert Count(5).problem(10**400) == "count: a huge number is outside 0 to 5"
