"""The user's side of a run on a federation: submit it to Flower's SuperLink, then follow the run directory.

Nothing of Flower is imported here: its command is called, with an environment of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll import errors
from atoll.config import Experiment, read_file, resolve, settings_table
from atoll.core.ledger import Account, account_from_plain
from atoll.errors import AtollError, ConfigError, Paused, SiteError
from atoll.extras import require
from atoll.federation.engines import Request
from atoll.run.launch import Stop
from atoll.run.loop import Watcher, report_notes, report_set_aside
from atoll.run.reader import Run, load
from atoll.store.files import replace_file

REQUEST, STOP, OUTCOME = "request.json", "stop", "outcome.json"

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "atoll-run"
version = "1.0.0"
description = "A run of Atoll"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "atoll"

[tool.flwr.app.components]
serverapp = "atoll_run.server:app"
clientapp = "atoll_run.client:app"

[tool.flwr.app.config]
request = ""
"""
FILES = {
    "pyproject.toml": PROJECT,
    "README.md": "A run of Atoll.\n",
    "atoll_run/__init__.py": "",
    "atoll_run/server.py": "from atoll.deploy.flower import server_program\n\napp = server_program.app\n",
    "atoll_run/client.py": "from atoll.deploy.flower import node_program\n\napp = node_program.app\n",
}


def write_app(folder: Path) -> None:
    """Write the app's files."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


PAUSE = 0.3  # seconds between two looks at the run directory
PATIENCE = 300.0  # seconds that the SuperLink may be silent: it may be restarted during a run, which then continues
SUBMITTING = 120.0
# Settings that distribute data, which sites have already.
NOT_HERE = ("clients", "rows", "test_rows", "client_column", "holdout_clients", "exclude")
CONNECTION = "atoll"  # in the federation's own Flower configuration
ENDED = frozenset({"completed", "failed", "stopped", "finished"})


@dataclass(frozen=True)
class SuperLink:
    """Flower's server, beside which the loop of a run runs. Implements `RemoteLoop`."""

    environment: dict[str, str]  # of Flower's command
    connection: str  # in Flower's configuration
    requests: Path  # a folder that the server's program reads
    ending: Callable[[int], str | None]  # Flower's number of a run -> how it ended, None while it runs
    cancel: Callable[[int], None] = lambda number: None
    look_every: float = 10.0  # seconds between two questions whether the server's program still runs

    def start(
        self, experiment: Experiment, out: Path, watcher: Watcher | None = None, stop: Stop = lambda: False
    ) -> None:
        plain = experiment.model_dump(mode="json", exclude={"settings"}, exclude_none=True)
        own = experiment.settings.model_dump(mode="json", exclude_none=True)
        table = {**plain, settings_table(experiment.method): own}
        request = {"action": "start", "experiment": table, "out": str(out.resolve())}
        _follow(self, request, _Follower(out, watcher, 0), stop)

    def resume(
        self,
        out: Path,
        rounds: int | None = None,
        accept_changes: bool = False,
        watcher: Watcher | None = None,
        stop: Stop = lambda: False,
    ) -> None:
        request = {"action": "resume", "out": str(out.resolve()), "rounds": rounds, "accept_changes": accept_changes}
        _follow(self, request, _Follower(out, watcher, len(load(out).history)), stop)


def open_engine(request: Request) -> SuperLink:
    """The SuperLink of the federation that the request names: the loop runs beside it."""
    if request.engine.federation is None:
        raise ConfigError(
            "engine.name = 'flower': a run needs its federation; start it with: atoll run FILE --federation DIR",
            code="federation-not-named",
        )
    refuse_unsuited(request)
    require("flower")
    return superlink_of(Path(request.engine.federation))


def refuse_unsuited(request: Request) -> None:
    """A run that cannot be had on sites is a `ConfigError` before anything starts."""
    if request.virtual:
        raise ConfigError(
            "simulation: sites are on a real network, which cannot be virtual; leave the table out",
            code="real-network-engine",
        )
    if request.centralised:
        raise ConfigError(
            f"method = {request.method!r}: needs all data in one place, and sites keep theirs; use another",
            code="centralised-data-needed",
        )
    settings = request.data
    for name in NOT_HERE:
        if getattr(settings, name) is not None:
            raise ConfigError(
                f"data.{name}: sites have their own data, which is not distributed; leave it out, or name the sites "
                "to use in data.only",
                code="data-held-by-sites",
            )
    if settings.partition not in (None, "natural"):
        raise ConfigError(
            f"data.partition = {settings.partition!r}: every site holds its own data; leave it out",
            code="data-held-by-sites",
        )


def superlink_of(federation: Path) -> SuperLink:
    """The SuperLink of the federation in this directory."""
    from atoll.deploy.certificates import refuse_invalid
    from atoll.deploy.control import Control
    from atoll.deploy.layout import Layout
    from atoll.deploy.supervisor import flower_environment

    layout = Layout.open(federation)
    refuse_invalid(layout)

    def ending(number: int) -> str | None:
        found = [run for run in Control(layout).runs() if run.id == number]
        if not found:
            return "the SuperLink does not know it any more"
        return f"{found[0].status} {found[0].detail}".strip() if found[0].status in ENDED else None

    def cancel(number: int) -> None:
        Control(layout).stop_run(number)

    environment = flower_environment(layout.flower_home)
    return SuperLink(environment, CONNECTION, layout.state / "requests", ending, cancel)


def _follow(superlink: SuperLink, request: dict[str, Any], follower: _Follower, stop: Stop) -> None:
    """Submit a request and return when the run has ended; raise what the server's program has raised."""
    folder = superlink.requests / uuid.uuid4().hex
    folder.mkdir(parents=True)
    replace_file(folder / REQUEST, json.dumps(request).encode())
    write_app(folder / "app")
    try:
        _wait(superlink, folder, _submit(superlink, folder), follower, stop)
        outcome = json.loads((folder / OUTCOME).read_bytes())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if outcome["error"] is not None:
        raise _error(outcome["error"])(outcome["text"], code=outcome["code"])


def _wait(superlink: SuperLink, folder: Path, number: int, follower: _Follower, stop: Stop) -> None:
    """Until the server's program has written its outcome, or cannot do so any more."""
    looked = answered = time.monotonic()
    try:
        while not (folder / OUTCOME).exists():
            follower.look()
            if stop():
                (folder / STOP).touch()
            if time.monotonic() - looked > superlink.look_every:
                looked = time.monotonic()
                try:
                    ending = superlink.ending(number)
                except SiteError as problem:
                    if looked - answered > PATIENCE:
                        raise Paused(str(problem), code="link-silent") from None
                    continue
                answered = looked
                if ending is not None and not (folder / OUTCOME).exists():
                    raise Paused(
                        f"the server's program has ended ({ending}); see the federation's logs for why",
                        code="server-program-ended",
                    )
            time.sleep(PAUSE)
        follower.look()
    except KeyboardInterrupt:
        superlink.cancel(number)
        raise


def _submit(superlink: SuperLink, folder: Path) -> int:
    """Flower's number of the run that the SuperLink has begun."""
    setting = f'request="{folder.resolve()}"'
    command = ["flwr", "run", str(folder / "app"), superlink.connection, "--run-config", setting, "--format", "json"]
    try:
        done = subprocess.run(
            command, env=superlink.environment, capture_output=True, text=True, timeout=SUBMITTING, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise SiteError(f"flwr run: {problem}; is the federation's server running?", code="flower-run-failed") from None
    try:
        answer = json.loads(done.stdout[done.stdout.index("{") :])
        return int(answer["run-id"])
    except (ValueError, KeyError, TypeError):
        said = " ".join((done.stdout + done.stderr).split())
        raise SiteError(
            f"the SuperLink did not accept the run ({said}); is the federation's server running?",
            code="link-refused-run",
        ) from None


def _error(name: str) -> type[AtollError]:
    found = getattr(errors, name, AtollError)
    return found if isinstance(found, type) and issubclass(found, AtollError) else AtollError


class _Follower:
    """Informs a watcher of the rounds that appear in a run directory."""

    def __init__(self, out: Path, watcher: Watcher | None, seen: int) -> None:
        """`seen`: how many events the run directory has already."""
        self._out, self._watcher, self._seen = out, watcher, seen
        self._noted = seen > 0  # whether the watcher knows what there is to know before the first round
        self._experiment: Experiment | None = None

    def look(self) -> None:
        if self._watcher is None or not (self._out / "config.toml").exists():
            return
        run = Run(self._out)
        events = run.history
        if not self._noted:
            self._noted = True
            report_notes(self._watcher, run.manifest.get("notes", []))
        if len(events) <= self._seen:
            return
        if self._experiment is None:
            self._experiment = resolve(read_file(self._out / "config.toml"), complete=True)
        rounds, patience, total = self._experiment.settings.rounds, self._experiment.patience, Account()
        for number, event in enumerate(events):
            if "ledger" in event:
                total.add(account_from_plain(event["ledger"]))
            if number >= self._seen and "metrics" in event:
                self._watcher.round_done(event["round"], rounds, event["metrics"], total, event["wall_seconds"])
            elif number >= self._seen:
                self._watcher.round_failed(event["round"], event["failed"], event["attempt"], patience)
            report_set_aside(self._watcher, event["round"], event.get("set_aside", {}))
        self._seen = len(events)
