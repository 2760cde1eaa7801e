"""Real-time search keeps the contract of all methods, on images and on a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from atoll.data import Federated
from atoll.testing import MethodContract, made_images, made_table
from atoll.testing.method_contract import comparable


class TestRealtimeOnImages(MethodContract):
    method = "realtime"
    settings: ClassVar[dict[str, Any]] = {"rounds": 4, "population": 3, "channels": [4, 8], "batch": 8}

    def data(self) -> Federated:
        return made_images(clients=4, side=8)


class TestRealtimeOnATable(MethodContract):
    """Here only some of the clients take part in a round, and three objectives count."""

    method = "realtime"
    settings: ClassVar[dict[str, Any]] = {
        "rounds": 4,
        "population": 3,
        "fraction": 0.6,
        "widths": [6, 6, 4],
        "objectives": ["error", "macs", "latency"],
        "batch": 8,
    }

    def data(self) -> Federated:
        return made_table(clients=5)

    def test_worker_count_does_not_matter(self, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
        """One count is enough here, the images have tried two: starting workers is what takes the time."""
        assert self.outcome(tmp_path / "two", workers=2) == comparable(self.baseline(tmp_path_factory))
