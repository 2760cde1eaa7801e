"""One process at a time: real processes, real kills."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from atoll.errors import RunLocked, SiteError, UserError
from atoll.store import lock
from atoll.store.lock import hold, lock_run, owner
from refusals import refused

OWNER = """
import sys
from pathlib import Path
from atoll.errors import RunLocked
from atoll.store.lock import lock_run
try:
    lock = lock_run(Path(sys.argv[1]))
    print("mine", flush=True)
except RunLocked as problem:
    print(problem.code, problem, flush=True)
sys.stdin.read()
"""


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", OWNER, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def word(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_of_many_processes_exactly_one_proceeds(tmp_path: Path) -> None:
    processes = [start(tmp_path) for _ in range(5)]
    try:
        words = [word(process) for process in processes]
        assert words.count("mine") == 1
        first = processes[words.index("mine")]
        others = [text for text in words if text != "mine"]
        # A process that asks between the taking of the lock and the writing of the name reads "another process".
        assert all(text.startswith(f"run-locked {tmp_path}: ") for text in others)
        with refused(RunLocked, "run-locked", tmp_path, f"process {first.pid} on "):
            lock_run(tmp_path)
    finally:
        for process in processes:
            end(process)


def test_a_killed_owner_leaves_no_lock(tmp_path: Path) -> None:
    first = start(tmp_path)
    assert word(first) == "mine"
    first.send_signal(signal.SIGKILL)
    first.communicate()
    lock_run(tmp_path).release()


def test_released_locks_can_be_taken_again(tmp_path: Path) -> None:
    first = lock_run(tmp_path)
    with refused(RunLocked, "run-locked", tmp_path):
        lock_run(tmp_path)
    first.release()
    lock_run(tmp_path).release()


def test_a_damaged_lock_file_still_locks(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("{not json")
    first = lock_run(tmp_path)
    for content in (b"", b"{not json", b"[]", b"\xff"):
        (tmp_path / "lock").write_bytes(content)
        assert owner(tmp_path) == "another process"
        with refused(RunLocked, "run-locked", "another process"):
            lock_run(tmp_path)
    first.release()


def test_one_server_or_node_at_a_time(tmp_path: Path) -> None:
    assert owner(tmp_path) is None
    with hold(tmp_path, "the server"):
        name = owner(tmp_path)
        assert name is not None and name.startswith(f"process {os.getpid()} on ")
        with refused(SiteError, "already-running", "the server", name):
            hold(tmp_path, "the server")
    assert owner(tmp_path) is None
    hold(tmp_path, "the server").release()


def test_a_look_does_not_stop_a_start(tmp_path: Path) -> None:
    """A look shares the lock for an instant; here for as long as it takes to see the start wait for it."""
    (tmp_path / "lock").touch()
    with open(tmp_path / "lock") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        timer = threading.Timer(0.05, fcntl.flock, (look, fcntl.LOCK_UN))
        timer.start()
        hold(tmp_path, "the server").release()
        timer.join()


def test_a_start_does_not_wait_for_ever_for_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "QUERY_SECONDS", 0.02)
    (tmp_path / "lock").touch()
    with open(tmp_path / "lock") as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        with refused(SiteError, "already-running", "another process"):
            hold(tmp_path, "the server")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    precious, nothing = tmp_path / "precious", tmp_path / "nothing"
    precious.write_text("content")
    for target in (precious, nothing):
        (tmp_path / "lock").symlink_to(target)
        with refused(UserError, "lock-is-a-link", tmp_path / "lock"):
            lock_run(tmp_path)
        assert owner(tmp_path) is None
        (tmp_path / "lock").unlink()
    assert precious.read_text() == "content" and not nothing.exists()


def test_who_is_refused_leaves_the_name_of_the_owner(tmp_path: Path) -> None:
    with hold(tmp_path, "the server"):
        before = (tmp_path / "lock").read_bytes()
        with refused(SiteError, "already-running"):
            hold(tmp_path, "the server")
        assert (tmp_path / "lock").read_bytes() == before
