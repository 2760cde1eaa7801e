"""The Python example of docs/guide.md runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide.md"


def test_a_watcher_is_called_after_every_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = (
        block
        for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)
        if "watcher=" in block
    )
    monkeypatch.chdir(tmp_path)
    exec(compile(program, str(PAGE), "exec"), {})
    *rounds, problems, account = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in rounds] == [f"round {number} of 3" for number in (1, 2, 3)]
    assert problems == "[]" and "'asked': 3" in account
