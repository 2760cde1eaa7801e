"""Whole runs on the virtual network: methods as they are, any number of workers, stopped, killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from atoll import resume, search
from atoll.config import resolve
from atoll.errors import AtollError, ConfigError, DataError, Paused, RunDirectoryError
from atoll.federation.local import local_federation
from atoll.run import launch
from atoll.run.loop import Loop
from atoll.run.reader import Run, load
from atoll.simulation.links import links_for
from atoll.simulation.network import VirtualTime
from atoll.simulation.settings import SimulationSettings
from atoll.store import RunDirectory
from atoll.testing import made_images, made_table
from programs import end_with_parent, rounds_done, run, wait_until
from refusals import refused
from soft_fedavg import SoftFedAvg

DATA = made_table(clients=5)
LOGS = {
    "bus_1": "bandwidth_kbps,duration_ms,latency_ms\n80,1000,20\n0,700,20\n16,1000,20\n",
    "car_1": "bandwidth_kbps,duration_ms,latency_ms\n800,1000,20\n100,500,20\n",
}


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    for name, text in LOGS.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def told(found: Run) -> Any:
    """All that must be equal between two runs."""
    result = {key: value for key, value in found.result.items() if key != "wall_seconds"}
    events = [{key: value for key, value in event.items() if key != "wall_seconds"} for event in found.history]
    return json.loads(json.dumps([result, events]))


def test_fedavg_by_bus_and_car(logs: Path, tmp_path: Path) -> None:
    network = {"traces": str(logs), "speed": [1e6, 1e8], "dropout": 0.1}
    tables: dict[str, Any] = {"simulation": network, "engine": {"deadline": 4.0}}
    runs = []
    for workers in (0, 2):
        out = tmp_path / str(workers)
        runs.append(search("fedavg", DATA, out=out, rounds=6, workers=workers, settings=tables))
    assert told(runs[0]) == told(runs[1])
    accounts = [event["ledger"] for event in runs[0].rounds]
    clocks = [event["simulation"] for event in runs[0].rounds]
    assert all(0 < account["simulated_seconds"] <= 8.0 + 1e-9 for account in accounts)  # two waits in a round
    assert any(account["replies"]["failed"] for account in accounts)
    for account, clock in zip(accounts, clocks, strict=True):
        assert clock["to"] - clock["from"] == pytest.approx(account["simulated_seconds"], abs=2e-4)
        assert len(clock["tasks"]) == account["tasks"]
    assert [clock["from"] for clock in clocks[1:]] == [clock["to"] for clock in clocks[:-1]]


def test_a_network_changes_the_time_and_nothing_else(logs: Path, tmp_path: Path) -> None:
    plain = search("fedavg", DATA, out=tmp_path / "plain", rounds=3, workers=0)
    slow = search(
        "fedavg", DATA, out=tmp_path / "slow", rounds=3, workers=0, settings={"simulation": {"traces": str(logs)}}
    )
    assert plain.result["candidates"] == slow.result["candidates"]
    assert "simulation" not in plain.rounds[0] and plain.result["ledger"]["simulated_seconds"] == 0
    assert slow.result["ledger"]["simulated_seconds"] > 0
    assert slow.result["ledger"]["bytes_up"] == plain.result["ledger"]["bytes_up"]


def test_realtime_on_phones(tmp_path: Path) -> None:
    settings = {"simulation": {"device": "phone", "dropout": 0.05}}
    own: dict[str, Any] = {"rounds": 2, "population": 2, "channels": [4, 4], "batch": 8}
    data = made_images(clients=4)
    found = search("realtime", data, out=tmp_path / "run", workers=0, settings=settings, **own)
    assert found.finished and found.result["ledger"]["simulated_seconds"] > 0
    assert {row[-1] for event in found.rounds for row in event["simulation"]["tasks"]} == {"used", "failed"}


def test_what_cannot_be_run_is_said_before_anything_is_written(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    cases: list[tuple[dict[str, Any], type[AtollError], str, str]] = [
        ({"simulation": {"staleness": "heavy"}}, ConfigError, "staleness-not-used", "fedavg"),
        ({"simulation": {"bandwidth": 50.0}, "engine": {"deadline": 1}}, ConfigError, "impossible-deadline", "even"),
        ({"simulation": {"dropout": 1.0}}, ConfigError, "no-reply-counts", "simulation.dropout = 1"),
        ({"engine": {"late": "use"}}, ConfigError, "late-not-used", "engine.late = 'use'"),
        ({"simulation": {"traces": str(tmp_path / "nowhere")}}, DataError, "no-such-traces", "nowhere"),
        ({"simulation": {"traces": str(logs), "transport": ["tram"]}}, ConfigError, "unknown-transport", "'tram'"),
    ]
    for settings, error, code, named in cases:
        with refused(error, code, named):
            search("fedavg", DATA, out=out, workers=0, settings=settings)
        assert not out.exists()
    (logs / "bad_1.csv").write_text("bandwidth_kbps,duration_ms\n5,100\n-5,100\n", encoding="utf-8")
    ended = run("run", "fedavg", "--data", "digits", "--set", f"simulation.traces='{logs}'", "--out", out)
    assert ended.code == 2 and ended.err.count("\n") == 1
    assert all(word in ended.err for word in ("bad_1.csv, line 3", "bandwidth_kbps = -5", "[trace-value-range]"))


def test_a_log_that_changed_is_noticed(logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"simulation": {"traces": "logs"}}
    search("fedavg", DATA, out="run", rounds=2, workers=0, settings=settings)
    monkeypatch.chdir("/")  # the run remembers where its logs are
    resume(tmp_path / "run", rounds=3, data=DATA)
    (logs / "bus_1.csv").write_text(LOGS["car_1"], encoding="utf-8")
    with refused(RunDirectoryError, "run-changed", "data.links"):
        resume(tmp_path / "run", rounds=4, data=DATA)


# -- replies in flight between rounds --------------------------------------------------------------------------------

ROUNDS = 7
MIXES: list[tuple[dict[str, Any], float | None]] = [
    ({}, None),
    ({"staleness": "heavy"}, None),
    ({"dropout": 0.3}, 1.5),
]


class _Asleep:
    """Keeps a run from ending before it is killed."""

    def round_done(self, number: int, *_: object) -> None:
        time.sleep(0 if number < 3 else 60)

    def round_failed(self, *_: object) -> None:
        raise AssertionError("no round may fail")


def soft(
    folder: Path,
    network: tuple[dict[str, Any], float | None],
    workers: int = 0,
    stop_after: int | None = None,
    watcher: _Asleep | None = None,
) -> Run | None:
    """Real training with replies always in flight; begun, or gone on with where the directory is."""
    experiment = resolve(
        {"method": "fedavg", "data": {"name": "in-memory"}, "fedavg": {"rounds": ROUNDS, "hidden": [8]}}
    )
    method = SoftFedAvg(experiment.settings.fitted(DATA.schema, 5), DATA.schema)  # type: ignore[arg-type]
    settings, deadline = network
    own = SimulationSettings(bandwidth=2000.0, speed=[2e4, 1e6], **settings)
    directory = (
        RunDirectory.reopen(folder)
        if folder.exists()
        else RunDirectory.create(folder, "", {"method": "soft"}, DATA.preparation)
    )
    clock = VirtualTime(own, links_for(own, 1, DATA.names), 1)
    preload = ["atoll.methods.fedavg"]
    local = local_federation(DATA, 1, workers, deadline=deadline, preload=preload, clock=clock)
    with directory, local as federation:
        loop = Loop(method, lambda client: DATA.preparation, 1, ROUNDS, 3, federation, directory, watcher)
        if stop_after is not None:
            loop.stop = lambda: rounds_done(folder) >= stop_after
        try:
            loop.run()
        except Paused:
            return None
    return load(folder)


@pytest.mark.parametrize("network", MIXES)
def test_stopped_with_replies_in_flight_and_resumed(
    tmp_path: Path, network: tuple[dict[str, Any], float | None]
) -> None:
    whole = soft(tmp_path / "whole", network)
    assert whole is not None
    late = [lateness for event in whole.rounds for _, lateness, _ in event["metrics"]["who"] if lateness]
    assert len(late) > 3
    for stop_after in (1, 3, 5):
        folder = tmp_path / f"stopped-{stop_after}"
        assert soft(folder, network, stop_after=stop_after) is None
        again = soft(folder, network)
        assert again is not None and told(again) == told(whole)


@pytest.mark.soak
def test_any_number_of_workers(tmp_path: Path) -> None:
    found = [soft(tmp_path / str(workers), MIXES[2], workers) for workers in (0, 1, 2, 3)]
    assert all(one is not None and found[0] is not None and told(one) == told(found[0]) for one in found)


@pytest.mark.soak
def test_killed_with_replies_in_flight(tmp_path: Path) -> None:
    """SIGKILL is real, on the engine with worker processes."""
    whole = soft(tmp_path / "whole", MIXES[0])
    killed = tmp_path / "killed"
    pid = os.fork()
    if pid == 0:
        try:
            end_with_parent()
            soft(killed, MIXES[0], workers=2, watcher=_Asleep())
        finally:
            os._exit(0)
    wait_until(lambda: rounds_done(killed) >= 3)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL and not load(killed).finished
    again = soft(killed, MIXES[0], workers=2)
    assert whole is not None and again is not None and told(again) == told(whole)


def test_what_failed_by_lot_is_drawn_again_after_a_pause(tmp_path: Path) -> None:
    """Two clients who mostly do not answer: the run pauses, in rounds and while it measures, and gets there at last."""
    path, pauses, tables = tmp_path / "run", [], {"simulation": {"dropout": 0.95}}
    data = made_table(clients=2)

    def go_on() -> Run | None:
        try:
            if pauses:
                return resume(path, data=data)
            return search("fedavg", data, out=path, workers=0, rounds=3, seed=2, settings=tables)
        except Paused as pause:
            pauses.append(str(pause))
            return None

    def tried() -> int:
        with RunDirectory.reopen(path) as directory:
            saved = directory.last_checkpoint()
        assert saved is not None
        return int(saved["tried"])

    assert go_on() is None and tried() == 3
    with refused(Paused, "run-stopped"):
        launch.resume(path, data=data, stop=lambda: True)
    assert tried() == 3  # stopped before it was tried again: what failed before is not forgotten
    finished = next((found for _ in range(60) if (found := go_on()) is not None), None)
    assert finished is not None and finished.finished and pauses


def test_a_number_of_clients_that_nobody_has_is_refused_at_once(logs: Path) -> None:
    settings = SimulationSettings(traces=str(logs), transport={"bus": 2_000_000_000})
    with refused(ConfigError, "transport-count-differs", 2_000_000_000):
        links_for(settings, 1, ["a", "b"])


def test_changed_links_are_noticed(logs: Path, tmp_path: Path) -> None:
    """By its name a log belongs to a means of transport; a device's file gives speeds and bandwidths."""
    settings = SimulationSettings(traces=str(logs))
    before = links_for(settings, 1, ["a", "b"]).digest
    (logs / "bus_1.csv").rename(logs / "tram_1.csv")
    assert links_for(settings, 1, ["a", "b"]).digest != before
    digests = {links_for(SimulationSettings(device=name), 1, ["a"]).digest for name in ("phone", "board")}
    assert len(digests) == 2
