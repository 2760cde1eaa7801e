"""The program `atoll` as a separate process, for tests that need exit codes, signals and kills.

`start` forks this process, in which the fixture `loaded` has imported torch and everything else. The child is a real
process with an exit code that can be killed, without the seconds that a new interpreter takes. `program` starts the
installed command.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from atoll.cli.app import main
from atoll.deploy.supervisor import PR_SET_PDEATHSIG

ATOLL = str(Path(sys.executable).with_name("atoll"))


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int  # negative: the signal that ended it
    out: str
    err: str


@dataclass
class Child:
    """A running program."""

    pid: int
    folder: Path

    def send(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = 240) -> Ended:
        """Wait for its end. A program that does not end is killed, and the test fails with the end of its output."""
        end, pid, status = time.monotonic() + seconds, 0, 0
        while not pid and time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            time.sleep(0 if pid else 0.005)
        if not pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            output = "".join(path.read_text(errors="replace") for path in sorted(self.folder.iterdir()))
            pytest.fail(f"did not end within {seconds} s; its output: {output[-2000:]}")
        out, err = (
            (self.folder / name).read_text() if (self.folder / name).exists() else "" for name in ("out", "err")
        )
        shutil.rmtree(self.folder)
        return Ended(os.waitstatus_to_exitcode(status), out, err)


@pytest.fixture(scope="session")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import what a run needs into this process, so that its forks start quickly."""
    from atoll import search
    from atoll.report import tables, terminal  # noqa: F401

    search("fedavg", "digits", out=tmp_path_factory.mktemp("loaded") / "run", rounds=1, workers=0)


def start(*arguments: object, cwd: Path | None = None, temporary: Path | None = None) -> Child:
    """Start `atoll ARGUMENTS` in a fork of this process."""
    folder = Path(tempfile.mkdtemp(prefix="atoll-test-"))
    pid = os.fork()
    if pid == 0:
        _become(folder, [str(argument) for argument in arguments], cwd, temporary)
    return Child(pid, folder)


def run(*arguments: object, cwd: Path | None = None) -> Ended:
    """Run `atoll ARGUMENTS` to its end."""
    return start(*arguments, cwd=cwd).wait()


def program(*arguments: object, cwd: Path | None = None) -> subprocess.Popen[str]:
    """The installed command, in a new interpreter."""
    command = [ATOLL, *(str(argument) for argument in arguments)]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not met within {seconds} s"
        time.sleep(0.005)


def rounds_done(directory: Path) -> int:
    """Rounds in the event log so far."""
    path = directory / "events.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def workers_of(pid: int) -> list[int]:
    """The worker processes of this process: the children of its fork server."""
    return [worker for child in _children_of(pid) for worker in _children_of(child)]


def _children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def end_with_parent() -> None:
    """End this fork with the test process: it holds the same pipes, and their readers would wait for it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _become(folder: Path, arguments: list[str], cwd: Path | None, temporary: Path | None) -> NoReturn:
    code = 1
    try:
        end_with_parent()
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), number)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w", errors="backslashreplace")  # noqa: SIM115
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if cwd is not None:
            os.chdir(cwd)
        if temporary is not None:
            tempfile.tempdir = str(temporary)
        sys.argv = ["atoll", *arguments]
        main()
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 0 if ending.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
