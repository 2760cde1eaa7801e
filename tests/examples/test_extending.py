"""The examples of docs/extending.md run as they are written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from programs import ATOLL

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"


@pytest.mark.deploy
def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    programs = []
    for block in blocks:
        named = re.match(r"# (\w+\.py)\n", block)
        if named:
            (tmp_path / named[1]).write_text(block)
        else:
            programs.append(block)
    assert {path.name for path in tmp_path.iterdir()} == {"my_method.py", "my_data.py", "test_my_method.py"}
    assert len(programs) == 2
    for program in programs:
        (tmp_path / "program.py").write_text(program)
        done = run(tmp_path, "program.py")
        assert done.returncode == 0 and 0 <= float(done.stdout) < 0.5, done.stderr
    command = ["run", "my_method:Noisy", "--data", "my_data:TWO_MOONS", "--rounds", "1", "--workers", "1"]
    done = run(tmp_path, ATOLL, *command)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs" / "Noisy-TWO_MOONS-1" / "result.json").exists()
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "resumed", "test_my_method.py")
    assert done.returncode == 0, done.stdout


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
