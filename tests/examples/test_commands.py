"""The commands of README.md, of docs/choosing.md and of the method pages run: as printed, but shorter."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from programs import Ended, loaded, run  # noqa: F401 (a fixture)

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/choosing.md",
    *(f"docs/{name}.md" for name in ("realtime", "moefl", "nevofed", "fedrl", "decnas")),
)
FOLDERS = ("experiments/", "mnist", "simulation.traces=lte")  # what needs a folder of data sets
COMMANDS = re.compile(r"^```(?:sh)?\n(.*?)^```", re.S | re.M)

SMALLER = {  # appended: of two settings of the same name the last one counts
    "realtime": ["--rounds", "4"],
    "moefl": ["--rounds", "4", "--set", "moefl.population=4", "--set", "moefl.fitness_rounds=1"],
    "nevofed": ["--rounds", "2"],
    "fedrl": ["--rounds", "4", "--set", "fedrl.warmup=1", "--set", "fedrl.retrain=1"],
    "decnas": ["--set", "decnas.start_rounds=1", "--set", "decnas.tune_rounds=[1]"],
}
EXPERIMENT = """
[data]
name = "wine"
clients = 3
[stop]
macs = 1_000_000
[moefl]
rounds = 4
population = 4
fitness_rounds = 1
"""


def commands(page: str) -> list[list[str]]:
    """The words of every line of the page that starts with `atoll`."""
    blocks = "".join(COMMANDS.findall((ROOT / page).read_text(encoding="utf-8")))
    lines = [line.removeprefix(".venv/bin/") for line in blocks.splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(("atoll ", ".venv/bin/atoll "))]


def shorter(words: list[str]) -> list[str]:
    """The command on less data, with fewer rounds or seeds, in this process."""
    command, *rest = words
    if command == "run":
        images = ["--clients", "4", "--set", "data.rows=240"] if "digits" in rest else []
        return [*words, *images, *SMALLER[rest[0]], "--workers", "0"]
    if command == "retrain":
        return [*words, "--rounds", "1", "--workers", "0"]
    if command == "sweep":
        return [*words, "--seeds", "2", "--workers", "0"]
    return words


@pytest.fixture(name="place")
def place_of_a_reader(tmp_path: Path) -> Path:
    """A folder with the files that a reader of the pages would have."""
    hospitals = tmp_path / "hospitals"
    hospitals.mkdir()
    for name, shift in (("north", 0), ("south", 3), ("west", 6)):
        rows = [
            f"{40 + (7 * i + shift) % 50},{100 + (11 * i) % 60},{'ill' if (7 * i + shift) % 50 > 25 else 'well'}"
            for i in range(60)
        ]
        (hospitals / f"{name}.csv").write_text("\n".join(["age,pressure,label", *rows]) + "\n")
    (tmp_path / "new.csv").write_text("age,pressure\n45,120\n85,130\n")
    (tmp_path / "FILE.toml").write_text(EXPERIMENT)
    return tmp_path


@pytest.mark.deploy
@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(page: str, place: Path) -> None:
    found = commands(page)
    assert len(found) >= 2
    if page == "README.md":
        first = run(
            "run", "realtime", "--data", "wine", "--rounds", "2", "--workers", "0", "--out", "runs/first", cwd=place
        )
        assert first.code == 0  # `make run` makes it for the reader
    for words in found:
        if words[0] == "dashboard":
            continue  # serves until it is stopped: tests/dashboard
        if any(folder in word for word in words for folder in FOLDERS) and "ATOLL_DATA" not in os.environ:
            continue
        done: Ended = run(*shorter(words), cwd=place)
        assert done.code == 0, f"{page}: atoll {shlex.join(words)}\n{done.err}"
