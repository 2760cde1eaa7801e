"""Stop rules: each ends a run after the round that meets it, says so, and does the same after a pause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll.config import resolve
from atoll.core.ledger import Account
from atoll.core.stopping import Progress, StopSettings, reason_to_stop
from atoll.errors import ConfigError
from atoll.testing import made_table
from outcomes import outcome
from refusals import refused


@pytest.mark.parametrize(
    ("rules", "stops"),
    [
        ({"rounds": 5}, [5, 6]),
        ({"accuracy": 0.9}, [3, 4, 5, 6]),
        ({"plateau": 2}, [6]),
        ({"upload": 350}, [4, 5, 6]),
        ({"macs": 5_000}, [5, 6]),
        ({"minutes": 0.5}, [3, 4, 5, 6]),
    ],
)
def test_rules_by_hand(rules: dict[str, Any], stops: list[int]) -> None:
    """Six rounds: errors fall and then stand; each sends 100 bytes, computes 1,000 MACs and takes 10 seconds."""
    progress, found = Progress(), []
    for number, error in enumerate([0.5, 0.3, 0.1, 0.05, 0.05, 0.06], start=1):
        progress = progress.after({"error": error})
        total = Account(bytes_up=100 * number, client_macs=1000 * number)
        reason = reason_to_stop(StopSettings(**rules), number, {"error": error}, progress, total, 10.0 * number)
        if reason is not None:
            assert next(iter(rules)) in reason
            found.append(number)
    assert found == stops


def test_the_usual_patience_is_ten_rounds() -> None:
    """The error falls in rounds 1 and 2, in round 8 by too little: rounds 3 to 12 are ten without progress."""
    rules, progress, errors = StopSettings(plateau="auto"), Progress(), [0.5, 0.4, *[0.41] * 5, 0.39995, *[0.4] * 5]
    stopped = []
    for number, error in enumerate(errors, start=1):
        progress = progress.after({"error": error})
        if reason_to_stop(rules, number, {"error": error}, progress, Account(), 0.0):
            stopped.append(number)
    assert stopped == [12, 13]


def test_a_plateau_begins_again_in_another_phase() -> None:
    """Rounds that measure nothing do not count; soft counts have a larger error than those before."""
    rounds: list[dict[str, Any]] = [{"error": 0.1}, {}, {"error": 0.1}, {"phase": "refine", "error": 0.4}]
    rounds += [{"phase": "refine"}, {"phase": "refine", "error": 0.4}, {"phase": "refine", "error": 0.3}]
    progress, waited = Progress(), []
    for metrics in rounds:
        progress = progress.after(metrics)
        waited.append((progress.best, progress.waited))
    assert waited == [(0.1, 0), (0.1, 0), (0.1, 1), (0.4, 0), (0.4, 0), (0.4, 1), (0.3, 0)]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("moefl", {"rounds": 4, "fitness_rounds": 2, "finish": 0.0, "population": 2, "epochs": 1, "batch": 8}),
        ("nevofed", {"rounds": 3, "population": 8, "refine": 0.7, "refine_population": 8, "polish": 0.0}),
    ],
)
def test_no_plateau_before_anything_new_is_measured(method: str, settings: dict[str, Any], tmp_path: Path) -> None:
    """moefl: two generations of two rounds; nevofed: a round of islands and two of refinement."""
    stop = {"stop": {"plateau": 1}}
    run = atoll.search(method, made_table(), out=tmp_path / "run", workers=0, settings=stop, **settings)
    assert (run.result["rounds"], run.result["stopped"]) == (settings["rounds"], None)


def test_a_run_stops_and_says_why(tmp_path: Path) -> None:
    usual: dict[str, Any] = {"rounds": 8, "hidden": [4], "workers": 0, "settings": {"stop": {"macs": 60_000}}}
    whole = atoll.search("fedavg", made_table(), out=tmp_path / "whole", **usual)
    assert whole.result["stopped"].startswith("stop.macs") and 1 < whole.result["rounds"] < 8
    assert whole.result["ledger"]["per_round"][-2]["client_macs"] > 0

    class Stopper:
        def round_done(self, number: int, *_: Any) -> None:
            if number == 1:
                raise KeyboardInterrupt

        def round_failed(self, *_: Any) -> None: ...

    with pytest.raises(KeyboardInterrupt):
        atoll.search("fedavg", made_table(), out=tmp_path / "cut", watcher=Stopper(), **usual)
    assert outcome(atoll.resume(tmp_path / "cut", data=made_table())) == outcome(whole)


def test_a_plateau_is_a_number_or_a_word() -> None:
    with refused(ConfigError, "invalid-setting", "stop.plateau = 'ten'", "integer, or 'auto'"):
        resolve({"method": "fedavg", "data": {"name": "wine"}, "stop": {"plateau": "ten"}})


def test_a_limit_beyond_the_rounds_is_refused(tmp_path: Path) -> None:
    with refused(ConfigError, "conflicting-settings", "stop.rounds = 9", "8"):
        atoll.search("fedavg", made_table(), out=tmp_path / "x", rounds=8, settings={"stop": {"rounds": 9}})
    assert not (tmp_path / "x").exists()
