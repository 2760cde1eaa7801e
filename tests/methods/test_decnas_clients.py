"""What a client of federated NetAdapt reports of a candidate: how its own network does, or the one that it was sent."""

from __future__ import annotations

from typing import Any

from atoll import spaces
from atoll.core.messages import ClientInfo
from atoll.federation.local import local_federation
from atoll.methods.decnas.clients import Measure, Orders, PrunedCandidate, tune, tune_task
from atoll.rng import stream
from atoll.testing import made_table

TRAINING = {"epochs": 3, "batch": 8, "lr": 0.3, "momentum": 0.0, "weight_decay": 0.0}


def counted(measure: Measure, **settings: Any) -> tuple[int, int]:
    """Right answers of a candidate that nothing was pruned from, and of the network that it is."""
    data = made_table(clients=3, rows=60)
    arch = {"space": "fixed", "model": "mlp", "hidden": [4], "input": list(data.schema.shape)}
    arch["classes"] = len(data.schema.classes)
    weights = spaces.initial(arch, stream(1, "weights"))
    orders = Orders(1, TRAINING, True, {"architecture": arch, "weights": weights}, measure, **settings)
    with local_federation(data, 1, 0) as federation:
        federation.begin(1)
        found, previous = tune(federation, [PrunedCandidate("u", arch, weights, 0)], [federation.clients()], orders, {})
    assert found["u"].rows == previous["0"].rows == 36
    return found["u"].counted.correct, previous["0"].correct


def test_a_network_that_is_measured_as_it_was_sent_is_like_the_one_before_it() -> None:
    candidate, before = counted("sent")
    assert candidate == before


def test_local_training_says_more_of_the_client() -> None:
    candidate, before = counted("paper")
    assert candidate > before == counted("sent")[1]


def test_with_both_trained_the_network_before_gains_as_well() -> None:
    """Not by the same amount: the two trainings draw other orders of the rows."""
    candidate, before = counted("trained")
    assert candidate > counted("sent")[0] and before > counted("sent")[1]


def test_other_objectives_need_the_whole_confusion_matrix() -> None:
    assert counted("sent", objective="weighted_f1") == counted("sent")


def test_without_tuning_rounds_nothing_is_trained() -> None:
    """The candidate is measured as it was pruned, whatever `measure` says."""
    assert counted("paper", train=False) == counted("sent")


def test_steps_end_a_round_before_its_epochs() -> None:
    """36 training rows in batches of 8 are five steps an epoch; with three steps in all, 24 rows are trained on."""
    info = ClientInfo("one", {"train": 36, "validation": 10, "test": 0}, made_table().schema)
    arch = {"space": "fixed", "model": "mlp", "hidden": [4], "input": [6], "classes": 3}
    weights = spaces.initial(arch, stream(1))
    before = {"architecture": arch, "weights": weights}
    macs = {}
    for steps in (None, 3):
        orders = Orders(1, TRAINING | {"steps": steps}, True, before, "sent")
        macs[steps] = tune_task(PrunedCandidate("u", arch, weights, 0), info, orders, False).macs
    each = spaces.cost(arch).macs
    assert macs == {None: each * (3 * 3 * 36 + 10), 3: each * (3 * 24 + 10)}
