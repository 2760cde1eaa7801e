"""The SuperLink's control interface: which sites are registered and connected, and which runs there were.

`status` answers from the SuperLink if it runs, and from the federation's files if not.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from atoll.deploy.certificates import of_server, public_point, refuse_invalid, validity_fault
from atoll.deploy.layout import Layout
from atoll.errors import AtollError, SiteError
from atoll.store.files import replace_file
from atoll.store.lock import owner

STARTING = 30.0  # seconds for a server that was started a moment ago to appear


@dataclass(frozen=True)
class RegisteredNode:
    """A site as the SuperLink lists it."""

    id: int
    name: str
    status: str  # registered (has never connected), online, offline, unregistered
    public_key: bytes
    last_seen: datetime | None


@dataclass(frozen=True)
class RunInfo:
    """A run as the SuperLink lists it."""

    id: int
    status: str
    detail: str
    started: str


class Control:
    """A client of one federation's SuperLink. Raises `SiteError` when it does not answer."""

    def __init__(self, layout: Layout, timeout: float = 30.0) -> None:
        import ssl

        from flwr.supercore.control import ControlHttpClient

        context = ssl.create_default_context(cafile=str(layout.ca))
        self._layout = layout
        self._client = ControlHttpClient(f"https://{layout.superlink_address}", verify=context, timeout=timeout)

    def nodes(self) -> list[RegisteredNode]:
        """All nodes that are or were registered."""
        from flwr.proto.control_pb2 import ListNodesRequest

        found = self._ask("ListNodes", ListNodesRequest())
        return [
            RegisteredNode(info.node_id, info.name, info.status, info.public_key, _last_seen(info))
            for info in found.nodes_info
        ]

    def register(self, name: str, public_key: bytes) -> int:
        """Register a site; returns Flower's number of its node."""
        from flwr.proto.control_pb2 import RegisterNodeRequest

        return int(self._ask("RegisterNode", RegisterNodeRequest(public_key=public_key, name=name)).node_id)

    def unregister(self, node: int) -> None:
        """Refuse a node from now on."""
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        self._ask("UnregisterNode", UnregisterNodeRequest(node_id=node))

    def runs(self) -> list[RunInfo]:
        """All runs, in the order of their start."""
        from flwr.proto.control_pb2 import ListRunsRequest

        found = self._ask("ListRuns", ListRunsRequest()).run_dict
        runs = [
            RunInfo(number, run.status.sub_status or run.status.status, run.status.details, run.pending_at)
            for number, run in found.items()
        ]
        return sorted(runs, key=lambda run: run.started)

    def stop_run(self, number: int) -> None:
        """End a run in progress."""
        from flwr.proto.control_pb2 import StopRunRequest

        self._ask("StopRun", StopRunRequest(run_id=number))

    def close(self) -> None:
        self._client.close()

    def _ask(self, call: str, request: Any) -> Any:
        import httpx

        try:
            return getattr(self._client, call)(request)
        except (httpx.HTTPError, RuntimeError, OSError) as problem:
            refuse_invalid(self._layout)  # one that has expired meanwhile is the reason
            raise SiteError(
                f"the SuperLink at {self._layout.superlink_address} does not answer "
                f"({type(problem).__name__}: {problem}); start it with: atoll federation server {self._layout.folder}",
                code="superlink-not-answering",
            ) from None


def _last_seen(info: Any) -> datetime | None:
    """When the last heartbeat came: it makes a node count as online for two intervals."""
    if info.status == "registered" or not info.online_until:
        return None
    lifetime = 2 * info.heartbeat_interval if info.status == "online" else 0.0
    return datetime.fromtimestamp(info.online_until - lifetime, UTC)


def synchronise(layout: Layout, control: Control) -> dict[str, bool]:
    """Register the sites whose keys are in the directory and unregister all others. Idempotent.

    Returns each site and whether it is online. The numbers of their nodes are written to `state/nodes.json`.
    """
    wanted = {name: public_point(layout.public_key(name).read_bytes()) for name in layout.sites}
    present = {node.public_key: node for node in control.nodes() if node.status != "unregistered"}
    for key, node in present.items():
        if key not in wanted.values():
            control.unregister(node.id)
    numbers = {name: present[key].id if key in present else control.register(name, key) for name, key in wanted.items()}
    if numbers != layout.nodes():
        replace_file(layout.state / "nodes.json", (json.dumps(numbers, indent=1) + "\n").encode())
    return {name: key in present and present[key].status == "online" for name, key in wanted.items()}


@dataclass(frozen=True)
class SiteStatus:
    """One site. `hello` is what its node reported when a run last began, `account` what became of its replies in the
    present or last run, see `Run.clients`."""

    name: str
    state: str  # unknown (the SuperLink is not running), new, online, offline
    last_seen: datetime | None = None
    hello: dict[str, Any] = field(default_factory=dict)
    account: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Status:
    """The state of a federation."""

    running: bool
    sites: list[SiteStatus]
    runs: list[RunInfo]
    note: str = ""
    warnings: list[str] = field(default_factory=list)  # about certificates, and data that changed between runs


def status(layout: Layout) -> Status:
    """The state of the federation. A server that is not running is no error: the note says so."""
    faults = [validity_fault(path, hint) for path, hint in of_server(layout).items()]
    now = _status(layout)
    accounts = _accounts({str(site.hello["run"]) for site in now.sites if "run" in site.hello})
    sites = [replace(one, account=accounts.get(one.hello.get("run"), {}).get(one.name, {})) for one in now.sites]
    changed = [f"site {site.name}: {site.hello['changed']}" for site in sites if site.hello.get("changed")]
    return replace(now, sites=sites, warnings=[f"WARNING: {fault}" for fault in (*faults, *changed) if fault])


def _accounts(runs: set[str]) -> dict[Any, dict[str, dict[str, Any]]]:
    """Run directory -> client -> its account. Of a run that was moved or is damaged nothing is known here."""
    from atoll.run.reader import load

    found = {}
    for run in runs:
        with suppress(AtollError, OSError):
            found[run] = load(Path(run)).clients
    return found


def _status(layout: Layout) -> Status:
    hellos = {name: read_hello(layout, name) for name in layout.sites}
    if owner(layout.state) is None:
        start = f"not running; start it with: atoll federation server {layout.folder}"
        return Status(False, [SiteStatus(name, "unknown", hello=hellos[name]) for name in layout.sites], [], start)
    control = Control(layout, timeout=10.0)
    try:
        by_key = {node.public_key: node for node in control.nodes() if node.status != "unregistered"}
        runs = control.runs()
    except SiteError as problem:
        unknown = [SiteStatus(name, "unknown", hello=hellos[name]) for name in layout.sites]
        return Status(True, unknown, [], f"the server is running, but {problem}")
    finally:
        control.close()
    sites = []
    for name in layout.sites:
        node = by_key.get(public_point(layout.public_key(name).read_bytes()))
        state = "new" if node is None or node.status == "registered" else node.status
        sites.append(SiteStatus(name, state, None if node is None else node.last_seen, hellos[name]))
    return Status(True, sites, runs)


def wait_for_sites(layout: Layout, seconds: float, starting: float = STARTING) -> Status:
    """The status when all sites are online, or after this time.

    A server that has ended, or that does not start within `starting` seconds, ends the wait with a `SiteError`.
    """
    begin = time.monotonic()
    ran = False
    while True:
        now = status(layout)
        ran = ran or now.running
        waited = time.monotonic() - begin
        if (now.sites and all(site.state == "online" for site in now.sites)) or waited > seconds:
            return now
        if not now.running and (ran or waited > starting):
            what = "has ended" if ran else f"has not started within {starting:g} s"
            raise SiteError(
                f"the server {what}; {_last_words(layout)}; start it with: atoll federation server {layout.folder}",
                code="server-ended",
            )
        time.sleep(1.0)


def _last_words(layout: Layout, lines: int = 3) -> str:
    try:
        said = layout.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]
    except OSError:
        said = []
    return f"its last words in {layout.log}: {' | '.join(said)}" if said else f"it has written nothing to {layout.log}"


def read_hello(layout: Layout, name: str) -> dict[str, Any]:
    """What a site's node reported when a run last began, or an empty table."""
    try:
        found = json.loads((layout.state / "hello" / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
