"""Run directories written by hand, so that every figure in a figure is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atoll.run.reader import Run, load
from made_runs import manifest

MadeRun = Callable[..., Run]


@pytest.fixture
def made_run(tmp_path: Path) -> MadeRun:
    """`made_run(name, method, rounds, settings, candidates)`: rounds are metrics; with candidates it is finished."""

    def make(
        name: str,
        method: str,
        rounds: list[dict[str, Any]],
        settings: str = "",
        candidates: list[dict[str, Any]] | None = None,
    ) -> Run:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(f'method = "{method}"\n[{method}]\n{settings}\n')
        (folder / "manifest.json").write_text(manifest(method))
        events = [{"round": number, "metrics": metrics} for number, metrics in enumerate(rounds, start=1)]
        (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        if candidates is not None:
            known = [{"architecture": {"space": "fixed"}, **candidate} for candidate in candidates]
            (folder / "result.json").write_text(json.dumps({"candidates": known}))
        return load(folder)

    return make


@pytest.fixture
def searched(made_run: MadeRun) -> Run:
    """An unfinished search: two rounds, then a front of three networks."""
    high = {"key": "11", "error": 0.5, "macs": 4000}
    return made_run(
        "searched",
        "realtime",
        [
            {"error": 0.5, "hypervolume": 0.4, "front": [["11", 0.5, 4000.0]], "high": high, "knee": high},
            {
                "error": 0.2,
                "hypervolume": 0.6,
                "front": [["12", 0.2, 5000.0], ["10", 0.25, 2000.0], ["00", 0.75, 1000.0]],
                "high": {"key": "12", "error": 0.2, "macs": 5000, "test_error": 0.22},
                "knee": {"key": "10", "error": 0.25, "macs": 2000, "test_error": 0.3},
            },
        ],
        'objectives = ["error", "macs"]',
    )


@pytest.fixture
def trained(made_run: MadeRun) -> Run:
    """A finished training of one network."""
    rounds = [{"error": 0.4}, {"error": 0.3, "test_error": 0.35}]
    candidate = {"id": "final", "picks": ["high"], "objectives": {"error": 0.3, "test_error": 0.35, "macs": 9000}}
    return made_run("trained", "fedavg", rounds, 'model = "resnet18"', [candidate])


@pytest.fixture
def offline(made_run: MadeRun) -> Run:
    """A finished offline search: two generations, then two rounds of training the two picks."""

    def final(error: float) -> dict[str, Any]:
        picks = {pick: {"key": key, "error": error, "macs": 3000} for pick, key in (("high", "11"), ("knee", "01"))}
        return {"phase": "final", "hypervolume": 0.9, "front": [["11", error, 3000.0]], **picks}

    first = {"key": "11", "error": 0.6, "macs": 3000}
    search = {"phase": "search", "hypervolume": 0.3, "front": [["11", 0.6, 3000.0], ["01", 0.7, 1500.0]]}
    candidates = [{"id": "11", "picks": ["high"], "objectives": {"error": 0.1, "test_error": 0.12, "macs": 3000}}]
    rounds = [{**search, "high": first, "knee": {**first, "key": "01"}}] * 2 + [final(0.3), final(0.1)]
    return made_run("offline", "offline", rounds, 'objectives = ["error", "macs"]', candidates)
