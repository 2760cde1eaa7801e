"""Killed programs are started again: SuperLink, executor, proxy and their supervisors. Nodes: `test_runs.py`."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from atoll.deploy.control import status
from atoll.deploy.supervisor import descendants
from deployment import Deployment, wait_for

pytestmark = pytest.mark.deploy


def processes_of(program: int, words: str) -> list[int]:
    """The processes that this program started, by what stands in their command."""
    found = []
    for pid in descendants(program):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            if any(words in part for part in command[:3]):
                found.append(pid)
    return found


def online(deployment: Deployment) -> set[str]:
    return {site.name for site in status(deployment.layout).sites if site.state == "online"}


@pytest.mark.parametrize(
    "part", ["flower-superlink", pytest.param("flower-superexec", marks=pytest.mark.soak), "nginx"]
)
def test_a_killed_part_of_the_server_is_started_again(joined: Deployment, part: str) -> None:
    word = {"flower-superlink": "SuperLink", "flower-superexec": "executor", "nginx": "proxy"}[part]
    before = joined.server.text().count(f"{word} ended")
    os.kill(processes_of(joined.server.process.pid, part)[0], signal.SIGKILL)
    joined.server.says(f"{word} ended (signal SIGKILL) and is restarted", 90, times=before + 1)
    wait_for(lambda: bool(processes_of(joined.server.process.pid, part)), 120)
    wait_for(lambda: online(joined) == {"north", "south", "west"}, 180, joined.server.text)


def test_stopping_leaves_nothing_behind_and_starting_finds_all_again(joined: Deployment) -> None:
    numbers = joined.layout.nodes()
    family = descendants(joined.server.process.pid)
    assert len(family) >= 4  # SuperLink, executor, nginx and its worker
    joined.server.process.send_signal(signal.SIGTERM)
    assert joined.server.ends(60) == 0
    assert not [pid for pid in family if Path(f"/proc/{pid}").exists()]
    assert not status(joined.layout).running
    joined.start_server()
    assert joined.layout.nodes() == numbers, "a site keeps its number"
    wait_for(lambda: online(joined) == {"north", "south", "west"}, 180, joined.server.text)


@pytest.mark.soak
def test_a_killed_server_takes_its_parts_with_it(joined: Deployment) -> None:
    family = descendants(joined.server.process.pid)
    joined.server.process.kill()
    joined.server.process.wait()
    wait_for(lambda: not [pid for pid in family if Path(f"/proc/{pid}").exists()], 120)
    joined.start_server()
    wait_for(lambda: online(joined) == {"north", "south", "west"}, 180, joined.server.text)
