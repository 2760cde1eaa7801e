"""Every experiment file that ships can be started: its settings resolve."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.config import read_file, resolve
from atoll.registry import names
from atoll.run.sweep import of_method

FOLDER = Path(__file__).parent.parent / "experiments"
FILES = sorted(FOLDER.rglob("*.toml"))


def test_there_are_experiments_of_every_search() -> None:
    wanted = {"decnas", "fedavg", "fedrl", "moefl", "nevofed", "realtime"}
    assert wanted <= {file.parent.name for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_its_settings_resolve(file: Path) -> None:
    raw = read_file(file)
    # A file for `atoll sweep --methods` names none: it has a table for each.
    methods = [raw["method"]] if "method" in raw else [name for name in raw if name in names("methods")]
    assert methods
    for method in methods:
        assert resolve(of_method(raw, method)).method == method
