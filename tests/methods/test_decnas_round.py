"""Algorithm 4.1 by hand: who tunes what, who is dropped, what is uploaded and fused, and what becomes of the silent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from atoll import spaces
from atoll.core import wire
from atoll.core.messages import Task
from atoll.errors import TooFewReplies
from atoll.rng import stream
from methods.narrow_nets import MACS, UNITS, Script, begun, by_candidate, client, decnas, step
from refusals import refused

SIX = [client(f"client-{number}") for number in range(6)]
FROM_9_TO_4 = by_candidate([9, 8, 7, 6, 5, 4])  # of ten rows; the network before them gets eight right


def rounds(method: Any, federation: Script, count: int) -> tuple[Any, list[dict[str, Any]]]:
    state, events = begun(method, federation), []
    for _ in range(count):
        state, metrics = step(method, state, federation)
        events.append(metrics)
    return state, events


def test_every_layer_gives_a_candidate_with_the_fewest_filters_gone() -> None:
    """The target is 352 - 14.08 = 337.92 MACs."""
    federation = Script(SIX)
    state, _ = rounds(decnas(), federation, 1)
    tasks = {task.payload["candidate"]: task for task in federation.sent("tune")}
    assert list(tasks) == UNITS
    assert [spaces.cost(tasks[unit].payload["architecture"]).macs for unit in UNITS] == MACS
    assert [len(tasks[unit].payload["weights"][f"{unit}.bias"]) for unit in UNITS] == [6, 7, 7, 7, 7, 6]
    # Three forward passes for each of ten training rows, one for ten validation rows; and GM_0 on those ten.
    assert [tasks[unit].macs for unit in UNITS] == [macs * 40 + 352 * 10 for macs in MACS]
    assert sorted(len(group) for group in state.groups) == [1] * 6


def test_regularisers_reach_the_clients() -> None:
    federation = Script(SIX)
    rounds(decnas(start_rounds=1, prox=0.1, clip=1e3, weight_decay=1e-3), federation, 2)
    started, tuned = federation.sent("train")[0].payload, federation.sent("tune")[0].payload["training"]
    for name, value in {"prox": 0.1, "clip": 1e3, "weight_decay": 1e-3}.items():
        assert started[name] == tuned[name] == value


def test_a_third_is_dropped_each_round_and_the_best_goes_on() -> None:
    """6 * 0.67 = 4 and 6 * 0.34 = 2 are left, then one, which goes on for the rest of the four rounds."""
    federation = Script(SIX, FROM_9_TO_4)
    state, events = rounds(decnas(), federation, 4)
    assert [list(event["candidates"]) for event in events] == [UNITS, UNITS[:4], UNITS[:2], UNITS[:1]]
    assert [list(event["dropped"]) for event in events] == [UNITS[4:], UNITS[2:4], UNITS[1:2], []]
    assert events[3]["chosen"] == UNITS[0] and events[3]["network"] == "m1"
    assert state.iteration == 2 and state.candidates == [] and state.found[1]["about"]["unit"] == UNITS[0]
    assert state.found[1]["about"]["accuracy"] == 0.9 and state.found[1]["about"]["accuracy_before"] == 0.8


def test_ranking_is_by_accuracy_lost_per_resource_saved() -> None:
    """Layer 0 saves 20/352 and loses 0.12, 2.112 a unit; layers 1 to 4 save 16/352 and lose 0.1, 2.2 a unit."""
    fifty = [client(f"client-{number}", validation=50) for number in range(6)]
    federation = Script(fifty, by_candidate([34, 35, 35, 35, 35, 30]), previous=40)
    _, (event,) = rounds(decnas(tune_rounds=[1]), federation, 1)
    assert event["candidates"][UNITS[0]]["degradation"] == pytest.approx(0.12 * 352 / 20)
    assert event["candidates"][UNITS[1]]["degradation"] == pytest.approx(0.10 * 352 / 16)
    assert event["chosen"] == UNITS[0]


def test_equal_losses_go_to_the_larger_saving() -> None:
    """Nobody loses anything: layers 0 and 5 save 20 MACs, the others 16."""
    _, (event,) = rounds(decnas(tune_rounds=[1]), Script(SIX, lambda task: 8), 1)
    assert event["chosen"] == UNITS[0]


def test_only_survivors_upload_and_nothing_travels_down_for_it() -> None:
    federation = Script(SIX, FROM_9_TO_4)
    state, events = rounds(decnas(), federation, 1)
    where = {unit: state.groups[row["group"]][0] for unit, row in events[0]["candidates"].items()}
    asked = {task.client: task.payload["wanted"] for task in federation.sent("upload")}
    assert asked == {where[unit]: ([unit] if unit in UNITS[:4] else []) for unit in UNITS}
    assert all(not wire.tensor_digests(task.payload) and task.macs == 0 for task in federation.sent("upload"))
    # The single one that is left uploads with its accuracy: there is nothing to wait for.
    before = len(federation.tasks)
    for _ in range(3):
        state, _ = step(decnas(), state, federation)
    last = federation.tasks[-1]
    assert last.payload["candidate"] == UNITS[0] and not last.payload["hold"]
    assert len(federation.sent("upload", before)) == 4 + 2


def test_the_last_round_of_a_short_iteration_keeps_one_before_the_upload() -> None:
    federation = Script(SIX, FROM_9_TO_4)
    _, events = rounds(decnas(tune_rounds=[2]), federation, 2)
    assert list(events[1]["dropped"]) == UNITS[1:4] and events[1]["chosen"] == UNITS[0]
    wanted = [task.payload["wanted"] for task in federation.sent("upload")]
    assert sum(map(len, wanted)) == 4 + 1


def test_accuracy_is_fused_by_validation_rows() -> None:
    """One gets 5 of 10 right and two 27 of 30: 32 of 40, not the mean of 0.5 and 0.9."""
    pair = [client("one", validation=10), client("two", validation=30)]
    federation = Script(pair, lambda task: {"one": 5, "two": 27}[task.client])
    _, (event,) = rounds(decnas(groups=1), federation, 1)
    assert event["candidates"][UNITS[0]]["accuracy"] == 32 / 40
    assert event["candidates"][UNITS[0]]["accuracy_before"] == 16 / 40


@pytest.mark.parametrize("dropping", [True, False])
def test_changes_are_fused_by_training_rows(dropping: bool) -> None:
    """One (6 rows) adds 4 and two (2 rows) adds 8: 6/8 * 4 + 2/8 * 8 = 5, whether held back or sent at once."""
    pair = [client("one", train=6), client("two", train=2)]
    federation = Script(pair, FROM_9_TO_4, lambda task, candidate: {"one": 4.0, "two": 8.0}[task.client])
    state, _ = rounds(decnas(groups=1, dropping=dropping), federation, 1)
    assert bool(federation.sent("upload")) is dropping
    start = federation.sent("tune")[0].payload["weights"]
    for name, array in start.items():
        np.testing.assert_allclose(state.candidates[0]["weights"][name], array + 5.0, rtol=1e-6)


def test_candidates_queue_where_there_are_too_few_groups() -> None:
    """Three groups of two take two candidates each, in turn; only the first of a group asks for GM_0's accuracy."""
    federation = Script(SIX)
    _, (event,) = rounds(decnas(groups=3), federation, 1)
    assert sorted(row["group"] for row in event["candidates"].values()) == [0, 0, 1, 1, 2, 2]
    for info in SIX:
        mine = [task for task in federation.sent("tune") if task.client == info.name]
        assert len(mine) == 2 and "previous" in mine[0].payload and "previous" not in mine[1].payload
    # A client answers for both of its candidates in one message.
    assert len(federation.sent("upload")) == 6


def test_a_slow_group_gets_fewer_candidates() -> None:
    """A group whose client holds 35 rows needs 3.5 times as long for one: the other takes four of six meanwhile.

    Work is 332 or 336 MACs a row. Large begins with one and is busy until about 11,600; small has done 3 by 10,000,
    takes a fourth and is done at 13,400, so the sixth goes to large.
    """
    federation = Script([client("large", train=35), client("small", train=10)])
    _, (event,) = rounds(decnas(groups=2), federation, 1)
    groups = [row["group"] for row in event["candidates"].values()]
    assert (groups.count(0), groups.count(1)) == (2, 4)  # the largest client is in the first group


def test_the_network_before_is_scored_once_an_iteration() -> None:
    federation = Script(SIX, FROM_9_TO_4)
    state, _ = rounds(decnas(), federation, 4)
    assert sum("previous" in task.payload for task in federation.sent("tune")) == 6
    step(decnas(), state, federation)
    assert sum("previous" in task.payload for task in federation.sent("tune")) == 12
    newest = federation.sent("tune")[-1].payload["previous"]
    assert newest["weights"].whole_digest() == state.found[1]["weights"].whole_digest()


def test_the_start_network_is_trained_by_all_clients_first() -> None:
    """Two rounds of federated averaging with a rate of their own; every client adds 1 to every weight in each."""
    federation = Script(SIX)
    method = decnas(start_rounds=2, start_lr=0.3, lr=0.1)
    before = begun(method, federation).found[0]["weights"]
    state, events = rounds(method, federation, 3)
    assert [(event["phase"], event["iteration"]) for event in events] == [("start", 0), ("start", 0), ("search", 1)]
    assert [task.client for task in federation.sent("train")] == [info.name for info in SIX] * 2
    assert {task.payload["lr"] for task in federation.sent("train")} == {0.3}
    assert {task.payload["training"]["lr"] for task in federation.sent("tune")} == {0.1}
    assert events[1]["accuracy"] == 0.8 and events[1]["network"] == "m0"
    for name, array in before.items():
        np.testing.assert_allclose(state.found[0]["weights"][name], array + 2.0, rtol=1e-6)


def test_a_candidate_takes_a_free_group_every_round() -> None:
    """Line 15. Four of six go on; each is tuned by another group now and then, and every group has scored GM_0 once."""
    federation = Script(SIX, FROM_9_TO_4)
    state, events = rounds(decnas(regroup="round"), federation, 3)
    groups = [{unit: row["group"] for unit, row in event["candidates"].items()} for event in events]
    assert any(groups[0][unit] != groups[1][unit] for unit in groups[1])
    assert all(len(set(own.values())) == len(own) for own in groups), "none has to wait while a group is free"
    asked = [task.client for task in federation.sent("tune") if "previous" in task.payload]
    assert sorted(asked) == [info.name for info in SIX] and state.tuned == 3


def test_the_groups_are_others_in_every_iteration() -> None:
    federation = Script(SIX, FROM_9_TO_4)
    method = decnas(groups=3, tune_rounds=[1])
    state, seen = begun(method, federation), []
    for _ in range(3):
        state = method._open_iteration(state, SIX, stream(7, "open", len(seen)))
        assert sorted(name for group in state.groups for name in group) == [info.name for info in SIX]
        seen.append(sorted(sorted(group) for group in state.groups))
    assert len({str(groups) for groups in seen}) > 1


@pytest.mark.parametrize("dropping", [True, False])
def test_no_tuning_rounds_take_the_best_candidate_as_it_is(dropping: bool) -> None:
    """Fig. 7's zero: one exchange without training; nothing is uploaded, and the weights are the pruned network's."""
    federation = Script(SIX, FROM_9_TO_4)
    state, (event,) = rounds(decnas(tune_rounds=[0], dropping=dropping), federation, 1)
    assert event["chosen"] == UNITS[0] and state.iteration == 2 and event["not_uploaded"] == []
    assert not federation.sent("upload")
    assert all("change" not in task.returns and task.remembers is None for task in federation.sent("tune"))
    (task,) = [task for task in federation.sent("tune") if task.payload["candidate"] == UNITS[0]]
    assert task.payload["training"]["epochs"] == 0 and task.macs == MACS[0] * 10 + 352 * 10
    assert state.found[1]["weights"].whole_digest() == task.payload["weights"].whole_digest()


def test_a_block_may_be_left_out_too() -> None:
    """Between hidden layers of eight each one can go: 352 - 64 = 288 MACs, which meets the target of 337.92."""
    federation = Script(SIX, lambda task: 8)
    method = decnas(depth=True, tune_rounds=[1])
    state, (event,) = rounds(method, federation, 1)
    blocks = [unit for unit in event["candidates"] if unit.startswith("without ")]
    assert blocks == [f"without layers.{number}" for number in range(1, 6)]
    assert event["chosen"] == blocks[0], "it saves the most for the same accuracy"
    arch, about = state.found[1]["architecture"], state.found[1]["about"]
    assert spaces.cost(arch).macs == 288 and "layers.1" not in arch["layers"]
    assert about["unit"] == "without layers.1" and about["layer"] == "without linear 2"
    assert set(state.found[1]["weights"]) == {name for name, _ in spaces.skeleton(arch).named_parameters()}


# -- the three optimisations, each switched off by itself ------------------------------------------------------------


def test_without_groups_all_clients_tune_every_candidate() -> None:
    federation = Script(SIX)
    rounds(decnas(grouping=False), federation, 1)
    pairs = {(task.client, task.payload["candidate"]) for task in federation.sent("tune")}
    assert len(pairs) == len(federation.sent("tune")) == 36


def test_without_dropping_all_candidates_are_uploaded_in_every_round() -> None:
    federation = Script(SIX, FROM_9_TO_4)
    state, events = rounds(decnas(dropping=False), federation, 4)
    assert [len(event["candidates"]) for event in events] == [6] * 4 and events[3]["chosen"] == UNITS[0]
    assert not federation.sent("upload") and not any(task.payload["hold"] for task in federation.tasks)
    assert state.iteration == 2


def test_round_numbers_grow_with_the_iterations_or_are_the_largest() -> None:
    config = decnas(tune_rounds=[2, 5, 8, 10]).config
    assert [config.rounds_of(iteration) for iteration in (1, 5, 6, 10, 11, 15, 16, 99)] == [2, 2, 5, 5, 8, 8, 10, 10]
    assert decnas(tune_rounds=[2, 5]).config.rounds_of(16) == 5
    assert decnas(tune_rounds=[2, 5, 8, 10], dynamic_rounds=False).config.rounds_of(1) == 10


# -- clients that do not answer --------------------------------------------------------------------------------------


def silent(*names: str) -> Any:
    def correct(task: Task) -> int:
        if task.client in names:
            raise RuntimeError("switched off")
        return FROM_9_TO_4(task)

    return correct


def test_a_candidate_whose_group_is_gone_waits_for_another_and_is_then_dropped() -> None:
    """Client 0 is never there. Who was with it goes to another group in the next round."""
    federation = Script(SIX, silent("client-0"))
    method = decnas(alpha=0.16)  # 6 * 0.84 = 5 and 6 * 0.68 = 4 places
    state, (first,) = rounds(method, federation, 1)
    (waiting,) = first["waiting"]
    assert waiting not in first["dropped"] and waiting not in first["candidates"]
    assert [row["unit"] for row in state.candidates][-1] == waiting and state.candidates[-1]["group"] is None
    gone = state.candidates[-1]["avoid"]
    assert state.groups[gone] == ["client-0"]
    _, second = step(method, state, federation)
    assert second["candidates"][waiting]["group"] != gone and second["waiting"] == []


def test_a_candidate_that_two_groups_left_alone_is_dropped_with_a_reason() -> None:
    names = ["client-0", "client-1"]
    pair = [client(name) for name in names]
    federation = Script(pair, silent())
    method = decnas(groups=2, alpha=0.16)
    state, _ = rounds(method, federation, 1)
    alone = UNITS[2]

    def not_for_this(task: Task) -> int:
        if task.payload["candidate"] == alone:
            raise RuntimeError("out of memory")
        return FROM_9_TO_4(task)

    federation = Script(pair, not_for_this)
    state, first = step(method, state, federation)
    assert first["waiting"] == [alone]
    _, second = step(method, state, federation)
    assert second["waiting"] == []
    assert "no answer from group" in second["dropped"][alone] and "out of memory" in second["dropped"][alone]


def test_one_of_five_clients_alone_does_not_judge_a_candidate() -> None:
    """Of two groups of five, only client 0 answers in its own: its candidates are as without an answer."""
    ten = [client(f"client-{number}") for number in range(10)]
    federation = Script(ten, FROM_9_TO_4)
    method = decnas(groups=2, alpha=0.16)
    state, _ = rounds(method, federation, 1)
    (own,) = [group for group in state.groups if "client-0" in group]
    federation = Script(ten, silent(*(name for name in own if name != "client-0")))
    state, event = step(method, replace(state, previous={}), federation)
    judged = {score["group"] for score in event["candidates"].values()}
    assert judged == {1 - state.groups.index(own)} and event["waiting"] and list(state.previous) == [*map(str, judged)]


def test_a_waiting_candidate_does_not_outlive_the_decision() -> None:
    """With one place left there is nothing to wait for."""
    federation = Script(SIX, silent("client-0"))
    _, (event,) = rounds(decnas(alpha=1.0), federation, 1)
    assert len(event["dropped"]) == 5 and event["waiting"] == []


def test_the_chosen_one_moves_to_another_group_when_its_own_is_gone_and_loses_no_round() -> None:
    federation = Script(SIX, FROM_9_TO_4)
    method = decnas(alpha=1.0)
    state, (event,) = rounds(method, federation, 1)
    group = event["candidates"][UNITS[0]]["group"]
    federation = Script(SIX, silent(*state.groups[group]))
    state, metrics = step(method, state, federation)
    assert metrics["waiting"] == [UNITS[0]] and "candidates" not in metrics
    assert state.round == 2 and state.tuned == 1
    state, metrics = step(method, state, federation)
    assert metrics["candidates"][UNITS[0]]["group"] != group and state.tuned == 2


def test_nobody_answers() -> None:
    everyone = [info.name for info in SIX]
    with refused(TooFewReplies, "too-few-replies", "6 candidates", "6 x RuntimeError: switched off"):
        rounds(decnas(), Script(SIX, silent(*everyone)), 1)


def test_nobody_uploads() -> None:
    def change(task: Task, candidate: str) -> float:
        raise RuntimeError("no line")

    with refused(TooFewReplies, "too-few-replies", "no line"):
        rounds(decnas(), Script(SIX, FROM_9_TO_4, change), 1)


def test_who_fails_to_upload_is_left_out_of_the_mean() -> None:
    def change(task: Task, candidate: str) -> float:
        if task.client == "two":
            raise RuntimeError("no line")
        return 4.0

    pair = [client("one"), client("two")]
    federation = Script(pair, FROM_9_TO_4, change)
    state, _ = rounds(decnas(groups=1), federation, 1)
    start = federation.sent("tune")[0].payload["weights"]
    for name, array in start.items():
        np.testing.assert_allclose(state.candidates[0]["weights"][name], array + 4.0, rtol=1e-6)
