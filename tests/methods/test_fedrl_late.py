"""Late replies of `fedrl` by hand: compensated, used, thrown away; and replies that nobody asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from atoll.algorithms import reinforce
from atoll.algorithms.aggregation import GradientMean, clip_gradient
from atoll.core.messages import Payload, Task, Tensors
from atoll.federation.transport import Outcome
from atoll.methods.fedrl import FedRL, FedRLState, _Received
from atoll.rng import stream
from methods.late_clients import SCHEMA, LateFederation, answering, federation_of, make, play

BIAS = "head.0.bias"  # every sub-model has it


def two_rounds(late: str, **settings: Any) -> tuple[FedRL, list[FedRLState], LateFederation, dict[str, Any]]:
    """Round 1: `late` stays under way, `one` and `two` answer. Round 2: all three answer, `late` to round 1's task."""
    method = make(**{"compensation": 0.5, **settings})
    values = {"one": 1.0, "two": 1.0, "late": 2.0}
    federation = federation_of(values, {"one": 2, "two": 6, "late": 9}, late=late, quorum=0.6)
    states = [method.init(federation, stream(1, "init"))]
    federation.held = {"late"}
    states.append(play(method, federation, states[0])[0])
    federation.held = set()
    state, metrics = play(method, federation, states[1])
    return method, [*states, state], federation, metrics


def test_a_busy_client_is_not_asked_again() -> None:
    _, states, federation, metrics = two_rounds("use")
    assert [task.client for task in federation.tasks] == ["one", "two", "late", "one", "two"]
    assert set(states[1].past_keys) == set(states[1].past_weights) == set(states[1].past_alphas) == {"1"}
    assert metrics["asked"] == 2 and metrics["ages"] == [2, 1, 0]
    assert federation.ledger.current.replies == {"used": 2, "late": 1, "stale": 0, "rejected": 0, "failed": 0}
    assert states[2].past_weights == states[2].past_keys == {}  # nobody is under way: nothing is kept


def test_compensation_by_hand() -> None:
    """Round 1 moved every weight of the head by -1. g + 0.5 g g (now - then) = 2 + 0.5 * 4 * (-1) = 0 for `late`.

    The mean over three replies is (1 + 1 + 0) / 3; used as it is, (1 + 1 + 2) / 3.
    """
    for late, mean in (("compensate", 2 / 3), ("use", 4 / 3), ("drop", 1.0)):
        _, states, _, _ = two_rounds(late)
        assert np.allclose(states[0].weights[BIAS] - states[1].weights[BIAS], 1.0)
        assert np.allclose(states[1].weights[BIAS] - states[2].weights[BIAS], mean, atol=1e-6), late


def test_adaptive_compensation_by_hand() -> None:
    """The mean squares after 1, 1 and 2, each 0.95 of the one before and 0.05 of the square: 0.05, 0.0975, 0.292625.

    The term of `late` is 0.1 / 0.292625^(1/2) * 2 * 2 * (-1). The constant rule's lambda has no part in it.
    """
    _, states, _, metrics = two_rounds(
        "compensate", compensation_rule="adaptive", compensation=100.0, adaptive_compensation=0.1
    )
    term = 0.1 / 0.292625**0.5 * 4
    assert np.allclose(states[1].weights[BIAS] - states[2].weights[BIAS], (1 + 1 + 2 - term) / 3, atol=1e-5)
    assert metrics["compensation"] > 0 and np.allclose(states[1].squares[BIAS], 0.0975)
    assert np.allclose(states[2].squares[BIAS], 0.95 * (0.95 * 0.292625 + 0.05) + 0.05)


@pytest.mark.parametrize(("rule", "strength"), [("constant", 0.1), ("adaptive", 8.0)])
def test_each_rule_has_a_strength_of_its_own(rule: Any, strength: float) -> None:
    """The paper's, and the one that was best on digits: `experiments/fedrl/README.md`."""
    config = make(compensation_rule=rule).config
    assert {"constant": config.compensation, "adaptive": config.adaptive_compensation}[rule] == strength


@pytest.mark.parametrize("rule", ["constant", "adaptive"])
@pytest.mark.parametrize("correction", ["exact", "weighted", "taylor", "paper", None])
def test_the_policy_of_a_late_key(correction: Any, rule: str) -> None:
    """Three advantages over one baseline; the late one's gradient of log p is corrected, or taken as it was. The lambda
    of the adaptive rule is for weights only."""
    settings = {"compensation_rule": rule} | ({} if correction is None else {"correction": correction})
    _, states, federation, _ = two_rounds("use" if correction is None else "compensate", **settings)
    start, then, now = states
    keys = [
        np.array([task.payload["architecture"]["key"][kind] for kind in ("normal", "reduce")])
        for task in federation.tasks
    ]
    late = (
        reinforce.log_gradient(start.alpha, keys[2])
        if correction is None
        else reinforce.corrected(keys[2], start.alpha, then.alpha, correction, 0.5)
    )
    baseline = 0.99 * (0.2 + 0.6 + 0.9) / 3 + 0.01 * then.baseline
    fresh = [reinforce.log_gradient(then.alpha, key) for key in keys[3:]]
    slope = ((0.9 - baseline) * late + (0.2 - baseline) * fresh[0] + (0.6 - baseline) * fresh[1]) / 3
    expected, _ = reinforce.Ascent().step(then.alpha, slope, then.ascent)
    assert np.allclose(now.alpha, expected, rtol=0, atol=1e-12)


def test_dropped_replies_are_stale_in_the_ledger() -> None:
    _, states, federation, metrics = two_rounds("drop")
    assert metrics["ages"] == [2, 0, 0] and metrics["discarded"] == 0, "the method does not even see it"
    assert set(states[2].past_keys) == {"1"} and set(states[2].past_keys["1"]) == {"late"}
    assert federation.ledger.current.replies == {"used": 2, "late": 0, "stale": 1, "rejected": 0, "failed": 0}


@pytest.mark.parametrize(("threshold", "used"), [(2, True), (1, False)])
def test_a_reply_to_a_forgotten_round_is_thrown_away(threshold: int, used: bool) -> None:
    """It comes two rounds late: with a threshold of 1 its round is forgotten, and nothing of it counts."""
    method = make(threshold=threshold)
    federation = federation_of({"one": 1.0, "two": 1.0, "late": 2.0}, {"one": 2, "two": 6, "late": 9}, quorum=0.6)
    federation.held = {"late"}
    state, _ = play(method, federation)
    state, _ = play(method, federation, state)
    assert ("1" in state.past_keys) == used
    federation.held = set()
    after, metrics = play(method, federation, state)
    assert metrics["discarded"] == int(not used) and metrics["ages"] == ([2, 0, 1] if used else [2, 0])
    assert federation.ledger.current.replies["stale"] == int(not used)
    if not used:
        silent = federation_of({"one": 1.0, "two": 1.0, "late": 2.0}, {"one": 2, "two": 6, "late": 9}, quorum=0.6)
        silent.held = {"late"}
        other = None
        for _ in range(3):
            other, _ = play(method, silent, other)
        assert other is not None and other.weights.whole_digest() == after.weights.whole_digest()
        assert np.array_equal(other.alpha, after.alpha)


def test_a_client_that_is_silent_for_ever_blocks_nothing() -> None:
    method = make()
    federation = federation_of({"one": 1.0, "two": 1.0, "silent": 2.0}, quorum=0.6)
    federation.held = {"silent"}
    state = None
    for _ in range(6):
        state, metrics = play(method, federation, state)
        assert metrics["ages"][0] == 2
    assert state is not None and state.past_keys == {}  # beyond the threshold nothing is kept for it
    assert len(federation.snapshot()["in_flight"]) == 1


@pytest.mark.parametrize("rule", ["constant", "adaptive"])
def test_a_compensated_gradient_that_overflows_is_thrown_away(rule: str) -> None:
    """1e30 is finite and passes the guard; its square is not. It is no part of the mean squares either."""
    method = make(compensation_rule=rule)
    federation = federation_of(dict.fromkeys(("one", "two", "late"), 1e30), quorum=0.6)
    federation.held = {"late"}
    state, _ = play(method, federation)
    federation.held = set()
    after, metrics = play(method, federation, state)
    assert metrics["discarded"] == 1
    assert all(np.isfinite(array).all() for array in after.weights.values())
    assert not any(array.any() for array in after.squares.values())


def test_a_bound_holds_each_reply_before_it_is_compensated() -> None:
    """Every reply is shortened to a length of 1; then the late one's own square makes up for the drift of round 1."""
    method, values = make(bound=1.0), {"one": 1.0, "two": 1.0, "late": 100.0}
    federation = federation_of(values, quorum=0.6)
    start = method.init(federation, stream(1, "init"))
    federation.held = {"late"}
    state, _ = play(method, federation, start)
    federation.held = set()
    after, metrics = play(method, federation, state)
    assert metrics["discarded"] == 0
    drift, total = state.weights[BIAS] - start.weights[BIAS], np.zeros_like(state.weights[BIAS])
    for task in federation.tasks[2:]:  # the late one of round 1, and the two of round 2
        whole = {name: np.full_like(array, values[task.client]) for name, array in task.payload["weights"].items()}
        own = clip_gradient(whole, 1.0)[BIAS]
        total += own + (0.1 * own * own * drift if task.client == "late" else 0)
    assert np.allclose(state.weights[BIAS] - after.weights[BIAS], total / 3, rtol=0, atol=2e-7)
    late = total - 2 * clip_gradient(whole, 1.0)[BIAS]
    assert np.abs(late - total / 3).max() > 1e-6  # the figures are large enough to tell


def test_who_is_still_at_work_is_waited_for_when_those_asked_fail() -> None:
    """A site that is down answers at once, again and again: that alone must not stop the others' search."""

    class ForAWhile(set[str]):
        looks = 0

        def __contains__(self, name: object) -> bool:
            self.looks += name != "broken"
            return name != "broken" and self.looks < 9

    def answer(task: Task) -> Payload:
        if task.client == "broken":
            raise ValueError("the site is down")
        return answering({"one": 1.0, "two": 1.0}, {"one": 2, "two": 6})(task)

    federation = LateFederation(["broken", "one", "two"], answer, SCHEMA, quorum=0.3)
    federation.held = ForAWhile()
    _, metrics = play(make(), federation)
    assert metrics["ages"][0] >= 1


class Patience(set[str]):
    """Clients in it are held for so many looks, or for ever; endless looking is a test that fails."""

    def __init__(self, looks: int = 0, **until: int) -> None:
        super().__init__()
        self.looks, self.until = looks, until

    def __contains__(self, name: object) -> bool:
        self.looks += 1
        assert self.looks < 2000, "it waits for ever"
        return self.looks < self.until.get(str(name), 0)


NEVER = 10**9


def broken(name: str, values: dict[str, float]) -> Any:
    """This client fails from its second task on."""
    asked: list[str] = []

    def answer(task: Task) -> Payload:
        asked.append(task.client)
        if task.client == name and asked.count(name) > 2:
            raise ValueError("the site is down")
        return answering(values, dict.fromkeys(values, 5))(task)

    return answer


def test_one_who_does_better_than_those_who_failed_is_enough() -> None:
    def answer(task: Task) -> Payload:
        if task.client == "broken":
            raise ValueError("the site is down")
        return answering({"one": 1.0, "two": 1.0}, {"one": 2, "two": 6})(task)

    federation = LateFederation(["broken", "one", "two"], answer, SCHEMA, quorum=0.3)
    federation.held = Patience(one=9, two=NEVER)
    _, metrics = play(make(), federation)
    assert metrics["ages"] == [1, 0, 0]


def test_when_nobody_could_be_asked_a_reply_ends_the_round_whatever_it_is_worth() -> None:
    """Its client is free again."""
    method = make(threshold=0)
    federation = federation_of({"one": 1.0, "two": 1.0}, quorum=0.5, deadline=0.05)
    federation.held = {"one", "two"}
    state, _ = play(method, federation)
    federation.held = Patience(two=NEVER)
    federation.rules = replace(federation.rules, deadline=None)
    _, metrics = play(method, federation, state)
    assert metrics["asked"] == 0 and metrics["discarded"] == 1 and federation.busy == {"two"}


def test_a_reply_to_what_was_asked_in_an_earlier_attempt_is_thrown_away() -> None:
    """A round that is tried again draws anew: the gradient of another sub-model must not be taken for this one's."""
    method = make()
    federation = federation_of({"one": 1.0, "two": 1.0, "late": 2.0}, quorum=0.6)
    federation.held = {"late"}
    state, _ = play(method, federation)
    other = (state.past_keys["1"]["late"] + 1) % 8
    federation.held = set()
    _, metrics = play(method, federation, replace(state, past_keys={"1": {"late": other}}))
    assert metrics["discarded"] == 1 and metrics["ages"] == [2, 0, 0]


def test_a_reply_that_was_here_before_it_was_asked_for_is_late_all_the_same() -> None:
    """It arrives while something else of its round is streamed, and is delivered, and thrown away, in the next."""
    method = make()
    federation = federation_of({"one": 1.0, "two": 1.0, "late": 2.0}, late="drop", quorum=0.6)
    federation.held = {"late"}
    state, _ = play(method, federation)
    federation.held = set()
    list(federation.map([federation.tasks[0]]))
    play(method, federation, state)
    counts = [account.replies for account in federation.ledger.rounds]
    assert [row["used"] for row in counts] == [3, 3] and [row["stale"] for row in counts] == [0, 1]
    assert all(count >= 0 for row in counts for count in row.values())


def test_the_moving_average_of_the_search_starts_anew_even_without_a_reply() -> None:
    method = make(warmup=1)
    federation = federation_of({"one": 1.0, "two": 1.0}, quorum=0.5)
    warm, _ = play(method, federation)
    assert len(warm.recent) == 1
    assert method._update(warm, _Received(GradientMean()), "search", stream(1)).recent == []


# -- replies that nobody asked for -------------------------------------------------------------------------------------


def undisturbed() -> FedRLState:
    return play(make(), federation_of({"one": 2.0, "two": 4.0}))[0]


def same(one: FedRLState, other: FedRLState) -> bool:
    return one.weights.whole_digest() == other.weights.whole_digest() and np.array_equal(one.alpha, other.alpha)


def test_a_second_reply_to_a_task_is_rejected() -> None:
    federation = federation_of({"one": 2.0, "two": 4.0})
    federation.odd = lambda outcome: [outcome, outcome]
    state, metrics = play(make(), federation)
    assert same(state, undisturbed()) and metrics["ages"] == [2, 0, 0]
    assert federation.ledger.current.replies["rejected"] == 2
    assert federation.engine_events()["unexpected_replies"] == [
        f"a reply to task {n}, which was answered or given up already" for n in (0, 1)
    ]


def test_a_reply_from_a_client_never_asked_is_rejected() -> None:
    federation = federation_of({"one": 2.0, "two": 4.0})
    federation.odd = lambda outcome: [Outcome(1000 + outcome.order, outcome.payload, {}, 7), outcome]
    state, metrics = play(make(), federation)
    assert same(state, undisturbed()) and metrics["ages"] == [2, 0, 0]
    assert federation.ledger.current.replies["rejected"] == 2
    assert federation.engine_events()["unexpected_replies"][0] == "a reply to task 1000, which was never sent"


def test_endless_strays_do_not_fill_the_log() -> None:
    federation = federation_of({"one": 2.0, "two": 4.0})
    federation.odd = lambda outcome: [*(Outcome(9000 + n, {}, {}, 1) for n in range(100)), outcome]
    play(make(), federation)
    assert (
        len(federation.engine_events()["unexpected_replies"]) == 10
        and federation.ledger.current.replies["rejected"] == 200
    )


def other_sub_model(task: Task) -> Payload:
    """The gradient of a tensor is missing, that of another was put in its place."""
    payload = answering({"one": 2.0, "two": 4.0}, {"one": 5, "two": 5})(task)
    if task.client == "one":
        return payload
    arrays = dict(payload["gradient"])
    arrays.pop(BIAS)
    return {**payload, "gradient": Tensors({**arrays, "cells.0.edges.0.other.weight": np.zeros(3, np.float32)})}


def more_correct_than_rows(task: Task) -> Payload:
    payload = answering({"one": 2.0, "two": 4.0}, {"one": 5, "two": 5})(task)
    return payload if task.client == "one" else {**payload, "correct": 11}


def not_a_number(task: Task) -> Payload:
    return answering({"one": 2.0, "two": float("nan")}, {"one": 5, "two": 5})(task)


@pytest.mark.parametrize("answer", [other_sub_model, more_correct_than_rows, not_a_number])
def test_what_the_task_did_not_ask_for_is_rejected(answer: Any) -> None:
    """Only `one` counts, as if `two` had said nothing."""
    method, federation = make(), LateFederation(["one", "two"], answer, SCHEMA)
    before = method.init(federation, stream(1, "init"))
    after, metrics = play(method, federation, before)
    assert metrics["ages"] == [1, 0, 0] and federation.ledger.current.replies["rejected"] == 1
    assert np.allclose(before.weights[BIAS] - after.weights[BIAS], 2.0)
    assert after.past_keys == {}
