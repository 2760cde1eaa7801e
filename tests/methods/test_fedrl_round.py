"""A round of `fedrl` by hand: who gets which sub-model, the mean of gradients, the policy's step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from atoll import spaces
from atoll.algorithms import reinforce
from atoll.core.messages import Payload, Task
from atoll.errors import TooFewReplies
from atoll.rng import stream
from atoll.spaces.darts import space as darts
from atoll.training import networks
from atoll.training.gradients import batch_gradient
from methods.late_clients import SCHEMA, LateFederation, answering, federation_of, make, play
from refusals import refused


def test_gradients_are_averaged_over_all_replies_and_zero_where_nothing_was_drawn() -> None:
    """Gradients of 2s and of 4s: 3 where both have the tensor, 1 or 2 where one has, 0 where none."""
    method, federation = make(), federation_of({"one": 2.0, "two": 4.0})
    before = method.init(federation, stream(1, "init"))
    after, metrics = play(method, federation, before)
    sent = {task.client: set(task.payload["weights"]) for task in federation.tasks}
    moved = {name: np.unique(before.weights[name] - array) for name, array in after.weights.items()}
    seen = set()
    for name, change in moved.items():
        wanted = (2.0 * (name in sent["one"]) + 4.0 * (name in sent["two"])) / 2
        assert np.allclose(change, wanted, atol=1e-6), name
        seen.add(wanted)
    assert seen == {0.0, 1.0, 2.0, 3.0}
    assert metrics["ages"] == [2, 0, 0] and metrics["discarded"] == 0 and metrics["asked"] == 2


def test_the_policy_ascent_states_by_equations_9_and_10() -> None:
    """Accuracies 0.2 and 0.6, two classes: b = 0.99 * 0.4 + 0.01 * 0.5 = 0.401, advantages -0.201 and 0.199."""
    method, federation = make(), federation_of({"one": 0.0, "two": 0.0}, {"one": 2, "two": 6})
    before = method.init(federation, stream(1, "init"))
    after, metrics = play(method, federation, before)
    assert after.baseline == pytest.approx(0.401)
    keys = {task.client: task.payload["architecture"]["key"] for task in federation.tasks}
    drawn = {name: np.array([key["normal"], key["reduce"]]) for name, key in keys.items()}
    slope = (
        -0.201 * reinforce.log_gradient(before.alpha, drawn["one"])
        + 0.199 * reinforce.log_gradient(before.alpha, drawn["two"])
    ) / 2
    expected, _ = reinforce.Ascent().step(before.alpha, slope, reinforce.Ascent().start(before.alpha))
    assert np.allclose(after.alpha, expected, rtol=0, atol=1e-12)
    differ = drawn["one"] != drawn["two"]
    rows, columns = np.nonzero(differ)
    better = after.alpha[rows, columns, drawn["two"][differ]] - before.alpha[rows, columns, drawn["two"][differ]]
    assert np.all(better > 0)  # what the better client had has become likelier
    assert metrics["accuracy"] == pytest.approx(0.4) == metrics["moving_accuracy"] and metrics["error"] == 0.6


def test_an_accuracy_is_of_the_rows_that_a_client_has() -> None:
    """Ten rows each, though a batch may have forty: 2 and 6 right are 0.2 and 0.6."""
    method, federation = make(batch=40), federation_of({"one": 0.0, "two": 0.0}, {"one": 2, "two": 6})
    after, metrics = play(method, federation)
    assert metrics["accuracy"] == pytest.approx(0.4) and after.baseline == pytest.approx(0.401)
    assert play(make(epochs=2), federation_of({"one": 0.0, "two": 0.0}, {"one": 2, "two": 6}))[1][
        "accuracy"
    ] == pytest.approx(0.2)


def test_a_reward_may_be_of_another_objective() -> None:
    """Of nine rows of one class and one of the other 9 and 0 are right, or 8 and 1: the accuracy is 0.9 for both, the
    balanced accuracy 0.5 and (8/9 + 1) / 2."""
    confusions = {"one": np.array([[9, 0], [1, 0]]), "two": np.array([[8, 1], [0, 1]])}
    plain = answering({"one": 0.0, "two": 0.0}, {"one": 0, "two": 0})

    def answer(task: Task) -> Payload:
        assert task.payload["confusion"] is True
        return {"gradient": plain(task)["gradient"], "confusion": confusions[task.client]}

    federation = LateFederation(["one", "two"], answer, SCHEMA)
    after, metrics = play(make(objective="balanced_error"), federation)
    mean = (0.5 + (8 / 9 + 1) / 2) / 2
    assert metrics["accuracy"] == pytest.approx(mean)
    assert after.baseline == pytest.approx(0.99 * mean + 0.01 * 0.5)


def test_the_warm_up_leaves_the_policy_alone() -> None:
    method, federation = make(warmup=1), federation_of({"one": 2.0, "two": 4.0}, {"one": 2, "two": 6})
    before = method.init(federation, stream(1, "init"))
    first, metrics = play(method, federation, before)
    assert metrics["phase"] == "warmup"
    assert np.array_equal(first.alpha, before.alpha) and first.baseline == before.baseline
    assert first.weights.whole_digest() != before.weights.whole_digest()
    second, metrics = play(method, federation, first)
    assert metrics["phase"] == "search" and not np.array_equal(second.alpha, before.alpha)
    assert len(second.recent) == 1  # the search's moving average starts anew


def test_policy_only_leaves_the_weights_alone_after_the_warm_up() -> None:
    method = make(warmup=1, policy_only=True)
    federation = federation_of({"one": 2.0, "two": 4.0}, {"one": 2, "two": 6})
    start = method.init(federation, stream(1, "init"))
    warm, _ = play(method, federation, start)
    searched, _ = play(method, federation, warm)
    assert warm.weights.whole_digest() != start.weights.whole_digest()
    assert searched.weights.whole_digest() == warm.weights.whole_digest()
    assert not np.array_equal(searched.alpha, warm.alpha)


def test_larger_sub_models_go_over_faster_links_and_keys_are_kept_for_who_got_them() -> None:
    method = make()
    federation = federation_of({"slow": 0.0, "fast": 0.0, "middle": 0.0, "quick": 0.0}, quorum=0.25)
    federation.rates(slow=1.0, fast=4.0, middle=2.0, quick=3.0)
    federation.held = {"slow", "fast", "middle"}
    after, metrics = play(method, federation)
    sizes = {task.client: darts.weight_count(task.payload["architecture"]) for task in federation.tasks}
    assert sizes["slow"] < sizes["middle"] < sizes["quick"] < sizes["fast"]
    keys = {task.client: task.payload["architecture"]["key"] for task in federation.tasks}
    assert set(after.past_keys["1"]) == {"slow", "fast", "middle"}
    for name, key in after.past_keys["1"].items():
        assert key.tolist() == [keys[name]["normal"], keys[name]["reduce"]]
    assert metrics["size_share"] == pytest.approx(np.mean(list(sizes.values())) / darts.weight_count(method.supernet))


@pytest.mark.parametrize("rule", ["adaptive", "same", "random"])
def test_who_gets_which_sub_model_is_a_setting(rule: str) -> None:
    method, federation = make(transmission=rule), federation_of(dict.fromkeys("abcdef", 0.0))
    federation.rates(a=1.0, b=6.0, c=2.0, d=5.0, e=3.0, f=4.0)
    start = method.init(federation, stream(1, "init"))
    play(method, federation, start)
    rng = stream(1, "round", 1)
    drawn = [reinforce.draw(start.alpha, rng).tolist() for _ in "abcdef"]
    given = [[task.payload["architecture"]["key"][kind] for kind in darts.KINDS] for task in federation.tasks]
    sizes = [darts.weight_count(task.payload["architecture"]) for task in federation.tasks]
    assert sorted(given) == sorted(drawn) and (given == drawn) == (rule == "same")
    assert (sizes == [sorted(sizes)[place] for place in (0, 5, 1, 4, 2, 3)]) == (rule == "adaptive")


def test_how_the_policy_ascent_states_is_a_setting() -> None:
    own = {"policy_lr": 0.5, "policy_decay": 0.1, "policy_clip": 0.01, "policy_betas": [0.2, 0.3]}
    method, federation = make(**own), federation_of({"one": 0.0, "two": 0.0}, {"one": 2, "two": 6})
    start = method.init(federation, stream(1, "init"))
    first, _ = play(method, federation, start)
    second, _ = play(method, federation, first)
    alpha, ascent_state, ascent = (
        start.alpha,
        reinforce.Ascent().start(start.alpha),
        reinforce.Ascent(0.5, 0.1, 0.01, (0.2, 0.3)),
    )
    baseline = 0.5
    for tasks in (federation.tasks[:2], federation.tasks[2:]):
        keys = [np.array([task.payload["architecture"]["key"][kind] for kind in darts.KINDS]) for task in tasks]
        baseline = 0.99 * 0.4 + 0.01 * baseline
        slopes = [reinforce.log_gradient(alpha, key) for key in keys]
        alpha, ascent_state = ascent.step(alpha, reinforce.reinforce([0.2, 0.6], baseline, slopes), ascent_state)
    assert np.allclose(second.alpha, alpha, rtol=0, atol=1e-12)


def test_the_window_of_the_moving_average_is_a_setting() -> None:
    method, federation, state = make(window=2), federation_of({"one": 0.0, "two": 0.0}), None
    for _ in range(3):
        state, _ = play(method, federation, state)
    assert state is not None and len(state.recent) == 2


def test_how_the_found_network_is_trained_is_a_setting() -> None:
    """The task of its first round carries it all; these clients know nothing but gradients, so the round fails."""
    size = {"retrain_channels": 3, "retrain_cells": 2, "retrain_batch": 7, "retrain_epochs": 2, "retrain_lr": 0.3}
    rest = {"retrain_momentum": 0.4, "retrain_weight_decay": 0.2, "retrain_crop": 1, "retrain_flip": 0.5}
    method = make(rounds=1, retrain=1, **size, **rest, retrain_cutout=2)
    federation = federation_of({"one": 0.0, "two": 0.0})
    with refused(TooFewReplies, "too-few-replies"):
        play(method, federation)
    sent = federation.tasks[0].payload
    assert (sent["architecture"]["channels"], sent["architecture"]["cells"]) == (3, 2)
    assert (sent["batch"], sent["epochs"], sent["lr"], sent["momentum"], sent["weight_decay"]) == (7, 2, 0.3, 0.4, 0.2)
    assert sent["augmentation"] == {"crop": 1, "flip": 0.5, "cutout": 2}


def test_sub_models_are_slices_and_their_costs_follow_the_rule() -> None:
    method, federation = make(batch=4), federation_of({"one": 0.0, "two": 0.0}, {"one": 1, "two": 1})
    before = method.init(federation, stream(1, "init"))
    play(method, federation, before)
    for task in federation.tasks:
        arch = task.payload["architecture"]
        assert list(task.payload["weights"]) == darts.names(arch)
        assert all(array is before.weights[name] for name, array in task.payload["weights"].items())
        assert task.macs == 3 * darts.cost(arch).macs * 4 and task.returns["correct"].maximum == 4
    ledger = federation.ledger.current
    assert ledger.bytes_down < 1.2 * sum(task.payload["weights"].nbytes for task in federation.tasks) + 20_000


def test_no_module_is_built_to_send_a_sub_model(monkeypatch: pytest.MonkeyPatch) -> None:
    method, federation = make(), federation_of({"one": 0.0, "two": 0.0})
    state = method.init(federation, stream(1, "init"))

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a module is built on the server")

    monkeypatch.setattr(torch.nn.Module, "__init__", refuse)
    _, tasks = method._draw(state, federation.clients(), 1, stream(1, "draw"))
    assert len(tasks) == 2


def test_a_client_that_fails_is_left_out() -> None:
    def answer(task: Task) -> Payload:
        if task.client == "broken":
            raise ValueError("broken")
        return answering({"one": 2.0, "two": 4.0}, {"one": 2, "two": 6})(task)

    method = make()
    three = LateFederation(["one", "broken", "two"], answer, SCHEMA)
    before = method.init(three, stream(1, "init"))
    after, metrics = play(method, three, before)
    change = before.weights["head.0.bias"] - after.weights["head.0.bias"]
    assert np.allclose(change, 3.0) and metrics["ages"] == [2, 0, 0] and after.past_keys == {}


def test_one_reply_moves_the_weights_and_not_the_policy() -> None:
    def answer(task: Task) -> Payload:
        if task.client == "broken":
            raise ValueError("broken")
        return answering({"one": 2.0}, {"one": 2})(task)

    method, federation = make(), LateFederation(["one", "broken"], answer, SCHEMA)
    before = method.init(federation, stream(1, "init"))
    after, _ = play(method, federation, before)
    assert np.array_equal(after.alpha, before.alpha) and after.baseline == before.baseline
    assert np.allclose(before.weights["head.0.bias"] - after.weights["head.0.bias"], 2.0)


def test_a_round_in_which_all_fail_changes_nothing() -> None:
    def answer(task: Task) -> Payload:
        raise ValueError("broken")

    federation = LateFederation(["one", "two"], answer, SCHEMA)
    with refused(TooFewReplies, "too-few-replies", "2 clients", "2 x ValueError: broken"):
        play(make(), federation)


def test_the_gradient_is_clipped_after_averaging() -> None:
    method, federation = make(clip=5.0), federation_of({"one": 2.0, "two": 4.0})
    before = method.init(federation, stream(1, "init"))
    after, _ = play(method, federation, before)
    squares = [np.sum((before.weights[name] - array) ** 2) for name, array in after.weights.items()]
    assert np.sqrt(np.sum(squares)) == pytest.approx(5.0, rel=1e-4)


def test_a_reward_over_more_rows_than_the_batch() -> None:
    """30 rows, a batch of 10 and a reward over 25: a training pass of 10 rows and a forward pass of 15."""
    federation = federation_of({"one": 1.0, "two": 1.0})
    federation._clients = [replace(info, sizes={**info.sizes, "train": 30}) for info in federation._clients]
    method = make(reward_rows=25)
    play(method, federation)
    task = federation.tasks[0]
    cost = darts.cost(task.payload["architecture"]).macs
    assert task.payload["counted"] == 25 and task.returns["correct"].maximum == 25
    assert task.macs == cost * (3 * 10 + 15)
    assert (
        make().config.rows(federation.clients()[0]) == 10
        and "counted"
        not in make()
        ._task(federation.clients()[0], task.payload["architecture"], method.init(federation, stream(1)).weights)
        .payload
    )


def test_counting_more_rows_does_not_change_the_gradient() -> None:
    architecture = darts.sub_model(make().supernet, {kind: [3] * 14 for kind in darts.KINDS})
    module, weights = networks.network(architecture), spaces.initial(architecture, stream(1))
    x, y = stream(2).standard_normal((30, 1, 6, 6)).astype(np.float32), np.arange(30) % 2
    few, many = (batch_gradient(module, weights, x, y, 10, stream(3), counted=rows) for rows in (0, 25))
    assert few.gradient.whole_digest() == many.gradient.whole_digest() and (few.rows, many.rows) == (10, 25)
    assert few.correct <= many.correct <= few.correct + 15


def test_the_best_of_the_drawn_cells_by_validation_error_is_trained() -> None:
    """Three are drawn beside the likeliest; the clients say that the third of all is best. One that fails for another
    does not count at all: it says that the first is best."""
    correct = {"choice-0": 3, "choice-1": 4, "choice-2": 9, "choice-3": 9}
    asked: dict[str, Any] = {}

    def answer(task: Task) -> Payload:
        if task.job.endswith(":gradient"):
            return answering({"one": 1.0, "two": 1.0}, {"one": 5, "two": 6})(task)
        if task.job.endswith(":train"):
            asked["trained"] = task.payload["architecture"]
            return {"weights": task.payload["weights"]}
        name = task.id.split(":")[1]
        if name.startswith("choice"):
            asked[name] = task.payload["architecture"]
            if task.client == "two" and name == "choice-1":
                raise TimeoutError("too long")
            return {"correct": correct[name] if task.client == "one" else {"choice-0": 10}.get(name, 0)}
        return {"confusion": np.array([[10, 0], [0, 0]]), "loss": 1.0}

    federation = LateFederation(["one", "two"], answer, SCHEMA)
    method = make(rounds=2, retrain=1, choice=3)
    state, _ = play(method, federation)
    after, metrics = play(method, federation, state)
    assert metrics["chosen"] == 2 and metrics["choice_errors"] == pytest.approx([0.7, 0.6, 0.1, 0.1])
    assert darts.path_key(asked["trained"]["genotype"]) == asked["choice-2"]["key"]
    assert after.found["architecture"] == asked["trained"]
    plain = make(rounds=2, retrain=1)
    assert plain._choice(state, federation, stream(1))[0] == darts.genotype(*state.alpha)
