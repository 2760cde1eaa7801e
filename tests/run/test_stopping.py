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
from atoll.methods.base import RunSegment
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


# -- searches with a closing phase: it has its place within the budget -------------------------------------------------

SEARCHES: dict[str, dict[str, Any]] = {
    "realtime": {"rounds": 20, "finish": 0.4, "population": 3, "widths": [8, 8], "batch": 8},
    "moefl": {"rounds": 20, "finish": 0.4, "fitness_rounds": 2, "population": 3, "epochs": 1, "batch": 8},
    "offline": {"rounds": 20, "generations": 12, "population": 3, "widths": [8, 8], "batch": 8},
}


@pytest.mark.parametrize("method", SEARCHES)
def test_a_search_ends_with_its_closing_phase_within_a_budget(method: str, tmp_path: Path) -> None:
    settings, data = SEARCHES[method], made_table(clients=3, rows=16)
    whole = atoll.search(method, data, out=tmp_path / "whole", workers=0, **settings)
    spent, closing = whole.result["ledger"]["per_round"], 8
    assert [event["metrics"].get("phase") for event in whole.rounds[-closing:]] == ["final"] * closing
    # A search of six rounds fits, and the closing phase after it.
    later = sum(row["client_macs"] for row in spent[-closing:])
    budget = sum(row["client_macs"] for row in spent[:6]) + later + max(row["client_macs"] for row in spent[:6]) // 2
    limits = {"stop": {"macs": budget}}
    run = atoll.search(method, data, out=tmp_path / "cut", workers=0, settings=limits, **settings)
    phases = [event["metrics"].get("phase", "search") for event in run.rounds]
    searched = phases.count("search")
    assert phases == ["search"] * searched + ["final"] * (len(phases) - searched) and 2 <= searched < 12
    assert 1 <= phases.count("final") <= closing and len(phases) < 20
    total = sum(row["client_macs"] for row in run.result["ledger"]["per_round"][: len(phases)])
    assert total <= budget
    each = 2 if method == "moefl" else 1  # rounds of a generation, which is taken to cost what the last one did
    last = sum(row["client_macs"] for row in run.result["ledger"]["per_round"][searched - each : searched])
    final = run.result["ledger"]["per_round"][len(phases) - 1]["client_macs"]
    assert budget - total < last + final, "what is left would not have been enough for more"
    assert run.result["stopped"] == f"stop.macs = {budget:,}: more than {searched} rounds of the search did not fit"
    if method == "moefl":
        assert searched % 2 == 0, "whole generations"
    for candidate in run.result["candidates"]:
        assert "trained_rounds" not in candidate.get("about", {})

    class Stopper:
        def round_done(self, number: int, *_: Any) -> None:
            if number == searched + 1:
                raise KeyboardInterrupt

        def round_failed(self, *_: Any) -> None: ...

    with pytest.raises(KeyboardInterrupt):
        atoll.search(method, data, out=tmp_path / "again", workers=0, settings=limits, watcher=Stopper(), **settings)
    assert outcome(atoll.resume(tmp_path / "again", data=data)) == outcome(run)
    assert atoll.resume(run.path, data=data).result == run.result, "it is finished"


@pytest.mark.parametrize("method", ["realtime", "moefl"])
def test_without_a_closing_phase_a_search_ends_before_the_round_that_would_exceed_the_budget(
    method: str, tmp_path: Path
) -> None:
    settings, data = SEARCHES[method] | {"finish": 0.0}, made_table(clients=3, rows=16)
    whole = atoll.search(method, data, out=tmp_path / "whole", workers=0, **settings)
    spent = [row["client_macs"] for row in whole.result["ledger"]["per_round"]]
    budget = sum(spent[:10]) + spent[10] // 2
    limits = {"stop": {"macs": budget}}
    run = atoll.search(method, data, out=tmp_path / "cut", workers=0, settings=limits, **settings)
    rounds = run.result["rounds"]
    each = 2 if method == "moefl" else 1  # rounds of a generation, which is taken to cost what the last one did
    assert 2 * each <= rounds <= 10 and rounds % each == 0
    assert sum(spent[:rounds]) <= budget < sum(spent[:rounds]) + sum(spent[rounds - each : rounds])
    assert run.result["ledger"]["per_round"][:rounds] == whole.result["ledger"]["per_round"][:rounds]
    assert run.result["stopped"].startswith(f"stop.macs = {budget:,}: more than {rounds} rounds")


def test_segments_by_hand() -> None:
    """Of 20 rounds the last eight close. Each of these takes 10 MACs, another round of the search 30."""
    segment = RunSegment().extended(20, 0, False, lambda rounds, added: 8)
    assert (segment.planned, segment.closing, segment.searched) == (20, 8, 12)
    assert segment.within(5, 110, 30, 10) is segment, "a round of the search and eight others"
    assert segment.within(12, 80, 30, 10) is segment, "the search is over"
    cut = segment.within(5, 109, 30, 10)
    assert (cut.planned, cut.closing, cut.searched, cut.cut) == (13, 8, 5, 20)
    assert segment.within(12, 35, 30, 10) == RunSegment(0, 15, 3, 20)
    assert segment.within(5, 9, 30, 10) == RunSegment(0, 5, 0, 20)
    assert cut.within(6, 0, 30, 10) is cut and cut.extended(20, 6, True, lambda rounds, added: 1) is cut
    assert not cut.ended(20, 12) and cut.ended(20, 13) and not segment.ended(20, 13)
    longer = cut.extended(30, 13, True, lambda rounds, added: rounds // 2)
    assert longer == RunSegment(13, 30, 8), "17 rounds more"
    assert not cut.ended(30, 13)
