"""What a real-time search sends: after round 1 only keys travel down for training, and the ledger counts every byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from atoll.core import wire
from atoll.core.messages import Payload, Task, charged
from atoll.data import Federated
from atoll.federation.base import Federation, Transport
from atoll.federation.client_cache import MOST
from atoll.federation.transport import Envelope, Outcome
from atoll.testing import MethodContract, made_table


@dataclass
class Parcel:
    """A task as it travelled: to whom, in which round, its bytes, and how many of its tensors went along."""

    task: Task
    round: int
    down: int
    tensors: int
    up: int = 0


@dataclass
class Recorder:
    """A transport that weighs all that passes by itself, knowing only the rule of the last tasks."""

    inner: Transport
    parcels: list[Parcel] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.window, self.queue, self.replies = self.inner.window, self.inner.queue, self.inner.replies
        self._by_order: dict[int, Parcel] = {}
        self._held: dict[str, list[frozenset[str]]] = {}

    def start(self, envelope: Envelope) -> None:
        task = envelope.task
        if not task.test_evaluation:
            held = frozenset().union(*self._held.get(task.client, [])[-MOST:])
            digests = wire.tensor_digests(task.payload)
            parcel = Parcel(task, envelope.round, len(wire.encode(charged(task.payload), held)), len(digests - held))
            self._held.setdefault(task.client, []).append(digests)
            self._by_order[envelope.order] = parcel
            self.parcels.append(parcel)
        self.inner.start(envelope)

    def poll(self, timeout: float | None) -> list[Outcome]:
        outcomes = self.inner.poll(timeout)
        for outcome in outcomes:
            if outcome.order in self._by_order:
                self._by_order[outcome.order].up = len(wire.encode(charged(outcome.payload or {}), digests=False))
        return outcomes

    def saved(self, memory: Mapping[str, Payload], since: int) -> None:
        self.inner.saved(memory, since)

    def abandon(self, order: int) -> None:
        self.inner.abandon(order)

    def close(self) -> None:
        self.inner.close()


class Runs(MethodContract):
    method = "realtime"
    settings: ClassVar[dict[str, Any]] = {"rounds": 4, "population": 6, "widths": [16] * 4, "batch": 8}

    def data(self) -> Federated:
        return made_table(clients=6)

    def recorded(self, folder: Path, workers: int) -> tuple[list[Parcel], dict[str, Any]]:
        """What travelled, and the ledger of the result."""
        recorders: list[Recorder] = []

        def record(federation: Federation) -> None:
            recorders.append(Recorder(federation.transport))
            federation.transport = recorders[0]

        run = self.run(folder, workers=workers, prepare=record)
        assert run is not None
        return recorders[0].parcels, run.result["ledger"]


class HalfOfTheClients(Runs):
    settings: ClassVar[dict[str, Any]] = {**Runs.settings, "population": 3, "fraction": 0.5}


def _training(parcels: list[Parcel], from_round: int) -> list[Parcel]:
    return [parcel for parcel in parcels if parcel.task.job.endswith(":train") and parcel.round >= from_round]


@pytest.mark.parametrize("workers", [0, 2])
def test_bytes_are_the_sum_of_what_travelled(tmp_path: Path, workers: int) -> None:
    parcels, ledger = Runs().recorded(tmp_path / "run", workers)
    assert ledger["bytes_down"] == sum(parcel.down for parcel in parcels)
    assert ledger["bytes_up"] == sum(parcel.up for parcel in parcels)
    for number, account in enumerate(ledger["per_round"], start=1):
        mine = [parcel for parcel in parcels if parcel.round == number]
        assert account["tasks"] == len(mine)
        assert account["bytes_down"] == sum(parcel.down for parcel in mine)
        assert account["bytes_up"] == sum(parcel.up for parcel in mine)
        assert account["client_macs"] == sum(parcel.task.macs for parcel in mine)


def test_from_round_2_on_no_weight_travels_down_for_training(tmp_path: Path) -> None:
    """All clients took part in the last evaluation, so they hold the master: a training task is its header."""
    parcels, _ = Runs().recorded(tmp_path / "run", 0)
    first, later = _training(parcels, 1)[:12], _training(parcels, 2)
    assert [parcel.round for parcel in first] == [1] * 12 and all(parcel.tensors for parcel in first[:6])
    assert len(later) == 6 * 3
    for parcel in later:
        weights = parcel.task.payload["weights"]
        everything = wire.tensor_digests(parcel.task.payload)
        assert parcel.tensors == 0
        assert parcel.down == wire.size(parcel.task.payload, everything)
        assert parcel.down == len(wire.encode(parcel.task.payload)) - weights.nbytes


def test_who_missed_the_last_evaluation_fetches_what_it_lacks(tmp_path: Path) -> None:
    parcels, _ = HalfOfTheClients().recorded(tmp_path / "run", 0)
    later = _training(parcels, 2)
    evaluated = {(p.round, p.task.client) for p in parcels if p.task.job.endswith(":count_correct")}
    present = [parcel for parcel in later if (parcel.round - 1, parcel.task.client) in evaluated]
    absent = [parcel for parcel in later if (parcel.round - 1, parcel.task.client) not in evaluated]
    assert len(later) == 3 * 3 and present and absent
    assert all(parcel.tensors == 0 for parcel in present)
    assert all(parcel.tensors > 0 for parcel in absent)
