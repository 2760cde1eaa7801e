"""`atoll doctor --federation`: the problems of a federation or a site, one line each, with a hint."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from atoll.deploy import certificates, proxy
from atoll.deploy.bundle import Bundle, differences, installed
from atoll.deploy.control import read_hello, status
from atoll.deploy.data_check import look
from atoll.deploy.layout import Layout, join_address, split_address
from atoll.deploy.probe import certificate_fault, clock_fault, reach
from atoll.errors import AtollError, DataError, SiteError
from atoll.store.lock import owner

LITTLE_SPACE = 1_000_000_000  # bytes


@dataclass(frozen=True)
class Finding:
    """One line of the report. A problem (`ok` is False) comes with a hint."""

    ok: bool
    text: str


def examine(place: Path, data: Path | None = None) -> list[Finding]:
    """All findings about the federation's directory or the site's bundle at this path."""
    if (place / "federation.toml").exists():
        return list(_examine_server(Layout.open(place)))
    if (place / "site.toml").exists():
        return list(_examine_site(place, data))
    raise SiteError(
        f"{place}: neither a federation's directory (federation.toml) nor a site's bundle (site.toml); "
        "name the one made by `atoll federation init`",
        code="no-federation-or-bundle",
    )


# -- on the server -----------------------------------------------------------------------------------------------------


def _examine_server(layout: Layout) -> Iterator[Finding]:
    yield from _packages({}, "server")
    yield _proxy(layout)
    for path, hint in certificates.of_server(layout).items():
        yield _certificate(path, hint)
    for name in ("ca.key", "server.key", "superexec.secret"):
        yield _private(layout.server / name)
    yield _space(layout.folder)
    yield from _hellos(layout)
    if owner(layout.state) is None:
        yield Finding(False, f"the server is not running; start it with: atoll federation server {layout.folder}")
        return
    fault = reach("127.0.0.1", layout.superlink_port)
    yield Finding(fault is None, fault.text if fault else f"the SuperLink answers on {layout.superlink_address}")
    yield from _connection(layout.host, layout.port, layout.ca, clock=False)
    yield from _sites(layout)


def _proxy(layout: Layout) -> Finding:
    """nginx is needed to start the server, unless the federation has no proxy; a running one may have another."""
    if not layout.proxy:
        return Finding(True, f"no proxy: anyone who reaches port {layout.port} can run code on all sites")
    try:
        return Finding(True, f"nginx is {proxy.find_nginx()}")
    except SiteError as problem:
        running = owner(layout.state) is not None
        return (
            Finding(True, "nginx is not installed here, and the server runs without it")
            if running
            else Finding(False, str(problem))
        )


def _hellos(layout: Layout) -> Iterator[Finding]:
    """The versions of each site when a run last began, and whether it participated."""
    here = installed()
    for name in layout.sites:
        hello = read_hello(layout, name)
        for line in differences(here, hello.get("versions", {})) if hello else []:
            yield Finding(False, f"at site {name}, {line}")
        if hello.get("refused"):
            yield Finding(False, f"site {name} did not participate in the last run: {hello['refused']}")


def _sites(layout: Layout) -> Iterator[Finding]:
    """Which sites are connected."""
    now = status(layout)
    if now.note:
        yield Finding(False, now.note)
        return
    for site in now.sites:
        if site.state == "online":
            yield Finding(True, f"site {site.name} is connected")
        else:
            came = "has never connected" if site.state == "new" else "is not connected"
            hint = "there: atoll doctor --federation BUNDLE, then atoll site join"
            yield Finding(False, f"site {site.name} {came}; {hint}")


# -- on a site ---------------------------------------------------------------------------------------------------------


def _examine_site(folder: Path, data: Path | None) -> Iterator[Finding]:
    yield from _packages(_table(folder / "versions.json"), "site")
    try:
        bundle = Bundle.open(folder)
    except AtollError as problem:
        yield Finding(False, str(problem))
        return
    yield Finding(True, f"the bundle is that of site '{bundle.site.name}'")
    yield _certificate(bundle.ca, "ask the operator for a new bundle")
    yield _space(folder)
    yield from _connection(*split_address(bundle.site.server), bundle.ca, clock=True)
    yield from _data(bundle, data)
    process = owner(bundle.work)
    running = f"the node is running ({process})" if process else "the node is not running: atoll site join"
    yield Finding(True, running)


def _data(bundle: Bundle, data: Path | None) -> Iterator[Finding]:
    """The data given, else the data of the last join; the class column is that of the last join."""
    joined = _table(bundle.work / "joined.json")
    if data is None and "data" not in joined:
        yield Finding(True, "the data was not checked; name its folder with --data")
        return
    place = Path(joined["data"]) if data is None else data
    try:
        found = look(place, joined.get("label", "label"), bundle.site.name).summary
    except DataError as problem:
        yield Finding(False, str(problem))
        return
    yield Finding(True, f"data: {found.rows:,} rows, {found.form}, {len(found.classes)} classes in {place}")


def _table(path: Path) -> dict[str, str]:
    """A small JSON file; an empty table if it cannot be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


# -- on both -----------------------------------------------------------------------------------------------------------


def _packages(wanted: dict[str, str], who: str) -> Iterator[Finding]:
    here = installed()
    lines = differences(wanted, here)
    if "flwr" not in here and not any(line.startswith("flwr") for line in lines):
        lines.append("flwr is missing; run: pip install 'atoll[flower]'")
    yield from (Finding(False, line) for line in lines)
    if not lines:
        yield Finding(True, f"packages of this {who}: {', '.join(f'{name} {text}' for name, text in here.items())}")


def _connection(host: str, port: int, ca: Path, clock: bool) -> Iterator[Finding]:
    """Port, certificate and clock of the proxy. A wrong clock is reported even if it makes the certificate invalid."""
    fault = reach(host, port)
    if fault:
        yield Finding(False, fault.text)
        return
    yield Finding(True, f"{join_address(host, port)} can be reached")
    fault = certificate_fault(host, port, ca)
    yield Finding(fault is None, fault.text if fault else "the server's certificate is valid")
    if clock:
        fault = clock_fault(host, port)
        yield Finding(fault is None, fault.text if fault else "the clock agrees with the server's")


def _certificate(path: Path, hint: str) -> Finding:
    fault = certificates.validity_fault(path, hint)
    if fault:
        return Finding(False, fault)
    return Finding(
        True, f"{path.name} is valid until {certificates.read_certificate(path).not_valid_after_utc:%Y-%m-%d}"
    )


def _private(path: Path) -> Finding:
    if not path.exists():
        return Finding(False, f"{path} is missing; restore it from your backup")
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return Finding(False, f"{path}: others may read it; run: chmod 600 '{path}'")
    return Finding(True, f"{path.name} is readable by its owner only")


def _space(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    if not os.access(folder, os.W_OK):
        return Finding(False, f"{folder}: cannot be written to by this user; change its owner")
    if free < LITTLE_SPACE:
        return Finding(False, f"{folder}: only {free / 1e6:,.0f} MB are free; free some space")
    return Finding(True, f"{free / 1e9:,.0f} GB are free")
