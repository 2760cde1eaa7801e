"""The program that Flower starts beside its link: a ServerApp in which the one loop runs, with Flower's Grid.

It is asked through a folder of files (`follow.py`), because it is started by Flower and not by the user's command.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from atoll.deploy.flower.follow import OUTCOME, REQUEST, STOP
from atoll.deploy.flower.mail import STOPPED
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
        _tell(folder, type(problem).__name__, str(problem), problem.code)
        if problem.exit_code == 1:
            raise  # a fault of ours, which Flower's log shall show in full
    except BaseException as problem:
        if type(problem).__name__ == STOPPED:
            _tell(folder, "Paused", "the run was stopped", "run-stopped")
        else:
            _tell(folder, "AtollError", words(problem), "server-program-failed")
        raise
    else:
        _tell(folder, None, "", "")


def serve(grid: Grid, request: dict[str, Any], stop: Any) -> None:
    """Do what a request asks for."""
    from atoll.config import resolve
    from atoll.run import launch
    from atoll.training.determinism import prepare_environment

    prepare_environment()
    out = Path(request["out"])
    if request["action"] == "start":
        launch.start(resolve(request["experiment"], complete=True), out, stop=stop, grid=grid)
    else:
        accept = bool(request["accept_changes"])
        launch.resume(out, rounds=request["rounds"], accept_changes=accept, stop=stop, grid=grid)


def _tell(folder: Path, kind: str | None, text: str, code: str) -> None:
    replace_file(folder / OUTCOME, json.dumps({"error": kind, "text": text, "code": code}).encode())
