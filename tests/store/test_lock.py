"""One process per run directory: real processes, real kills."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from atoll.errors import RunLocked
from atoll.store.lock import Lock
from refusals import refused

OWNER = """
import sys
from pathlib import Path
from atoll.errors import RunLocked
from atoll.store.lock import Lock
try:
    lock = Lock(Path(sys.argv[1]))
    print("mine", flush=True)
except RunLocked as problem:
    print(problem, problem.code, flush=True)
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
        owner = processes[words.index("mine")]
        others = [text for text in words if text != "mine"]
        # Whoever came in the instant between taking the lock and writing the name is told "another process".
        assert all(text.endswith("run-locked") and str(tmp_path) in text for text in others)
        with refused(RunLocked, "run-locked", tmp_path, owner.pid):
            Lock(tmp_path)
    finally:
        for process in processes:
            end(process)


def test_a_killed_owner_leaves_no_lock(tmp_path: Path) -> None:
    owner = start(tmp_path)
    assert word(owner) == "mine"
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    Lock(tmp_path).release()


def test_released_locks_can_be_taken_again(tmp_path: Path) -> None:
    first = Lock(tmp_path)
    with refused(RunLocked, "run-locked", tmp_path):
        Lock(tmp_path)
    first.release()
    Lock(tmp_path).release()


def test_a_damaged_lock_file_still_locks(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("{not json")
    owner = Lock(tmp_path)
    (tmp_path / "lock").write_text("")
    with refused(RunLocked, "run-locked", tmp_path):
        Lock(tmp_path)
    owner.release()
