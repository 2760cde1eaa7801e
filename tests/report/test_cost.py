"""What runs cost their clients, from ledgers written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from atoll.cli.app import app
from atoll.core.ledger import FATES
from atoll.devices import DeviceProfile
from atoll.errors import ConfigError, RunDirectoryError
from atoll.report.figures.cost import draw_cost, run_cost
from atoll.run.reader import Run, load
from made_runs import manifest
from refusals import refused

DEVICE = DeviceProfile(macs_per_second=10.0, uplink=5.0, downlink=20.0, joules_per_mac=1.0, joules_per_byte=2.0)


def account(macs: int, up: int, down: int, tasks: int = 2) -> dict[str, Any]:
    replies = dict.fromkeys(FATES, 0)
    return {
        "tasks": tasks,
        "replies": replies,
        "bytes_down": down,
        "bytes_up": up,
        "client_macs": macs,
        "simulated_seconds": 0.0,
    }


def made(
    folder: Path,
    rounds: list[tuple[dict[str, Any], dict[str, Any]]],
    finished: bool = True,
    method: str = "decnas",
) -> Run:
    """A run of four clients; its end measures for 1 MAC and 1 byte each way more."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f'method = "{method}"\n[{method}]\n')
    (folder / "manifest.json").write_text(manifest(method, data={"clients": 4}))
    events = [{"round": n, "metrics": m, "ledger": a} for n, (m, a) in enumerate(rounds, start=1)]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    if finished:
        rows = [a for _, a in rounds] + [account(1, 1, 1, 1)]
        total = {key: sum(row[key] for row in rows) for key in rows[0] if key != "replies"}
        ledger = {"rounds": len(rows), **total, "replies": rows[0]["replies"], "per_round": rows}
        (folder / "result.json").write_text(json.dumps({"candidates": [], "ledger": ledger}))
    return load(folder)


@pytest.fixture
def small(tmp_path: Path) -> Run:
    rounds = [
        ({"phase": "start", "iteration": 0}, account(100, 1000, 1000)),
        ({"phase": "search", "iteration": 1}, account(40, 10, 20)),
        ({"phase": "search", "iteration": 1}, account(20, 5, 10)),
        ({"phase": "search", "iteration": 2}, account(10, 5, 10)),
    ]
    return made(tmp_path / "small", rounds)


@pytest.fixture
def naive(tmp_path: Path) -> Run:
    """Stopped within its second iteration."""
    rounds = [
        ({"phase": "search", "iteration": 1}, account(600, 300, 300)),
        ({"phase": "search", "iteration": 2}, account(999, 999, 999)),
    ]
    return made(tmp_path / "naive", rounds, finished=False)


def test_everything_is_charged_unless_told_otherwise(small: Run) -> None:
    found = run_cost("small", small)
    assert (found.rounds, found.clients, found.account.tasks) == (4, 4, 9)
    assert (found.account.client_macs, found.account.bytes_up, found.account.bytes_down) == (171, 1021, 1041)
    assert found.seconds is None and found.amount("joules") is None


def test_the_search_alone_by_hand(small: Run) -> None:
    """70 MACs at 10 a second, 20 bytes up at 5, 40 down at 20: 7 + 4 + 2 seconds; 70 + 2 x 60 joules."""
    found = run_cost("small", small, DEVICE, search_only=True)
    assert (found.rounds, found.account.client_macs, found.account.bytes_up) == (3, 70, 20)
    assert (found.seconds, found.joules) == (13.0, 190.0)
    assert found.per_client("bytes_up") == 5.0


def test_equal_iterations_of_a_run_that_was_stopped(small: Run, naive: Run) -> None:
    ours, theirs = run_cost("small", small, iterations=1), run_cost("naive", naive, iterations=1)
    assert theirs.ratio("client_macs", ours) == 10.0
    assert theirs.ratio("bytes_up", ours) == 20.0
    with refused(ConfigError, "too-many-iterations", "--iterations 2", naive.path):
        run_cost("naive", naive, iterations=2)
    assert run_cost("small", small, iterations=2).account.client_macs == 70
    assert run_cost("naive", naive).account.client_macs == 1599


def test_a_run_without_iterations_or_rounds_is_said(tmp_path: Path) -> None:
    with refused(ConfigError, "no-iterations", tmp_path / "plain"):
        run_cost("plain", made(tmp_path / "plain", [({}, account(1, 1, 1))], method="fedavg"), iterations=1)
    with refused(RunDirectoryError, "no-round-done", tmp_path / "empty"):
        run_cost("empty", made(tmp_path / "empty", [], finished=False))


def test_runs_without_phases_are_all_search(tmp_path: Path) -> None:
    run = made(tmp_path / "plain", [({}, account(3, 4, 5))])
    assert run_cost("plain", run, search_only=True).account.client_macs == 3


def test_the_command_and_its_figure(small: Run, naive: Run, tmp_path: Path) -> None:
    figure = tmp_path / "bars.svg"
    words = ["cost", str(small.path), "--against", str(naive.path), "--device", "phone", "--iterations", "1"]
    ended = CliRunner().invoke(app, [*words, "--out", str(figure)])
    assert ended.exit_code == 0, ended
    assert "joules" in ended.stdout and "0.05" in ended.stdout  # 15 bytes up against 300
    text = figure.read_text()
    assert "<!-- bytes up -->" in text and "<!-- 0.05x -->" in text


def test_seconds_of_a_virtual_network_are_told_where_there_are_any(small: Run, tmp_path: Path) -> None:
    slow = made(tmp_path / "slow", [({}, {**account(1, 1, 1), "simulated_seconds": 12.5})], finished=False)
    assert "virtual seconds" not in CliRunner().invoke(app, ["cost", str(small.path)]).stdout
    told = CliRunner().invoke(app, ["cost", str(slow.path)]).stdout
    assert "virtual seconds" in told and "12.5" in told


def test_a_reference_that_cost_nothing_is_said(tmp_path: Path) -> None:
    free = run_cost("free", made(tmp_path / "free", [({}, account(0, 0, 0))], finished=False))
    with refused(ConfigError, "nothing-to-compare", "free"):
        draw_cost([free], free, tmp_path / "bars.png")
