"""The offline comparator: the contract of all methods, and its generations and final rounds by hand."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from atoll.core import wire
from atoll.core.messages import Task
from atoll.data import Federated
from atoll.errors import TooFewReplies
from atoll.methods.offline import Offline, OfflineConfig, OfflineState
from atoll.rng import stream
from atoll.testing import MethodContract, made_images
from methods.two_blocks import SCHEMA, Script, client
from refusals import refused

SIX_AND_TWO = [client("one", train=6), client("two", train=2)]
# The search is over: High 22, Knee 10, which lies in front of the chord from High to the cheapest.
FRONT = OfflineState(2, [[2, 2], [1, 0], [0, 0]], [[0.1, 24.0], [0.2, 12.0], [0.5, 8.0]], {})


def network(task: Task) -> str:
    """The key of the network that a task trains or measures by itself."""
    return "".join(map(str, task.payload["architecture"]["key"]))


class TestOffline(MethodContract):
    """Two generations, then two rounds of final training, on images."""

    method = "offline"
    settings: ClassVar[dict[str, Any]] = {
        "rounds": 4,
        "generations": 2,
        "population": 2,
        "channels": [4, 8],
        "batch": 8,
    }

    def data(self) -> Federated:
        return made_images(clients=3, side=6)


def offline(**settings: Any) -> Offline:
    usual = {"rounds": 4, "generations": 2, "population": 2, "widths": [2, 2], "stem": 2, "test_every": 0}
    return Offline(OfflineConfig(**{**usual, **settings}), SCHEMA)


def step(method: Offline, before: OfflineState, federation: Script) -> tuple[OfflineState, dict[str, Any]]:
    federation.begin(before.round + 1)
    return method.step(before, federation, stream(7, "test", before.round))


def test_all_clients_train_every_new_individual_from_fresh_weights() -> None:
    """Generation 1 has parents and offspring to measure, later ones only offspring."""
    federation, method = Script(SIX_AND_TWO), offline()
    after, metrics = step(method, OfflineState(0, [[1, 1], [0, 1]], [], {}), federation)
    trained = federation.sent("train")
    assert [task.client for task in trained] == ["one", "two"] * 4
    assert [task.payload["key"] for task in trained[:4]] == [[1, 1], [1, 1], [0, 1], [0, 1]]
    starts = [task.payload["weights"].digest("stem.first.weight") for task in trained]
    assert starts[::2] == starts[1::2] and len(set(starts)) == 4
    assert metrics["phase"] == "search" and after.trained == {}

    step(method, after, federation)
    later = federation.sent("train")[8:]
    assert [task.client for task in later] == ["one", "two"] * 2
    assert len({task.payload["weights"].digest("stem.first.weight") for task in federation.sent("train")}) == 6
    assert {task.payload["lr"] for task in federation.sent("train")} == {0.1}  # each is in its first round


def test_an_individual_is_averaged_by_rows_and_measured_with_what_came_out() -> None:
    """One (6 rows) adds 4 and two (2 rows) adds 8: the mean adds 6/8 * 4 + 2/8 * 8 = 5."""
    added = {"one": 4.0, "two": 8.0}
    federation = Script(SIX_AND_TWO, lambda task, number: added[task.client])
    step(offline(), OfflineState(0, [[1, 1], [0, 1]], [], {}), federation)
    start, measured = federation.sent("train")[0].payload, federation.sent("count_correct")[0].payload
    assert measured["keys"] == [[1, 1]]
    for name, array in start["weights"].items():
        np.testing.assert_allclose(measured["weights"][name], array + 5.0, rtol=1e-6)


def test_parents_keep_their_objectives() -> None:
    """Nobody gets a row right any more: the parents' old errors stand, and they survive."""
    federation, method = Script(SIX_AND_TWO), offline()
    before = OfflineState(1, [[1, 1], [0, 0]], [[0.2, 16.0], [0.4, 8.0]], {})
    after, metrics = step(method, before, federation)
    assert sorted(after.objectives) == [[0.2, 16.0], [0.4, 8.0]]
    assert metrics["front"] == [["11", 0.2, 16.0], ["00", 0.4, 8.0]]
    assert all([1, 1] not in task.payload["keys"] for task in federation.sent("count_correct"))


def test_high_and_knee_are_trained_from_scratch_and_go_on_from_round_to_round() -> None:
    correct = {"22": 9, "10": 5}
    federation = Script(SIX_AND_TWO, lambda task, number: 1.0, lambda task: [correct[network(task)]])
    method = offline(decay=0.5)
    first, metrics = step(method, FRONT, federation)
    assert [network(task) for task in federation.sent("train")] == ["22"] * 2 + ["10"] * 2
    assert metrics["phase"] == "final"
    assert metrics["high"] == {"key": "22", "error": pytest.approx(0.1), "macs": 24}
    assert metrics["knee"] == {"key": "10", "error": pytest.approx(0.5), "macs": 12}
    assert (first.parents, first.objectives) == (FRONT.parents, FRONT.objectives)

    second, _ = step(method, first, federation)
    later = federation.sent("train")[4:]
    assert [task.payload["lr"] for task in federation.sent("train")] == [0.1] * 4 + [0.05] * 4
    assert later[0].payload["weights"].whole_digest() == first.trained["22"].whole_digest()
    assert method.done(second)
    # What a client got to measure it still holds when it trains again: no weight travels down.
    held = wire.tensor_digests({"a": first.trained["22"], "b": first.trained["10"]})
    down = federation.ledger.current.bytes_down
    assert down == sum(
        wire.size(task.payload, held if task.job.endswith(":train") else ()) for task in federation.tasks[8:]
    )

    found = method.results(second, federation, stream(7, "results"))
    assert [(candidate.id, candidate.picks) for candidate in found] == [("22", ["high"]), ("10", ["knee"])]
    assert found[0].weights.whole_digest() == second.trained["22"].whole_digest()
    assert found[0].objectives["error"] == pytest.approx(0.1)


def test_the_rate_of_the_final_training_may_fall_to_zero() -> None:
    """A cosine over its four rounds."""
    federation, method, after = Script(SIX_AND_TWO), offline(schedule="cosine", rounds=6), FRONT
    for _ in range(4):
        after, _ = step(method, after, federation)
    shares = [(1 + np.cos(np.pi * done / 4)) / 2 for done in range(4)]
    assert [task.payload["lr"] for task in federation.sent("train")[::4]] == pytest.approx([0.1 * s for s in shares])


def test_picks_are_made_again_after_the_final_training() -> None:
    """The cheaper network ends with the lower error: it is High and Knee, and the other is neither."""
    correct = {"22": 5, "10": 9}
    federation = Script(SIX_AND_TWO, lambda task, number: 1.0, lambda task: [correct[network(task)]])
    method = offline()
    after, metrics = step(method, FRONT, federation)
    assert metrics["high"]["key"] == metrics["knee"]["key"] == "10"
    found = method.results(after, federation, stream(7, "results"))
    assert [(candidate.id, candidate.picks) for candidate in found] == [("22", []), ("10", ["high", "knee"])]


def test_an_individual_that_nobody_trained_is_left_out() -> None:
    def change(task: Task, number: int) -> float:
        if task.payload["key"] == [0, 1]:
            raise RuntimeError("out of memory")
        return 0.0

    federation = Script(SIX_AND_TWO, change)
    after, metrics = step(offline(), OfflineState(0, [[1, 1], [0, 1]], [], {}), federation)
    assert metrics["untrained"] == ["01"] and [0, 1] not in after.parents


def test_a_finalist_that_nobody_trained_stays_as_it_was() -> None:
    method = offline()
    first, _ = step(method, FRONT, Script(SIX_AND_TWO, lambda task, number: 1.0))

    def change(task: Task, number: int) -> float:
        if network(task) == "10":
            raise RuntimeError("out of memory")
        return 1.0

    second, _ = step(method, first, Script(SIX_AND_TWO, change))
    assert second.trained["10"].whole_digest() == first.trained["10"].whole_digest()
    assert second.trained["22"].whole_digest() != first.trained["22"].whole_digest()


@pytest.mark.parametrize("before", [OfflineState(0, [[1, 1], [0, 1]], [], {}), FRONT])
def test_a_round_in_which_nobody_trains_raises(before: OfflineState) -> None:
    def gone(task: Task, number: int) -> float:
        raise RuntimeError("gone")

    with refused(TooFewReplies, "too-few-replies", "x RuntimeError: gone"):
        step(offline(), before, Script(SIX_AND_TWO, gone))
