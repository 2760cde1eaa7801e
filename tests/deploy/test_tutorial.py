"""The tutorial's commands, exactly as they are printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from atoll.deploy.supervisor import descendants, stop_all
from deployment import SOURCE, environment, need_nginx

pytestmark = pytest.mark.deploy

TUTORIAL = SOURCE.parent / "docs" / "tutorials" / "three-hospitals.md"
SECONDS = 900


def commands() -> list[str]:
    return re.findall(r"(?ms)^```sh\n(.*?)^```$", TUTORIAL.read_text(encoding="utf-8"))


def test_three_hospitals_on_one_laptop(tmp_path: Path) -> None:
    need_nginx()
    blocks = commands()
    assert len(blocks) >= 8
    program = tmp_path / "bin" / "atoll"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom atoll.cli.app import main\n\nmain()\n")
    program.chmod(0o755)
    place = tmp_path / "laptop"
    place.mkdir()
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    shell = subprocess.Popen(
        ["bash", "-e", "-c", "\n".join(blocks)],
        cwd=place,
        env=environment() | {"PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said, _ = shell.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        logs = "\n".join(f"== {log.name}\n{log.read_text()[-2000:]}" for log in place.glob("*.log"))
        pytest.fail(f"not done after {SECONDS} s\n{logs}")
    finally:
        stop_all([shell.pid, *descendants(shell.pid)])
        shell.wait()
    assert shell.returncode == 0, said + (place / "server.log").read_text()
    assert said.count("online") == 3 and "WRONG" not in said
    assert (place / "run" / "result.json").exists() and (place / "run" / "explained-global" / "formula.txt").exists()
    assert "site south was removed" not in said and "is not allowed here (limits.methods allows: nevofed)" in said
    server = (place / "server.log").read_text()
    assert server.rstrip().endswith("stopped") and "site west is connected" in server
    assert "labels = true" in (place / "federation" / "bundles" / "west" / "site.toml").read_text()
    assert "labels = false" in (place / "federation" / "bundles" / "north" / "site.toml").read_text()
    assert _nobody_left(place), "everything that was started has ended"


def _nobody_left(place: Path) -> bool:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if not any(str(place).encode() in read(path) for path in Path("/proc").glob("[0-9]*/cmdline")):
            return True
        time.sleep(0.2)
    return False


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
