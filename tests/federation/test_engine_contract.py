"""The local engine, serial and with worker processes, keeps the contract of all engines."""

from __future__ import annotations

from atoll.data import Federated
from atoll.federation.base import Federation
from atoll.federation.local import local_federation
from atoll.testing import EngineContract


class TestSerial(EngineContract):
    def federation(self, data: Federated, seed: int, deadline: float | None = None) -> Federation:
        return local_federation(data, seed, 0, deadline=deadline)


class TestWorkers(EngineContract):
    interrupts = True
    processes = True

    def federation(self, data: Federated, seed: int, deadline: float | None = None) -> Federation:
        return local_federation(data, seed, 2, deadline=deadline)
