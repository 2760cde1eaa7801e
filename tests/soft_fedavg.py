"""Federated averaging that waits for only two clients, so that every round leaves replies in flight. For tests."""

from __future__ import annotations

from atoll.algorithms.aggregation import Mean
from atoll.errors import TooFewReplies
from atoll.federation.base import Federation
from atoll.methods.base import Metrics
from atoll.methods.fedavg import FedAvg, FedAvgState
from atoll.rng import Generator


class SoftFedAvg(FedAvg):
    late = ("use",)

    def step(self, state: FedAvgState, federation: Federation, rng: Generator) -> tuple[FedAvgState, Metrics]:
        infos = {info.name: info for info in federation.clients()}
        federation.send([self.train_task(state, info) for info in infos.values()])
        mean, who = Mean(), []
        for reply in federation.receive(at_least=2):
            who.append([reply.task.client, federation.round - reply.round, reply.error])
            if reply.ok:
                mean.add(reply.payload["weights"], infos[reply.task.client].sizes["train"])
        if mean.weight == 0:
            raise TooFewReplies("no client replied")
        return FedAvgState(state.round + 1, mean.result()), {"who": who}
