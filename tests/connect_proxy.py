"""An HTTP proxy of a company's network: it opens tunnels by CONNECT and does nothing else."""

from __future__ import annotations

import shutil
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class _Tunnels(socketserver.ThreadingTCPServer):
    daemon_threads = True
    targets: list[str]
    refuses: bool


class _Tunnel(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Tunnels)
        word, target, _ = self.rfile.readline().decode().split()
        while self.rfile.readline().strip():
            pass
        self.server.targets.append(f"{word} {target}")
        if self.server.refuses or word != "CONNECT":
            self.wfile.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return
        host, _, port = target.rpartition(":")
        with socket.create_connection((host, int(port))) as server, suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            threading.Thread(target=_copy, args=(server, self.connection), daemon=True).start()
            shutil.copyfileobj(_Raw(self.connection), _Raw(server), 1)  # type: ignore[misc]


class _Raw:
    """A socket as `copyfileobj` wants it: what has arrived is passed on at once."""

    def __init__(self, inner: socket.socket) -> None:
        self.inner = inner

    def read(self, _: int) -> bytes:
        return self.inner.recv(65536)

    def write(self, data: bytes) -> None:
        self.inner.sendall(data)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        shutil.copyfileobj(_Raw(source), _Raw(sink), 1)  # type: ignore[misc]
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def connect_proxy(refuses: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Its URL, and the requests that it got."""
    with _Tunnels(("127.0.0.1", 0), _Tunnel) as server:
        server.targets, server.refuses = [], refuses
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", server.targets
        finally:
            server.shutdown()
