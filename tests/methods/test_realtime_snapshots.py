"""Networks that are ready for use while a real-time search goes on: when they are published, with which statistics, and
what that takes of exchanges, bytes and test rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atoll
from atoll.algorithms.sampling import participants
from atoll.clients import calibrated_together
from atoll.core.messages import Task
from atoll.data import Federated
from atoll.federation.local import local_federation
from atoll.methods.choice_search import key_from_name, key_name
from atoll.methods.realtime import Realtime, RealtimeState
from atoll.methods.realtime_config import RealtimeConfig
from atoll.rng import stream
from atoll.spaces.choice import space as choice
from atoll.testing import FaultyTransport, made_images, made_table
from methods.two_blocks import Script, client, realtime, state, statistics_of, step

RIGHT = {"22": 9, "10": 8, "00": 1}  # of 10 rows: High is 22, Knee 10
PARENTS = [[2, 2], [1, 0], [0, 0]]


def correct(task: Task, right: Mapping[str, int] = RIGHT) -> list[int]:
    return [right.get(key_name(key), 0) for key in task.payload["keys"]]


def jobs_of(federation: Script, name: str, since: int = 0) -> list[str]:
    """What a client was asked for: `+kept` with statistics, `+test` with test rows, `test` for these alone."""
    found = []
    for task in federation.tasks[since:]:
        if task.client == name:
            job = "test" if task.test_evaluation else task.job.partition(":")[2]
            extra = [word for word, key in (("kept", "kept"), ("test", "report")) if key in task.payload]
            found.append("+".join([job, *extra]))
    return found


def test_round_1_ends_with_networks_ready_for_use_and_later_rounds_are_two_exchanges() -> None:
    federation = Script([client(name, test=10) for name in "abc"], lambda task, number: 1.0, correct)
    method = realtime(snapshots=True, population=3)
    first, metrics = step(method, state(method, PARENTS), federation)
    for name in "abc":
        assert jobs_of(federation, name) == ["train", "train", "count_correct", "fetch+kept+test"]
    high, knee = method.snapshots(first)
    assert (high.id, high.picks, knee.id, knee.picks) == ("22", ["high"], "10", ["knee"])
    assert high.weights.whole_digest() == first.master.slice(list(high.weights)).whole_digest()
    assert dict(high.statistics) == {
        name: pytest.approx(array) for name, array in statistics_of(high.architecture, 30).items()
    }, "of the 10 validation rows of three clients"
    assert metrics["high"]["test_error"] == pytest.approx(0.1) and metrics["knee"]["test_error"] == pytest.approx(0.2)

    sent = len(federation.tasks)
    second, _ = step(method, first, federation)
    for name in "abc":
        assert jobs_of(federation, name, sent) == ["train", "count_correct"], "nothing is new"
    assert second.published == first.published and second.master is not first.master


def test_a_new_pick_is_published_a_round_later_as_it_was_when_it_was_picked() -> None:
    """In round 2 key 00 becomes the best. Its statistics come with the training of round 3."""
    right = dict(RIGHT)
    federation = Script(
        [client(name, test=10) for name in "abc"], lambda task, number: 1.0, lambda task: correct(task, right)
    )
    method = realtime(snapshots=True, population=3)
    first, _ = step(method, state(method, PARENTS), federation)
    right["00"] = 10
    second, metrics = step(method, first, federation)
    assert metrics["high"]["key"] == metrics["knee"]["key"] == "00"
    assert metrics["high"]["published"] == "22" and metrics["high"]["test_error"] == pytest.approx(0.1)
    assert [one.id for one in method.snapshots(second)] == ["22", "10"]

    sent = len(federation.tasks)
    third, metrics = step(method, second, federation)
    for name in "abc":
        assert jobs_of(federation, name, sent) == ["train+kept+test", "count_correct"]
    (task, *_) = [one for one in federation.tasks[sent:] if "kept" in one.payload]
    assert task.payload["kept"] == {"of": second.master.whole_digest(), "keys": [[0, 0]]}, "one network, two picks"
    high, knee = method.snapshots(third)
    assert high.id == knee.id == metrics["high"]["published"] == "00"
    assert high.weights.whole_digest() == second.master.slice(list(high.weights)).whole_digest()
    assert high.weights.whole_digest() != third.master.slice(list(high.weights)).whole_digest()
    assert high.objectives["error"] == 0.0 and metrics["high"]["test_error"] == 0.0


@pytest.mark.parametrize("every", [1, 3])
def test_an_unchanged_pick_is_renewed_every_few_rounds(every: int) -> None:
    federation = Script([client(name) for name in "abc"], lambda task, number: 1.0, correct)
    method = realtime(snapshots=True, population=3, snapshot_every=every)
    now, fetched = state(method, PARENTS), []
    for number in range(1, 8):
        sent = len(federation.tasks)
        now, _ = step(method, now, federation)
        if any("kept" in task.payload for task in federation.tasks[sent:]):
            fetched.append(number)
    # Published after round 1; from then on a round later, with the weights of the round before.
    assert fetched == ([1, 3, 4, 5, 6, 7] if every == 1 else [1, 5])
    assert {one["round"] for one in now.published.values()} == {6 if every == 1 else 4}


def test_clients_that_do_not_participate_in_the_next_round_are_asked_at_once() -> None:
    """Two of three take part in a round; the third is asked for its test rows alone."""
    federation = Script([client(name, test=10) for name in "abc"], correct=correct)
    method = realtime(fraction=0.67, snapshots=True)
    first, metrics = step(method, state(method, [[2, 2], [1, 0]]), federation)
    trained = {task.client for task in federation.sent("train")}
    assert participants(3, 0.67) == len(trained) == 2
    for name in "abc":
        expected = ["train", "train", "count_correct", "fetch+kept+test"] if name in trained else ["test"]
        assert jobs_of(federation, name) == expected
    assert metrics["high"]["test_error"] == pytest.approx(0.1)
    assert [one["round"] for one in first.published.values()] == [1, 1]


def test_who_fails_is_asked_for_its_test_rows_alone() -> None:
    def failing(task: Task, number: int) -> float:
        if task.client == "a" and "report" in task.payload:
            raise RuntimeError("gone")
        return 0.0

    federation = Script([client(name, test=10) for name in "abc"], failing, correct)
    method = realtime(test_every=2, snapshots=True, population=3)
    first, metrics = step(method, state(method, PARENTS), federation)
    assert not any("report" in task.payload or task.test_evaluation for task in federation.tasks), "not due in round 1"
    assert "test_error" not in metrics["high"]
    _, metrics = step(method, first, federation)
    assert [task.client for task in federation.tasks if task.test_evaluation] == ["a", "a"], "for High and for Knee"
    assert metrics["high"]["test_error"] == pytest.approx(0.1) and metrics["knee"]["test_error"] == pytest.approx(0.2)


def test_without_snapshots_nothing_is_kept_and_test_rows_come_with_the_training() -> None:
    federation = Script([client(name, test=10) for name in "abc"], correct=correct)
    method = realtime(population=3)
    first, metrics = step(method, state(method, PARENTS), federation)
    assert jobs_of(federation, "a") == ["train", "train", "count_correct", "test", "test"]
    _, metrics = step(method, first, federation)
    assert jobs_of(federation, "a")[5:] == ["train+test", "count_correct"] and method.snapshots(first) == []
    assert metrics["high"]["test_error"] == pytest.approx(0.1)
    assert not any("keep" in task.payload or "kept" in task.payload for task in federation.tasks)


def test_networks_without_batch_norm_need_no_statistics() -> None:
    federation = Script([client(name) for name in "abc"], lambda task, number: 1.0, correct)
    method = realtime(snapshots=True, population=3, norm="group")
    first, _ = step(method, state(method, PARENTS), federation)
    assert jobs_of(federation, "a") == ["train", "train", "count_correct"]
    assert [(one.id, one.statistics) for one in method.snapshots(first)] == [("22", {}), ("10", {})]


def test_memory_is_freed_before_the_closing_phase() -> None:
    """Of six rounds the last two finish. The measurement of round 4 keeps nothing: no round follows that could ask."""
    federation = Script([client(name) for name in "abc"], correct=lambda task: [5] * len(task.payload.get("keys", "1")))
    method, kept = realtime(snapshots=True, population=3, rounds=6, finish=0.34), []
    now = state(method, PARENTS)
    for _ in range(6):
        now, _ = step(method, now, federation)
        kept.append(bool(now.measured))
    words = [task.payload["keep"] for task in federation.sent("count_correct") if "keep" in task.payload]
    assert [bool(word) for word in words] == [True] * 9 + [False] * 3
    assert kept == [True, True, True, False, False, False]


# -- with real clients -------------------------------------------------------------------------------------------------


def searched(data: Federated, rounds: int, **settings: Any) -> list[tuple[RealtimeState, dict[str, Any], Any]]:
    """State, memory of the clients and ledger after every round, and the federation of the last at the end."""
    usual = {"rounds": 20, "population": 3, "batch": 8, "stem": 4, **settings}
    method = Realtime(RealtimeConfig(**usual), data.schema)
    found = []
    with local_federation(data, 1, workers=0) as federation:
        now = method.init(federation, stream(1, "init"))
        for number in range(1, rounds + 1):
            federation.begin(number)
            now, _ = method.step(now, federation, stream(1, "server", number, 1))
            found.append((now, federation.snapshot()["memory"], federation.ledger.current))
    return found


def test_statistics_that_were_kept_are_those_of_a_pass_over_the_same_rows() -> None:
    data = made_images(clients=4, side=6)
    rounds = searched(data, 3, channels=[4, 8])
    masters = {number: after.master for number, (after, _, _) in enumerate(rounds, start=1)}
    last, compared = rounds[-1][0], 0
    method = Realtime(RealtimeConfig(rounds=20, population=3, channels=[4, 8], stem=4), data.schema)
    for one in last.published.values():
        arch = choice.sub_model(method.architecture, key_from_name(one["key"]))
        weights = masters[one["round"]].slice(choice.names(arch))
        assert one["weights"].whole_digest() == weights.whole_digest()
        with local_federation(data, 1, workers=0) as federation:
            federation.begin(1)
            (expected,) = calibrated_together(federation, federation.clients(), [arch], weights, "validation")
        assert one["statistics"].keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_allclose(one["statistics"][name], values, rtol=1e-4, atol=1e-3)
            compared += 1
    assert compared >= 6


def test_uploads_grow_only_by_the_statistics_of_new_picks() -> None:
    """A search round sends the same with and without snapshots, but for what is fetched: less than the statistics of
    both picks in every round."""
    data, plain = made_table(clients=4), {"widths": [8, 8, 8], "test_every": 0}
    with_them = searched(data, 12, **plain)
    without = searched(data, 12, **plain, snapshots=False)
    assert [after.parents for after, _, _ in with_them] == [after.parents for after, _, _ in without]
    fetched, every_round = 0, 0
    for number, ((after, _, one), (_, _, other)) in enumerate(zip(with_them, without, strict=True), start=1):
        assert one.client_macs == other.client_macs, "no second pass"
        new = {own["key"]: own for own in after.published.values() if own["round"] == max(1, number - 1)}
        if number == 1:
            assert one.tasks == other.tasks + 4
            continue
        assert one.tasks == other.tasks == 8
        before = {own["round"] for own in with_them[number - 2][0].published.values()}
        sent = sum(own["statistics"].nbytes for own in new.values()) if number - 1 not in before else 0
        extra = one.bytes_up - other.bytes_up
        assert (extra > 0) == (sent > 0)
        if sent:
            assert 4 * sent <= extra <= 4 * sent + 4 * 4000, "per client, with the names in the header"
        fetched += extra
        every_round += 4 * sum(own["statistics"].nbytes for own in after.published.values())
    assert 0 < fetched < every_round


def test_memory_holds_the_last_measurement_only() -> None:
    rounds = searched(made_table(clients=4), 3, widths=[4, 4])
    for after, memory, _ in rounds:
        assert {own["statistics"]["of"] for own in memory.values()} == {after.master.whole_digest()}
        assert sorted(memory) == sorted(after.measured)


def test_a_repeated_round_does_not_mix_measurements() -> None:
    """Round 3 is begun twice, as after a failure. The client that measured in the first attempt keeps statistics of its
    master, which are not taken for those of round 2."""
    data = made_table(clients=4)

    method = Realtime(RealtimeConfig(rounds=20, population=2, widths=[4, 4], batch=8, snapshot_every=1), data.schema)
    with local_federation(data, 1, workers=0) as federation:
        now = method.init(federation, stream(1, "init"))
        for number in (1, 2):
            federation.begin(number)
            now, _ = method.step(now, federation, stream(1, "server", number, 1))
        federation.begin(3)
        victims = {info.name for info in federation.clients()[1:]}
        inner = federation.transport
        federation.transport = FaultyTransport(
            inner, lambda task, number: task.job.endswith("count_correct") and task.client in victims
        )
        method.step(now, federation, stream(1, "server", 3, 1))
        federation.transport = inner
        again, _ = method.step(now, federation, stream(1, "server", 3, 2))
    (one, *_) = again.published.values()
    rows = data.sizes(data.names[1])["validation"] * 3
    count = next(array for name, array in one["statistics"].items() if name.endswith("count"))
    assert one["round"] == 2 and count[0] == rows


def test_a_run_is_usable_after_its_first_round(tmp_path: Path) -> None:
    run = atoll.search(
        "realtime",
        made_table(clients=3),
        out=tmp_path / "run",
        workers=0,
        rounds=2,
        finish=0.5,
        population=2,
        widths=[4],
        batch=8,
    )
    first, last = run.rounds
    assert first["metrics"]["high"]["published"] == first["metrics"]["high"]["key"]
    assert last["metrics"]["phase"] == "final" and run.finished
