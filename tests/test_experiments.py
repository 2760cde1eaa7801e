"""Every experiment file that ships can be started: its settings resolve."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.config import read_file, resolve

FOLDER = Path(__file__).parent.parent / "experiments"
FILES = sorted(FOLDER.rglob("*.toml"))


def test_there_are_experiments_of_every_search() -> None:
    wanted = {"decnas", "fedavg", "fedrl", "moefl", "nevofed", "realtime"}
    assert wanted <= {file.parent.name for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_its_settings_resolve(file: Path) -> None:
    raw = read_file(file)
    assert resolve(raw).method == raw["method"]
