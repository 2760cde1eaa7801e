"""The server of the dashboard: on this machine only, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from atoll.dashboard.app import Dashboard, Guard, new_token
from atoll.dashboard.followed import identifier
from atoll.dashboard.monitor import Monitor
from atoll.dashboard.pages import Status
from atoll.errors import ConfigError

HOST = "127.0.0.1"
PORT = 8470
NAMES = ("127.0.0.1", "localhost")
STARTING = 15.0  # seconds


class DashboardServer:
    """Bound to a port at once, so that one in use is an error here; `serve` or `in_background` answers."""

    def __init__(self, root: Path, port: int, status: Status | None = None, expected: Sequence[Path] = ()) -> None:
        self._socket = _bound(port)
        self.port = int(self._socket.getsockname()[1])
        self.token = new_token()
        self.monitor = Monitor(root, expected)
        dashboard = Dashboard(self.monitor, status)
        hosts = {f"{name}:{self.port}" for name in NAMES}
        config = uvicorn.Config(
            Guard(dashboard.application(), self.token, hosts),
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            ws="none",
        )
        self._server = uvicorn.Server(config)

    @property
    def address(self) -> str:
        """The address that a browser opens. It contains the token."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    def address_of(self, run: Path) -> str:
        return f"{self.address}run/{identifier(run)}"

    def serve(self, stop: Callable[[], bool]) -> None:
        """Answer until `stop` says so."""

        async def watching() -> None:
            serving = asyncio.create_task(self._server.serve([self._socket]))
            while not stop() and not serving.done():
                await asyncio.sleep(0.1)
            self._server.should_exit = True
            await serving

        asyncio.run(watching())

    @contextmanager
    def in_background(self) -> Iterator[DashboardServer]:
        """Answer in a thread while the block runs."""
        thread = threading.Thread(target=self._run, name="atoll-dashboard-server", daemon=True)
        thread.start()
        for _ in range(int(STARTING / 0.02)):
            if self._server.started or not thread.is_alive():
                break
            threading.Event().wait(0.02)
        try:
            yield self
        finally:
            self._server.should_exit = True
            thread.join(timeout=5)

    def _run(self) -> None:
        with contextlib.suppress(SystemExit):
            asyncio.run(self._server.serve([self._socket]))


def _bound(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen(128)
    except (OSError, OverflowError) as problem:
        found.close()
        in_use = isinstance(problem, OSError) and problem.errno == errno.EADDRINUSE
        reason = "in use by another program" if in_use else getattr(problem, "strerror", None) or str(problem)
        code = "port-in-use" if in_use else "port-not-usable"
        raise ConfigError(
            f"--port {port}: {reason}; choose another, or --port 0 for any that is free", code=code
        ) from None
    return found
