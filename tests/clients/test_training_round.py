"""Modified SET federated averaging: averages, Omega and what becomes of bad replies, by hand on two clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from atoll import spaces
from atoll.clients import Counted, FederatedModel, LocalTraining, count_correct, fresh, train_models, train_task
from atoll.core import wire
from atoll.core.checks import OnGraph, TensorsLike, from_plain, to_plain
from atoll.core.messages import ClientInfo, Payload, Task, Tensors
from atoll.errors import TooFewReplies
from atoll.federation.base import Federation
from atoll.federation.local import local_federation
from atoll.rng import stream
from atoll.spaces.sparse import space as sparse
from atoll.testing import ScriptedFederation, made_table
from refusals import refused

ARCH: dict[str, Any] = {
    "space": "sparse",
    "model": "mlp",
    "input": [2],
    "classes": 2,
    "hidden": [3],
    "epsilon": 1,
    "graph": 1,
    "xi": 0.3,
}
START = fresh("net", ARCH, stream(1, "start"))
SETTINGS = LocalTraining(epochs=1, batch=5)
Answer = Callable[[Task], Payload]


def federation(answer: Answer, rows: dict[str, int] | None = None) -> ScriptedFederation:
    made = ScriptedFederation(["a", "b"], answer)
    if rows:
        made._clients = [replace(info, sizes={**info.sizes, "train": rows[info.name]}) for info in made.clients()]
    return made


def filled(value: float, zeros: int = 0) -> Tensors:
    """An upload with this value everywhere but in the first `zeros` connections of each matrix."""
    found = {}
    for name, array in START.weights.items():
        found[name] = np.full_like(array, value)
        if name in sparse.masks(ARCH):
            found[name][:zeros] = 0
    return Tensors(found)


def infos(made: ScriptedFederation) -> list[ClientInfo]:
    return made.clients()


def test_the_average_counts_zeros_and_weighs_by_rows() -> None:
    """10 rows say 1, with two connections a matrix removed, 30 rows say 5: (10 x 1 + 30 x 5) / 40 = 4, else 3.75."""
    uploads = {"a": filled(1, zeros=2), "b": filled(5)}
    made = federation(lambda task: {"weights": uploads[task.client]}, {"a": 10, "b": 30})
    (after,) = train_models(made, [START], infos(made), SETTINGS, 0)
    for name, array in after.weights.items():
        removed = 2 if name in sparse.masks(ARCH) else 0
        assert array.tolist() == [3.75] * removed + [4.0] * (len(array) - removed)
    # Omega: a sent 4 weights fewer than there are, and has a quarter of the rows
    assert after.connections == spaces.cost(ARCH).params - 0.25 * 2 * len(sparse.masks(ARCH))


def test_all_networks_of_a_round_go_out_together() -> None:
    made = federation(lambda task: {"weights": filled(1)})
    train_models(made, [START, replace(START, name="other")], infos(made), SETTINGS, 0)
    assert [task.id for task in made.tasks] == ["train:net:a", "train:net:b", "train:other:a", "train:other:b"]


def test_the_learning_rate_is_the_network_s_own() -> None:
    made = federation(lambda task: {"weights": filled(1)})
    own = replace(START, architecture={**ARCH, "lr": 0.25})
    train_models(made, [START, replace(own, name="own")], infos(made), replace(SETTINGS, lr=0.1, decay=0.5), 2)
    assert [task.payload["lr"] for task in made.tasks] == [0.025, 0.025, 0.0625, 0.0625]


def test_weights_outside_the_graph_are_rejected_by_name() -> None:
    whole = sparse.unpack(ARCH, filled(1))
    assert whole["layers.0.weight"].shape == (3, 2)
    made = federation(lambda task: {"weights": whole if task.client == "a" else filled(2)})
    made.begin(1)
    (after,) = train_models(made, [START], infos(made), SETTINGS, 0)
    assert made.ledger.current.replies["rejected"] == 1
    assert all((array == 2).all() for array in after.weights.values())
    count = len(START.weights["layers.0.weight"])
    wanted = OnGraph(TensorsLike.of(START.weights).model, {"layers.0.weight": count})
    reason = wanted.problem(whole)
    assert reason == f"mask: weights of shape (3, 2) for a graph of {count} connections in 'layers.0.weight'"
    assert wanted.problem(filled(1)) is None
    assert wanted.problem(Tensors({})).startswith("schema")  # type: ignore[union-attr]
    assert from_plain(to_plain(wanted)) == wanted


def test_a_network_that_diverged_everywhere_is_marked_and_left_alone() -> None:
    made = federation(lambda task: {"weights": filled(np.nan if "bad" in task.id else 1.0)})
    bad = replace(START, name="bad")
    good, gone = train_models(made, [START, bad], infos(made), SETTINGS, 0)
    assert gone.diverged and not good.diverged
    sent = len(made.tasks)
    again = train_models(made, [good, gone], infos(made), SETTINGS, 1)
    assert again[1] is gone and len(made.tasks) == sent + 2
    assert train_models(made, [gone], infos(made), SETTINGS, 1) == [gone]


def test_a_network_that_one_client_keeps_finite_goes_on() -> None:
    made = federation(lambda task: {"weights": filled(np.inf if task.client == "a" else 3.0)})
    (after,) = train_models(made, [START], infos(made), SETTINGS, 0)
    assert not after.diverged and all((array == 3).all() for array in after.weights.values())


@pytest.mark.parametrize(("ruined", "diverged"), [(4, True), (3, False)])
def test_a_network_that_most_clients_ruin_has_diverged(ruined: int, diverged: bool) -> None:
    """Of six clients one says only that its weights are not finite: its word does not count, and one does not suffice
    to go on."""

    def answer(task: Task) -> Payload:
        if task.client == "f" or (task.client == "e" and ruined < 4):
            raise ValueError("nonfinite")
        return {"weights": filled(1.0 if task.client == "a" else np.nan)}

    made = ScriptedFederation(list("abcdef"), answer)
    if not diverged:
        with refused(TooFewReplies, "too-few-replies", "1 of 6"):
            train_models(made, [START], infos(made), SETTINGS, 0)
        return
    (after,) = train_models(made, [START], infos(made), SETTINGS, 0)
    assert after.diverged and after.weights is START.weights


def test_silence_for_one_network_leaves_it_as_it_was() -> None:
    def answer(task: Task) -> Payload:
        if "net" in task.id:
            raise ValueError("asleep")
        return {"weights": filled(1)}

    made = federation(answer)
    first, second = train_models(made, [START, replace(START, name="other")], infos(made), SETTINGS, 0)
    assert first == replace(START, connections=spaces.cost(ARCH).params) and second.weights[
        "layers.0.bias"
    ].tolist() == [1, 1, 1]


def test_silence_for_all_is_too_few_replies() -> None:
    def answer(task: Task) -> Payload:
        raise ValueError("asleep")

    made = federation(answer)
    with refused(TooFewReplies, "too-few-replies", "asleep"):
        train_models(made, [START], infos(made), SETTINGS, 0)


def test_counting_what_is_right() -> None:
    answers = {"a": 7, "b": 2}
    made = federation(lambda task: {"correct": answers[task.client]})
    counts = count_correct(made, [START, replace(START, name="gone", diverged=True)], infos(made), "validation")
    assert {name: (one.correct, one.rows) for name, one in counts.items()} == {"net": (9, 20), "gone": (0, 20)}
    assert counts["net"].error() == pytest.approx(0.55) and counts["gone"].error() == 1.0
    assert count_correct(made, [START], infos(made), "test")["net"].rows == 0
    liar = federation(lambda task: {"correct": 11})
    with refused(TooFewReplies, "too-few-replies", "validation counts"):
        count_correct(liar, [START], infos(liar), "validation")


def test_networks_may_be_compared_on_the_same_clients_only() -> None:
    """`b` fails for the second network. What it says of the first would make that one the better."""
    models = [replace(START, name=name) for name in ("one", "two")]

    def answer(task: Task) -> Payload:
        if task.client == "b" and ":two:" in task.id:
            raise TimeoutError("too long")
        return {"correct": 10 if task.client == "b" else 5}

    made = federation(answer)
    found = [count_correct(made, models, infos(made), "validation", same_clients=same) for same in (False, True)]
    assert [[counts[name].error() for name in ("one", "two")] for counts in found] == [[0.25, 0.5], [0.5, 0.5]]

    def never(task: Task) -> Payload:
        if (task.client == "a") == (":two:" in task.id):
            raise TimeoutError("too long")
        return {"correct": 5}

    made = federation(never)
    counts = count_correct(made, models, infos(made), "validation", same_clients=True)
    assert [counts[name].rows for name in ("one", "two")] == [10, 10], "no client has counted for both"


# -- with real clients ---------------------------------------------------------------------------------------------


def real_round(**arch: Any) -> tuple[FederatedModel, Federation]:
    data = made_table()
    made = local_federation(data, 1, workers=0)
    made.begin(1)
    whole = {**ARCH, "input": list(data.schema.shape), "classes": data.schema.outputs, "hidden": [40], **arch}
    settings = LocalTraining(epochs=2, batch=8, client_accuracy=True)
    (after,) = train_models(made, [fresh("net", whole, stream(1, "s"))], made.clients(), settings, 0)
    return after, made


def test_a_real_client_removes_once_per_upload() -> None:
    after, _ = real_round(xi=0.5)
    before = {name: int(mask.sum()) for name, mask in sparse.masks(after.architecture).items()}
    dense = spaces.cost(after.architecture).params - sum(before.values())
    assert after.connections == dense + sum(count - count // 2 for count in before.values())
    none, _ = real_round(xi=0.0)
    assert none.connections == spaces.cost(none.architecture).params


def test_the_clients_own_accuracy_is_counted_on_their_training_rows() -> None:
    after, made = real_round()
    assert after.client_rows == sum(info.sizes["train"] for info in made.clients())
    assert 0.4 * after.client_rows < after.client_correct <= after.client_rows


def test_upload_bytes_fall_with_the_connections() -> None:
    """At a tenth of the connections a round's uploads are less than a fifth of the full network's, on the wire."""
    data = made_table(features=100, classes=10)
    sizes = {}
    for name, arch in {
        "thin": {"space": "sparse", "epsilon": 7, "graph": 1, "xi": 0.1},
        "full": {"space": "fixed"},
    }.items():
        made = local_federation(data, 1, workers=0)
        made.begin(1)
        whole = {"model": "mlp", "input": [100], "classes": 10, "hidden": [200, 200], **arch}
        (after,) = train_models(made, [fresh(name, whole, stream(1, "s"))], made.clients(), SETTINGS, 0)
        sizes[name] = made.ledger.current.bytes_up
        if name == "thin":
            assert after.connections / spaces.cost({**whole, "epsilon": 10_000}).params == pytest.approx(0.1, abs=0.02)
    assert sizes["thin"] < 0.2 * sizes["full"]


def test_the_upload_is_wire_legal_and_small() -> None:
    after, _ = real_round()
    data = wire.encode({"weights": after.weights})
    found = wire.decode(data)["weights"]
    assert all(np.array_equal(found[name], after.weights[name]) for name in found)


def test_the_median_of_the_clients_own_errors_by_hand() -> None:
    """Errors of 0.2, 0.4 and 1.0 (a liar with most of the rows): 0.4 is the median, 0.95 the mean over rows."""
    robust, plain = Counted(median=True), Counted()
    for correct, rows in ((8, 10), (6, 10), (0, 260)):
        robust.add({"correct": correct}, rows)
        plain.add({"correct": correct}, rows)
    assert robust.error() == pytest.approx(0.4) and plain.error() == pytest.approx(0.95)
    assert robust.to_plain() == plain.to_plain()


def test_a_task_with_a_clip_says_how_long_its_update_can_be() -> None:
    """Five rows in batches of two are two steps, because the last row joins: 0.5 x 2 x 3 = 3. Not for a sparse one."""
    info = federation(lambda task: {}, {"a": 5, "b": 5}).clients()[0]
    dense = {"space": "fixed", "model": "mlp", "input": [2], "classes": 2, "hidden": [3]}
    payload = {"architecture": dense, "weights": spaces.initial(dense, stream(1, "start")), "epochs": 1, "batch": 2}
    payload |= {"lr": 0.5, "clip": 3.0}
    assert train_task(info, payload).returns["weights"].longest == pytest.approx(3.0, rel=1e-4)
    assert train_task(info, payload | {"clip": None}).returns["weights"].longest is None
    thin = payload | {"architecture": ARCH, "weights": START.weights}
    assert train_task(info, thin).returns["weights"].longest is None
