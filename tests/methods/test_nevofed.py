"""The method keeps the contract of all methods."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from atoll.testing import MethodContract


class _NEvoFed(MethodContract):
    method = "nevofed"

    def test_every_client_takes_part_without_a_fault(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        run = self.baseline(tmp_path_factory)
        assert not any(event["metrics"].get("failed") for event in run.rounds)


class TestNEvoFed(_NEvoFed):
    settings: ClassVar[dict[str, Any]] = {"rounds": 4, "population": 12, "threshold": 2.0}


class TestRecurrentNEvoFed(_NEvoFed):
    settings: ClassVar[dict[str, Any]] = {
        "rounds": 4,
        "population": 10,
        "network": "recurrent",
        "steps": 2,
        "fraction": 0.5,
        "generations": 2,
        "start": "full",
        "output": "bins",
    }
    # Processes and wire are the same as above; starting them once more only takes time.
    test_worker_count_does_not_matter = None  # type: ignore[assignment]
    test_only_wire_bytes_are_exchanged = None  # type: ignore[assignment]
