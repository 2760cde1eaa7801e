"""One process at a time: real processes, real kills."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from atoll.errors import RunLocked, SiteError, UserError
from atoll.store import lock
from atoll.store.lock import hold, lock_run, owner
from refusals import refused


class Process:
    """A process that takes the lock of a run, if it can, and holds it until it is killed."""

    def __init__(self, folder: Path) -> None:
        self._answer, writing = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(writing)
            return
        try:
            held = lock_run(folder)  # noqa: F841 (held as long as the process lives)
            os.write(writing, b"mine")
            signal.pause()
        except RunLocked as problem:
            os.write(writing, f"{problem.code} {problem}".encode())
        finally:
            os._exit(0)

    def answer(self) -> str:
        return os.read(self._answer, 10_000).decode()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._answer)


@pytest.mark.parametrize("times", [3, pytest.param(50, marks=pytest.mark.soak)])
def test_of_eight_processes_exactly_one_proceeds(tmp_path: Path, times: int) -> None:
    """And when it is killed, the next one can start at once."""
    for _ in range(times):
        processes = [Process(tmp_path) for _ in range(8)]
        try:
            answers = [process.answer() for process in processes]
            assert answers.count("mine") == 1
            first = processes[answers.index("mine")]
            others = [text for text in answers if text != "mine"]
            # A process that asks between the taking of the lock and the writing of the name reads "another process".
            assert all(text.startswith(f"run-locked {tmp_path}: ") for text in others)
            with refused(RunLocked, "run-locked", tmp_path, f"process {first.pid} on "):
                lock_run(tmp_path)
        finally:
            for process in processes:
                process.kill()
        begin = time.monotonic()
        lock_run(tmp_path).release()
        assert time.monotonic() - begin < 1


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
