"""Keeps programs running: starts them with a log, restarts those that die, stops them with all their children."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from atoll.errors import SiteError


def flower_environment(home: Path) -> dict[str, str]:
    """This process's environment with Flower's settings. `home` is Flower's folder, not shared with other programs."""
    binaries = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath)
    # The programs talk to each other on this machine: a proxy for outgoing connections is not for that.
    direct = ",".join(filter(None, [os.environ.get("no_proxy") or os.environ.get("NO_PROXY"), "127.0.0.1"]))
    return os.environ | {
        "NO_PROXY": direct,
        "no_proxy": direct,
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # else the SuperLink installs packages from PyPI
        "FLWR_HOME": str(home),
        "PATH": f"{binaries}{os.pathsep}{path}",  # Flower's programs call each other by name
        "PYTHONUNBUFFERED": "1",  # their logs are read while they run
    }


def flower_program(name: str) -> str:
    """The path of one of Flower's programs, in the folder of this Python."""
    path = Path(sys.executable).parent / name
    if find_spec("flwr") is None or not path.exists():
        raise SiteError(
            f"{name}: Flower is not installed here; install it with: pip install 'atoll[flower]'", code="flower-missing"
        )
    return str(path)


Say = Callable[[str], None]

LARGEST_LOG = 10_000_000  # bytes; a larger log is moved to `.old.log`
SETTLED = 60.0  # seconds; the restart of a program that ran this long is not delayed further
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
PATIENCE = 10.0  # seconds for a program to end after SIGTERM
PR_SET_PDEATHSIG = 1


@dataclass
class Part:
    """One program. `poll` must be called often; it restarts the program when it has died."""

    name: str
    command: Callable[[], Sequence[str]]  # called for each start: a free port may be needed
    environment: dict[str, str]
    folder: Path
    log: Path
    first_pause: float = FIRST_PAUSE
    process: subprocess.Popen[bytes] | None = None
    code: int | None = None  # how it ended the last time
    starts: int = 0
    _pause: float = field(default=0.0, init=False)
    _started: float = field(default=0.0, init=False)
    _due: float = field(default=0.0, init=False)

    def start(self) -> None:
        """Start the program now. Its output goes to the end of its log."""
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must not reach it: parts are stopped in order
                preexec_fn=_die_with_parent,
            )
        self._started = time.monotonic()
        self.starts += 1

    def poll(self) -> bool:
        """Whether the program has just died. It is restarted after a pause that doubles each time."""
        now = time.monotonic()
        self._shorten_log()
        if self.process is None:
            if now >= self._due:
                self.start()
            return False
        code = self.process.poll()
        if code is None:
            return False
        settled = now - self._started > SETTLED
        self._pause = self.first_pause if settled or not self._pause else min(2 * self._pause, LONGEST_PAUSE)
        self._due = now + self._pause
        stop_all(descendants_of_group(self.process.pid))  # its children must not keep its ports
        self.process, self.code = None, code
        return True

    def _shorten_log(self) -> None:
        """Copy a log that is too large and empty it. Programs append, so they need not reopen it."""
        if self.log.exists() and self.log.stat().st_size > LARGEST_LOG:
            old = self.log.with_suffix(".old.log")
            try:
                shutil.copyfile(self.log, old)
            except OSError:  # no room for a copy: the log must not be what fills the disk
                old.unlink(missing_ok=True)
            os.truncate(self.log, 0)

    def stop(self) -> None:
        """End the program and all its descendants."""
        if self.process is None:
            return
        family = [self.process.pid, *descendants(self.process.pid)]
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        stop_all([pid for pid in family[1:] if _alive(pid)] + descendants_of_group(self.process.pid))
        self.process = None


@dataclass
class LogReader:
    """Reads what a program appends to its log."""

    path: Path
    place: int
    rest: str = ""

    @classmethod
    def at_end(cls, path: Path) -> LogReader:
        """A reader that skips the present contents."""
        return cls(path, path.stat().st_size if path.exists() else 0)

    def lines(self) -> list[str]:
        """Complete lines since the last call."""
        if not self.path.exists():
            return []
        with open(self.path, "rb") as file:
            if file.seek(0, os.SEEK_END) < self.place:
                self.place = 0  # the log was shortened
            file.seek(self.place)
            text = self.rest + file.read().decode(errors="replace")
            self.place = file.tell()
        *whole, self.rest = text.split("\n")
        return whole


def how(code: int | None) -> str:
    """An exit code as text."""
    return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def stop_all(pids: Sequence[int]) -> None:
    """End these processes, first by SIGTERM, then by SIGKILL."""
    for number, pause in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 0.0)):
        left = [pid for pid in pids if _alive(pid)]
        for pid in left:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        end = time.monotonic() + pause
        while time.monotonic() < end and any(_alive(pid) for pid in left):
            time.sleep(0.05)


def descendants(pid: int) -> list[int]:
    """All descendants of a process, also those that have left its process group."""
    children: dict[int, list[int]] = {}
    for child, (parent, _) in _table().items():
        children.setdefault(parent, []).append(child)
    found, waiting = [], [pid]
    while waiting:
        own = children.get(waiting.pop(), [])
        found += own
        waiting += own
    return found


def descendants_of_group(group: int) -> list[int]:
    """Processes of this group other than its leader."""
    return [pid for pid, (_, own) in _table().items() if own == group and pid != group]


def _table() -> dict[int, tuple[int, int]]:
    """Parent and group of every process."""
    table = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (OSError, UnicodeDecodeError):
            continue
        table[int(path.parent.name)] = (int(fields[1]), int(fields[2]))
    return table


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, UnicodeDecodeError):
        return False


def _die_with_parent() -> None:
    """Runs in the child before the program starts: the kernel ends it when the parent is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
