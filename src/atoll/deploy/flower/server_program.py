"""The program that Flower starts beside its SuperLink: a ServerApp in which the loop runs, with Flower's Grid.

It reads its request from a folder (`superlink.py`), because it is started by Flower and not by the user's command.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from atoll.deploy.flower.engine import on_grid
from atoll.deploy.flower.messages import STOPPED
from atoll.deploy.flower.superlink import OUTCOME, REQUEST, STOP
from atoll.errors import AtollError
from atoll.federation.executor import words
from atoll.store.files import replace_file

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    folder = Path(str(context.run_config["request"]))
    try:
        serve(grid, json.loads((folder / REQUEST).read_bytes()), lambda: (folder / STOP).exists())
    except AtollError as problem:
        _report(folder, type(problem).__name__, str(problem), problem.code)
        if problem.exit_code == 1:
            raise  # a fault of Atoll's, which Flower's log shows in full
    except BaseException as problem:
        if type(problem).__name__ == STOPPED:
            _report(folder, "Paused", "the run was stopped", "run-stopped")
        else:
            _report(folder, "AtollError", words(problem), "server-program-failed")
        raise
    else:
        _report(folder, None, "", "")


def serve(grid: Grid, request: dict[str, Any], stop: Any) -> None:
    """Do what a request asks for."""
    from atoll.config import resolve
    from atoll.run import launch
    from atoll.training.determinism import prepare_environment

    prepare_environment()
    out = Path(request["out"])
    if request["action"] == "start":
        launch.start(resolve(request["experiment"], complete=True), out, stop=stop, open_engine=on_grid(grid))
    else:
        accept = bool(request["accept_changes"])
        launch.resume(out, rounds=request["rounds"], accept_changes=accept, stop=stop, open_engine=on_grid(grid))


def _report(folder: Path, kind: str | None, text: str, code: str) -> None:
    replace_file(folder / OUTCOME, json.dumps({"error": kind, "text": text, "code": code}).encode())
