"""Unit files, read by systemd itself where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from atoll.deploy import create
from atoll.deploy.bundle import Bundle
from atoll.deploy.units import install_server, install_site, user_units
from deploy.test_commands import done, typed
from deployment import write_rows


def verified(unit: Path) -> None:
    """systemd finds nothing to say about it."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    command = ["systemd-analyze", "verify", "--user", "--man=no", str(unit)]
    variables = os.environ | {"XDG_RUNTIME_DIR": str(unit.parent)}
    said = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert said.returncode == 0 and unit.name not in said.stderr, said.stderr


def test_units_are_accepted_by_systemd(tmp_path: Path) -> None:
    layout = create.create_federation(tmp_path / "a b 50% $HOME" / "federation", ["north"], "localhost", 8443)
    server = install_server(layout, tmp_path / "units")
    site = install_site(Bundle.open(layout.bundles / "north"), tmp_path / 'my "data"', "kind", tmp_path / "units")
    assert [server.name, site.name] == ["atoll-federation-8443.service", "atoll-site-north.service"]
    text = site.read_text()
    assert '50%% $$HOME/federation/bundles/north" "--data"' in text and 'my \\"data\\""' in text
    assert '"--label" "kind" "--yes"' in text
    verified(server)
    verified(site)


def test_the_commands_write_units_and_say_how_to_start_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    layout = create.create_federation(tmp_path / "federation", ["north"], "localhost", 8443)
    assert "systemctl --user enable --now" in done(monkeypatch, capsys, "federation", "install", layout.folder)
    words = ("site", "install", layout.bundles / "north", "--data")
    said = done(monkeypatch, capsys, *words, write_rows(tmp_path / "rows.csv"), "--share-labels")
    assert "what stays here: every row" in said
    assert "labels = true" in (layout.bundles / "north" / "site.toml").read_text()
    assert sorted(path.name for path in user_units().iterdir()) == [
        "atoll-federation-8443.service",
        "atoll-site-north.service",
    ]
    code, said = typed(monkeypatch, capsys, *words, tmp_path / "nothing")
    assert code == 2 and len(said.splitlines()) == 1
