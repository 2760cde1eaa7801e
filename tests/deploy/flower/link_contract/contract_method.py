"""What every engine promises, in short, as one round of a method: so that it can be asked of a real link."""

from __future__ import annotations

from typing import Any

import numpy as np

from atoll.core.checks import Count, TensorsLike
from atoll.core.messages import Reply, Task, Tensors
from atoll.federation.base import Federation
from atoll.methods.base import Metrics
from atoll.methods.fedavg import FedAvg, FedAvgState
from atoll.rng import Generator

WEIGHTS = Tensors({"a": np.arange(1000, dtype=np.float32)})


def task(client: str, job: str, number: int = 0, returns: Any = None, **payload: Any) -> Task:
    return Task(f"{job}:{client}:{number}", client, f"atoll.testing.jobs:{job}", payload, 5, returns)


def said(replies: list[Reply]) -> list[Any]:
    """Payload, or the first words of the error, in the order of the replies."""
    return [
        {key: np.asarray(value).tolist() for key, value in reply.payload.items() if not isinstance(value, Tensors)}
        if reply.ok
        else str(reply.error).split("(")[0].strip()
        for reply in replies
    ]


class ContractMethod(FedAvg):
    """Two rounds; what came back is in the metrics, the same on every engine."""

    name = "contract"
    late = ("use",)

    def step(self, state: FedAvgState, federation: Federation, rng: Generator) -> tuple[FedAvgState, Metrics]:
        one, two = (info.name for info in federation.clients())
        asked = self._first(one, two, federation) if state.round == 0 else self._second(one, two, federation)
        return FedAvgState(state.round + 1, state.weights), asked

    def _first(self, one: str, two: str, federation: Federation) -> Metrics:
        """Order, streams, memory, failures, rejections: points 1 to 4 of the contract."""
        tasks = [
            task(two, "draw", 0),
            task(one, "remember", 0),
            task(one, "fail", 1),
            task(one, "echo", 2, returns={"value": Count(5)}, value=6),
            task("nobody", "echo", 3, value=1),
            task(two, "weights", 4, returns={"weights": TensorsLike.of(WEIGHTS)}, weights=WEIGHTS),
        ]
        return {"replies": said(list(federation.map(tasks)))}

    def _second(self, one: str, two: str, federation: Federation) -> Metrics:
        """A quorum of the last send, the late one afterwards; memory lives on; what a client holds does not travel."""
        federation.send([task(one, "dawdle", seconds=8, value="late"), task(two, "echo", value="soon")])
        first = federation.receive(at_least=1)
        tasks = [
            task(one, "remember", 0),
            task(two, "weights", 1, returns={"weights": TensorsLike.of(WEIGHTS)}, weights=WEIGHTS),
        ]
        federation.send(tasks)
        rest = federation.receive()
        return {"quorum": said(first)[:1], "replies": sorted(map(str, said(first + rest)))}
