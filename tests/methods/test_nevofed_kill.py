"""A run that is killed, populations and all, goes on to the same result."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from atoll.api import resume, search
from atoll.run.reader import load
from atoll.testing import made_table

SETTINGS: dict[str, Any] = {"rounds": 40, "population": 30}
PROGRAM = """
import sys
from atoll.api import search
from atoll.testing import made_table
search("nevofed", made_table(clients=3), out=sys.argv[1], workers=0, rounds=40, population=30)
"""


def outcome(folder: Path) -> dict[str, Any]:
    return {key: value for key, value in load(folder).result.items() if key != "wall_seconds"}


def test_a_killed_run_ends_like_one_that_was_not(tmp_path: Path) -> None:
    data = made_table(clients=3)
    search("nevofed", data, out=tmp_path / "whole", workers=0, **SETTINGS)
    killed = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(killed)])
    try:
        deadline = time.monotonic() + 120
        while not (killed / "config.toml").exists() or len(load(killed).rounds) < 2:
            assert time.monotonic() < deadline and process.poll() is None, "the run ended before it could be killed"
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (killed / "result.json").exists()
    resume(killed, data=data, workers=0)
    assert outcome(killed) == outcome(tmp_path / "whole")
