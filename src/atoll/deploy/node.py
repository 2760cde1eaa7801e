"""Keeps a site's node connected and its worker running: what `atoll site join` does after its questions."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from atoll.deploy import certificates
from atoll.deploy.bundle import Bundle
from atoll.deploy.certificates import public_line, public_point, read_private_key
from atoll.deploy.flower import executor
from atoll.deploy.layout import join_address, split_address
from atoll.deploy.probe import Fault, probe, show_clock
from atoll.deploy.supervisor import LogReader, Part, Say, flower_environment, flower_program, how
from atoll.errors import SiteError
from atoll.store.files import replace_file
from atoll.store.lock import hold
from atoll.training.determinism import ENVIRONMENT

BEAT = 0.2
LOOK = 15.0  # seconds between checks whether the server can be reached
FULL = 50_000_000  # bytes; a disk with fewer free is reported
RESTART = 5.0  # seconds before a node that ended is started again; longer each time
AGAIN = 10.0  # seconds between attempts to reach a server that does not answer
# What is seen of a server while it or a proxy before it is starting.
STARTING = frozenset({"server-unreachable", "tls-failed", "not-our-server"})
REFUSED = 305  # Flower's exit code of a node that the SuperLink refuses
# A killed node counts as connected for two heartbeats of 30 s; its successor is refused until then.
PATIENCE = 100.0

Stop = Callable[[], bool]


def run_node(
    bundle: Bundle, data: Path, say: Say, stop: Stop, patience: float = PATIENCE, label: str = "label"
) -> None:
    """Connect and stay connected until `stop` returns True. A `SiteError` if the server refuses the site for good."""
    for place in (bundle.folder, data):
        if '"' in str(place) or not str(place).isprintable():
            raise SiteError(
                f"{str(place)!r}: a path for Flower must not contain a quotation mark or a line break; rename it",
                code="bad-path",
            )
    bundle.work.mkdir(mode=0o700, exist_ok=True)
    with hold(bundle.work, f"the node of site '{bundle.site.name}'"):
        (bundle.work / "flower").mkdir(exist_ok=True)
        replace_file(bundle.work / "joined.json", json.dumps({"data": str(data), "label": label}).encode())
        fault = certificates.validity_fault(bundle.ca, "ask the operator for a new bundle")
        if fault:
            say(f"WARNING: {fault}")
        if not _await_server(bundle, say, stop):
            return
        environment = flower_environment(bundle.work / "flower")
        own_executor = executor.install(bundle.work / "programs", environment)
        part = Part("node", lambda: command(bundle), own_executor, bundle.work, bundle.log, first_pause=RESTART)
        own = worker_command(bundle, data)
        worker = Part("worker", lambda: own, environment | ENVIRONMENT, bundle.work, bundle.log, first_pause=0.2)
        try:
            _Watch(bundle, part, worker, say, patience).run(stop)
        finally:
            say("leaving")
            part.stop()
            worker.stop()
    say("disconnected; all processes of this site have ended")


def command(bundle: Bundle) -> list[str]:
    """The command of Flower's node for this site. Its own interface is on the loopback, on a free port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [
        flower_program("flower-supernode"),
        *("--root-certificates", str(bundle.ca), "--auth-supernode-private-key", str(bundle.key)),
        *("--superlink", bundle.site.server, "--host", "127.0.0.1", "--port", str(port)),
        *("--node-config", f"folder={json.dumps(str(bundle.work))}"),
    ]


def worker_command(bundle: Bundle, data: Path) -> list[str]:
    """The command of this site's resident worker."""
    facts = {"name": bundle.site.name, "data": data, "folder": bundle.work, "site": bundle.file}
    plain = json.dumps({key: str(value) for key, value in facts.items()})
    return [sys.executable, "-m", "atoll.deploy.worker", plain]


def _await_server(bundle: Bundle, say: Say, stop: Stop) -> bool:
    """Wait for a server or proxy that is not running yet; refuse a wrong one. False if `stop` came first."""
    host, port = split_address(bundle.site.server)
    reported = False
    while not stop():
        fault = probe(host, port, bundle.ca)
        if fault is None:
            return True
        _show_clock(bundle, fault)
        if fault.code not in STARTING:
            raise SiteError(fault.text, code=fault.code)
        if not reported:
            say(f"{fault.text}; trying again every {AGAIN:g} s")
            reported = True
        _pause(AGAIN, stop)
    return False


def _show_clock(bundle: Bundle, fault: Fault | None) -> None:
    """Have the server's program name this site if its clock is wrong."""
    if fault is not None and fault.code == "clock-differs":
        address = split_address(bundle.site.server)
        show_clock(*address, public_point(public_line(read_private_key(bundle.key))))


class _Watch:
    """Keeps the node and its worker running and reports what happens to them."""

    def __init__(self, bundle: Bundle, part: Part, worker: Part, say: Say, patience: float) -> None:
        self.bundle, self.part, self.worker, self.say, self.patience = bundle, part, worker, say, patience
        self.address = split_address(bundle.site.server)
        self.follower = LogReader.at_end(bundle.log)
        self.fault: str | None = None  # what is wrong between here and the server: a code, or `starting`
        self.connected = False  # at least once since the start
        self.full = False  # the disk, at the last look
        self.exit_code = 0  # Flower's own, from the log: the system's exit codes are too small for it
        self.refused_since: float | None = None
        self.next_look = time.monotonic() + LOOK

    def run(self, stop: Stop) -> None:
        self.say(f"starting; log in {self.bundle.log}")
        self.worker.start()
        self.part.start()
        while not stop():
            died = self.part.poll()
            if self.worker.poll():
                self.say(f"the worker ended ({how(self.worker.code)}) and is restarted; see {self.bundle.log}")
            for line in self.follower.lines():
                self._read(line)
            if died:
                self._died()
            if time.monotonic() >= self.next_look:
                self._look()
            time.sleep(BEAT)

    def _read(self, line: str) -> None:
        """A line of the node's log."""
        if found := re.search(r"SuperNode ID: (\d+)", line):
            with suppress(OSError):  # a full disk is reported by the next look
                replace_file(self.bundle.work / "node.json", json.dumps({"id": int(found[1])}).encode())
            self.connected, self.refused_since = True, None
            site = self.bundle.site
            self.say(f"connected to {site.server} as site '{site.name}'; stop with Ctrl-C")
        elif found := re.search(r"Exit Code: (\d+)", line):
            self.exit_code = int(found[1])
        elif line.startswith("atoll:"):
            self.say(line.removeprefix("atoll:").strip())

    def _died(self) -> None:
        code, self.exit_code = self.exit_code, 0
        if code != REFUSED:
            self.say(f"the node ended ({how(self.part.code)}) and is restarted; see {self.bundle.log}")
            return
        # The SuperLink does not say why it refuses: a wrong clock looks like a wrong key.
        fault = probe(*self.address, self.bundle.ca)
        if fault is not None and fault.code not in STARTING:
            raise SiteError(f"the server refuses site '{self.bundle.site.name}': {fault.text}", code=fault.code)
        if self.refused_since is None:
            self.refused_since = time.monotonic()
            self.say("the server refuses this site; trying again (after a kill this takes about a minute)")
        elif time.monotonic() - self.refused_since > self.patience:
            raise SiteError(self._refusal(), code="site-refused")

    def _refusal(self) -> str:
        name = self.bundle.site.name
        before = (self.bundle.work / "node.json").exists()
        removed = "the operator has removed it" if before else f"the server does not know the key {self.bundle.key}"
        return (
            f"the server refuses site '{name}': either another node is connected under this name (stop that one), or "
            f"{removed} (ask the operator for a new bundle)"
        )

    def _look(self) -> None:
        """The node retries silently; this reports it to the site's staff."""
        self.next_look = time.monotonic() + LOOK
        fault = probe(*self.address, self.bundle.ca)
        _show_clock(self.bundle, fault)
        code = None if fault is None else "starting" if fault.code in STARTING else fault.code
        if code != self.fault:
            again = f"{join_address(*self.address)} can be reached again"
            self.say(again if fault is None else f"{fault.text}; still trying")
        self.fault = code
        self._look_at_disk()

    def _look_at_disk(self) -> None:
        """On a full disk neither Flower nor a task may be able to write a line to the log."""
        free = shutil.disk_usage(self.bundle.work).free
        if free < FULL and not self.full:
            self.say(f"only {free / 1e6:,.0f} MB are free on the disk of {self.bundle.work}; free some, or tasks fail")
        self.full = free < FULL


def _pause(seconds: float, stop: Stop) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not stop():
        time.sleep(BEAT)
