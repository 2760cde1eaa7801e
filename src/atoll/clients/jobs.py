"""What clients do, written once: train, evaluate, count correct rows, calibrate batch norm, compute a gradient.

A job is a function from a task's payload and the client (its data, memory and random stream) to the reply's payload. A
method with work of its own writes its own job and calls these functions. `train` with another local objective:

    def train(payload, client):
        return jobs.train(payload, client, objective=proximal(payload))

    JOBS = {"train": train}

The server's halves, which build the tasks and fold the replies, are in `training_round` and `evaluation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from atoll.core.messages import REPORT, Array, Part, Payload, Tensors, charged
from atoll.errors import ConfigError
from atoll.spaces.sparse import space as sparse
from atoll.spaces.sparse.graph import remove_smallest
from atoll.training import calibration, evaluation, gradients, networks, private, sgd, shared_prefix
from atoll.training.augmentation import Augmentation
from atoll.training.client import Client
from atoll.training.metrics import Confusion

if TYPE_CHECKING:
    from atoll.training.sgd import Objective

TRAIN = f"{__name__}:train"
EVALUATE = f"{__name__}:evaluate"
EVALUATE_DELIVERED = f"{__name__}:evaluate_delivered"
COUNT_CORRECT = f"{__name__}:count_correct"
CALIBRATE = f"{__name__}:calibrate"
FETCH = f"{__name__}:fetch"
GRADIENT = f"{__name__}:gradient"

TEST_BATCH = 100  # rows of a batch where nothing is trained
NETWORKS = "networks"  # in what a task asks for the report: of networks that it does not train
KEPT = "statistics"  # of the last measurement, in a client's memory


def train(payload: Payload, client: Client, objective: Objective | None = None) -> Payload:
    """Train a network on the client's training rows by SGD; the reply holds its new `weights`.

    The `objective` is cross-entropy by default. The payload has `architecture`, `weights` and the fields of
    `TrainSettings`, whose defaults serve where one is missing. Optional: `augmentation`, `prox` (FedProx), `key` (train
    this path of a master network only), `with_validation` (train on validation rows too) and `client_accuracy` (the
    reply also says how many of these rows are `correct` afterwards).

    The weights of a sparse network travel along its graph and are trained inside it. Before the upload the fraction
    `xi` of the smallest weights of every sparse matrix is removed.

    With `before` the network is measured as it came, before it is trained, see `measured`. What the reply also says of
    other networks is in `fetch`.

    With `privacy` (see `coverage`) it is trained by noisy steps. What follows them, such as that removal, uses their
    result only, so it changes nothing in the guarantee.
    """
    architecture, key = payload["architecture"], payload.get("key")
    counts = measured(payload, client) | fetch(payload, client)
    fields = sgd.TrainSettings.__dataclass_fields__
    x, y = client.data.part("train")
    if payload.get("with_validation"):
        more = client.data.part("validation")
        x, y = np.concatenate([x, more[0]]), np.concatenate([y, more[1]])
    module = networks.network(architecture, client.device)
    graphs = sparse.masks(architecture)
    settings = sgd.TrainSettings(**{name: payload[name] for name in fields if name in payload})
    if "privacy" in payload:
        if objective is not None or payload.get("client_accuracy"):
            raise ValueError("an objective of its own, or the client's accuracy, is not covered by [privacy]")
        noisy = private.train(
            module,
            sparse.unpack(architecture, payload["weights"]),
            x,
            y,
            settings,
            private.PrivateSteps.of(payload["privacy"]),
            noise_of(client),
            key=key,
            masks=graphs,
            augment=Augmentation.from_payload(payload),
            prox=payload.get("prox", 0.0),
            device=client.device,
        )
        return {"weights": _upload(architecture, noisy)} | counts
    trained = sgd.train(
        module,
        sparse.unpack(architecture, payload["weights"]),
        x,
        y,
        settings,
        client.rng,
        forward=None if key is None else lambda rows: module(rows, key),
        masks=graphs,
        augment=Augmentation.from_payload(payload),
        objective=objective or (sgd.proximal(payload["prox"]) if payload.get("prox") else sgd.cross_entropy),
        device=client.device,
    ).weights
    if payload.get("client_accuracy"):
        counts["correct"] = evaluation.evaluate(module, trained, x, y, TEST_BATCH, device=client.device).correct
    return {"weights": _upload(architecture, trained)} | counts


def measured(payload: Payload, client: Client) -> Payload:
    """What a task that trains also says of the network that came: the replies of the jobs that `before` names, by the
    part of the client's rows; and those that `report` names, on test rows.

    A job that trains in its own way adds this to its reply.
    """
    own = {"architecture": payload["architecture"], "weights": payload["weights"], "batch": TEST_BATCH}
    if "privacy" in payload:
        own["privacy"] = payload["privacy"]
    return {
        key: {part: MEASURES[job]({**own, "part": part}, client) for part, job in payload[key].items()}
        for key in ("before", REPORT)
        if key in payload and NETWORKS not in payload[key]
    }


def fetch(payload: Payload, client: Client) -> Payload:
    """What a task asks of networks other than the one that it trains.

    `kept`: batch norm statistics of some `keys` of this master network, from the measurement with the name `of`, which
    its client has kept (see `count_correct`); without it, of no rows. `report`: the correct test rows of `networks`.
    """
    answer: Payload = {}
    if "kept" in payload:
        wanted, held = payload["kept"], client.memory.get(KEPT, {})
        known = held["by_prefix"] if held.get("of") == wanted["of"] else {}
        architecture = payload["architecture"]
        answer["statistics"] = [shared_prefix.statistics_of(known, architecture, key) for key in wanted["keys"]]
    if NETWORKS in payload.get(REPORT, {}):
        asked = [{**own, "part": "test", "batch": TEST_BATCH} for own in payload[REPORT][NETWORKS]]
        correct = [count_correct(own, client)["correct"] for own in asked]
        answer[REPORT] = {NETWORKS: np.array(correct, np.int64)}
    return answer


def _upload(architecture: dict[str, Any], trained: Tensors) -> Tensors:
    """Trained weights as they travel, without the smallest ones of sparse matrices."""
    upload = sparse.pack(architecture, trained)
    left = {name: remove_smallest(upload[name], architecture.get("xi", 0.0)) for name in sparse.masks(architecture)}
    return upload.replaced(left) if left else upload


def noise_of(client: Client) -> np.random.Generator:
    """What a private job draws batches and noise from."""
    if client.noise is None:
        raise ValueError("this client has no source of noise, which [privacy] needs")
    return client.noise


def evaluate(payload: Payload, client: Client) -> Payload:
    """The confusion matrix and the summed loss of a network on one `part` of the client's rows.

    With `privacy` only right and wrong rows are distinguished: a matrix of one row, `[[correct, wrong]]`, with noise.
    """
    x, y = client.data.part(payload["part"])
    module = networks.network(payload["architecture"], client.device)
    found = evaluation.evaluate(module, payload["weights"], x, y, payload["batch"], device=client.device)
    if "privacy" in payload:  # no loss: it has no limit, so one row could change it by any amount
        private.refuse_mixed_rows(module)
        correct = _noisy(np.array([found.correct]), payload, len(y), client, 1)
        return {"confusion": np.stack([correct, len(y) - correct], axis=1)}
    return found.payload()


def _noisy(counts: Array, payload: Payload, rows: int, client: Client, networks: int) -> Array:
    """One row changes the counts of this many networks by the root of their number, as an L2 norm."""
    deviation = payload["privacy"]["counts"] * math.sqrt(networks)
    return private.noisy_counts(counts, deviation, rows, noise_of(client))


def evaluate_delivered(payload: Payload, client: Client) -> Payload:
    """The confusion matrices of finished networks, with fixed batch norm statistics, on one `part`, in their order.

    With `privacy` only right and wrong rows of each are distinguished, as `evaluate` does, with noise.
    """
    x, y = client.data.part(payload["part"])
    counts, right = [], []
    for model in payload["models"]:
        module = calibration.fixed_module(model["architecture"], model["weights"], model["statistics"])
        if "privacy" in payload:
            private.refuse_mixed_rows(module)
        found = evaluation.evaluate(module, model["weights"], x, y, payload["batch"])
        counts.append(found.confusion)
        right.append(found.correct)
    if "privacy" in payload:
        noisy = _noisy(np.array(right, np.int64), payload, len(y), client, len(right))
        counts = [np.array([[correct, len(y) - correct]]) for correct in noisy.tolist()]
    return {"confusions": counts}


def count_correct(payload: Payload, client: Client, counted: int | None = None) -> Payload:
    """Correct rows of one `part`: a number for one network, an array for several `keys` of a master network.

    With `confusion` confusion matrices instead. For one network, with `statistics` also batch norm statistics of these
    rows. For keys these stay in the client's memory, under the name that `keep` gives this measurement, until the next
    one with `keep` (empty: nothing is kept). With `report` the reply also has the correct test rows of the network.
    With `privacy` the numbers have noise; `counted` is then how many networks' counts are in one reply, if these are
    not all of them.
    """
    if REPORT in payload:
        asked = {name: payload[name] for name in ("architecture", "weights", "batch")} | {"part": "test"}
        return count_correct(charged(payload), client) | {REPORT: {"test": count_correct(asked, client)}}
    architecture, weights, part, batch = (payload[name] for name in ("architecture", "weights", "part", "batch"))
    x, y = client.data.part(part)
    module: Any = networks.network(architecture, client.device)
    if "keys" in payload:
        keep = payload.get("keep")
        counts, by_prefix = shared_prefix.evaluate_keys(
            module, weights, payload["keys"], x, y, batch, statistics=bool(keep), device=client.device
        )
        if keep is not None:
            client.memory.pop(KEPT, None)
        if keep:
            client.memory[KEPT] = {"of": keep, "by_prefix": by_prefix}
        right = np.array([count.correct for count in counts], np.int64)
        if "privacy" in payload:
            _refuse_other_counts(payload, module)
            right = _noisy(right, payload, len(y), client, counted or len(right))
        if payload.get("confusion"):
            return {"confusion": np.stack([count.confusion for count in counts])}
        return {"correct": right}
    whole = sparse.unpack(architecture, weights)
    if "privacy" in payload:
        # Every row counts by itself. Without privacy a network without finite outputs gets none right; here one row
        # would then change the count of all.
        _refuse_other_counts(payload, module)
        one = evaluation.evaluate(module, whole, x, y, batch, device=client.device)
        noisy = int(_noisy(np.array([one.correct]), payload, len(y), client, counted or 1)[0])
        return {"correct": noisy} | ({"statistics": Tensors({})} if payload.get("statistics") else {})
    if payload.get("statistics"):
        one, own = evaluation.evaluate_and_calibrate(module, whole, x, y, batch, client.device)
    else:
        one, own = evaluation.evaluate(module, whole, x, y, batch, device=client.device), None
    if payload.get("confusion"):
        answer: Payload = {"confusion": one.confusion}
    else:  # a network without finite outputs gets none right
        answer = {"correct": one.correct if math.isfinite(one.loss) else 0}
    return answer | ({} if own is None else {"statistics": own})


def _refuse_other_counts(payload: Payload, module: Any) -> None:
    """Statistics of batch norm are not private; without such layers they are empty."""
    private.refuse_mixed_rows(module)
    if payload.get("confusion"):
        raise ValueError("confusion matrices are not covered by [privacy]")


def calibrate(payload: Payload, client: Client) -> Payload:
    """Sums for the batch norm statistics of networks that are slices of one set of weights, in their order.

    With `report` also the correct test rows of each, as `count_correct` of keys returns them.
    """
    x, _ = client.data.part(payload["part"])
    statistics, correct = [], []
    for architecture in payload["architectures"]:
        module = networks.network(architecture, client.device)
        weights = payload["weights"].slice([name for name, _ in module.named_parameters()])
        statistics.append(calibration.calibrate(module, weights, x, payload["batch"], device=client.device))
        if REPORT in payload:
            test = client.data.part("test")
            counts = evaluation.evaluate(module, weights, *test, payload["batch"], device=client.device)
            correct.append(counts.correct)
    tested = {REPORT: {"test": {"correct": np.array(correct, np.int64)}}} if REPORT in payload else {}
    return {"statistics": statistics} | tested


def gradient(payload: Payload, client: Client) -> Payload:
    """The gradient of one batch (`epochs` 0) or the change over local epochs, and how many rows were correct.

    With `counted` the accuracy of a batch is over that many rows, the batch's among them; with `confusion` the reply
    has the confusion matrix of these rows instead. With `privacy` the gradient has noise, and so has the number of
    correct rows, which is then that of all validation rows: those of the batch would tell who is in it.
    """
    if "privacy" in payload:
        return _private_gradient(payload, client)
    x, y = client.data.part("train")
    module = networks.network(payload["architecture"], client.device)
    weights, batch, epochs = payload["weights"], payload["batch"], payload["epochs"]
    if epochs:
        found = gradients.epochs_gradient(
            module, weights, x, y, epochs, batch, payload["lr"], client.rng, device=client.device
        )
    else:
        counted = payload.get("counted", 0)
        found = gradients.batch_gradient(module, weights, x, y, batch, client.rng, client.device, counted)
    counts: Payload = {"confusion": found.confusion} if payload.get("confusion") else {"correct": found.correct}
    return {"gradient": found.gradient, **counts}


def _private_gradient(payload: Payload, client: Client) -> Payload:
    if payload.get("confusion"):
        raise ValueError("confusion matrices are not covered by [privacy]")
    x, y = client.data.part("train")
    module = networks.network(payload["architecture"], client.device)
    weights, steps, noise = payload["weights"], private.PrivateSteps.of(payload["privacy"]), noise_of(client)
    if payload["epochs"]:
        plain = sgd.TrainSettings(payload["epochs"], payload["batch"], payload["lr"], momentum=0.0)
        after = private.train(module, weights, x, y, plain, steps, noise, device=client.device)
        found = gradients.change(weights, after, payload["lr"])
    else:
        found = private.gradient(module, weights, x, y, steps, noise, client.device)
    own = {name: payload[name] for name in ("architecture", "weights", "privacy")}
    return {"gradient": found} | count_correct({**own, "part": "validation", "batch": TEST_BATCH}, client)


def confusion_of(
    architecture: dict[str, Any], weights: Tensors, client: Client, part: Part, batch: int = TEST_BATCH
) -> Confusion:
    """The confusion matrix on this part, for weights as they travel. A network without finite outputs gets none
    right."""
    x, y = client.data.part(part)
    classes = int(architecture["classes"])
    if not len(y):
        return np.zeros((classes, classes), np.int64)
    module = networks.network(architecture, client.device)
    whole = sparse.unpack(architecture, weights)
    counts = evaluation.evaluate(module, whole, x, y, batch, device=client.device)
    if math.isfinite(counts.loss):
        return counts.confusion
    wrong = np.zeros((classes, classes), np.int64)
    np.add.at(wrong, (y, (y + 1) % classes), 1)
    return wrong


@dataclass(frozen=True)
class RowUse:
    """What a job does with its client's rows, as far as `[privacy]` covers it; read from its payload."""

    networks: Sequence[dict[str, Any]] = ()  # that are trained or counted
    training: Payload | None = None  # epochs, batch, steps, with_validation; None: nothing is trained
    trainings: int = 1  # how many networks are trained so
    alphas: bool = False  # with every step goes one of architecture parameters, on validation rows
    counts: int = 0  # networks whose correct rows are counted, in one reply
    counted: Part = "validation"  # of which rows


def _training_use(payload: Payload) -> RowUse:
    before = payload.get("before", {})
    _refuse_other_parts(before)
    return RowUse([payload["architecture"]], payload, counts=len(before))


def _counting_use(payload: Payload) -> RowUse:
    _refuse_other_parts([payload["part"]])
    return RowUse([payload["architecture"]], counts=max(1, len(payload.get("keys", [0]))))


def _delivered_use(payload: Payload) -> RowUse:
    models, part = payload["models"], payload["part"]
    if part not in ("validation", "test"):
        _refuse_other_parts([part])
    return RowUse([model["architecture"] for model in models], counts=len(models), counted=part)


def _refuse_other_parts(parts: Collection[str]) -> None:
    if set(parts) - {"validation"}:
        raise ConfigError(
            f"[privacy]: counts of {' and '.join(sorted(parts))} rows are not covered by the account; count validation "
            "rows",
            code="privacy-not-covered",
        )


def _gradient_use(payload: Payload) -> RowUse:
    epochs, batch = payload["epochs"], payload["batch"]
    training = {"epochs": max(1, epochs), "batch": batch, "steps": None if epochs else 1}
    return RowUse([payload["architecture"]], training, counts=1)


# For each job that `[privacy]` covers. A module with jobs of its own has its own table.
USES: dict[str, Callable[[Payload], RowUse]] = {
    "train": _training_use,
    "evaluate": _counting_use,
    "evaluate_delivered": _delivered_use,
    "count_correct": _counting_use,
    "gradient": _gradient_use,
}

Job = Callable[[Payload, Client], Payload]

MEASURES: dict[str, Job] = {"evaluate": evaluate, "count_correct": count_correct}

JOBS: dict[str, Job] = {
    "train": train,
    "evaluate": evaluate,
    "evaluate_delivered": evaluate_delivered,
    "count_correct": count_correct,
    "calibrate": calibrate,
    "fetch": fetch,
    "gradient": gradient,
}
