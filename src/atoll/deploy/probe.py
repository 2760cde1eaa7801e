"""Checks of a server from outside: is the port open, is the certificate valid, do the clocks agree.

Where the environment names a proxy for outgoing connections (HTTPS_PROXY or ALL_PROXY, with exceptions in NO_PROXY),
they go through it by CONNECT, as those of Flower's node do.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from atoll.deploy.layout import join_address

PATIENCE = 10.0
# OpenSSL's reasons for refusing a certificate.
NOT_YET_VALID, EXPIRED = 9, 10
WRONG_HOST, WRONG_ADDRESS = 62, 64
# The SuperLink refuses what a node signed more than 5 s in the future or 305 s in the past.
AHEAD, BEHIND = 5.0, 305.0


@dataclass(frozen=True)
class Fault:
    """What is wrong with the connection to the server. `node.py` says which may be solved by waiting."""

    code: str  # of the `SiteError` that it becomes
    text: str


def probe(host: str, port: int, ca: Path, patience: float = PATIENCE) -> Fault | None:
    """The first problem between here and the server's proxy, or None. Of a wrong clock, which also makes certificates
    invalid, the clock is named."""
    fault = reach(host, port, patience) or certificate_fault(host, port, ca, patience)
    if fault is None or fault.code in ("certificate-expired", "certificate-not-yet-valid"):
        return clock_fault(host, port, patience) or fault
    return fault


def outgoing_proxy(host: str, port: int) -> tuple[str, int] | None:
    """The proxy that the environment names for connections to this server. A `ValueError` if it is no address."""
    named = getproxies()
    text = named.get("https") or named.get("all")
    if not text or proxy_bypass(f"{host}:{port}"):
        return None
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if not parts.hostname:
        raise ValueError("it names no host")
    return parts.hostname, parts.port or 80


def _opened(host: str, port: int, patience: float) -> socket.socket:
    """A connection to the server, through the proxy if there is one."""
    proxy = outgoing_proxy(host, port)
    if proxy is None:
        return socket.create_connection((host, port), timeout=patience)
    tunnel = http.client.HTTPConnection(*proxy, timeout=patience)
    tunnel.set_tunnel(host, port)
    tunnel.connect()
    return tunnel.sock


def reach(host: str, port: int, patience: float = PATIENCE) -> Fault | None:
    """Can a connection be opened?"""
    address = join_address(host, port)
    try:
        proxy = outgoing_proxy(host, port)
    except ValueError as problem:
        text = f"HTTPS_PROXY or ALL_PROXY is not the address of a proxy ({problem}); write http://HOST:PORT"
        return Fault("bad-proxy-address", text)
    try:
        _opened(host, port, patience).close()
    except socket.gaierror:
        name = host if proxy is None else proxy[0]
        text = f"the host name '{name}' cannot be resolved; check it, or use the server's IP address"
        return Fault("server-unreachable", text)
    except (OSError, http.client.HTTPException) as problem:
        spoken = isinstance(problem, http.client.HTTPException)
        why = "what answers there is no HTTP proxy" if spoken else _words(problem)
        if proxy is not None:
            return Fault(
                "server-unreachable",
                f"{address} cannot be reached through the proxy {join_address(*proxy)} of HTTPS_PROXY ({why}); ask its "
                "operator to allow this address, or name the host in NO_PROXY",
            )
        return Fault(
            "server-unreachable",
            f"{address} cannot be reached ({why}); is the server running, and does a firewall let this port through?",
        )
    return None


def _words(problem: Exception) -> str:
    return getattr(problem, "strerror", None) or str(problem) or "no answer in time"


def certificate_fault(host: str, port: int, ca: Path, patience: float = PATIENCE) -> Fault | None:
    """Does the server present a valid certificate of this federation's authority, for its name?"""
    context = ssl.create_default_context(cafile=str(ca))
    address = join_address(host, port)
    try:
        with (
            _opened(host, port, patience) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return None
    except ssl.SSLCertVerificationError as problem:
        return _refused(problem, address, host)
    except (OSError, http.client.HTTPException) as problem:  # of the connection, of TLS, of an outgoing proxy
        why = getattr(problem, "reason", None) or problem
        return Fault("tls-failed", f"{address} does not answer with TLS ({why}); does another program use this port?")


def clock_fault(host: str, port: int, patience: float = PATIENCE) -> Fault | None:
    """Do this machine's clock and the server's agree well enough for signed messages?"""
    answer = server_time(host, port, patience)
    if answer is None:
        return Fault("not-our-server", f"{join_address(host, port)} does not answer over HTTP; check address and port")
    # The header has whole seconds, so half a second is the best estimate of the rest.
    ahead = (datetime.now(UTC) - answer).total_seconds() - 0.5
    if -BEHIND < ahead < AHEAD + 0.5:
        return None
    where = f"{abs(ahead):,.0f} s {'ahead of' if ahead > 0 else 'behind'} the server's"
    return Fault("clock-differs", f"this machine's clock is {where}; synchronise it (timedatectl set-ntp true)")


def server_time(host: str, port: int, patience: float = PATIENCE) -> datetime | None:
    """The date in the server's answer."""
    date = _answered_date(host, port, patience, "GET", "/", {})
    try:
        return None if date is None else parsedate_to_datetime(date).astimezone(UTC)
    except (ValueError, TypeError):
        return None


def show_clock(host: str, port: int, key: bytes, patience: float = PATIENCE) -> None:
    """Have the server's program see this machine's time, in a request like a node's that is refused. The key is the
    site's public one."""
    headers = {"flwr-timestamp": datetime.now(UTC).isoformat(), "flwr-public-key": b64encode(key).decode()}
    _answered_date(host, port, patience, "POST", "/v1/fleet/clock", headers)


def _answered_date(
    host: str, port: int, patience: float, method: str, path: str, headers: dict[str, str]
) -> str | None:
    """The certificate is not verified: a wrong clock would make that fail, too. So nothing secret is sent."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    proxy = outgoing_proxy(host, port)
    connection = http.client.HTTPSConnection(*(proxy or (host, port)), timeout=patience, context=context)
    if proxy is not None:
        connection.set_tunnel(host, port)
    try:
        connection.request(method, path, headers=headers)
        return connection.getresponse().getheader("Date")
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _refused(problem: ssl.SSLCertVerificationError, address: str, host: str) -> Fault:
    code = problem.verify_code
    if code == EXPIRED:
        return Fault(
            "certificate-expired",
            f"the certificate of {address} has expired, by this machine's clock; if the clock is right, the operator "
            "renews it: atoll federation renew DIR",
        )
    if code == NOT_YET_VALID:
        return Fault(
            "certificate-not-yet-valid",
            f"the certificate of {address} is not valid yet, by this machine's clock; set the clock",
        )
    if code in (WRONG_HOST, WRONG_ADDRESS):
        return Fault(
            "certificate-wrong-host",
            f"the certificate of {address} is not for '{host}'; use the --host of the federation",
        )
    return Fault(
        "certificate-wrong-authority",
        f"the certificate of {address} is not from this bundle's authority ({problem.verify_message}): it is "
        "another federation, or the connection is intercepted; ask the operator for a new bundle",
    )
