"""Each fault is a real one: an expired certificate, a closed port, a server whose clock is an hour off."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from atoll.deploy import bundle, create
from atoll.deploy.bundle import differences, installed
from atoll.deploy.doctor import examine
from atoll.deploy.layout import Layout
from atoll.deploy.probe import probe
from atoll.errors import SiteError
from connect_proxy import connect_proxy
from deploy.web_server import certificate, web
from refusals import refused


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return create.create_federation(tmp_path / "federation", ["a"], "localhost", port)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "rows.csv").write_text("x,label\n1,0\n2,1\n3,0\n4,1\n")
    return folder


def wrong(layout: Layout, data: Path | None = None, site: bool = True) -> list[str]:
    """What the doctor finds at the site, or at the server."""
    place = layout.bundles / "a" if site else layout.folder
    found = [finding.text for finding in examine(place, data) if not finding.ok]
    assert not any("\n" in text for text in found)
    return found


def test_all_is_well(layout: Layout, data: Path) -> None:
    with web(layout, layout.server / "server.crt"):
        assert wrong(layout, data) == []


def test_a_closed_port(layout: Layout, data: Path) -> None:
    (found,) = wrong(layout, data)
    assert f"localhost:{layout.port} cannot be reached (Connection refused)" in found and "firewall" in found


def test_a_name_nobody_knows(layout: Layout, data: Path) -> None:
    file = layout.bundles / "a" / "site.toml"
    file.write_text(file.read_text().replace("localhost", "nowhere.invalid"))
    (found,) = wrong(layout, data)
    assert "'nowhere.invalid' cannot be resolved" in found


def test_an_expired_certificate_seen_from_the_site(layout: Layout, data: Path) -> None:
    old = certificate(layout, "localhost", datetime.now(UTC) - timedelta(days=30), 10)
    with web(layout, old):
        (found,) = wrong(layout, data)
    assert "has expired" in found and "atoll federation renew" in found


def test_a_certificate_from_the_future_means_a_wrong_clock(layout: Layout, data: Path) -> None:
    new = certificate(layout, "localhost", datetime.now(UTC) + timedelta(days=30), 10)
    with web(layout, new):
        (found,) = wrong(layout, data)
    assert "not valid yet" in found and "set the clock" in found


def test_a_proxy_for_outgoing_connections(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    with web(layout, layout.server / "server.crt"):
        with connect_proxy() as (proxy, targets):
            monkeypatch.setenv("HTTPS_PROXY", proxy)
            assert probe("localhost", layout.port, layout.ca) is None
            assert targets == [f"CONNECT localhost:{layout.port}"] * 3
            monkeypatch.setenv("NO_PROXY", "localhost")
            assert probe("localhost", layout.port, layout.ca) is None and len(targets) == 3
            monkeypatch.delenv("NO_PROXY")
        with connect_proxy(refuses=True) as (proxy, _):
            monkeypatch.setenv("HTTPS_PROXY", proxy)
            fault = probe("localhost", layout.port, layout.ca)
            assert fault is not None and fault.code == "server-unreachable"
            assert proxy.removeprefix("http://") in fault.text and "403" in fault.text


@pytest.mark.parametrize(
    ("address", "code", "words"),
    [
        ("http://proxy.example.org:abc", "bad-proxy-address", "abc"),
        ("http://proxy.example.org:99999", "bad-proxy-address", "http://HOST:PORT"),
        ("http://:3128", "bad-proxy-address", "no host"),
        ("http://127.0.0.1:{port}", "server-unreachable", "127.0.0.1:{port} of HTTPS_PROXY"),
    ],
)
def test_a_proxy_that_is_none(
    layout: Layout, data: Path, monkeypatch: pytest.MonkeyPatch, address: str, code: str, words: str
) -> None:
    """No address, or the port of a program that does not speak HTTP."""

    def greet(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listening.accept()
                near.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                near.close()

    monkeypatch.delenv("NO_PROXY", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=greet, args=(other,), daemon=True).start()
        port = other.getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", address.format(port=port))
        fault = probe("localhost", layout.port, layout.ca)
        assert fault is not None and fault.code == code and words.format(port=port) in fault.text
        assert wrong(layout, data) == [fault.text]
        other.shutdown(socket.SHUT_RDWR)


def test_a_certificate_for_another_host(layout: Layout, data: Path) -> None:
    file = layout.bundles / "a" / "site.toml"
    file.write_text(file.read_text().replace("localhost", "127.0.0.2"))
    with web(layout, layout.server / "server.crt"):
        fault = probe("localhost", layout.port, layout.ca)
        assert fault is None
    server = layout.server / "server.crt"
    with web(layout, server), socket.create_server(("127.0.0.2", layout.port)) as other:
        threading.Thread(target=_forward_once, args=(other, layout.port), daemon=True).start()
        fault = probe("127.0.0.2", layout.port, layout.ca)
    assert fault is not None and fault.code == "certificate-wrong-host" and "--host" in fault.text


def _forward_once(listening: socket.socket, port: int) -> None:
    """Pass the bytes of the first two connections on to the server on the loopback."""
    for _ in range(2):
        try:
            near, _ = listening.accept()
        except OSError:
            return
        far = socket.create_connection(("127.0.0.1", port))
        threading.Thread(target=_pump, args=(near, far), daemon=True).start()
        threading.Thread(target=_pump, args=(far, near), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    finally:
        # Not `close` alone: while the other thread waits for this socket, that would not tell the far end anything.
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        sink.close()


def test_another_federations_server(layout: Layout, data: Path, tmp_path: Path) -> None:
    other = create.create_federation(tmp_path / "other", ["a"], "localhost", layout.port)
    shutil.copy(other.ca, layout.bundles / "a" / "ca.crt")
    with web(layout, layout.server / "server.crt"):
        (found,) = wrong(layout, data)
    assert "not from this bundle's authority" in found


def test_a_port_that_speaks_no_tls(layout: Layout, data: Path) -> None:
    with web(layout, layout.server / "server.crt", tls=False):
        found = wrong(layout, data)
    assert "does not answer with TLS" in found[0]


@pytest.mark.parametrize(
    ("drift", "words"), [(3600, "s behind the server's"), (-3600, "s ahead of the server's"), (-8, "ahead")]
)
def test_a_wrong_clock(layout: Layout, data: Path, drift: float, words: str) -> None:
    with web(layout, layout.server / "server.crt", drift):
        (found,) = wrong(layout, data)
    assert words in found and "timedatectl" in found


@pytest.mark.parametrize("drift", [-3, 0, 3, 100])
def test_a_clock_that_the_link_would_accept(layout: Layout, data: Path, drift: float) -> None:
    with web(layout, layout.server / "server.crt", drift):
        assert wrong(layout, data) == []


def test_an_empty_data_folder(layout: Layout, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with web(layout, layout.server / "server.crt"):
        (found,) = wrong(layout, tmp_path / "empty")
        assert str(tmp_path / "empty") in found
        (found,) = wrong(layout, tmp_path / "none")
        assert str(tmp_path / "none") in found
        work = layout.bundles / "a" / "work"
        work.mkdir()
        (work / "joined.json").write_text(json.dumps({"data": str(tmp_path / "empty")}))
        (found,) = wrong(layout)
        assert str(tmp_path / "empty") in found, "the data of the last time is looked at"


def test_another_version_on_the_site(layout: Layout, data: Path) -> None:
    wanted = installed() | {"torch": "1.0.0"}
    (layout.bundles / "a" / "versions.json").write_text(json.dumps(wanted))
    with web(layout, layout.server / "server.crt"):
        (found,) = wrong(layout, data)
    assert f"torch is {installed()['torch']}, the server has 1.0.0; run: pip install 'torch==1.0.0'" in found


def test_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    wanted = installed()
    monkeypatch.setattr(bundle, "version", missing)
    lines = differences(wanted, installed())
    assert [line.partition(" is missing, the server has ")[0] for line in lines] == ["atoll", "flwr", "torch", "numpy"]


def test_builds_and_patches_do_not_matter() -> None:
    wanted = {"python": "3.11.7", "torch": "2.13.0+cpu"}
    assert differences(wanted, {"python": "3.11.9", "torch": "2.13.0+cu130"}) == []
    assert differences(wanted, {"python": "3.12.0", "torch": "2.13.0"}) == [
        "Python is 3.12.0, the server has 3.11.7; use 3.11"
    ]


def test_the_server_that_does_not_run(layout: Layout) -> None:
    found = wrong(layout, site=False)
    assert any("the server is not running; start it with: atoll federation server" in line for line in found)


def test_the_servers_expired_certificate(layout: Layout) -> None:
    shutil.copy(
        certificate(layout, "localhost", datetime.now(UTC) - timedelta(days=30), 10), layout.server / "server.crt"
    )
    assert any("server.crt expired on" in line and "renew" in line for line in wrong(layout, site=False))
    create.renew(layout)
    assert not any("server.crt" in line for line in wrong(layout, site=False))


def test_the_servers_certificate_that_expires_soon_or_begins_later(layout: Layout) -> None:
    path = layout.server / "server.crt"
    shutil.copy(certificate(layout, "localhost", datetime.now(UTC), 10), path)
    assert any("server.crt expires on" in line for line in wrong(layout, site=False))
    shutil.copy(certificate(layout, "localhost", datetime.now(UTC) + timedelta(days=9), 100), path)
    assert any("clock is behind" in line for line in wrong(layout, site=False))


def test_the_servers_key_that_others_may_read(layout: Layout) -> None:
    (layout.server / "ca.key").chmod(0o640)
    (layout.server / "server.key").unlink()
    found = wrong(layout, site=False)
    assert any("chmod 600" in line for line in found) and any("server.key is missing" in line for line in found)


def test_a_site_that_came_with_another_version_or_was_refused(layout: Layout) -> None:
    (layout.state / "hello").mkdir()
    hello = {"versions": installed() | {"atoll": "0.0.9"}, "refused": "method 'moefl' is not allowed here"}
    (layout.state / "hello" / "a.json").write_text(json.dumps(hello))
    found = wrong(layout, site=False)
    assert any(line.startswith("at site a, atoll is 0.0.9, the server has") for line in found)
    assert "site a did not participate in the last run: method 'moefl' is not allowed here" in found


def test_neither_a_federation_nor_a_bundle(tmp_path: Path) -> None:
    with refused(SiteError, "no-federation-or-bundle", tmp_path):
        examine(tmp_path)
