"""A quorum leaves slow clients behind: the run says so, and fairness brings them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll.testing import made_images, made_table

DATA = made_table(clients=10, rows=30)
# Four of ten clients have a slow line; of a bus the bandwidth changes, and sometimes there is none.
SLOW = "bandwidth_kbps,duration_ms\n" + "8,4000\n0,2000\n16,4000\n" * 5  # as often as one task needs
FAST = "bandwidth_kbps,duration_ms\n4000,3000\n8000,2000\n"


@pytest.fixture
def network(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "bus_1.csv").write_text(SLOW)
    (tmp_path / "logs" / "home_1.csv").write_text(FAST)
    return {"traces": str(tmp_path / "logs"), "transport": {"bus": 4, "home": 6}, "speed": 1e8}


def used(run: atoll.Run) -> list[int]:
    return [own["used"] + own.get("late", 0) for own in run.clients.values()]


def test_without_fairness_slow_clients_are_starved_and_the_run_says_so(network: dict[str, Any], tmp_path: Path) -> None:
    tables = {"simulation": network, "engine": {"quorum": 0.6}}
    run = atoll.search("fedavg", DATA, out=tmp_path / "run", rounds=30, hidden=[8], workers=0, settings=tables)
    assert min(used(run)) < sum(used(run)) / 20
    (text,) = [problem for problem in run.problems if "fair share" in problem]
    assert "engine.fair" in text and "engine.quorum" in text
    assert [event["metrics"]["clients"] for event in run.rounds] == [6] * 30


def test_with_fairness_none_is_below_half_of_its_fair_share(network: dict[str, Any], tmp_path: Path) -> None:
    tables = {"simulation": network, "engine": {"quorum": 0.6, "fair": 1}}
    run = atoll.search("fedavg", DATA, out=tmp_path / "run", rounds=30, hidden=[8], workers=0, settings=tables)
    assert min(used(run)) >= sum(used(run)) / 20 and not any("fair share" in problem for problem in run.problems)
    whole = atoll.search(
        "fedavg", DATA, out=tmp_path / "all", rounds=30, hidden=[8], workers=0, settings={"simulation": network}
    )
    seconds = [one.result["ledger"]["simulated_seconds"] for one in (run, whole)]
    assert seconds[0] <= seconds[1], "and it is no slower than waiting for all"


@pytest.mark.parametrize("fair", [0, 1])
def test_the_last_phase_waits_for_no_task_of_the_search(network: dict[str, Any], tmp_path: Path, fair: int) -> None:
    """Each of its rounds ends with the last reply that counts, which is to one of its own tasks."""
    own = {"warmup": 1, "retrain": 2, "channels": 4, "cells": 3, "batch": 8}
    tables = {"simulation": network, "engine": {"quorum": 0.6, "fair": fair}, "fedrl": own}
    data = made_images(clients=10, rows=20, side=6)
    run = atoll.search("fedrl", data, out=tmp_path / "run", rounds=5, workers=0, settings=tables)
    last = [event for event in run.rounds if event["metrics"]["phase"] == "final"]
    assert len(last) == 2
    for event in last:
        network_times = event["simulation"]
        used = [(sent, arrived) for _, sent, _, _, _, arrived, fate in network_times["tasks"] if fate == "used"]
        assert {sent for sent, _ in used} == {event["round"]}
        assert max(arrived for _, arrived in used) == network_times["to"]
        assert not any(task[-1] == "late" for task in network_times["tasks"]), "what comes later is of no use here"
    answered = {task[0] for task in last[0]["simulation"]["tasks"] if task[-1] == "used"}
    assert 6 <= len(answered) < 10, "others were still at work on the search"
