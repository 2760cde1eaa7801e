"""The dashboard as a server: who may read, what it lists, what it streams. Nothing here needs a browser."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from atoll.cli.app import app as commands
from atoll.cli.federation import state_of
from atoll.dashboard.app import Dashboard, Guard
from atoll.dashboard.followed import FollowedRun, identifier
from atoll.dashboard.monitor import Monitor, run_folders
from atoll.dashboard.pages import FederationState, index_page, run_page, shell, side_page
from atoll.dashboard.server import DashboardServer
from atoll.deploy import control
from atoll.deploy.control import SiteStatus
from atoll.errors import ConfigError, RunDirectoryError
from atoll.store.lock import lock_run
from page_runs import event, front_metrics, searched, simulated_tasks, write_run
from refusals import refused

TOKEN, HOST = "a-secret", "127.0.0.1:8470"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    searched(tmp_path / "runs" / "first")
    write_run(tmp_path / "runs" / "deep" / "er" / "second", "fedavg")
    return tmp_path / "runs"


@pytest.fixture
def client(root: Path) -> Iterator[TestClient]:
    dashboard = Dashboard(Monitor(root))
    with TestClient(Guard(dashboard.application(), TOKEN, {HOST}), base_url=f"http://{HOST}") as found:
        dashboard.monitor.look()
        yield found


def followed(path: Path) -> FollowedRun:
    run = FollowedRun(path, path.name)
    run.refresh()
    return run


# -- who may read ------------------------------------------------------------------------------------------------------


def test_the_token_opens_the_list(client: TestClient) -> None:
    answer = client.get(f"/{TOKEN}/")
    assert answer.status_code == 200 and "first" in answer.text and "deep/er/second" in answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:9", "127.0.0.1:8470.evil.example", "", "[::1]:8470"]
)
def test_another_host_name_is_refused(client: TestClient, host: str) -> None:
    assert client.get(f"/{TOKEN}/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_is_read_only(client: TestClient, method: str) -> None:
    assert client.request(method, f"/{TOKEN}/").status_code == 405


@pytest.mark.parametrize(
    "path", ["/", "/events", "/A-secret/", "/a-secre/", "/a-secret2/", "//a-secret/", "/static/page.css", "/%00/"]
)
def test_without_the_token_there_is_nothing(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404 and "first" not in answer.text


def traversals() -> list[str]:
    steps = ["..", "%2e%2e", "..%2f", "%2e%2e%2f", "....//", "..\\", "..%5c", "%252e%252e", ".%2e", "..;"]
    ends = ["etc/passwd", "manifest.json", "first/config.toml", "events.jsonl", "run"]
    places = ["run/", "static/"]
    return [f"{place}{step}/{end}" for step in steps for end in ends for place in places]


@pytest.mark.parametrize("path", traversals())
def test_no_address_leads_to_a_file(client: TestClient, path: str) -> None:
    answer = client.get(f"/{TOKEN}/{path}")
    assert answer.status_code == 404 and "root:" not in answer.text and "method" not in answer.text


# -- what is there -----------------------------------------------------------------------------------------------------


def test_a_run_has_a_page_and_an_unknown_one_has_none(client: TestClient, root: Path) -> None:
    answer = client.get(f"/{TOKEN}/run/{identifier(root / 'first')}")
    assert answer.status_code == 200 and "realtime on made" in answer.text and "The front" in answer.text
    for kind in ("", "/events", "/report"):
        assert client.get(f"/{TOKEN}/run/0123456789abcdef{kind}").status_code == 404


def test_several_runs_side_by_side(client: TestClient, root: Path) -> None:
    names = [identifier(root / "first"), identifier(root / "deep" / "er" / "second")]
    text = client.get(f"/{TOKEN}/side?run={names[0]}&run={names[1]}&run=nothing").text
    assert "2 runs side by side" in text and "Sent so far" in text
    assert "Pick two or more" in client.get(f"/{TOKEN}/side").text


def test_assets_are_served_and_nothing_else(client: TestClient) -> None:
    assert "color-scheme" in client.get(f"/{TOKEN}/static/page.css").text
    assert client.get(f"/{TOKEN}/static/live.js").headers["content-type"].startswith("text/javascript")
    assert client.get(f"/{TOKEN}/static/app.py").status_code == 404


def test_the_full_report_comes_from_a_process_of_its_own(client: TestClient, root: Path) -> None:
    answer = client.get(f"/{TOKEN}/run/{identifier(root / 'first')}/report")
    assert answer.status_code == 200 and "residual" in answer.text
    assert "sha256-" in answer.headers["content-security-policy"]


def test_drawing_pages_needs_neither_torch_nor_matplotlib(root: Path) -> None:
    import subprocess

    program = (
        "import sys\nfrom pathlib import Path\nfrom atoll.dashboard import app, server\n"
        "from atoll.dashboard.followed import FollowedRun\n"
        "from atoll.dashboard.pages import index_page, run_page, shell, side_page\n"
        "run = FollowedRun(Path(sys.argv[1]), 'x')\nrun.refresh()\nassert run.view is not None, run.reason\n"
        "shell(run_page(run)), shell(index_page([run], 'r')), shell(side_page([run]))\n"
        "print(sorted({'torch', 'matplotlib', 'sklearn', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(root / "first")], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr


# -- following runs ----------------------------------------------------------------------------------------------------


def test_a_run_in_progress_moves_and_ends(tmp_path: Path) -> None:
    run = followed(write_run(tmp_path / "run", "realtime", 9, events=[]).path)
    assert run.state == "stopped" and not run.refresh(), "nobody works on it, and nothing changes"
    lock = lock_run(tmp_path / "run")
    time.sleep(1.05)  # the lock is looked at once a second
    assert run.refresh() and run.state == "running"
    with open(tmp_path / "run" / "events.jsonl", "a") as file:
        file.write(json.dumps(event(1, front_metrics(1))) + "\n")
    assert run.refresh() and run.view is not None and run.view.rounds == 1
    assert "1 of 9 rounds so far" in shell(run_page(run))
    lock.release()
    done = searched(tmp_path / "other")
    (tmp_path / "run" / "result.json").write_bytes((done.path / "result.json").read_bytes())
    assert run.refresh() and run.state == "finished" and "It found 2 networks" in shell(run_page(run))
    assert not run.refresh()


def test_damaged_and_foreign_folders_are_listed_and_never_fatal(tmp_path: Path) -> None:
    good = searched(tmp_path / "good")
    damage = {
        "empty manifest": ("manifest.json", ""),
        "list manifest": ("manifest.json", "[]"),
        "broken events": ("events.jsonl", "{x\n"),
        "foreign events": ("events.jsonl", '{"step": 3}\n'),
        "broken result": ("result.json", "{"),
        "odd result": ("result.json", '{"candidates": 5}'),
        "binary": ("config.toml", "\x00\xff"),
        "old": ("manifest.json", json.dumps({"schema": 1, "method": "x"})),
    }
    for name, (file, text) in damage.items():
        searched(tmp_path / name)
        (tmp_path / name / file).write_text(text)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.toml").write_text("[project]\n")
    (tmp_path / "partial").mkdir()
    (tmp_path / "partial" / "events.jsonl").write_text("")
    monitor = Monitor(tmp_path)
    monitor.look()
    states = {run.name: run.state for run in monitor.runs()}
    assert states["good"] == "finished" and states["old"] == "foreign" and states["partial"] == "foreign"
    text = shell(index_page(monitor.runs(), "root"))
    for name in (*damage, "theirs"):
        run = monitor.run(identifier(tmp_path / name))
        assert run is not None and run.state in ("damaged", "foreign"), (name, states[name])
        assert run.reason and run.reason[:40].replace("'", "&#x27;")[:10] in text
        shell(run_page(run))
    before = monitor.version
    monitor.look()
    assert monitor.version == before, "what cannot be read is not read again and again"
    good_events = (good.path / "events.jsonl").read_text()
    (tmp_path / "broken events" / "events.jsonl").write_text(good_events)
    monitor.look()
    repaired = monitor.run(identifier(tmp_path / "broken events"))
    assert repaired is not None and repaired.state == "finished", "a file that was repaired is read again"


def test_links_are_not_followed(tmp_path: Path) -> None:
    searched(tmp_path / "outside" / "secret")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")
    assert list(run_folders(tmp_path / "root")) == []


def test_a_run_that_will_begin_is_waited_for(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, [tmp_path / "soon"])
    monitor.look()
    run = monitor.run(identifier(tmp_path / "soon"))
    assert run is not None and run.state == "waiting" and "has not begun yet" in shell(run_page(run))
    searched(tmp_path / "soon")
    monitor.look()
    assert run.state == "finished"


def test_a_run_on_a_virtual_network_and_failed_attempts(tmp_path: Path) -> None:
    events = [*simulated_tasks(3), {"round": 4, "failed": "too few clients", "attempt": 1, "clients": {}}]
    text = shell(run_page(followed(write_run(tmp_path / "run", "fedavg", events=events).path)))
    assert "On the virtual network" in text and "Rounds that were repeated" in text and "too few clients" in text


def test_a_federation_is_shown_with_its_sites(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that `atoll federation status` shows, the account of each site with it."""
    made = root.parent / "federation"
    made.mkdir()
    (made / "federation.toml").write_text('host = "localhost"\nport = 8443\nsuperlink_port = 8444\n')
    config = root / "first" / "config.toml"
    config.write_text(
        'method = "realtime"\nseed = 1\n[engine]\nname = "flower"\nfederation = "/srv/fed"\n[realtime]\nrounds = 6\n'
    )
    asked: list[str] = []

    def status(folder: str) -> FederationState:
        asked.append(folder)
        sites = [SiteStatus("north<b>", "online", account={"asked": 12, "used": 11, "failed": {"died": 1}})]
        monkeypatch.setattr(
            control, "status", lambda _: control.Status(True, sites, [], "a note", ["WARNING: it expires"])
        )
        return state_of(str(made))

    dashboard = Dashboard(Monitor(root), status)
    with TestClient(Guard(dashboard.application(), TOKEN, {HOST}), base_url=f"http://{HOST}") as client:
        dashboard.monitor.look()
        for _ in range(3):
            text = client.get(f"/{TOKEN}/run/{identifier(root / 'first')}").text
    assert "The federation" in text and "north&lt;b&gt;" in text and "online" in text and "a note" in text
    assert "11 of 12 used, 1 failed" in text and "WARNING: it expires" in text
    assert asked == ["/srv/fed"], "asked at most every few seconds"


def test_a_federation_that_cannot_be_asked_is_a_note(root: Path) -> None:
    config = root / "first" / "config.toml"
    config.write_text('method = "realtime"\n[engine]\nfederation = "/nowhere"\n[realtime]\nrounds = 6\n')

    def status(folder: str) -> FederationState:
        raise ConfigError(f"{folder}: no federation", code="x")

    dashboard = Dashboard(Monitor(root), status)
    with TestClient(Guard(dashboard.application(), TOKEN, {HOST}), base_url=f"http://{HOST}") as client:
        dashboard.monitor.look()
        assert (
            "its state is not known: /nowhere: no federation"
            in client.get(f"/{TOKEN}/run/{identifier(root / 'first')}").text
        )


# -- the server --------------------------------------------------------------------------------------------------------


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with refused(ConfigError, "port-in-use", taken.getsockname()[1], "--port 0"):
            DashboardServer(tmp_path, taken.getsockname()[1])


def test_the_server_listens_on_this_machine_only(tmp_path: Path) -> None:
    server = DashboardServer(tmp_path, 0)
    assert server.address.startswith("http://127.0.0.1:") and len(server.token) >= 32
    assert server.token != DashboardServer(tmp_path, 0).token


def test_a_root_without_runs_is_one_line(tmp_path: Path) -> None:
    run = CliRunner().invoke
    for place in (tmp_path, tmp_path / "missing"):
        with refused(RunDirectoryError, "no-runs-found", place):
            run(commands, ["dashboard", str(place), "--no-browser", "--port", "0"], catch_exceptions=False)


def test_a_list_of_many_runs_is_quickly_drawn(tmp_path: Path) -> None:
    for number in range(50):
        searched(tmp_path / f"run-{number:02}")
    monitor = Monitor(tmp_path)
    monitor.look()
    page = index_page(monitor.runs(), "root")
    assert len(page.rows) == 50 and "50 in root: 50 finished" in shell(page)
    assert "side by side" in shell(side_page(monitor.runs()))
