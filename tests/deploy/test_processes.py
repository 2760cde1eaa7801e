"""Programs are kept running, and stopped with all they started."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from atoll.deploy import supervisor
from atoll.deploy.supervisor import LogReader, Part, descendants, how, stop_all
from programs import wait_until


def part(tmp_path: Path, script: str, pause: float = 0.05) -> Part:
    command = [sys.executable, "-S", "-c", script]
    return Part("part", lambda: command, dict(os.environ), tmp_path, tmp_path / "log", first_pause=pause)


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_a_program_that_dies_is_started_again_after_longer_and_longer_pauses(tmp_path: Path) -> None:
    one = part(tmp_path, "print('begun'); raise SystemExit(7)")
    one.start()
    deaths: list[float] = []
    while len(deaths) < 4:
        before = time.monotonic()  # the pause is counted from when the death is seen, which is after this
        if one.poll():
            deaths.append(before)
            assert one.code == 7
        time.sleep(0.002)
    one.stop()
    gaps = [later - earlier for earlier, later in pairwise(deaths)]
    assert gaps[0] >= 0.05 and gaps[1] >= 0.1 and gaps[2] >= 0.2
    assert (tmp_path / "log").read_text() == "begun\n" * 4 and one.starts == 4


def test_stopping_ends_children_too_even_stubborn_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PATIENCE", 0.3)
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('here', flush=True); time.sleep(99)"
    )
    child = f"subprocess.Popen([sys.executable, '-S', '-c', {stubborn!r}], start_new_session=new)"
    script = f"import subprocess, sys\nchildren = [{child} for new in (False, True)]\n{stubborn}"
    one = part(tmp_path, script)
    one.start()
    assert one.process is not None
    wait_until(lambda: (tmp_path / "log").read_text().count("here") == 3)
    family = [one.process.pid, *descendants(one.process.pid)]
    assert len(family) == 3
    one.stop()
    wait_until(lambda: all(gone(pid) for pid in family))


def test_what_a_dead_program_left_is_cleared_away(tmp_path: Path) -> None:
    child = "import time; print('here', flush=True); time.sleep(99)"
    script = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-S', '-c', {child!r}]); time.sleep(99)"
    one = part(tmp_path, script, pause=60)
    one.start()
    assert one.process is not None
    wait_until(lambda: "here" in (tmp_path / "log").read_text())
    (left,) = descendants(one.process.pid)
    one.process.kill()
    wait_until(one.poll)
    assert one.code == -signal.SIGKILL and how(one.code) == "signal SIGKILL" and how(3) == "exit code 3"
    wait_until(lambda: gone(left))


def test_a_program_dies_with_the_one_that_watches_it(tmp_path: Path) -> None:
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from atoll.deploy.supervisor import Part\n"
        "folder = Path(sys.argv[1])\n"
        "command = [sys.executable, '-S', '-c', 'import time; time.sleep(99)']\n"
        "part = Part('part', lambda: command, dict(os.environ), folder, folder / 'log')\n"
        "part.start()\n"
        "print(part.process.pid, flush=True)\n"
        "time.sleep(99)\n"
    )
    watcher = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert watcher.stdout is not None
    pid = int(watcher.stdout.readline())
    assert not gone(pid)
    watcher.kill()
    watcher.wait()
    watcher.stdout.close()
    wait_until(lambda: gone(pid))


def test_a_log_that_grows_too_large_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "LARGEST_LOG", 1000)
    one = part(tmp_path, "import time\nwhile True: print('x' * 99, flush=True); time.sleep(0.001)")
    follower = LogReader.at_end(one.log)
    one.start()
    lines: list[str] = []
    end, aside = time.monotonic() + 60, one.log.with_suffix(".old.log")
    while (len(lines) <= 20 or not aside.exists()) and time.monotonic() < end:
        one.poll()
        lines += follower.lines()
        time.sleep(0.002)
    one.stop()
    assert aside.exists() and len(lines) > 20


def test_a_log_that_cannot_be_put_aside_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Path, copy: Path) -> None:
        copy.write_bytes(b"the half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(supervisor, "LARGEST_LOG", 10)
    monkeypatch.setattr(supervisor.shutil, "copyfile", full)
    one = part(tmp_path, "")
    one.log.write_text("more than ten bytes")
    one.start()
    one.poll()
    one.stop()
    assert one.log.stat().st_size == 0 and not one.log.with_suffix(".old.log").exists()


def test_a_follower_reads_whole_lines_from_now_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("past\n")
    follower = LogReader.at_end(log)
    with open(log, "a") as file:
        file.write("one\ntw")
    assert follower.lines() == ["one"]
    with open(log, "a") as file:
        file.write("o\n")
    assert follower.lines() == ["two"] and follower.lines() == []
    log.write_text("new\n")  # shorter than before
    assert follower.lines() == ["new"]


def test_stopping_nobody_is_no_error() -> None:
    stop_all([])
    stop_all([2**22 + 1])
