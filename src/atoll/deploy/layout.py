"""The files of a federation on the server, and the rules for names and addresses."""

from __future__ import annotations

import ipaddress
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from atoll.errors import SiteError

LONGEST_NAME = 40
PORT = 8443
NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{LONGEST_NAME - 1}}}")
HOST_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Layout:
    """The federation's directory on the server, created by `atoll federation init`."""

    folder: Path
    host: str
    port: int
    superlink_port: int
    proxy: bool = True  # False: sites reach the SuperLink itself, which only a trusted network allows

    @classmethod
    def open(cls, folder: Path) -> Layout:
        """The federation in this directory; a `SiteError` if there is none."""
        path = folder / "federation.toml"
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
            proxy = table.get("proxy", True)
            if type(proxy) is not bool:
                raise ValueError(f"proxy = {proxy!r} is neither true nor false")
            layout = cls(folder.resolve(), table["host"], table["port"], table["superlink_port"], proxy)
        except FileNotFoundError:
            raise SiteError(
                f"{folder}: no federation here (no federation.toml); create one with: atoll federation init {folder}",
                code="no-federation-here",
            ) from None
        except (OSError, ValueError, KeyError) as problem:
            raise SiteError(
                f"{path}: cannot be read ({problem}); restore the file that `atoll federation init` wrote",
                code="federation-file-unreadable",
            ) from None
        check_host(layout.host)
        for port in (layout.port, layout.superlink_port):
            check_port(port)
        return layout

    @property
    def server(self) -> Path:
        """Certificates, private keys and the proxy's configuration; readable by the owner only."""
        return self.folder / "server"

    @property
    def ca(self) -> Path:
        return self.server / "ca.crt"

    @property
    def keys(self) -> Path:
        return self.folder / "keys"

    @property
    def bundles(self) -> Path:
        return self.folder / "bundles"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def log(self) -> Path:
        """What the server says, also after it has ended."""
        return self.logs / "server.log"

    @property
    def flower_home(self) -> Path:
        """Flower's own folder, shared by all processes on the server."""
        return self.state / "flower"

    @property
    def superlink_address(self) -> str:
        """Where this machine reaches the SuperLink."""
        return f"127.0.0.1:{self.superlink_port}"

    @property
    def superlink_host(self) -> str:
        """Where the SuperLink listens: behind a proxy on the loopback only, because its control interface has no
        authentication."""
        return "127.0.0.1" if self.proxy or is_local(self.host) else "0.0.0.0"

    @property
    def public_address(self) -> str:
        """Where sites reach the proxy, or the SuperLink where there is none."""
        return join_address(self.host, self.port)

    @property
    def sites(self) -> list[str]:
        """The sites of the federation: those whose public key is in `keys`."""
        return sorted(path.stem for path in self.keys.glob("*.pub"))

    def public_key(self, site: str) -> Path:
        return self.keys / f"{site}.pub"

    def nodes(self) -> dict[str, int]:
        """Flower's node number of every registered site, as last written by the server."""
        path = self.state / "nodes.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as problem:
            raise SiteError(
                f"{path}: cannot be read ({problem}); restart: atoll federation server {self.folder}",
                code="state-file-unreadable",
            ) from None
        return {str(name): int(number) for name, number in found.items()}


def check_names(names: Sequence[str]) -> None:
    """Names of sites become file names and parts of commands: letters, digits, - and _, without duplicates."""
    if not names:
        raise SiteError(
            "--sites: no site is named; separate them by commas: --sites north,south,west", code="no-sites-named"
        )
    seen: dict[str, str] = {}
    for name in names:
        if not NAME.fullmatch(name):
            raise SiteError(
                f"site name {name[:60]!r}: up to {LONGEST_NAME} letters, digits, - and _, starting with a letter or a "
                "digit; choose another name",
                code="bad-site-name",
            )
        if name.casefold() in seen:
            raise SiteError(
                f"two sites are named '{name}' (case is ignored); every site needs a unique name",
                code="site-name-twice",
            )
        seen[name.casefold()] = name


def check_host(host: str) -> None:
    """A host name or IP address that a certificate can hold."""
    if is_address(host):
        return
    labels = host.removesuffix(".").split(".")
    if not host or len(host) > 253 or not all(HOST_LABEL.fullmatch(label) for label in labels):
        raise SiteError(
            f"--host {host[:60]!r}: not a host name or IP address; give the name by which sites reach this machine",
            code="bad-host",
        )


def check_port(port: object) -> None:
    if type(port) is not int or not 1 <= port <= 65535:
        raise SiteError(f"port {port!r}: must be a whole number from 1 to 65535", code="bad-port")


def is_address(host: str) -> bool:
    """Whether this is an IP address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_local(host: str) -> bool:
    """Whether this name is valid on this machine only, as in a federation for tests."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """The host and the port of `host:port` or `[host]:port`."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or len(port) > 5:
        raise SiteError(
            f"server = {address[:60]!r}: must have the form host:port; restore the line of the site's file",
            code="bad-server-address",
        )
    check_host(host)
    check_port(int(port))
    return host, int(port)
