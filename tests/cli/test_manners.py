"""Manners of the command line: JSON on every reading command, and the shell's completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from atoll.cli.app import app
from page_runs import searched

PROGRAM = "from atoll.cli.app import main; main()"


def plain(*command: str) -> Any:
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_reading_commands_speak_json(tmp_path: Path) -> None:
    run = str(searched(tmp_path / "run").path)
    assert plain("show", run)["method"] == "realtime"
    assert plain("clients", run)["clients"]["north"]["asked"] == 12
    assert plain("cost", run)["runs"][0]["account"]["bytes_up"] == 6000
    assert plain("compare", run)["rows"][0]["test_error"] == [0.2]
    assert "fedavg" in plain("methods") and plain("devices")["phone"]["macs_per_second"] > 0
    assert {entry["name"] for entry in plain("datasets")} >= {"digits", "wine"}
    assert plain("doctor")["versions"]["torch"].startswith("2.13")
    found = plain("partition", "wine", "--clients", "3")
    assert sum(map(sum, found["clients"].values())) == 178 and len(found["classes"]) == 3


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("atoll rep", "report"),
        ("atoll run rea", "realtime"),
        ("atoll run fedavg --data win", "wine"),
        ("atoll dash", "dashboard"),
    ],
)
def test_the_shell_completes_commands_methods_and_data(words: str, wanted: str) -> None:
    environment = {
        **os.environ,
        "_ATOLL_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    program = f"import sys; sys.argv = ['atoll']; {PROGRAM}"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert wanted in done.stdout.split(), done.stderr[-500:]
