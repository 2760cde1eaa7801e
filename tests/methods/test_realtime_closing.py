"""The closing phase of the real-time search by hand: who trains what from which weights, picks, and longer runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Literal

import pytest

from atoll.core.messages import Task
from atoll.errors import ConfigError
from atoll.methods.realtime import Realtime, RealtimeState
from atoll.methods.realtime_config import RealtimeConfig
from atoll.rng import stream
from atoll.spaces.choice import space as choice
from methods.two_blocks import SCHEMA, Script, client, realtime, state, step
from refusals import refused

CLIENTS = [client("a", train=6), client("b", train=2), client("c", train=2)]
PARENTS = [[2, 2], [1, 0], [0, 0]]
OBJECTIVES = [[0.1, 24.0], [0.2, 12.0], [0.5, 8.0]]  # High 22, Knee 10


def network(task: Task) -> str:
    return "".join(map(str, task.payload["architecture"]["key"]))


def closing(**settings: Any) -> tuple[Realtime, RealtimeState]:
    """Of nine rounds the last three finish the picks; the search has just ended."""
    method = realtime(population=3, finish=1 / 3, finish_lr=0.4, **settings)
    return method, replace(state(method, PARENTS, OBJECTIVES), round=6, searched=6)


def test_picks_split_off_and_all_clients_train_them() -> None:
    federation = Script(CLIENTS, lambda task, number: 1.0, lambda task: [{"22": 9, "10": 6}[network(task)]])
    method, before = closing(snapshots=True)
    first, metrics = step(method, before, federation)
    trained = federation.sent("train")
    assert Counter((network(task), task.client) for task in trained) == Counter(
        (key, name) for key in ("22", "10") for name in "abc"
    )
    inherited = before.master.slice(choice.names(choice.sub_model(method.architecture, [2, 2])))
    assert trained[0].payload["weights"].whole_digest() == inherited.whole_digest()
    assert metrics["phase"] == "final" and metrics["high"] == {"key": "22", "error": pytest.approx(0.1), "macs": 24}
    assert metrics["knee"]["key"] == "10" and metrics["error"] == pytest.approx(0.1)
    assert (first.round, first.searched) == (7, 6) and first.master is before.master
    assert (first.parents, first.objectives) == (PARENTS, OBJECTIVES), "the population waits"
    assert {one.id: one.picks for one in method.snapshots(first)} == {"22": ["high"], "10": ["knee"]}

    second, _ = step(method, first, federation)
    third, _ = step(method, second, federation)
    assert method.done(third) and third.round == 9
    later = federation.sent("train")[6:]
    assert later[0].payload["weights"].whole_digest() == first.finished["22"].whole_digest()
    # A cosine from 0.4 to zero over three rounds: 1, 3/4 and 1/4 of it.
    rates = [task.payload["lr"] for task in federation.sent("train")[::6]]
    assert rates == pytest.approx([0.4, 0.3, 0.1])
    found = method.results(third, federation, stream(7, "results"))
    assert [(one.id, one.picks) for one in found] == [("22", ["high"]), ("10", ["knee"])]
    assert found[0].weights.whole_digest() == third.finished["22"].whole_digest()


@pytest.mark.parametrize("every", [1, 2])
def test_a_closing_round_is_two_exchanges_and_its_test_error_is_kept(every: int) -> None:
    """With a test in every second round, the best round of a network may be one without: then it is asked for."""
    right = {"22": [9, 7, 8], "10": [6, 6, 7]}
    now = [0]
    clients = [client(name, test=10) for name in "abc"]
    federation = Script(clients, correct=lambda task: [right[network(task)][now[0]]])
    method, after = closing(test_every=every)
    for number in range(3):
        now[0], sent = number, len(federation.tasks)
        after, metrics = step(method, after, federation)
        new = federation.tasks[sent:]
        assert Counter(task.job.partition(":")[2] for task in new if not task.test_evaluation) == {
            "train": 6,
            "count_correct": 6,
        }
        alone = [task for task in new if task.test_evaluation]
        assert len(alone) == (3 if every == 2 and number else 0)
        if every == 1:
            assert metrics["high"]["test_error"] == pytest.approx(0.1)
    federation.begin(10)
    sent = len(federation.tasks)
    found = {one.id: one for one in method.results(after, federation, stream(7, "results"))}
    if every == 1:
        assert {task.job.partition(":")[2] for task in federation.tasks[sent:]} == {"calibrate"}
        assert found["22"].objectives["test_error"] == pytest.approx(0.1)
        assert found["10"].objectives["test_error"] == pytest.approx(0.3)


def test_the_best_round_of_each_network_is_handed_over() -> None:
    """High gets 9, 7 and 8 of 10 rows right, Knee 6, 6 and 7: the first round of one, the last of the other."""
    right = {"22": [9, 7, 8], "10": [6, 6, 7]}
    now = [0]
    federation = Script(CLIENTS, lambda task, number: float(now[0] + 1), lambda task: [right[network(task)][now[0]]])
    method, after = closing()
    states = []
    for number in range(3):
        now[0] = number
        after, metrics = step(method, after, federation)
        states.append(after)
        assert metrics["high"]["error"] == pytest.approx(0.1)
    found = {one.id: one for one in method.results(after, federation, stream(7, "results"))}
    assert found["22"].weights.whole_digest() == states[0].finished["22"].whole_digest()
    assert found["10"].weights.whole_digest() == states[2].finished["10"].whole_digest()
    assert found["22"].objectives["error"] == pytest.approx(0.1)


def test_the_better_one_is_high_whichever_it_was() -> None:
    federation = Script(CLIENTS, lambda task, number: 1.0, lambda task: [{"22": 5, "10": 9}[network(task)]])
    method, before = closing()
    after, metrics = step(method, before, federation)
    assert metrics["high"]["key"] == metrics["knee"]["key"] == "10"
    found = method.results(after, federation, stream(7, "results"))
    assert [(one.id, one.picks) for one in found] == [("10", ["high", "knee"]), ("22", [])]


@pytest.mark.parametrize(("which", "keys"), [("high", {"22"}), ("picks", {"22", "10"}), ("front", {"22", "10", "00"})])
def test_which_networks_are_finished(which: str, keys: set[str]) -> None:
    federation = Script(CLIENTS, correct=lambda task: [5])
    method, before = closing(finish_networks=which)
    after, _ = step(method, before, federation)
    assert set(after.finished) == keys == {network(task) for task in federation.sent("train")}


def test_a_longer_run_goes_on_from_the_population_and_finishes_again() -> None:
    """Nine rounds with three of closing become eighteen: 10 to 15 search, 16 to 18 finish from the new master."""
    federation = Script(CLIENTS, lambda task, number: 1.0, lambda task: [5] * len(task.payload.get("keys", [0])))
    method, before = closing()
    ended = before
    for _ in range(3):
        ended, _ = step(method, ended, federation)
    longer = realtime(population=3, finish=1 / 3, finish_lr=0.4, rounds=18)
    assert method.done(ended) and not longer.done(ended)
    after, metrics = step(longer, ended, federation)
    assert "phase" not in metrics and (after.round, after.searched) == (10, 7) and after.finished == {}
    trained = federation.sent("train")[-3:]
    assert all("key" in task.payload for task in trained), "offspring of the population before the closing phase"
    assert trained[0].payload["lr"] == pytest.approx(0.1 * 0.995**6), (
        "closing rounds do not lower the rate of the search"
    )
    for _ in range(6):
        after, metrics = step(longer, after, federation)
    assert metrics["phase"] == "final" and after.round == 16 and after.searched == 12
    assert federation.sent("train")[-1].payload["lr"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("closed", "rounds", "phases"),
    [
        (3, 12, "ssf"),  # after the closing phase: three more rounds, of which one finishes
        (3, 10, "f"),  # a single one trains the finished picks further: no unfinished network takes their place
        (2, 12, "sssf"),  # in the middle of it: what is left of the plan is given up
        (0, 12, "ssffff"),  # before it: eight rounds of the search, four of closing, from the beginning
    ],
)
def test_what_is_added_has_a_closing_phase_of_its_own(closed: int, rounds: int, phases: str) -> None:
    federation = Script(CLIENTS, lambda task, number: 1.0, lambda task: [5] * len(task.payload.get("keys", [0])))
    method, after = closing()
    for _ in range(closed):
        after, _ = step(method, after, federation)
    longer = realtime(population=3, finish=1 / 3, finish_lr=0.4, rounds=rounds)
    found, rates = "", []
    while not longer.done(after):
        after, metrics = step(longer, after, federation)
        found += "f" if metrics.get("phase") == "final" else "s"
        rates.append(federation.sent("train")[-1].payload["lr"])
    assert found == phases
    assert rates[found.index("f")] == pytest.approx(0.4), "the rate of a closing phase falls from its own beginning"


def test_balanced_paths_train_all_branches_alike() -> None:
    clients = [client(f"c{number}") for number in range(8)]
    federation = Script(clients, correct=lambda task: [0] * len(task.payload["keys"]))
    method = realtime(population=2, paths="balanced")
    step(method, state(method, [[0, 0], [1, 1]], [[0.5, 8.0], [0.4, 16.0]]), federation)
    keys = [task.payload["key"] for task in federation.sent("train")]
    assert len(keys) == 8 and {task.client for task in federation.sent("train")} == {info.name for info in clients}
    for block in range(2):
        assert Counter(key[block] for key in keys) == dict.fromkeys(range(4), 2)


def test_a_closing_phase_must_leave_rounds_to_search() -> None:
    with refused(ConfigError, "phase-exceeds-rounds", "0.99", "9"):
        RealtimeConfig(rounds=9, finish=0.99)
    assert RealtimeConfig(rounds=40, finish=0.4).closing == 16 and RealtimeConfig(rounds=1, finish=0.4).closing == 0
    assert SCHEMA.outputs == 2


@pytest.mark.parametrize("search", ["evolution", "random"])
def test_networks_that_are_drawn_are_within_the_limit(search: Literal["evolution", "random"]) -> None:
    """For parents and for random search. Half of all keys of three blocks of width 4 have more MACs than that."""
    settings = {"population": 8, "widths": [4, 4, 4], "search": search}
    free = realtime(**settings)._drawn(stream(1, "draw"))
    method = realtime(**settings, max_macs=sorted(realtime(**settings).cost(key).macs for key in free)[3])
    parents = method._drawn(stream(1, "draw"))
    assert all(over == 0 for over in method.excess(parents))  # type: ignore[union-attr]
    assert any(over > 0 for over in method.excess(free)) and len(set(map(tuple, parents))) == 8  # type: ignore[union-attr]
    if search == "random":
        drawn = method.offspring(parents, [], stream(2, "draw"))
        assert all(over == 0 for over in method.excess(drawn))  # type: ignore[union-attr]


def test_networks_beyond_a_limit_are_not_picked() -> None:
    """Of 24, 12 and 8 MACs at most 12 are allowed: the two smaller ones survive, and High is one of them."""
    federation = Script(CLIENTS, correct=lambda task: [9, 8, 1, 0, 0, 0])
    method = realtime(population=3, max_macs=12, mutation=0.0, crossover=0.0, duplicates="keep")
    assert method.excess(PARENTS) is not None and method.excess(PARENTS).tolist() == [1.0, 0.0, 0.0]  # type: ignore[union-attr]
    after, metrics = step(method, state(method, PARENTS, OBJECTIVES), federation)
    assert metrics["high"]["macs"] <= 12 and [2, 2] not in after.parents
    assert all(cost <= 12 for _, _, cost in metrics["front"])
    with refused(ConfigError, "impossible-limit", "max_macs = 7", "8"):
        RealtimeConfig(rounds=9, widths=[2, 2], stem=2, max_macs=7).fitted(SCHEMA, 3)
    # A table's bottleneck 8-1-4 has fewer MACs than its linear map 8-4: 12 of 32, beside those of stem and head.
    ends = SCHEMA.shape[0] * 8 + 4 * SCHEMA.outputs
    with refused(ConfigError, "impossible-limit", f"{ends + 12} MACs"):
        RealtimeConfig(rounds=9, widths=[4], stem=8, max_macs=ends + 11).fitted(SCHEMA, 3)
