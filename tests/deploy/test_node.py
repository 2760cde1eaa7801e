"""What is said of a node that cannot be started."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from flwr.common.config import parse_config_args

from atoll.deploy import create, node, proxy
from atoll.deploy import server as server_module
from atoll.deploy.bundle import Bundle
from atoll.deploy.control import Control, status
from atoll.deploy.flower.superlink import superlink_of
from atoll.deploy.layout import Layout, split_address
from atoll.deploy.node import command, run_node, worker_command
from atoll.deploy.server import Refusals
from atoll.errors import SiteError
from atoll.store.lock import hold
from deploy.web_server import certificate, web
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


def refused_line(headers: dict[str, str], at: float) -> str:
    """What the proxy notes of a request."""
    return f"{at:.3f} {headers['flwr-timestamp']} {headers['flwr-public-key']}\n"


@pytest.mark.parametrize(("drift", "words"), [(86_400.0, "86,400 s behind"), (-86_400.0, "86,400 s ahead of")])
def test_a_clock_wrong_by_a_day_is_one_line_at_the_site_and_at_the_server(
    bundle: Bundle, tmp_path: Path, drift: float, words: str
) -> None:
    layout, said = Layout.open(bundle.folder.parent.parent), list[str]()
    layout.logs.mkdir(exist_ok=True)
    refusals = Refusals(layout, said.append)
    data = write_rows(tmp_path / "rows.csv")
    with (
        web(layout, layout.server / "server.crt", drift) as server,
        refused(SiteError, "clock-differs", words, "timedatectl"),
    ):
        run_node(bundle, data, lambda _: None, lambda: False)
    (posted,) = server.posted
    here = time.time() + drift
    junk = ["", "nonsense", f"{here} yesterday key", f"{here} {posted['flwr-timestamp']} !!"]
    junk += [f"{here} {date} {posted['flwr-public-key']}" for date in ("2024-01-01", "2024-01-01T00:00:00")]
    junk += [f"{odd} {posted['flwr-timestamp']} {posted['flwr-public-key']}" for odd in ("1e400", "nan", "9e99")]
    (layout.folder / proxy.REFUSED).write_text("\n".join(junk) + "\n" + 2 * refused_line(posted, here))
    refusals.look()
    assert len(said) == 1 and said[0].startswith(f"site north is refused: its clock is {words}")
    (layout.folder / proxy.REFUSED).write_text("")
    refusals.look()
    (layout.folder / proxy.REFUSED).write_text(refused_line(posted, time.time()))
    refusals.look()
    assert len(said) == 1, "refused for another reason than its clock"


def test_an_expired_certificate_is_one_line_at_the_site_and_at_the_server(bundle: Bundle, tmp_path: Path) -> None:
    layout = Layout.open(bundle.folder.parent.parent)
    old = certificate(layout, "localhost", datetime.now(UTC) - timedelta(days=30), 10)
    with web(layout, old), refused(SiteError, "certificate-expired", "atoll federation renew"):
        run_node(bundle, write_rows(tmp_path / "rows.csv"), lambda _: None, lambda: False)
    with web(layout, old, 86_400.0), refused(SiteError, "clock-differs", "86,400 s behind"):
        run_node(bundle, write_rows(tmp_path / "rows.csv"), lambda _: None, lambda: False)


@pytest.mark.parametrize(
    ("begun", "code", "named"),
    [(-30, "certificate-expired", "renew it"), (30, "certificate-not-yet-valid", "clock is behind")],
)
def test_a_server_whose_certificate_is_not_valid_says_so_everywhere(
    bundle: Bundle, begun: int, code: str, named: str
) -> None:
    """At its start, in `federation status`, and to a run."""
    layout = Layout.open(bundle.folder.parent.parent)
    path = certificate(layout, "localhost", datetime.now(UTC) + timedelta(days=begun), 10)
    (layout.server / "server.crt").write_bytes(path.read_bytes())
    with refused(SiteError, code, "server.crt", named):
        server_module.serve(layout, lambda _: None, lambda: False, with_proxy=False)
    with refused(SiteError, code, "server.crt", named):
        superlink_of(layout.folder)
    with hold(layout.state, "the server"):  # it expired while the server ran
        now = status(layout)
    assert "server.crt" in now.note and named in now.note and any("server.crt" in line for line in now.warnings)


def test_a_certificate_is_warned_of_every_day(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, said = Layout.open(bundle.folder.parent.parent), list[str]()
    (layout.server / "server.crt").write_bytes(
        certificate(layout, "localhost", datetime.now(UTC) - timedelta(days=30), 35).read_bytes()
    )
    monkeypatch.setattr(server_module, "DAY", 0.01)
    server_module.watch(layout, [], Control(layout, 0.1), said.append, lambda: len(said) >= 2)
    assert len(said) == 2 and all("server.crt expires on" in line and "renew" in line for line in said)


def test_a_refused_node_with_a_wrong_clock_names_the_clock(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower's exit code says only that it is refused: a wrong clock looks like a wrong key."""
    layout = Layout.open(bundle.folder.parent.parent)
    monkeypatch.setattr(node, "command", lambda _: ["sh", "-c", "echo Exit Code: 305"])
    monkeypatch.setattr(node, "worker_command", lambda *_: ["sleep", "60"])
    with web(layout, layout.server / "server.crt") as server:

        def clock_goes_wrong(text: str) -> None:
            server.drift = 3600.0

        with refused(SiteError, "clock-differs", "site 'north'", "3,600 s behind"):
            run_node(bundle, write_rows(tmp_path / "rows.csv"), clock_goes_wrong, lambda: False)


@pytest.mark.parametrize("what", ["expired", "clock", "away"])
def test_what_goes_wrong_while_a_node_runs_is_one_line(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Flower's node tries again in silence."""
    layout, said = Layout.open(bundle.folder.parent.parent), list[str]()
    old = certificate(layout, "localhost", datetime.now(UTC) - timedelta(days=30), 10)
    for name in ("command", "worker_command"):
        monkeypatch.setattr(node, name, lambda *_: ["sleep", "60"])
    monkeypatch.setattr(node, "LOOK", 0.0)
    with web(layout, layout.server / "server.crt") as server:

        def say(text: str) -> None:
            said.append(text)
            if text.startswith("starting"):
                valid = layout.server / "server.crt" if what != "expired" else old
                server.context.load_cert_chain(valid, layout.server / "server.key")
                server.drift = 86_400.0 if what == "clock" else 0.0
                server.silent = what == "away"
            elif "still trying" in text:
                server.context.load_cert_chain(layout.server / "server.crt", layout.server / "server.key")
                server.drift, server.silent = 0.0, False

        data = write_rows(tmp_path / "rows.csv")
        run_node(bundle, data, say, lambda: any("can be reached again" in line for line in said))
    words = {"expired": "has expired", "clock": "86,400 s behind", "away": "does not answer"}
    assert words[what] in said[1] and "can be reached again" in said[2] and len(said) == 5
    assert len(server.posted) == (what == "clock")


def test_a_disk_that_fills_up_while_a_node_runs_is_one_line(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither Flower nor a task can write it to the log then."""
    layout, said = Layout.open(bundle.folder.parent.parent), list[str]()
    free = [10**9, 5_000_000, 4_000_000, 10**9, 3_000_000]
    monkeypatch.setattr(node.shutil, "disk_usage", lambda _: SimpleNamespace(free=free.pop(0)))
    monkeypatch.setattr(node, "LOOK", 0.0)
    for name in ("command", "worker_command"):
        monkeypatch.setattr(node, name, lambda *_: ["sleep", "60"])
    with web(layout, layout.server / "server.crt"):
        run_node(bundle, write_rows(tmp_path / "rows.csv"), said.append, lambda: not free)
    lines = [line for line in said if str(bundle.work) in line and "free some" in line]
    assert [line.split(" are ")[0] for line in lines] == ["only 5 MB", "only 3 MB"]


def test_a_path_that_flower_cannot_take(bundle: Bundle, tmp_path: Path) -> None:
    with refused(SiteError, "bad-path", 'a"b'):
        run_node(bundle, tmp_path / 'a"b', lambda _: None, lambda: False)
    assert not bundle.work.exists()
