"""The code cells of docs/first_steps.ipynb run, one after the other, without Jupyter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "first_steps.ipynb"


def test_the_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells), "committed without output"
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), f"{NOTEBOOK.name}: {cell['id']}", "exec"), found)
    printed = capsys.readouterr().out
    assert "'high'" in printed and "\n[]\n" in printed and "['class_0', 'class_0', 'class_0'] should be" in printed
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"first_steps", "wineries"}
