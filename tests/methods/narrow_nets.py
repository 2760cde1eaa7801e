"""A federation by script around a perceptron with six hidden layers of eight: pruning it can be computed by hand.

One row costs 2 * 8 + 5 * 64 + 8 * 2 = 352 MACs. A filter less in a hidden layer saves 8 + 8, in the first 2 + 8, in the
last 8 + 2. With a step of 4 % (14.08 MACs) one filter is enough in the four layers between, two in the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from atoll.core.messages import ClientInfo, Payload, Schema, Task, Tensors
from atoll.methods.decnas.search import Decnas, DecnasState
from atoll.methods.decnas.settings import DecnasConfig
from atoll.rng import stream
from atoll.testing import ScriptedFederation

SCHEMA = Schema("table", (2,), ("no", "yes"), ("first", "second"))
UNITS = [f"layers.{number}" for number in range(6)]
MACS = [332, 336, 336, 336, 336, 332]  # of the candidates of iteration 1

Correct = Callable[[Task], int]
Change = Callable[[Task, str], float]


def client(name: str, train: int = 10, validation: int = 10, labels: tuple[int, ...] | None = None) -> ClientInfo:
    return ClientInfo(name, {"train": train, "validation": validation, "test": 0}, SCHEMA, labels)


class Script(ScriptedFederation):
    """Clients of given sizes. A candidate gets `correct(task)` rows right, the network before it `previous`.

    Training adds `change(task, candidate)` to every weight. Either may raise: that client has failed.
    """

    def __init__(
        self,
        clients: Sequence[ClientInfo],
        correct: Correct = lambda task: 5,
        change: Change = lambda task, candidate: 0.0,
        previous: int = 8,
    ) -> None:
        super().__init__([info.name for info in clients], self._answer, SCHEMA)
        self._infos = list(clients)
        self._correct, self._change, self._previous = correct, change, previous
        self._held: dict[tuple[str, str], Tensors] = {}

    def clients(self) -> list[ClientInfo]:
        return self._infos

    def sent(self, job: str, since: int = 0) -> list[Task]:
        """The tasks of this job, from the so-many-th task of all on."""
        return [task for task in self.tasks[since:] if task.job.endswith(f":{job}")]

    def _answer(self, task: Task) -> Payload:
        if task.job.endswith(":train"):  # of the start network
            return {
                "weights": Tensors({name: array + np.float32(1) for name, array in task.payload["weights"].items()})
            }
        if task.job.endswith((":evaluate", ":count_correct")):
            return {"correct": self._previous}
        if task.job.endswith(":upload"):
            return {"changes": [self._changed(task, name) for name in task.payload["wanted"]]}
        answer: Payload = {"correct": self._correct(task)}
        if "previous" in task.payload:
            answer["previous"] = {"correct": self._previous}
        self._held[task.client, task.payload["candidate"]] = task.payload["weights"]
        if "change" in task.returns:
            answer["change"] = self._changed(task, task.payload["candidate"])
        return answer

    def _changed(self, task: Task, candidate: str) -> Tensors:
        held, added = self._held[task.client, candidate], self._change(task, candidate)
        return Tensors({name: np.full_like(array, added) for name, array in held.items()})


def decnas(**settings: Any) -> Decnas:
    usual: dict[str, Any] = {"rounds": 50, "model": "mlp", "hidden": [8] * 6, "step": 0.04, "step_decay": 1.0}
    usual |= {"resources": {"macs": 0.5}, "groups": 6, "tune_rounds": [4], "regroup": "iteration"}
    return Decnas(DecnasConfig(**{**usual, **settings}), SCHEMA)


def begun(method: Decnas, federation: Script) -> DecnasState:
    return method.init(federation, stream(7, "init"))


def step(method: Decnas, before: DecnasState, federation: Script) -> tuple[DecnasState, dict[str, Any]]:
    federation.begin(before.round + 1)
    return method.step(before, federation, stream(7, "test", before.round))


def by_candidate(values: Sequence[int]) -> Correct:
    """Correct rows by the candidate, in the order of UNITS."""
    table = dict(zip(UNITS, values, strict=True))
    return lambda task: table[task.payload["candidate"]]
