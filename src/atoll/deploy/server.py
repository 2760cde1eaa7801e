"""The server of a federation: SuperLink, its executor and the proxy, kept running until asked to stop."""

from __future__ import annotations

import os
import socket
import time
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from atoll.config import to_toml
from atoll.deploy import certificates, proxy
from atoll.deploy.certificates import public_point
from atoll.deploy.control import Control, read_hello, synchronise
from atoll.deploy.layout import Layout
from atoll.deploy.probe import AHEAD, BEHIND
from atoll.deploy.supervisor import LARGEST_LOG, LogReader, Part, Say, flower_environment, flower_program, how
from atoll.errors import SiteError
from atoll.store.lock import hold

STARTING = 120.0  # seconds until the SuperLink must answer; importing takes several
BEAT = 0.2
LOOK = 3.0  # seconds between checks which sites are connected
DAY = 86_400.0  # seconds between two warnings of the same certificate
SAID = 600.0  # seconds between two lines about the same site's clock

Stop = Callable[[], bool]


def serve(layout: Layout, say: Say, stop: Stop, with_proxy: bool = True) -> None:
    """Run the federation's server in the foreground until `stop` returns True. What it says is also in its log."""
    with_proxy = with_proxy and layout.proxy
    parts = _parts(layout, with_proxy)

    def tell(text: str) -> None:
        say(text)
        with suppress(OSError), open(layout.log, "a", encoding="utf-8") as file:  # a full disk does not end the server
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {text}\n")

    with hold(layout.state, f"the server of {layout.folder}"):
        try:
            certificates.refuse_invalid(layout)
            _check_ports(layout, with_proxy)
            _prepare(layout)
            _warn_of_certificates(layout, tell)
            if not layout.proxy:
                tell(f"WARNING: no proxy; anyone who reaches port {layout.port} can run code on all sites")
            _run(layout, parts, tell, stop)
        except SiteError as problem:
            with open(layout.log, "a", encoding="utf-8") as file:
                file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {problem}\n")
            raise
        finally:
            tell("stopping")
            for part in reversed(parts):
                part.stop()
    tell("stopped")


def _warn_of_certificates(layout: Layout, say: Say) -> None:
    for path, hint in certificates.of_server(layout).items():
        fault = certificates.validity_fault(path, hint)
        if fault:
            say(f"WARNING: {fault}")


def _parts(layout: Layout, with_proxy: bool) -> list[Part]:
    environment = flower_environment(layout.flower_home)
    secret = str(layout.server / "superexec.secret")
    superlink = [
        flower_program("flower-superlink"),
        *("--isolation", "process", "--host", layout.superlink_host, "--port", str(layout.superlink_port)),
        *("--ssl-ca-certfile", str(layout.ca)),
        *("--ssl-certfile", str(layout.server / "server.crt")),
        *("--ssl-keyfile", str(layout.server / "server.key")),
        *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
        *("--database", str(layout.state / "superlink.db"), "--superexec-auth-secret-file", secret),
    ]
    executor = [
        flower_program("flower-superexec"),
        *("--runtime-api-address", layout.superlink_address, "--root-certificates", str(layout.ca)),
        *("--superexec-auth-secret-file", secret),
    ]
    parts = [
        Part("SuperLink", lambda: superlink, environment, layout.state, layout.logs / "superlink.log"),
        Part("executor", lambda: executor, environment, layout.state, layout.logs / "executor.log"),
    ]
    if with_proxy:
        command = proxy.command(layout.folder)
        parts.append(Part("proxy", lambda: command, environment, layout.folder, layout.logs / "proxy.log"))
    return parts


def _prepare(layout: Layout) -> None:
    """Make the folders, and the configuration with which Flower's own commands find the SuperLink."""
    for folder in (layout.flower_home, layout.logs, layout.state / "proxy"):
        folder.mkdir(exist_ok=True)
    connection = {"address": layout.superlink_address, "root-certificates": str(layout.ca)}
    text = to_toml({"superlink": {"default": "atoll", "atoll": connection}})
    (layout.flower_home / "config.toml").write_text(text, encoding="utf-8")


def _check_ports(layout: Layout, with_proxy: bool) -> None:
    taken = [layout.superlink_port, *([layout.port] if with_proxy else [])]
    for port in taken:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except PermissionError:
                raise SiteError(
                    f"port {port}: this user may not open it; choose a port above 1023", code="port-not-permitted"
                ) from None
            except OSError as problem:
                raise SiteError(
                    f"port {port}: cannot be opened ({problem.strerror}); stop the program that uses it, or change the "
                    f"port in {layout.folder / 'federation.toml'}",
                    code="port-in-use",
                ) from None


def _run(layout: Layout, parts: list[Part], say: Say, stop: Stop) -> None:
    say(f"starting the SuperLink on {layout.superlink_address}; logs in {layout.logs}")
    parts[0].start()
    control = Control(layout)
    if not _await_superlink(control, layout, parts[0], stop):
        return
    sites = synchronise(layout, control)
    for part in parts[1:]:
        part.start()
    if len(parts) > 2:
        _await_proxy(layout, parts[2], stop)
    say(f"ready: sites {', '.join(sites) or 'none'} may join at {layout.public_address}; stop with Ctrl-C")
    watch(layout, parts, control, say, stop)


def _await_superlink(control: Control, layout: Layout, superlink: Part, stop: Stop) -> bool:
    """Wait until the SuperLink answers; False if `stop` came first."""
    end = time.monotonic() + STARTING
    while not stop():
        if superlink.process is None or superlink.process.poll() is not None:
            code = None if superlink.process is None else superlink.process.returncode
            raise SiteError(
                f"the SuperLink did not start ({how(code)}): {last_line(superlink.log)}; see {superlink.log}",
                code="superlink-not-started",
            )
        try:
            control.nodes()
            return True
        except SiteError:
            if time.monotonic() > end:
                raise SiteError(
                    f"the SuperLink does not answer after {STARTING:g} s; see {superlink.log}",
                    code="superlink-not-answering",
                ) from None
        time.sleep(BEAT)
    return False


def _await_proxy(layout: Layout, part: Part, stop: Stop) -> None:
    end = time.monotonic() + 20
    while not stop():
        if part.process is None or part.process.poll() is not None:
            raise SiteError(f"the proxy did not start: {last_line(part.log)}; see {part.log}", code="proxy-not-started")
        try:
            socket.create_connection(("127.0.0.1", layout.port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise SiteError(
                    f"the proxy does not answer on port {layout.port}; see {part.log}", code="proxy-not-answering"
                ) from None
        time.sleep(BEAT)


def watch(layout: Layout, parts: list[Part], control: Control, say: Say, stop: Stop) -> None:
    """Restart what dies, follow the keys in the directory, report sites that connect and disconnect, or are refused for
    their clock, and certificates that expire."""
    sites: dict[str, bool] = {}
    next_look, next_warning = 0.0, time.monotonic() + DAY
    refusals = Refusals(layout, say)
    changed = {name: read_hello(layout, name).get("changed") for name in layout.sites}
    while not stop():
        for part in parts:
            if part.poll():
                say(f"{part.name} ended ({how(part.code)}) and is restarted; see {part.log}")
        if time.monotonic() >= next_look:
            next_look = time.monotonic() + LOOK
            with suppress(SiteError):  # the SuperLink may be restarting
                sites = _look(layout, control, sites, say)
            refusals.look()
            for name in layout.sites:
                before, changed[name] = changed.get(name), read_hello(layout, name).get("changed")
                if changed[name] and changed[name] != before:
                    say(f"site {name}: {changed[name]}")
        if time.monotonic() >= next_warning:
            next_warning = time.monotonic() + DAY
            _warn_of_certificates(layout, say)
        time.sleep(BEAT)


def _look(layout: Layout, control: Control, before: dict[str, bool], say: Say) -> dict[str, bool]:
    """Report what changed since the last look: sites that connected, disconnected or were removed."""
    now = synchronise(layout, control)
    for name in sorted(name for name, online in now.items() if online and not before.get(name)):
        say(f"site {name} is connected")
    for name in sorted(name for name, online in before.items() if online and name in now and not now[name]):
        say(f"site {name} has disconnected")
    for name in sorted(before.keys() - now.keys()):
        say(f"site {name} was removed")
    return now


class Refusals:
    """Reports sites that are refused because their clock differs from this machine's. The SuperLink does not say why it
    refuses; the proxy notes the time by which the site signed."""

    def __init__(self, layout: Layout, say: Say) -> None:
        self._layout, self._say = layout, say
        self._path = layout.folder / proxy.REFUSED
        self._reader = LogReader.at_end(self._path)
        self._said: dict[str, float] = {}  # site -> when

    def look(self) -> None:
        for line in self._reader.lines():
            with suppress(ValueError, TypeError, OverflowError, OSError):  # anyone can send anything
                at, signed, key = line.split(" ")
                own = (datetime.fromisoformat(signed) - datetime.fromtimestamp(float(at), UTC)).total_seconds()
                if not -BEHIND < own < AHEAD:
                    self._report(b64decode(key, validate=True), own)
        if self._path.exists() and self._path.stat().st_size > LARGEST_LOG:
            os.truncate(self._path, 0)

    def _report(self, key: bytes, ahead: float) -> None:
        keys = {public_point(self._layout.public_key(name).read_bytes()): name for name in self._layout.sites}
        name, now = keys.get(key), time.monotonic()
        if name is None or now - self._said.get(name, -SAID) < SAID:
            return
        self._said[name] = now
        where = f"{abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
        self._say(f"site {name} is refused: its clock is {where}; synchronise both (timedatectl set-ntp true)")


def last_line(log: Path) -> str:
    """The last line of a log that is not empty."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace")[-20_000:].splitlines()
    except OSError:
        return "its log is empty"
    written = [" ".join(line.split()) for line in lines if line.strip()]
    return written[-1][:2000] if written else "its log is empty"
