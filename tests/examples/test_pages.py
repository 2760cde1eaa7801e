"""The commands of docs/pages.md run as they are printed."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from programs import loaded, run  # noqa: F401 (a fixture)

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pages.md"


@pytest.mark.usefixtures("loaded")
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, content in re.findall(r"^```toml\n# (\S+\.toml)\n(.*?)^```", text, re.S | re.M):
        (tmp_path / name).write_text(content)
    commands = "".join(re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M)).splitlines()
    assert len(commands) >= 8
    for command in commands:
        words, _, file = command.partition(" > ")
        program, *arguments = shlex.split(words)
        assert program == "atoll"
        done = run(*arguments, *(["--workers", 0] if arguments[0] == "run" else []), cwd=tmp_path)
        assert done.code == 0, f"{command}: {done.err}"
        if file:
            (tmp_path / file).write_text(done.out)
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {
        "wine.toml",
        "report.html",
        "methods.html",
        "methods.csv",
        "run.json",
        "comparison.json",
    }
    assert json.loads((tmp_path / "run.json").read_bytes())["method"] == "realtime"
    compared = json.loads((tmp_path / "comparison.json").read_bytes())
    assert {row["group"] for row in compared["rows"]} == {"fedavg", "realtime"}
    found = list(tmp_path.glob("runs/methods/*/seed-*/result.json"))
    assert len(found) == 6
    assert all("stop.macs" in json.loads(path.read_bytes())["stopped"] for path in found), "the budget ended each run"
    assert list((tmp_path / "runs" / "tracked" / "tensorboard").iterdir())
