"""A real federation on this machine, for tests: SuperLink, proxy and nodes as separate processes, TLS and keys."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from atoll.deploy import create, proxy
from atoll.deploy.layout import Layout
from atoll.deploy.supervisor import descendants, stop_all
from atoll.errors import SiteError

SOURCE = Path(__file__).resolve().parent.parent / "src"
ATOLL = [sys.executable, "-c", "from atoll.cli.app import main; main()"]


def need_nginx() -> None:
    """Skip where nginx is missing; in CI a skip is a failure."""
    try:
        proxy.find_nginx()
    except SiteError as problem:
        pytest.skip(str(problem))


def environment() -> dict[str, str]:
    """Environment of programs and their children: this source tree comes first."""
    return os.environ | {"PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, all different."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def wait_for(condition: Callable[[], bool], seconds: float, what: Callable[[], str] = lambda: "") -> float:
    """Wait until the condition holds; return the seconds it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() < begin + seconds, f"not met within {seconds:g} s\n{what()}"
        time.sleep(0.1)
    return time.monotonic() - begin


@dataclass
class Program:
    """`atoll ARGUMENTS` in the background, its output in a file."""

    arguments: Sequence[object]
    out: Path
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        with open(self.out, "wb") as out:
            command = [*ATOLL, *(str(argument) for argument in self.arguments)]
            self.process = subprocess.Popen(
                command, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )

    def text(self) -> str:
        return self.out.read_text(encoding="utf-8", errors="replace")

    def says(self, words: str, seconds: float = 60, times: int = 1) -> float:
        """Wait until the output contains these words `times` times."""

        def said() -> bool:
            if self.text().count(words) >= times:
                return True
            assert self.process.poll() is None, (
                f"ended with {self.process.returncode} without printing {words!r}:\n{self.text()}"
            )
            return False

        return wait_for(
            said, seconds, lambda: f"for {words!r} from {shlex.join(map(str, self.arguments))}:\n{self.text()}"
        )

    def ends(self, seconds: float = 60) -> int:
        return self.process.wait(seconds)

    def stop(self) -> None:
        """Send SIGINT, and SIGKILL if that is not enough; then end all descendants."""
        if self.process.poll() is not None:
            return
        family = descendants(self.process.pid)
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        stop_all(family)


def run_atoll(*arguments: object, seconds: float = 120, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `atoll ARGUMENTS` to its end."""
    command = [*ATOLL, *(str(argument) for argument in arguments)]
    return subprocess.run(
        command, env=environment(), cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False
    )


@dataclass
class Deployment:
    """A federation in a folder, and its running programs."""

    folder: Path
    layout: Layout
    programs: dict[str, Program] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path, sites: Sequence[str], with_proxy: bool = True) -> Deployment:
        port, superlink_port = free_ports(2)
        place = folder / "federation"
        ports = (port, superlink_port) if with_proxy else (port,)
        return cls(folder, create.create_federation(place, sites, "localhost", *ports, proxy=with_proxy))

    @property
    def server(self) -> Program:
        return self.programs["server"]

    def start_server(self) -> None:
        out = self.folder / f"server-{len(list(self.folder.glob('server-*.out')))}.out"
        self.programs["server"] = Program(["federation", "server", self.layout.folder], out)
        self.server.says("ready:", 120)

    def join(self, site: str, data: Path, *options: str, bundle: Path | None = None) -> Program:
        place = bundle or self.layout.bundles / site
        out = self.folder / f"{place.parent.name}-{site}-{len(self.programs)}.out"
        program = Program(["site", "join", place, "--data", data, "--yes", *options], out)
        self.programs[f"{site}-{len(self.programs)}" if site in self.programs else site] = program
        return program

    def kill(self) -> None:
        """End all at once. An orderly end takes long: other tests show it."""
        running = [program for program in self.programs.values() if program.process.poll() is None]
        family = [pid for program in running for pid in descendants(program.process.pid)]
        for program in running:
            program.process.kill()
            program.process.wait()
        stop_all(family)


def write_rows(path: Path, rows: int = 40, columns: Sequence[str] = ("x", "z")) -> Path:
    """A small CSV of two classes that are linearly separable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join([*columns, "label"])]
    for row in range(rows):
        values = [f"{(row * (place + 3)) % 17 + (row % 2) * 4}" for place in range(len(columns))]
        lines.append(",".join([*values, str(row % 2)]))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
