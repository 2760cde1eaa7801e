"""What a client of federated NetAdapt tells of a candidate: how its own network does, or the one that it was sent."""

from __future__ import annotations

from atoll import spaces
from atoll.federation.local import local_federation
from atoll.methods.decnas.clients import Orders, PrunedCandidate, tune
from atoll.rng import stream
from atoll.testing import made_table

TRAINING = {"epochs": 3, "batch": 8, "lr": 0.3, "momentum": 0.0, "weight_decay": 0.0}


def told(evaluate_sent: bool) -> tuple[int, int]:
    """Right answers of a candidate that nothing was pruned from, and of the network that it is."""
    data = made_table(clients=3, rows=60)
    arch = {"space": "fixed", "model": "mlp", "hidden": [4], "input": list(data.schema.shape)}
    arch["classes"] = len(data.schema.classes)
    weights = spaces.initial(arch, stream(1, "weights"))
    orders = Orders(1, TRAINING, True, {"architecture": arch, "weights": weights}, evaluate_sent)
    with local_federation(data, 1, 0) as federation:
        federation.begin(1)
        counted, previous = tune(
            federation, [PrunedCandidate("u", arch, weights, 0)], [federation.clients()], orders, {}
        )
    return counted["u"].correct, previous["0"][0]


def test_the_network_that_was_sent_is_judged_as_the_one_before_it() -> None:
    candidate, before = told(evaluate_sent=True)
    assert candidate == before


def test_local_training_tells_more_of_the_client() -> None:
    candidate, before = told(evaluate_sent=False)
    assert candidate > before
