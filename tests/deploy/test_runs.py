"""Runs on a real federation: what is killed, what is large, and what a site forbids."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from atoll.deploy.control import status
from atoll.deploy.supervisor import descendants
from atoll.run.reader import load
from deploy.conftest import SITES
from deployment import Deployment, Program, run_atoll, wait_for, write_rows
from outcomes import outcome
from programs import rounds_done

pytestmark = pytest.mark.deploy

# A round is one exchange, which counts test rows too. Without validation rows the end has one less.
SMALL = ("--set", "fedavg.epochs=1", "--set", "data.split=[0.8,0.0,0.2]", "--set", "fedavg.hidden=[8]")
QUICK = (*SMALL, "--set", "engine.wait=60")
# Far above what an idle machine needs: each message starts a Python that imports Flower.
LONG = 600.0


def arguments(deployment: Deployment, out: Path, rounds: int, *options: str) -> list[object]:
    federation = deployment.layout.folder
    return ["run", "fedavg", "--federation", federation, "--rounds", rounds, "--out", out, *QUICK, *options]


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def reaches(program: Program, run: Path, rounds: int) -> None:
    """Wait until so many rounds are done; a program that has ended will not get there."""
    wait_for(lambda: rounds_done(run) >= rounds or program.process.poll() is not None, LONG, program.text)
    assert rounds_done(run) >= rounds, program.text()


def named(program: int, words: str) -> list[int]:
    """Processes that this program started, with these words in their command."""
    found = []
    for pid in descendants(program):
        try:
            if words in Path(f"/proc/{pid}/cmdline").read_bytes().decode():
                found.append(pid)
        except OSError:
            continue
    return found


def tasks(program: int) -> list[int]:
    """The forks of this site's executor, one for each task at work."""
    executors = named(program, "atoll.deploy.flower.executor")
    return [pid for pid in executors if not set(descendants(pid)) & set(executors)] if len(executors) > 1 else []


@pytest.fixture(scope="module")
def whole(deployment: Deployment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two rounds give that nobody disturbs: the same as with the sites' files in one place."""
    folder = tmp_path_factory.mktemp("whole")
    for site in SITES:
        write_rows(folder / "together" / f"{site}.csv")
    words = ("run", "fedavg", "--data", folder / "together", "--rounds", 2, "--workers", 0, "--out", folder / "run")
    done = run_atoll(*words, *SMALL, seconds=LONG)
    assert done.returncode == 0, done.stderr
    return outcome(load(folder / "run"))


def test_a_killed_server_program_is_resumed_to_the_same_result(
    joined: Deployment, whole: dict[str, Any], tmp_path: Path
) -> None:
    killed = Program(arguments(joined, tmp_path / "killed", 2), tmp_path / "killed.out")
    reaches(killed, tmp_path / "killed", 1)
    (server_program,) = named(joined.server.process.pid, "flwr-serverapp")
    os.kill(server_program, signal.SIGKILL)
    assert killed.ends(LONG) == 3 and "continue with: atoll resume" in killed.text()
    resumed = run_atoll("resume", tmp_path / "killed", seconds=LONG)
    assert resumed.returncode == 0, resumed.stderr
    assert outcome(load(tmp_path / "killed")) == whole


@pytest.mark.soak
def test_a_killed_link_is_survived_or_resumed_to_the_same_result(
    joined: Deployment, whole: dict[str, Any], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    program = Program(arguments(joined, run, 2), tmp_path / "run.out")
    reaches(program, run, 1)
    os.kill(named(joined.server.process.pid, "flower-superlink")[0], signal.SIGKILL)
    if program.ends(LONG) != 0:
        assert program.process.returncode == 3 and "continue with: atoll resume" in program.text(), program.text()
        resumed = run_atoll("resume", run, seconds=LONG)
        assert resumed.returncode == 0, resumed.stderr
    assert outcome(load(run)) == whole


@pytest.mark.soak
def test_killed_workers_change_nothing(joined: Deployment, whole: dict[str, Any], tmp_path: Path) -> None:
    """One before its task, one perhaps during it: the node starts them again and the tasks are done."""
    run = tmp_path / "run"
    program = Program(arguments(joined, run, 2), tmp_path / "run.out")
    for site, rounds in (("north", 0), ("south", 1)):
        reaches(program, run, rounds)
        (worker,) = named(joined.programs[site].process.pid, "atoll.deploy.worker")
        os.kill(worker, signal.SIGKILL)
        joined.programs[site].says("the worker ended (signal SIGKILL) and is restarted", 60)
    assert program.ends(LONG) == 0, program.text()
    assert outcome(load(run)) == whole


@pytest.mark.soak
def test_rounds_end_by_quorum_when_a_node_is_killed_and_it_is_used_again(joined: Deployment, tmp_path: Path) -> None:
    run = tmp_path / "run"
    program = Program(arguments(joined, run, 30, "--set", "engine.quorum=0.6"), tmp_path / "run.out")
    south = joined.programs["south"]
    connected = south.text().count("connected to")
    reaches(program, run, 1)
    wait_for(lambda: bool(tasks(south.process.pid)), 120, program.text)
    os.kill(named(south.process.pid, "flower-supernode")[0], signal.SIGKILL)
    south.says("SIGKILL) and is restarted", 90)
    # For about a minute the SuperLink believes the dead one is alive and refuses the new one. The others do not wait.
    reaches(program, run, rounds_done(run) + 1)
    south.says("connected to", 300, times=connected + 1)
    assert program.ends(LONG) == 0, program.text()
    assert any(event["metrics"]["clients"] == 2 for event in events(run))
    assert sum(event["ledger"]["replies"].get("failed", 0) for event in events(run)) == 1
    assert set(load(run).result["candidates"][0]["clients"]) == {"north", "south", "west"}


@pytest.mark.parametrize("hidden", [2000, pytest.param(4000, marks=pytest.mark.soak)])
def test_many_megabytes_go_through(joined: Deployment, tmp_path: Path, hidden: int) -> None:
    """16 or 64 of them each way: four and thirteen of the pieces into which Flower cuts a message."""
    options = ("--set", f"fedavg.hidden=[{hidden}, {hidden}]", "--set", "fedavg.lr=0.001")
    done = run_atoll(*arguments(joined, tmp_path / "run", 1, *options, "--set", 'data.only=["north"]'), seconds=LONG)
    assert done.returncode == 0, done.stderr
    (event,) = events(tmp_path / "run")
    weights = hidden * hidden + 6 * hidden + 2  # of the layers 2 x hidden, hidden x hidden, hidden x 2, and biases
    assert min(event["ledger"]["bytes_up"], event["ledger"]["bytes_down"]) > 4 * weights
    model = load(tmp_path / "run").model("high")
    assert sum(weight.numel() for weight in model.parameters()) == weights


@pytest.mark.soak
def test_a_run_that_a_site_forbids_does_not_start(joined: Deployment, tmp_path: Path) -> None:
    file = joined.layout.bundles / "west" / "site.toml"
    before = file.read_text()
    file.write_text(re.sub(r"(?m)^# methods = .*$", 'methods = ["nevofed"]', before))
    try:
        refused = run_atoll(*arguments(joined, tmp_path / "run", 1), seconds=LONG)
    finally:
        file.write_text(before)
    assert refused.returncode == 2 and "[too-few-sites]" in refused.stderr
    assert all(value in refused.stderr for value in ("'west'", "'fedavg'", "nevofed"))
    assert len(refused.stderr.splitlines()) == 1 and not (tmp_path / "run").exists()
    joined.programs["west"].says("method 'fedavg'", 60)
    doctor = run_atoll("doctor", "--federation", joined.layout.folder)
    assert doctor.returncode == 2 and "method 'fedavg'" in doctor.stdout


@pytest.mark.soak
def test_a_task_that_hangs_at_a_site_is_given_up_there(joined: Deployment, tmp_path: Path) -> None:
    """A million steps within a twentieth of a second: `west` gives up, its worker is replaced, the round goes on."""
    file = joined.layout.bundles / "west" / "site.toml"
    before = file.read_text()
    file.write_text(re.sub(r"(?m)^minutes = .*$", "minutes = 0.001", before))
    try:
        options = ("--set", "fedavg.epochs=3000", "--set", "fedavg.batch=10")
        done = run_atoll(*arguments(joined, tmp_path / "run", 1, *options), seconds=LONG)
    finally:
        file.write_text(before)
    assert done.returncode == 0, done.stderr
    (event,) = events(tmp_path / "run")
    replies = event["ledger"]["replies"]
    assert (replies["used"], replies["failed"]) == (2, 1)
    joined.programs["west"].says("took longer than limits.minutes = 0.001 allows", 60)
    joined.programs["west"].says("the worker ended (exit code 0) and is restarted", 60)
    wait_for(lambda: not tasks(joined.programs["west"].process.pid), 60)


@pytest.mark.soak
def test_a_site_with_other_columns_is_told_so(joined: Deployment, tmp_path: Path) -> None:
    rows = joined.folder / "data" / "west" / "rows.csv"
    before = rows.read_text()
    write_rows(rows, columns=("x", "height"))
    try:
        refused = run_atoll(*arguments(joined, tmp_path / "run", 1), seconds=LONG)
    finally:
        rows.write_text(before)
    assert refused.returncode == 2 and "[too-few-sites]" in refused.stderr
    assert "'west'" in refused.stderr and "'z'" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1 and not (tmp_path / "run").exists()
    joined.programs["west"].says("left out of the run", 60)


def test_a_private_run(joined: Deployment, tmp_path: Path) -> None:
    """The terminal says what it will spend, and every site has written what it has released."""
    private = ("epsilon=20.0", "noise=2.0", "clip=1.0", "count_noise=5.0")
    options = [word for setting in private for word in ("--set", f"privacy.{setting}")]
    options += ["--set", "data.scale='none'", "--set", "data.split=[0.8,0.2,0.0]"]
    done = run_atoll(*arguments(joined, tmp_path / "run", 1, *options), seconds=LONG)
    assert done.returncode == 0, done.stderr
    assert (
        "privacy: 1 trainings and 3 counts of each client are projected to spend epsilon" in done.stdout + done.stderr
    )
    accounts = {site.name: site.account for site in status(joined.layout).sites}
    assert accounts == load(tmp_path / "run").clients
    assert all(own["used"] == own["asked"] > 0 for own in accounts.values())
    spent = load(tmp_path / "run").result["privacy"]["clients"]
    for site, own in spent.items():
        lines = (joined.layout.bundles / site / "work" / "privacy.jsonl").read_text().splitlines()
        charged = [json.loads(line) for line in lines if "releases" in line]
        assert 0 < own["epsilon"] <= 20 and {line["releases"][0][0] for line in charged} == {"train", "validation"}


@pytest.mark.soak
def test_a_federation_without_a_proxy(tmp_path: Path) -> None:
    """The site reaches the SuperLink itself, with the same certificate and key; `doctor` misses no nginx."""
    plain = Deployment.make(tmp_path, ["north", "south"], with_proxy=False)
    try:
        plain.start_server()
        assert not named(plain.server.process.pid, "nginx")
        for site in plain.layout.sites:
            plain.join(site, write_rows(tmp_path / "data" / site / "rows.csv")).says("connected to", 300)
        doctor = run_atoll("doctor", "--federation", plain.layout.folder)
        assert doctor.returncode == 0 and "nginx" not in doctor.stdout, doctor.stdout
        done = run_atoll(*arguments(plain, tmp_path / "run", 1), seconds=LONG)
        assert done.returncode == 0 and set(load(tmp_path / "run").clients) == {"north", "south"}, done.stderr
    finally:
        plain.kill()
