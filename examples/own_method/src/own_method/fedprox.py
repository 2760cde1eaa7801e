"""FedProx: federated averaging whose clients stay near the model they were sent.

Li et al., "Federated Optimization in Heterogeneous Networks", 2020, Algorithm 2. A client minimises its own loss plus
mu / 2 times the squared distance to the model of the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from atoll.clients import Client, jobs
from atoll.methods.base import Payload, Tensors
from atoll.methods.fedavg import FedAvg, FedAvgConfig
from atoll.training import sgd

if TYPE_CHECKING:
    from atoll.training.sgd import Objective


class FedProxConfig(FedAvgConfig):
    """Settings of FedProx: those of federated averaging, and mu."""

    rounds: int = Field(default=20, ge=1)
    mu: float = Field(default=0.1, ge=0)


class FedProx(FedAvg):
    name: ClassVar[str] = "fedprox"
    summary: ClassVar[str] = "federated averaging with a proximal term in the local loss"
    Config: ClassVar[type[FedProxConfig]] = FedProxConfig
    job: ClassVar[str] = f"{__name__}:train"
    config: FedProxConfig

    def extras(self) -> Payload:
        return super().extras() | {"mu": self.config.mu}


def train(payload: Payload, client: Client) -> Payload:
    return jobs.train(payload, client, objective=proximal(payload["weights"], payload["mu"]))


def proximal(weights: Tensors, mu: float) -> Objective:
    import torch

    start = [torch.tensor(value) for value in weights.values()]

    def objective(forward, inputs, labels, parameters):  # type: ignore[no-untyped-def]
        pairs = zip(parameters, start, strict=True)
        distance = sum((new - old.to(new.device)).square().sum() for new, old in pairs)
        return sgd.cross_entropy(forward, inputs, labels, parameters) + 0.5 * mu * distance

    return objective


JOBS = {"train": train}
