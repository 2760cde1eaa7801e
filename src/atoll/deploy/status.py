"""Who belongs to a federation, who is there, and what ran: from the link if it runs, from the files if not."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from atoll.deploy.authority import public_point
from atoll.deploy.control import Control, RunInfo
from atoll.deploy.layout import Layout
from atoll.errors import SiteError
from atoll.store.lock import owner


@dataclass(frozen=True)
class SiteStatus:
    """One site. `hello` is what its node last said of itself when a run began."""

    name: str
    state: str  # unknown (the link does not run), new, online, offline
    last_seen: datetime | None = None
    hello: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Status:
    """A federation at one moment."""

    running: bool
    sites: list[SiteStatus]
    runs: list[RunInfo]
    note: str = ""


def status(layout: Layout) -> Status:
    """How the federation is. Never fails because the server is down: that is one of the answers."""
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


def wait_for_sites(layout: Layout, seconds: float) -> Status:
    """The status as soon as every site is online, or when the time is over."""
    end = time.monotonic() + seconds
    while True:
        now = status(layout)
        if (now.sites and all(site.state == "online" for site in now.sites)) or time.monotonic() > end:
            return now
        time.sleep(1.0)


def read_hello(layout: Layout, name: str) -> dict[str, Any]:
    """What a site's node said of itself when a run last began, or an empty table."""
    try:
        found = json.loads((layout.state / "hello" / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
