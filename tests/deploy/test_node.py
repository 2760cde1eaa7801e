"""What is said of a node that cannot be started."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from flwr.common.config import parse_config_args

from atoll.deploy import create
from atoll.deploy.bundle import Bundle
from atoll.deploy.layout import split_address
from atoll.deploy.node import command, run_node, worker_command
from atoll.errors import SiteError
from deployment import free_ports, write_rows
from refusals import refused


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    port, superlink_port = free_ports(2)
    layout = create.create_federation(tmp_path / "a b" / "federation", ["north"], "localhost", port, superlink_port)
    return Bundle.open(layout.bundles / "north")


def test_what_the_node_is_told(bundle: Bundle, tmp_path: Path) -> None:
    """Read back as Flower reads it, with a blank in the path."""
    words = command(bundle)
    assert parse_config_args([words[words.index("--node-config") + 1]]) == {"folder": str(bundle.work)}
    assert json.loads(worker_command(bundle, tmp_path / "my data")[-1]) == {
        "name": "north",
        "data": str(tmp_path / "my data"),
        "folder": str(bundle.work),
        "site": str(bundle.file),
    }
    assert words[words.index("--superlink") + 1] == bundle.site.server and "--insecure" not in words


def test_a_server_that_is_not_there_is_waited_for(bundle: Bundle, tmp_path: Path) -> None:
    said: list[str] = []
    data = write_rows(tmp_path / "rows.csv")
    run_node(bundle, data, said.append, stop=lambda: bool(said), label="outcome")
    assert "cannot be reached" in said[0] and "trying again every 10 s" in said[0]
    assert json.loads((bundle.work / "joined.json").read_text()) == {"data": str(data), "label": "outcome"}


def test_a_proxy_that_is_still_starting_is_waited_for(bundle: Bundle, tmp_path: Path) -> None:
    """It has opened its port and answers nothing yet that is TLS."""
    host, port = split_address(bundle.site.server)
    said: list[str] = []
    with socket.create_server(("127.0.0.1", port)) as server:

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        run_node(bundle, write_rows(tmp_path / "rows.csv"), said.append, stop=lambda: bool(said))
        server.shutdown(socket.SHUT_RDWR)
    assert f"{host}:{port} does not answer with TLS" in said[0] and "trying again every 10 s" in said[0]


def test_a_path_that_flower_cannot_take(bundle: Bundle, tmp_path: Path) -> None:
    with refused(SiteError, "bad-path", 'a"b'):
        run_node(bundle, tmp_path / 'a"b', lambda _: None, lambda: False)
    assert not bundle.work.exists()
