"""What a client's memory may hold: islands of nevofed, held changes of decnas and statistics of realtime, one thing
wrong at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from atoll.algorithms.neat.island import new_island
from atoll.algorithms.neat.settings import NeatSettings
from atoll.clients import KeptStatistics
from atoll.core.checks import from_plain, inspect_memory, to_plain
from atoll.core.messages import Tensors
from atoll.methods.decnas.clients import HeldChanges
from atoll.methods.nevofed.clients import island_check
from atoll.rng import stream

SETTINGS = NeatSettings(inputs=3, outputs=2, population=4)
ISLAND = new_island(SETTINGS, lambda population: np.linspace(0, 1, len(population)), stream(1)).to_plain()
CHECK = island_check(SETTINGS)


def test_a_sound_island_passes_also_when_its_task_was_saved() -> None:
    assert inspect_memory({"island": ISLAND}, CHECK) is None
    assert inspect_memory({"island": ISLAND}, from_plain(to_plain(CHECK))) is None


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(island: dict[str, Any]) -> None:
        *places, last = path.split(".")
        for place in places:
            island = island[place]
        island[last] = value(island[last]) if callable(value) else value

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_set("population.weight", lambda array: array * np.float32(np.nan)), "genome: a weight"),
        (_set("best.bias", lambda array: array + np.float32(1e6)), "genome: a bias is outside"),
        (_set("population.weight", lambda array: array.astype(np.float64)), "genome: 'weight'"),
        (_set("population.source", lambda array: array[:-1]), "genome: 'source'"),
        (_set("population.node_ends", lambda array: array[:1]), "genome: 'node'"),
        (_set("population.activation", lambda array: array + np.uint8(200)), "genome: an unknown activation"),
        (_set("fitness", lambda array: array + np.inf), "nonfinite: a fitness"),
        (_set("fitness", lambda array: array[:-1]), "shape: scores"),
        (_set("best_fitness", float("nan")), "nonfinite: a fitness"),
        (_set("generation", "first"), "schema: something else"),
        (_set("species", {}), "schema: something else"),
        (_set("best", lambda _: ISLAND["population"]), "genome: 4 genomes"),
    ],
)
def test_what_is_no_island_is_rejected(change: Callable[[dict[str, Any]], None], reason: str) -> None:
    island = copy.deepcopy(ISLAND)
    change(island)
    found = inspect_memory({"island": island}, CHECK)
    assert found is not None and found.startswith(reason) and found.endswith("in a client's memory")


def test_an_island_of_another_size_is_rejected() -> None:
    more = island_check(NeatSettings(inputs=3, outputs=2, population=5))
    assert str(inspect_memory({"island": ISLAND}, more)).startswith("genome: 4 genomes where 5 were expected")
    for other in ({"island": ISLAND, "more": 1}, {"island": 1}, {"islands": ISLAND}):
        assert str(inspect_memory(other, CHECK)).startswith("schema: ")


def test_held_changes_are_those_of_their_round_and_candidate() -> None:
    change = Tensors({"w": np.zeros(2, np.float32)})
    check = from_plain(to_plain(HeldChanges(3, "u", {"w": ("<f4", (2,))})))
    assert inspect_memory({"round": 3, "private": False, "changes": {"u": change}}, check) is None
    assert inspect_memory({"round": 3, "private": False, "changes": {"u": change, "v": Tensors({})}}, check) is None
    ruined = Tensors({"w": np.array([1.0, np.nan], np.float32)})
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"round": 2, "private": False, "changes": {"u": change}}, "schema: no weight change of 'u' in round 3"),
        ({"round": 3, "private": False, "changes": {}}, "schema: no weight change"),
        ({"round": 3, "private": False, "changes": {"u": ruined}}, "nonfinite: "),
        ({"round": 3, "private": False, "changes": {"u": change, "v": ruined}}, "nonfinite: "),
        ({"round": 3, "private": False, "changes": {"u": Tensors({"w": np.zeros(3, np.float32)})}}, "shape: "),
        ({"round": 3, "private": False, "changes": {"u": change, "v": 7}}, "schema: "),
        ({"round": 3}, "schema: something else"),
    ]
    for memory, reason in wrong:
        assert str(inspect_memory(memory, check)).startswith(reason)


def test_what_nothing_describes_holds_no_nan_and_has_a_sensible_size() -> None:
    assert inspect_memory({"a": [1, {"b": 2.0}], "c": np.ones(2), "best": np.array([-np.inf])}, None) is None
    for bad in ({"a": [{"b": float("nan")}]}, {"a": np.array([np.nan])}, {"a": Tensors({"w": np.array([np.inf])})}):
        assert inspect_memory(bad, None) == "nonfinite: NaN, or tensors that are not finite, in a client's memory"
    huge = np.broadcast_to(np.zeros(1), (2**29,))
    assert str(inspect_memory({"a": huge}, None)).startswith("size: a client's memory has arrays of 4294967296 bytes")
    assert str(inspect_memory([1], None)).startswith("schema: ")
    assert str(inspect_memory({"a": object()}, None)).startswith("schema: ")


def test_kept_statistics_are_those_of_their_measurement() -> None:
    check = from_plain(to_plain({"statistics": KeptStatistics("m1")}))
    sums = np.ones((3, 4))

    def memory(**changed: Any) -> dict[str, Any]:
        return {"statistics": {"of": "m1", "by_prefix": {"": sums, "02": sums}, **changed}}

    assert inspect_memory(memory(), check) is None
    wrong = (
        {"of": "m2"},
        {"more": 1},
        {"by_prefix": [sums]},
        {"by_prefix": {"": sums[:2]}},
        {"by_prefix": {"": sums * np.nan}},
        {"by_prefix": {"": sums.astype(np.float32)}},
        {"by_prefix": {"": 7}},
    )
    for changed in wrong:
        assert str(inspect_memory(memory(**changed), check)).startswith("schema: something else than ")
