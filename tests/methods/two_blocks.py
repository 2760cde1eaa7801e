"""A federation by script around a master of two choice blocks of width two: small enough to compute by hand.

One sample through the stem costs 4 MACs, through the head 4 (its 2 biases cost none); branches 0 to 3 cost 0, 4, 8, 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from atoll.core.messages import ClientInfo, Payload, Schema, Task, Tensors
from atoll.methods.choice_search import Key
from atoll.methods.realtime import Realtime, RealtimeState
from atoll.methods.realtime_config import RealtimeConfig
from atoll.rng import stream
from atoll.spaces.choice import space as choice
from atoll.testing import ScriptedFederation
from atoll.training.calibration import statistics_form

SCHEMA = Schema("table", (2,), ("no", "yes"), ("first", "second"))

Change = Callable[[Task, int], float]  # of a training task and how many there were before: what its client adds


class Script(ScriptedFederation):
    """Clients of given sizes. Training adds `change(task, number)` to every weight, evaluation answers `correct`."""

    def __init__(
        self,
        clients: Sequence[ClientInfo],
        change: Change = lambda task, number: 0.0,
        correct: Callable[[Task], Sequence[int]] | None = None,
    ) -> None:
        super().__init__([info.name for info in clients], self._answer, SCHEMA)
        self._clients = list(clients)
        self._change, self._correct = change, correct

    def sent(self, job: str) -> list[Task]:
        """The tasks of this job so far."""
        return [task for task in self.tasks if task.job.endswith(f":{job}")]

    def _answer(self, task: Task) -> Payload:
        job = task.job.partition(":")[2]
        if job == "train":
            added = self._change(task, len(self.sent("train")) - 1)
            weights: Tensors = task.payload["weights"]
            new = {"weights": Tensors({name: array + np.float32(added) for name, array in weights.items()})}
            return new | self._fetched(task)
        if job == "fetch":
            return self._fetched(task)
        if job == "count_correct":
            if "keys" not in task.payload:
                found: Payload = {"correct": 0 if self._correct is None else self._correct(task)[0]}
                found |= {"report": {"test": {"correct": found["correct"]}}} if "report" in task.payload else {}
                form = statistics_form(task.payload["architecture"])
                return found | ({"statistics": form} if task.payload.get("statistics") else {})
            counts = [0] * len(task.payload["keys"]) if self._correct is None else self._correct(task)
            return {"correct": np.array(counts, np.int64)}
        networks = task.payload["architectures"]
        answer: Payload = {"statistics": [statistics_form(arch) for arch in networks]}
        counts = np.full(len(networks), 3, np.int64)
        return answer | ({"report": {"test": {"correct": counts}}} if "report" in task.payload else {})

    def _fetched(self, task: Task) -> Payload:
        """Statistics of as many values as the client has rows, and of the test rows what `correct` says."""
        answer: Payload = {}
        if "kept" in task.payload:
            arch, keys = task.payload["architecture"], task.payload["kept"]["keys"]
            (rows,) = (info.sizes["validation"] for info in self._clients if info.name == task.client)
            answer["statistics"] = [statistics_of(choice.sub_model(arch, key), rows) for key in keys]
        if "report" in task.payload:
            keys = [network["architecture"]["key"] for network in task.payload["report"]["networks"]]
            counts = [0] * len(keys) if self._correct is None else self._correct(replace(task, payload={"keys": keys}))
            answer["report"] = {"networks": np.array(counts, np.int64)}
        return answer


def statistics_of(arch: Payload, rows: int, value: float = 2.0) -> Tensors:
    """What `calibrate` returns where every value is the same."""
    fills = {"count": float(rows), "sum": rows * value, "squares": rows * value**2}
    form = statistics_form(arch)
    return Tensors({name: np.full_like(form[name], fills[name.rpartition(".")[2]]) for name in form})


def client(name: str, train: int = 10, validation: int = 10, test: int = 0, **known: Any) -> ClientInfo:
    return ClientInfo(name, {"train": train, "validation": validation, "test": test}, SCHEMA, **known)


def realtime(**settings: Any) -> Realtime:
    """The method on two blocks; snapshots only if asked for."""
    usual = {"rounds": 9, "population": 2, "widths": [2, 2], "stem": 2, "snapshots": False}
    return Realtime(RealtimeConfig(**{**usual, **settings}), SCHEMA)


def state(method: Realtime, parents: list[Key], objectives: list[list[float]] | None = None) -> RealtimeState:
    """Every weight of the master is 1. With objectives of the parents it is the state after round 1, else before it."""
    ones = {name: np.ones(shape, np.float32) for name, shape in choice.shapes(method.architecture).items()}
    done = 1 if objectives else 0
    return RealtimeState(done, done, Tensors(ones), parents, objectives or [], {}, {}, {})


def step(method: Realtime, before: RealtimeState, federation: Script) -> tuple[RealtimeState, dict[str, Any]]:
    federation.begin(before.round + 1)
    return method.step(before, federation, stream(7, "test"))


def values(weights: Tensors) -> dict[str, float]:
    """The one value that all entries of a tensor have, by the tensor's name."""
    found = {}
    for name, array in weights.items():
        (value,) = set(array.reshape(-1).tolist())
        found[name] = value
    return found
