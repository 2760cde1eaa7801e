"""README.md: its Python runs, its links and figures exist, its methods are those that are registered."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

import atoll
from atoll.registry import names

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_lines_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", TEXT, re.S | re.M)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(atoll, "search", partial(atoll.search, workers=0))  # processes take seconds to start
    found: dict[str, object] = {}
    exec(compile(program, "README.md", "exec"), found)
    assert "'test_error': 0." in capsys.readouterr().out and "model" in found


def test_links_lead_to_files() -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", TEXT)
    assert len(targets) > 20
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_every_method_is_named() -> None:
    assert [name for name in names("methods") if f"`{name}`" not in TEXT] == []
