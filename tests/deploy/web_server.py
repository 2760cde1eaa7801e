"""A web server in place of a federation's proxy, with a certificate and a clock of choice."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from atoll.deploy import certificates
from atoll.deploy.layout import Layout


@dataclass
class WebServer:
    """How wrong its clock is, in seconds, its TLS settings, and the headers of what was posted to it."""

    drift: float
    context: ssl.SSLContext
    silent: bool = False  # it closes connections without an answer
    posted: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def web(layout: Layout, certificate: Path, drift: float = 0.0, tls: bool = True) -> Iterator[WebServer]:
    """A web server on the federation's public port, with this certificate and a clock that goes wrong by `drift` s."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    told = WebServer(drift, context)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.posted.append(dict(self.headers))
            self.do_GET()

        def do_GET(self) -> None:
            if told.silent:
                return
            self.send_response_only(403)
            self.send_header("Date", format_datetime(datetime.now(UTC) + timedelta(seconds=told.drift), usegmt=True))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", layout.port), Handler)
    if tls:
        context.load_cert_chain(certificate, layout.server / "server.key")
        # Hands are shaken in the connection's own thread: a caller who says nothing must not stop the server's loop.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def certificate(layout: Layout, host: str, begin: datetime, days: int) -> Path:
    """Another certificate of the federation's own authority."""
    made = certificates.make_server_certificate(
        certificates.read_certificate(layout.ca),
        certificates.read_private_key(layout.server / "ca.key"),
        certificates.read_private_key(layout.server / "server.key"),
        host,
        begin,
        days,
    )
    path = layout.folder / "other.crt"
    path.write_bytes(certificates.certificate_bytes(made))
    return path
