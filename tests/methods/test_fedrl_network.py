"""`fedrl` on the virtual network: replies in flight survive a stop, the mixes arrive, busy clients are left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll.config import resolve
from atoll.errors import ConfigError, Paused
from atoll.run import launch
from atoll.run.reader import Run, load
from atoll.store.directory import RunDirectory
from atoll.testing import made_images
from refusals import refused

SMALL = {"channels": 2, "cells": 1, "batch": 8, "policy_lr": 0.1, "lr": 0.1, "rounds": 8, "warmup": 2, "retrain": 1}
NETWORKS: dict[str, dict[str, Any]] = {
    "heavy": {"simulation": {"staleness": "heavy"}},
    # A quorum of half of them leaves the replies of slow clients under way.
    "slow": {"simulation": {"bandwidth": 20_000.0, "speed": [1e6, 1e8]}, "engine": {"quorum": 0.5}},
    "later": {"simulation": {"staleness": "heavy", "staleness_after": 2}},
    "drops": {"simulation": {"staleness": "light", "dropout": 0.3}},
}


def experiment(name: str, workers: int = 0, late: str | None = None, **own: Any) -> Any:
    tables = NETWORKS[name]
    engine = {"workers": workers, **tables.get("engine", {}), **({} if late is None else {"late": late})}
    raw = {"method": "fedrl", "data": {"name": "in-memory"}, "engine": engine, "fedrl": {**SMALL, **own}}
    return resolve({**raw, "simulation": tables["simulation"]})


def outcome(run: Run) -> Any:
    result = {key: value for key, value in run.result.items() if key != "wall_seconds"}
    events = [{key: value for key, value in event.items() if key != "wall_seconds"} for event in run.history]
    digests = [run.load_model(candidate["id"]).weights.whole_digest() for candidate in result["candidates"]]
    return result, events, digests


@pytest.mark.parametrize("name", ["heavy", "slow", "drops"])
def test_a_stopped_run_ends_as_if_it_had_not_been(name: str, tmp_path: Path) -> None:
    data = made_images(clients=5, side=6)
    whole = launch.start(experiment(name), tmp_path / "whole", data=data)
    path = tmp_path / "stopped"
    in_flight = []
    for stop_after in (3, 5):
        done = lambda: len(load(path).rounds) >= stop_after  # noqa: B023, E731
        with pytest.raises(Paused):
            if path.exists():
                launch.resume(path, data=data, stop=done)
            else:
                launch.start(experiment(name), path, data=data, stop=done)
        in_flight.append(_under_way(path))
    assert outcome(launch.resume(path, data=data)) == outcome(whole)
    assert name == "drops" or any(in_flight)


def _under_way(path: Path) -> int:
    from atoll.store import RunDirectory

    with RunDirectory.reopen(path) as directory:
        saved = directory.last_checkpoint()
    assert saved is not None
    return len(saved["federation"]["clock"]["travelling"])


def test_any_number_of_workers(tmp_path: Path) -> None:
    data = made_images(clients=5, side=6)
    runs = [launch.start(experiment("slow", workers), tmp_path / str(workers), data=data) for workers in (0, 2)]
    assert outcome(runs[0]) == outcome(runs[1])


def test_the_heavy_mix_arrives(tmp_path: Path) -> None:
    """All are asked in every round; of the ages that arrive, those up to the threshold count, others do not."""
    run = launch.start(experiment("heavy", rounds=12, retrain=0), tmp_path / "run", data=made_images(clients=8, side=6))
    rounds = [event["metrics"] for event in run.rounds]
    assert all(metrics["asked"] == 8 for metrics in rounds)
    ages = [sum(metrics["ages"][age] for metrics in rounds) for age in range(3)]
    discarded = sum(metrics["discarded"] for metrics in rounds)
    assert min(ages) > 5 and discarded > 0 and ages[1] > ages[2]
    counts = [event["ledger"]["replies"] for event in run.rounds]
    assert sum(one["late"] for one in counts) == ages[1] + ages[2]
    assert sum(one["stale"] for one in counts) == discarded


@pytest.mark.parametrize("late", ["use", "drop"])
def test_other_rules_for_late_replies(late: str, tmp_path: Path) -> None:
    run = launch.start(experiment("heavy", late=late), tmp_path / "run", data=made_images(clients=5, side=6))
    used = sum(sum(event["metrics"].get("ages", [0])[1:]) for event in run.rounds)
    assert (used > 0) == (late == "use")


def test_all_rules_can_share_a_warm_up(tmp_path: Path) -> None:
    """Fig. 8: without staleness until the search begins, so every rule starts it from the same supernet."""
    runs = [
        launch.start(experiment("later", late=late), tmp_path / late, data=made_images(clients=5, side=6))
        for late in ("compensate", "use", "drop")
    ]
    events = [[{**event, "wall_seconds": 0} for event in run.rounds] for run in runs]
    assert all(event["metrics"]["ages"] == [5, 0, 0] for event in events[0][:2])
    assert events[0][:2] == events[1][:2] == events[2][:2]
    assert events[0][-2] != events[1][-2] != events[2][-2]


def test_slow_clients_are_asked_when_they_are_free(tmp_path: Path) -> None:
    run = launch.start(experiment("slow"), tmp_path / "run", data=made_images(clients=5, side=6))
    asked = [event["metrics"]["asked"] for event in run.rounds if "asked" in event["metrics"]]
    assert asked[0] == 5 and min(asked) < 5 and min(asked) >= 1


def test_a_deadline_before_anyone_is_done_does_not_end_a_run(tmp_path: Path) -> None:
    """Rounds pass without an update until replies come; who is busy is not asked again."""
    own = {**SMALL, "retrain": 0, "rounds": 16}
    data = made_images(clients=3, side=6)
    tables: dict[str, Any] = {"simulation": {"speed": 1e6}, "engine": {"deadline": 0.2}}
    run = atoll.search("fedrl", data, out=tmp_path / "run", workers=0, settings=tables, **own)
    rounds = [event["metrics"] for event in run.rounds]
    assert rounds[0]["asked"] == 3 and "accuracy" not in rounds[0] and rounds[1]["asked"] == 0
    received = [sum(metrics["ages"]) + metrics["discarded"] for metrics in rounds]
    assert max(received) > 0 and all(("accuracy" in m) == (sum(m["ages"]) > 0) for m in rounds)


def test_a_deadline_that_nobody_ever_meets_is_refused(tmp_path: Path) -> None:
    """The fastest client needs 0.28 s; three rounds of 0.05 s are all in which its reply would count."""
    own = {**SMALL, "retrain": 0, "rounds": 8}
    tables: dict[str, Any] = {"simulation": {"speed": 1e6}, "engine": {"deadline": 0.05}}
    with refused(ConfigError, "impossible-deadline", "up to 2 rounds late, for 0.15 s"):
        atoll.search("fedrl", made_images(clients=3, side=6), out=tmp_path / "run", workers=0, settings=tables, **own)


def test_a_search_without_any_timely_reply_is_said(tmp_path: Path) -> None:
    """Replies that are always too late would leave the policy as it was, after a search that seems to work."""
    own = {**SMALL, "retrain": 0, "rounds": 8}
    tables = {"simulation": {"staleness": [0, 0, 0, 1], "staleness_after": own["warmup"]}}
    with pytest.raises(Paused, match=r"whole search .*fedrl\.threshold") as pause:
        atoll.search("fedrl", made_images(clients=3, side=6), out=tmp_path / "run", workers=0, settings=tables, **own)
    assert not pause.value.resumable


def test_two_short_phases_without_any_reply_are_said_too(tmp_path: Path) -> None:
    own = {**SMALL, "rounds": 6, "warmup": 3, "retrain": 1}
    tables = {"simulation": {"staleness": [0, 0, 0, 1]}}
    with pytest.raises(Paused, match=r"warm-up .*fedrl\.threshold"):
        atoll.search("fedrl", made_images(clients=3, side=6), out=tmp_path / "run", workers=0, settings=tables, **own)


def test_nothing_is_kept_of_the_search_while_the_found_network_is_trained(tmp_path: Path) -> None:
    own = {**SMALL, "rounds": 5, "warmup": 2, "retrain": 1}
    tables = {"simulation": {"staleness": [0.5, 0, 0.5]}}
    data = made_images(clients=4, side=6)
    atoll.search("fedrl", data, out=tmp_path / "run", workers=0, settings=tables, **own)
    with RunDirectory.reopen(tmp_path / "run") as directory:
        saved = directory.last_checkpoint()
    assert saved is not None
    assert saved["federation"]["clock"]["travelling"]  # there are replies that nobody wants any more
    assert saved["state"]["past_weights"] == saved["state"]["past_alphas"] == saved["state"]["past_keys"] == {}


def test_late_replies_on_slow_lines_take_their_time_and_everybody_is_asked(tmp_path: Path) -> None:
    """The staleness mix holds replies back; it does not make work quicker, nor keep a client from being asked again."""
    own = {**SMALL, "retrain": 0, "rounds": 6, "warmup": 3}
    tables = {"simulation": {"speed": 1e6, "bandwidth": 1e5, "staleness": [1, 1, 1]}}
    data = made_images(clients=4, side=6)
    run = atoll.search("fedrl", data, out=tmp_path / "run", workers=0, settings=tables, **own)
    for event in run.rounds:
        assert event["metrics"]["asked"] == 4 and event["ledger"]["simulated_seconds"] > 0.01
        for _, _, began, downloaded, computed, arrived, *_ in event["simulation"]["tasks"]:
            assert began < downloaded < computed < arrived


def test_a_found_network_that_diverges_is_not_passed_off_as_trained(tmp_path: Path) -> None:
    own = {**SMALL, "rounds": 4, "warmup": 1, "retrain": 2, "retrain_lr": 1e30}
    run = atoll.search("fedrl", made_images(clients=3, side=6), out=tmp_path / "run", workers=0, **own)
    assert [event["metrics"].get("diverged") for event in run.rounds] == [None, None, True, True]
    (path,) = run.result["candidates"]
    assert path["id"] == "path" and "best" in path["picks"] and "retrain_lr = 1e+30" in path["about"]["diverged"]


def test_a_supernet_that_diverges_is_called_by_its_name(tmp_path: Path) -> None:
    own = {**SMALL, "retrain": 0, "lr": 1e30}
    with pytest.raises(Paused, match=r"nonfinite.*fedrl\.lr") as pause:
        atoll.search("fedrl", made_images(clients=3, side=6), out=tmp_path / "run", workers=0, **own)
    assert not pause.value.resumable  # so no one is told to resume it
