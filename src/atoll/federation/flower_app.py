"""The app that Flower runs: a folder with a few lines of Python that lead back to this package, which every node has.

Its one setting names a folder, through which the user's command and the server's program talk:

    request.json    what to do: begin a run or go on with one
    stop            if this file appears, stop after the round, with a checkpoint
    outcome.json    written at the end: finished, or which error in which words
"""

from __future__ import annotations

from pathlib import Path

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
    "atoll_run/server.py": "from atoll.federation import flower_server\n\napp = flower_server.app\n",
    "atoll_run/client.py": "from atoll.federation import flower_node\n\napp = flower_node.app\n",
}


def write_app(folder: Path) -> None:
    """Write the app's files."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
