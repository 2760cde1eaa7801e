"""The comparator that breaks the rule: the same network trained on all clients' data in one place.

It is federated averaging with a single client that holds everyone's rows, so a round is `epochs` passes over all of
them and every figure is comparable, line by line, with the federated run's.
"""

from __future__ import annotations

from typing import ClassVar

from atoll.methods.fedavg import FedAvg


class Central(FedAvg):
    name: ClassVar[str] = "central"
    summary: ClassVar[str] = "train the same network on all data in one place: what federation costs"
    centralised: ClassVar[bool] = True
