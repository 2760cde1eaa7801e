"""The user's side of a run on a federation: hand the request to the link, then follow the run directory.

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
from atoll.core.ledger import Account, Ledger
from atoll.errors import AtollError, Paused, SiteError
from atoll.run.loop import Watcher
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
LINK_PATIENCE = 300.0  # seconds that the link may be silent: it may be restarted under a run, which then goes on
SUBMITTING = 120.0
CONNECTION = "atoll"  # in the federation's own Flower configuration
ENDED = frozenset({"completed", "failed", "stopped", "finished"})


@dataclass(frozen=True)
class Link:
    """How a link is reached: Flower's environment and connection, a folder for requests, and who knows of runs."""

    environment: dict[str, str]
    connection: str
    requests: Path
    over: Callable[[int], str | None]  # Flower's number of a run -> how it ended, None while it goes on
    stop: Callable[[int], None] = lambda number: None
    look_every: float = 10.0  # seconds between two questions whether the server's program still runs


def link_of(experiment: Experiment) -> Link:
    """The link of the experiment's federation."""
    from atoll.deploy.control import Control
    from atoll.deploy.layout import Layout
    from atoll.deploy.supervisor import flower_environment

    layout = Layout.open(Path(str(experiment.engine.federation)))

    def over(number: int) -> str | None:
        found = [run for run in Control(layout).runs() if run.id == number]
        if not found:
            return "the link does not know it any more"
        return f"{found[0].status} {found[0].detail}".strip() if found[0].status in ENDED else None

    def stop(number: int) -> None:
        Control(layout).stop_run(number)

    environment = flower_environment(layout.flower_home)
    return Link(environment, CONNECTION, layout.state / "requests", over, stop)


def start(link: Link, experiment: Experiment, out: Path, **watching: Any) -> Run:
    """Begin a run on the federation and follow it to its end."""
    plain = experiment.model_dump(mode="json", exclude={"settings"}, exclude_none=True)
    table = {**plain, settings_table(experiment.method): experiment.settings.model_dump(mode="json", exclude_none=True)}
    return _through(link, {"action": "start", "experiment": table, "out": str(out.resolve())}, out, **watching)


def resume(link: Link, out: Path, rounds: int | None = None, accept_changes: bool = False, **watching: Any) -> Run:
    """Go on with a run of the federation and follow it to its end."""
    request = {"action": "resume", "out": str(out.resolve()), "rounds": rounds, "accept_changes": accept_changes}
    return _through(link, request, out, **watching)


def _through(
    link: Link,
    request: dict[str, Any],
    out: Path,
    watcher: Watcher | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Run:
    folder = link.requests / uuid.uuid4().hex
    folder.mkdir(parents=True)
    replace_file(folder / REQUEST, json.dumps(request).encode())
    write_app(folder / "app")
    try:
        _wait(link, folder, _submit(link, folder), _Follower(out, watcher, request["action"] == "resume"), stop)
        outcome = json.loads((folder / OUTCOME).read_bytes())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if outcome["error"] is not None:
        raise _error(outcome["error"])(outcome["text"], code=outcome["code"])
    return load(out)


def _wait(link: Link, folder: Path, number: int, follower: _Follower, stop: Callable[[], bool]) -> None:
    """Until the server's program has written its outcome, or cannot do so any more."""
    looked = heard = time.monotonic()
    try:
        while not (folder / OUTCOME).exists():
            follower.look()
            if stop():
                (folder / STOP).touch()
            if time.monotonic() - looked > link.look_every:
                looked = time.monotonic()
                try:
                    ending = link.over(number)
                except SiteError as problem:
                    if looked - heard > LINK_PATIENCE:
                        raise Paused(str(problem), code="link-silent") from None
                    continue
                heard = looked
                if ending is not None and not (folder / OUTCOME).exists():
                    raise Paused(
                        f"the server's program has ended ({ending}); see the federation's logs for why",
                        code="server-program-ended",
                    )
            time.sleep(PAUSE)
        follower.look()
    except KeyboardInterrupt:
        link.stop(number)
        raise


def _submit(link: Link, folder: Path) -> int:
    """Flower's number of the run that the link has begun."""
    setting = f'request="{folder.resolve()}"'
    command = ["flwr", "run", str(folder / "app"), link.connection, "--run-config", setting, "--format", "json"]
    try:
        done = subprocess.run(
            command, env=link.environment, capture_output=True, text=True, timeout=SUBMITTING, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise SiteError(f"flwr run: {problem}; is the federation's server running?", code="flower-run-failed") from None
    try:
        answer = json.loads(done.stdout[done.stdout.index("{") :])
        return int(answer["run-id"])
    except (ValueError, KeyError, TypeError):
        said = " ".join((done.stdout + done.stderr).split())[-300:]
        raise SiteError(
            f"the link did not take the run ({said}); is the federation's server running?", code="link-refused-run"
        ) from None


def _error(name: str) -> type[AtollError]:
    found = getattr(errors, name, AtollError)
    return found if isinstance(found, type) and issubclass(found, AtollError) else AtollError


class _Follower:
    """Tells a watcher of the rounds that appear in a run directory."""

    def __init__(self, out: Path, watcher: Watcher | None, known: bool) -> None:
        self._out, self._watcher = out, watcher
        self._seen = len(load(out).history) if known else 0
        self._experiment: Experiment | None = None

    def look(self) -> None:
        if self._watcher is None or not (self._out / "config.toml").exists():
            return
        events = Run(self._out).history
        if len(events) <= self._seen:
            return
        if self._experiment is None:
            self._experiment = resolve(read_file(self._out / "config.toml"), complete=True)
        rounds, patience, total = self._experiment.settings.rounds, self._experiment.patience, Account()
        for number, event in enumerate(events):
            if "ledger" in event:
                total.add(Ledger.from_plain([event["ledger"]]).rounds[0])
            if number >= self._seen and "metrics" in event:
                self._watcher.round_done(event["round"], rounds, event["metrics"], total, event["wall_seconds"])
            elif number >= self._seen:
                self._watcher.round_failed(event["round"], event["failed"], event["attempt"], patience)
        self._seen = len(events)
