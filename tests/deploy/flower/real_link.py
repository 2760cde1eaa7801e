"""A real SuperLink and real SuperNodes on the loopback, without TLS: for tests only. Everything it starts, it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from atoll.deploy.flower import executor
from atoll.deploy.flower.superlink import SuperLink
from atoll.deploy.supervisor import flower_environment

SOURCE = Path(__file__).resolve().parents[3] / "src"
CONFIG = """\
[superlink]
default = "atoll"

[superlink.atoll]
address = "127.0.0.1:{port}"
insecure = true
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def descendants(process: int) -> list[int]:
    """All processes that a process has started, and theirs; a link starts helpers in sessions of their own."""
    found = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            for child in map(int, children.read_text().split()):
                found += [child, *descendants(child)]
        except OSError:
            continue
    return found


class RealLink:
    """Used as a context: at its end no process is left."""

    def __init__(self, root: Path, *folders: Path) -> None:
        """`folders`: of modules that the processes are to know besides Atoll."""
        self.root = root
        self.port = free_port()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._remembered: set[int] = set()
        home = root / "flower"
        home.mkdir(parents=True)
        (home / "config.toml").write_text(CONFIG.format(port=self.port))
        self.environment = flower_environment(home) | {"PYTHONPATH": os.pathsep.join(map(str, [*folders, SOURCE]))}
        self.superlink = SuperLink(self.environment, "atoll", root / "requests", self.ending, look_every=40.0)

    def __enter__(self) -> RealLink:
        self.start_program("link", ["flower-superlink", "--insecure", "--port", str(self.port)])
        end = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                assert time.monotonic() < end and self.processes["link"].poll() is None, self.words("link")
                time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            self._remembered.update(descendants(process.pid))
        for process in reversed(self.processes.values()):
            process.kill()
            process.wait()
        for child in self._remembered:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def start_program(self, name: str, command: list[str], **environment: str) -> None:
        log = open(self.root / f"{name}.log", "ab")  # noqa: SIM115
        self.processes[name] = subprocess.Popen(
            [str(Path(sys.executable).parent / command[0]), *command[1:]],
            env=self.environment | environment,
            cwd=self.root,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
        log.close()

    def node(self, name: str, config: dict[str, str]) -> None:
        """A node of its own, with a Flower home and a worker of its own."""
        home = self.root / f"home-{name}"
        home.mkdir(exist_ok=True)
        Path(config["folder"]).mkdir(exist_ok=True)
        self.start_program(f"worker-{name}", ["python", "-m", "atoll.deploy.worker", json.dumps(config)])
        self.start_program(
            name,
            [
                "flower-supernode",
                "--insecure",
                "--superlink",
                f"127.0.0.1:{self.port}",
                "--port",
                str(free_port()),
                "--node-config",
                f'folder="{config["folder"]}"',
            ],
            **executor.install(self.root / f"programs-{name}", self.environment | {"FLWR_HOME": str(home)}),
        )

    def ending(self, number: int) -> str | None:
        """How a run has ended, by Flower's own command."""
        command = [str(Path(sys.executable).parent / "flwr"), "list", "atoll", "--format", "json"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        runs = json.loads(done.stdout[done.stdout.index("{") :])["runs"]
        (status,) = [str(run["status"]) for run in runs if str(run["run-id"]) == str(number)]
        return status if status.startswith("finished") else None

    def words(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text(errors="replace")[-3000:]
