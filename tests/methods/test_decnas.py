"""Federated NetAdapt and its central comparator: the contract of all methods, and what a run leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from atoll.data import Federated
from atoll.federation.base import Federation
from atoll.testing import MethodContract, made_images

# Four rounds: one of training the start network, two of iteration 1 (drop and upload, then the last), one of the next.
SETTINGS: dict[str, Any] = {
    "rounds": 4,
    "model": "convnet",
    "widths": [4, 4, 4, 4, 4, 4],
    "start_rounds": 1,
    "tune_rounds": [2],
    "step": 0.1,
    "groups": 2,
    "batch": 8,
}


class TestDecnas(MethodContract):
    method = "decnas"
    settings: ClassVar[dict[str, Any]] = SETTINGS

    def data(self) -> Federated:
        return made_images(clients=4, rows=20, side=8, share_labels=True)

    def test_no_memory_outlives_a_round(self, tmp_path: Path) -> None:
        """Clients hold their weight changes within a round only; a checkpoint between rounds has none of them."""
        memories = []

        def wrap(federation: Federation) -> None:
            begin = federation.begin

            def looking(number: int, tried: int = 0) -> None:
                memories.append(federation.snapshot()["memory"])
                begin(number, tried)

            federation.begin = looking  # type: ignore[method-assign]

        run = self.run(tmp_path / "run", prepare=wrap)
        assert run is not None and any(event["metrics"].get("dropped") for event in run.rounds)
        assert memories == [{}] * 5  # before each of four rounds, and before the last measuring

    def test_the_sequence(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        run = self.baseline(tmp_path_factory)
        first, second = run.result["candidates"]
        assert (first["id"], second["id"]) == ("m0", "m1") and "final" in second["picks"]
        assert second["objectives"]["macs"] <= 0.9 * first["objectives"]["macs"]
        assert second["about"]["budget"]["macs"] == pytest.approx(0.9 * first["objectives"]["macs"])
        assert "ended" not in second["about"] and "rounds" in second["about"]["stopped"]  # cut short by their number
        assert run.load_model("m1").architecture == second["architecture"]
        phases = [(event["metrics"]["phase"], event["metrics"]["round_in_iteration"]) for event in run.rounds]
        assert phases == [("start", 1), ("search", 1), ("search", 2), ("search", 1)]


class TestNetAdapt(MethodContract):
    method = "netadapt"
    settings: ClassVar[dict[str, Any]] = {key: value for key, value in SETTINGS.items() if key != "groups"}

    def data(self) -> Federated:
        return made_images(clients=4, rows=20, side=8)
