"""Who must not come in does not: strangers, impostors, and nodes that try another door."""

from __future__ import annotations

import http.client
import shutil
import ssl
import subprocess
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from atoll.deploy import certificates
from atoll.deploy import node as node_module
from atoll.deploy.bundle import Bundle, write_bundle
from atoll.deploy.control import Control, status
from atoll.deploy.create import add_site, create_federation, remove_site, rotate_site
from atoll.deploy.node import command as node_command
from atoll.deploy.node import run_node
from atoll.deploy.server import serve
from atoll.deploy.supervisor import descendants, flower_environment, stop_all
from atoll.errors import SiteError
from connect_proxy import connect_proxy
from deployment import Deployment, Program, wait_for, write_rows
from refusals import refused

pytestmark = pytest.mark.deploy

PROTOBUF = {"Content-Type": "application/protobuf", "Accept": "application/protobuf"}


def ask(deployment: Deployment, port: int, path: str, method: str = "POST") -> int:
    """The status that this path gives to somebody who has the authority's certificate and nothing else."""
    context = ssl.create_default_context(cafile=str(deployment.layout.ca))
    connection = http.client.HTTPSConnection("localhost", port, timeout=20, context=context)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (*PROTOBUF.items(), ("Content-Length", "0")):
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


def test_all_three_sites_are_connected(joined: Deployment) -> None:
    now = status(joined.layout)
    assert {site.name: site.state for site in now.sites} == {"north": "online", "south": "online", "west": "online"}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/list-nodes",
        "/v1/control/start-run",
        "/v1/runtime/acquire-task",
        "/v1/fleet/../control/list-nodes",
        "/v1/fleet/%2e%2e/control/list-nodes",
        "/v1/fleet/..%2fcontrol/list-nodes",
        "//v1/control/list-nodes",
        "/v1/fleet",
        "/",
        "/docs",
    ],
)
def test_the_proxy_opens_no_other_path(deployment: Deployment, path: str) -> None:
    assert ask(deployment, deployment.layout.port, path) in (400, 403)


def test_the_control_path_would_answer_anybody_who_reached_the_link(deployment: Deployment) -> None:
    """Why the proxy is there: the same question, asked at the SuperLink itself, is answered."""
    assert ask(deployment, deployment.layout.superlink_port, "/v1/control/list-nodes") == 200


def test_the_link_listens_on_this_machine_only(deployment: Deployment) -> None:
    wanted = f":{deployment.layout.superlink_port:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {fields[1] for fields in lines if fields[3] == "0A" and fields[1].endswith(wanted)}
    assert listening == {f"0100007F{wanted}"}


def test_an_unsigned_call_of_the_fleet_path_is_refused(deployment: Deployment) -> None:
    assert ask(deployment, deployment.layout.port, "/v1/fleet/pull-messages") == 401
    assert ask(deployment, deployment.layout.port, "/v1/fleet/pull-messages", "GET") == 403


def test_a_site_that_is_refused_for_its_clock_is_named_at_the_server(joined: Deployment) -> None:
    """What a site with a wrong clock sends: the server's program reads the time in it."""
    layout = joined.layout
    key = b64encode(certificates.public_point(layout.public_key("north").read_bytes())).decode()
    yesterday = (datetime.now(UTC) - timedelta(days=1)).isoformat()
    connection = http.client.HTTPSConnection(
        "localhost", layout.port, timeout=20, context=ssl.create_default_context(cafile=str(layout.ca))
    )
    connection.request("POST", "/v1/fleet/clock", headers={"flwr-timestamp": yesterday, "flwr-public-key": key})
    assert 400 <= connection.getresponse().status < 500
    connection.close()
    joined.server.says("site north is refused: its clock is 86,40", 30)


def test_a_plain_http_caller_is_refused(deployment: Deployment) -> None:
    connection = http.client.HTTPConnection("localhost", deployment.layout.port, timeout=20)
    connection.request("POST", "/v1/fleet/pull-messages", body=b"", headers=PROTOBUF)
    answer = connection.getresponse()
    assert answer.status == 400 and b"HTTPS" in answer.read()
    connection.close()


def stranger(deployment: Deployment, folder: Path, ca: bytes | None = None) -> Bundle:
    """A bundle of the right form with a key that nobody registered."""
    folder.mkdir(mode=0o700)
    ca = ca if ca is not None else deployment.layout.ca.read_bytes()
    write_bundle(folder, "north", f"localhost:{deployment.layout.port}", ca, certificates.make_key())
    return Bundle.open(folder)


def test_an_unknown_key_and_a_second_node_of_a_site_are_refused(
    joined: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "RESTART", 0.1)
    shutil.copytree(joined.layout.bundles / "north", tmp_path / "copy", ignore=shutil.ignore_patterns("work"))
    bundles = [stranger(joined, tmp_path / "stranger"), Bundle.open(tmp_path / "copy")]
    data = write_rows(tmp_path / "rows.csv")
    before = len(Control(joined.layout).nodes())

    def join(bundle: Bundle) -> list[str]:
        said: list[str] = []
        with refused(SiteError, "site-refused", "'north'", bundle.key):
            run_node(bundle, data, said.append, lambda: False, patience=0)
        return said

    with ThreadPoolExecutor() as pool:  # both wait for Flower's node to start twice
        said = [line for lines in pool.map(join, bundles) for line in lines]
    assert not any("connected to" in line for line in said)
    assert len(Control(joined.layout).nodes()) == before, "nothing is half registered"
    assert {site.name: site.state for site in status(joined.layout).sites}["north"] == "online"


def test_another_authority_is_refused_by_the_site(deployment: Deployment, tmp_path: Path) -> None:
    other = certificates.certificate_bytes(certificates.make_authority(certificates.make_key(), "localhost"))
    bundle = stranger(deployment, tmp_path / "bundle", other)
    with refused(SiteError, "certificate-wrong-authority", f"localhost:{deployment.layout.port}"):
        run_node(bundle, write_rows(tmp_path / "rows.csv"), lambda _: None, lambda: False)
    # Flower's own node, started by hand, does not let itself be talked into it either.
    command = node_command(bundle)
    with open(tmp_path / "node.log", "wb") as log:
        node = subprocess.Popen(command, env=flower_environment(tmp_path), stdout=log, stderr=log)
    try:
        wait_for(lambda: b"retrying" in (tmp_path / "node.log").read_bytes() or node.poll() is not None, 60)
        assert b"SuperNode ID" not in (tmp_path / "node.log").read_bytes()
    finally:
        stop_all([node.pid, *descendants(node.pid)])
        node.wait()


def test_a_site_joins_once_on_a_machine(joined: Deployment) -> None:
    with refused(SiteError, "already-running", "site 'north'"):
        run_node(Bundle.open(joined.layout.bundles / "north"), joined.folder, lambda _: None, lambda: False)


def test_a_site_can_come_later_through_a_proxy_change_its_key_and_leave_for_ever(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_site(deployment.layout, "east")
    wait_for(lambda: "east" in deployment.layout.nodes(), 120)
    keep = deployment.folder / "east"
    shutil.copytree(deployment.layout.bundles / "east", keep)
    with connect_proxy() as (proxy, targets):  # the site's network lets nothing out but through its proxy
        monkeypatch.setenv("HTTPS_PROXY", proxy)
        node = deployment.join("east", write_rows(deployment.folder / "data" / "east" / "rows.csv"), bundle=keep)
        monkeypatch.delenv("HTTPS_PROXY")
        _leads_a_full_life(deployment, node, keep)
    # Checks of the site, then its node, again with its new key, and nothing that is for this machine only.
    assert len(targets) > 4 and set(targets) == {f"CONNECT localhost:{deployment.layout.port}"}


def _leads_a_full_life(deployment: Deployment, node: Program, keep: Path) -> None:
    node.says("connected to", 120)
    deployment.server.says("site east is connected", 120)
    before = deployment.layout.nodes()
    rotate_site(deployment.layout, "east")
    wait_for(lambda: deployment.layout.nodes()["east"] != before["east"], 120)
    assert deployment.layout.nodes() == before | {"east": deployment.layout.nodes()["east"]}, "no other site is touched"
    node.says("the server refuses this site", 180)
    shutil.copy(deployment.layout.bundles / "east" / "site.key", keep / "site.key")
    node.says("connected to", 120, times=2)  # with the new key, without a restart
    remove_site(deployment.layout, "east")
    wait_for(lambda: "east" not in deployment.layout.nodes(), 120)
    deployment.server.says("site east was removed", 120)
    node.stop()
    assert "east" not in {site.name for site in status(deployment.layout).sites}


def test_a_second_server_of_the_same_federation_is_refused(deployment: Deployment) -> None:
    with refused(SiteError, "already-running", deployment.layout.folder):
        serve(deployment.layout, lambda _: None, lambda: False)


def test_a_taken_port_is_named(tmp_path: Path, deployment: Deployment) -> None:
    ports = deployment.layout.port, deployment.layout.superlink_port
    layout = create_federation(tmp_path / "other", ["a"], "localhost", *ports)
    with refused(SiteError, "port-in-use", f"port {ports[1]}", "federation.toml"):
        serve(layout, lambda _: None, lambda: False)
