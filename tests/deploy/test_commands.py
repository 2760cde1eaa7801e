"""The commands as they are typed: questions, answers, exit codes, one line for a mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import atoll
from atoll.cli.app import main
from atoll.deploy import certificates, control
from atoll.deploy.control import SiteStatus, Status, status, wait_for_sites
from atoll.deploy.create import create_federation
from atoll.deploy.doctor import examine
from atoll.deploy.layout import Layout
from atoll.deploy.site_file import read_site
from atoll.errors import SiteError
from atoll.testing import made_table
from deployment import ATOLL, Program, environment, free_ports
from refusals import refused


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    port, superlink_port = free_ports(2)
    options = ("--sites", "north, south", "--host", "localhost", "--port", port, "--superlink-port", superlink_port)
    said = done(monkeypatch, capsys, "federation", "init", tmp_path / "federation", *options)
    assert f"localhost:{port}" in said and "atoll federation server" in said
    return tmp_path / "federation"


def join(bundle: Path, data: Path, answers: str) -> subprocess.CompletedProcess[str]:
    command = [*ATOLL, "site", "join", str(bundle), "--data", str(data)]
    return subprocess.run(
        command, env=environment(), input=answers, capture_output=True, text=True, timeout=120, check=False
    )


def entered(monkeypatch: pytest.MonkeyPatch, *words: object) -> object:
    """The exit code of `atoll WORDS`, in this process."""
    monkeypatch.setattr(sys, "argv", ["atoll", *(str(word) for word in words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> tuple[object, str]:
    """The exit code and the error stream."""
    code = entered(monkeypatch, *words)
    return code, capsys.readouterr().err


def done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The output of a command that succeeds."""
    code, said = entered(monkeypatch, *words), capsys.readouterr()
    assert code == 0, said.err
    return said.out


def test_mistakes_are_one_line_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for sites, host, problem in (
        ("../../x", "localhost", "bad-site-name"),
        ("a,a", "localhost", "site-name-twice"),
        ("a" * 99, "localhost", "bad-site-name"),
        ("a", "no host", "bad-host"),
    ):
        options = ("--sites", sites, "--host", host)
        code, said = typed(monkeypatch, capsys, "federation", "init", tmp_path / "new", *options)
        assert code == 2 and len(said.splitlines()) == 1 and f"[{problem}]" in said, said
    assert list(tmp_path.iterdir()) == []
    for words in (("server",), ("status",), ("add", "x"), ("remove", "x"), ("rotate", "x"), ("renew",)):
        code, said = typed(monkeypatch, capsys, "federation", words[0], tmp_path, *words[1:])
        assert code == 2 and "[no-federation-here]" in said
    code, said = typed(monkeypatch, capsys, "site", "join", tmp_path, "--data", tmp_path)
    assert code == 2 and "[site-file-missing]" in said and "site.toml" in said


def test_status_and_doctor_of_a_federation_that_does_not_run(
    federation: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = done(monkeypatch, capsys, "federation", "status", federation)
    assert "not running; start it with" in shown and "north" in shown
    code, said = typed(monkeypatch, capsys, "federation", "status", federation, "--wait", "0.1")
    assert code == 2 and "[sites-not-connected]" in said and "north, south" in said
    assert entered(monkeypatch, "doctor", "--federation", federation) == 2
    assert "WRONG the server is not running" in capsys.readouterr().out


def test_sites_are_added_get_new_keys_and_are_removed(
    federation: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout.open(federation)
    assert "bundles/east; give it" in done(monkeypatch, capsys, "federation", "add", federation, "east")
    before = {name: layout.public_key(name).read_bytes() for name in layout.sites}
    assert "bundles/east/site.key" in done(monkeypatch, capsys, "federation", "rotate", federation, "east")
    after = {name: layout.public_key(name).read_bytes() for name in layout.sites}
    assert [name for name in before if before[name] != after[name]] == ["east"] and len(after) == 3
    assert "rejected from now on" in done(monkeypatch, capsys, "federation", "remove", federation, "east")
    assert layout.sites == ["north", "south"]
    assert "restart the server" in done(monkeypatch, capsys, "federation", "renew", federation)


def test_init_says_how_to_get_nginx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("atoll.deploy.proxy.shutil.which", lambda *_, **__: None)
    for options, wanted, missing in (((), "apt-get install nginx-light", "trusted network."), *NO_PROXY):
        folder = tmp_path / f"federation{len(options)}"
        words = ["atoll", "federation", "init", str(folder), "--sites", "a", "--host", "localhost", *options]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr().out
        assert not ended.value.code and wanted in said and missing not in said
        lines = [finding.text for finding in examine(folder) if not finding.ok]
        assert any("nginx" in line for line in lines) == (not options)


NO_PROXY = [(("--no-proxy",), "can run code on all sites", "nginx")]


def test_waiting_ends_with_the_server(federation: Path) -> None:
    layout = Layout.open(federation)
    layout.log.write_text("2026-01-01 starting\n2026-01-01 port 1: cannot be opened\n")
    with refused(SiteError, "server-ended", "port 1: cannot be opened", layout.log):
        wait_for_sites(layout, 60, starting=0)


def test_waiting_ends_when_the_server_has_ended(federation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was running at the first look, and its lock is free at the second."""
    layout = Layout.open(federation)
    layout.log.parent.mkdir(exist_ok=True)
    layout.log.write_text("ready: sites north, south may join\nstopping\nstopped\n")
    looks = iter([True, True, False])
    monkeypatch.setattr(control, "_status", lambda _: Status(next(looks), [SiteStatus("north", "offline")], []))
    monkeypatch.setattr(control.time, "sleep", lambda _: None)
    with refused(SiteError, "server-ended", "has ended", "stopping | stopped", str(federation)):
        wait_for_sites(layout, 60)


def test_a_certificate_that_expires_soon_is_reported(federation: Path) -> None:
    layout = Layout.open(federation)
    made = certificates.make_server_certificate(
        certificates.read_certificate(layout.ca),
        certificates.read_private_key(layout.server / "ca.key"),
        certificates.read_private_key(layout.server / "server.key"),
        layout.host,
        datetime.now(UTC) - timedelta(days=720),
    )
    (layout.server / "server.crt").write_bytes(certificates.certificate_bytes(made))
    (warning,) = status(layout).warnings
    assert "server.crt expires on" in warning and "atoll federation renew" in warning


def test_status_is_shown_again_and_again(
    federation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hello = federation / "state" / "hello"
    hello.mkdir()
    work = {"last_task": "2026-01-02 03:04:05 UTC", "tasks": 7, "bytes_down": 2_000_000, "bytes_up": 1000}
    (hello / "north.json").write_text(json.dumps({"sizes": {"train": 30, "test": 10}, "work": work}))
    watching = Program(["federation", "status", federation, "--watch", "0.1", "--json"], tmp_path / "out")
    watching.says("2026-01-02 03:04:05", 60, times=3)
    watching.process.send_signal(signal.SIGINT)
    assert watching.ends() == 0
    first, *_ = watching.text().splitlines()
    assert json.loads(first)["sites"][0]["hello"]["work"] == work
    shown = done(monkeypatch, capsys, "federation", "status", federation)
    assert all(word in "".join(shown.split()) for word in ("40", "2.0MB", "1.0kB"))


def test_status_says_what_became_of_a_site_s_replies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the run directory of the present or last run; one that was moved away says nothing."""
    run = atoll.search("fedavg", made_table(clients=2), out=tmp_path / "run", rounds=1, hidden=[2], workers=0)
    layout = create_federation(tmp_path / "federation", list(run.clients), "localhost", 9443)
    (layout.state / "hello").mkdir()
    for name, folder in zip(run.clients, (tmp_path / "run", tmp_path / "gone"), strict=True):
        (layout.state / "hello" / f"{name}.json").write_text(json.dumps({"run": str(folder)}))
    first, second = status(layout).sites
    assert first.account == run.clients[first.name] and first.account["used"] > 0 and second.account == {}
    shown = done(monkeypatch, capsys, "federation", "status", layout.folder)
    assert "".join(f"{first.account['used']} of {first.account['asked']}".split()) in "".join(shown.split())


def test_joining_shows_asks_and_can_be_declined(federation: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,label\n1,ill\n2,well\n3,ill\n")
    bundle = federation / "bundles" / "north"
    declined = join(bundle, tmp_path / "rows.csv", "y\nn\n")
    assert declined.returncode == 0
    assert "site 'north': 3 rows, 1 columns (x)" in declined.stdout and "ill: 2, well: 1" in declined.stdout
    assert "may the number of rows per class leave this site" in declined.stdout
    assert not read_site(bundle / "site.toml").share_labels, "nothing is written before the last yes"
    assert not (bundle / "work").exists()
    silent = join(bundle, tmp_path / "rows.csv", "")
    assert silent.returncode == 130 and not (bundle / "work").exists()


def test_joining_with_data_that_cannot_be_read(
    federation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    words = ("site", "join", federation / "bundles" / "north", "--data", tmp_path / "empty", "--yes")
    code, said = typed(monkeypatch, capsys, *words)
    assert code == 2 and "[data-folder-empty]" in said and len(said.splitlines()) == 1


def test_the_start_scripts_call_the_right_commands(federation: Path, tmp_path: Path) -> None:
    """With a program `atoll` that tells what it was asked to do."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "atoll").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "bin" / "atoll").chmod(0o755)
    paths = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    for script, argument, wanted in (
        (federation / "start-server.sh", "", f"federation server {federation}"),
        (federation / "bundles" / "north" / "join.sh", "d", f"site join {federation}/bundles/north --data d"),
    ):
        command = [str(script), *([argument] if argument else [])]
        said = subprocess.run(command, env=os.environ | paths, capture_output=True, text=True, check=True).stdout
        assert said.strip() == wanted
