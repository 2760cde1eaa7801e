"""The virtual network, worker processes and the journal, in all combinations."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.data import Federated
from atoll.federation.base import Federation
from atoll.federation.journal import Journal
from atoll.federation.local import local_federation
from atoll.testing import EngineContract, JournalContract
from paced_clients import network

SLOW = {"bandwidth": 300.0, "speed": [1.0, 50.0], "dropout": 0.2, "staleness": [3, 1]}


class TestVirtualNetworkOnWorkersWithJournal(EngineContract):
    """The contract of all engines, on a network where nothing takes time."""

    processes = True

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder, self.opened = tmp_path, 0

    def federation(self, data: Federated, seed: int, deadline: float | None = None) -> Federation:
        self.opened += 1  # another run each time
        return network(data, 2, seed, Journal(self.folder / str(self.opened)), deadline=deadline)


@pytest.mark.soak
class TestKillOnWorkers(JournalContract):
    """In real time the order in which workers answer may differ; the journal remembers it."""

    def federation(self, data: Federated, seed: int, journal: Journal) -> Federation:
        return local_federation(data, seed, 2, journal=journal)


class TestKillOnVirtualNetwork(JournalContract):
    virtual = True
    calls = tuple(range(1, 12))

    def federation(self, data: Federated, seed: int, journal: Journal) -> Federation:
        return network(data, 0, seed, journal, **SLOW)


@pytest.mark.soak
class TestKillOnVirtualNetworkWithWorkers(JournalContract):
    virtual = True

    def federation(self, data: Federated, seed: int, journal: Journal) -> Federation:
        return network(data, 2, seed, journal, **SLOW)
