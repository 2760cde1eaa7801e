"""The container files name commands, folders and packages that exist. No builder is needed for that."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import typer

from atoll.cli.app import app

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "containers"


def test_the_services_start_commands_that_exist() -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    assert set(services) == {"server", "north", "south", "west"}
    for service in services.values():
        command: click.Command = typer.main.get_command(app)
        words = list(service["command"])
        while isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        known = {option for one in command.params for option in one.opts}
        assert [word for word in words if word.startswith("--") and word not in known] == []
        mounted = {volume.split(":")[1] for volume in service["volumes"]}
        assert {word for word in words if word.startswith("/")} <= mounted
    build = services["server"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).resolve() == FOLDER / "Containerfile"


def test_the_image_has_the_pinned_torch_and_files_that_exist() -> None:
    text = (FOLDER / "Containerfile").read_text()
    (pinned,) = re.findall(r"torch==\S+", (ROOT / "Makefile").read_text())
    assert f"pip install --no-cache-dir {pinned}\n" in text
    copied = [word for line in re.findall(r"^COPY (.+) \S+$", text, re.M) for word in line.split()]
    assert copied and all((ROOT / name).exists() for name in copied)
    assert re.search(r"^USER atoll$", text, re.M) and "ENTRYPOINT" in text.split("USER atoll")[1]
