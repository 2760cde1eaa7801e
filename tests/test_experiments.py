"""Every experiment file that ships can be started, and so can the commands that the READMEs print."""

from __future__ import annotations

import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from atoll.cli.app import app
from atoll.config import read_file, resolve
from atoll.errors import UserError
from atoll.registry import names
from atoll.run.assemble import assemble, with_options
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


@pytest.mark.parametrize(
    "file", [file for file in FILES if file.parent.name in ("moefl", "realtime")], ids=lambda file: file.stem
)
def test_a_search_says_how_it_ends(file: Path) -> None:
    """So that a preset that changes does not change what was measured."""
    raw = read_file(file)
    if raw["method"] in ("moefl", "realtime") and raw.get("preset") != "paper":
        assert "finish" in raw[raw["method"]]


# -- the commands of the READMEs ---------------------------------------------------------------------------------------

READMES = sorted(FOLDER.glob("*/README.md"))
BLOCK = re.compile(r"^ *```\n(.*?)^ *```", re.S | re.M)
# Every command is written down instead of carried out; a program that prints a number prints 1.
SHELL = r"""
PATH=
exec 3>&1 >/dev/null
atoll() { printf '%s\037' "$@" >&3; echo >&3; }
python() { echo 1; }
"""
COMMANDS = typer.main.get_command(app)


def printed(readme: Path) -> list[list[str]]:
    """The words of all commands of a page, in loops and functions too, as a shell passes them."""
    blocks = [block for block in BLOCK.findall(readme.read_text(encoding="utf-8")) if re.search(r"\batoll ", block)]
    script = SHELL + "\n".join(map(textwrap.dedent, blocks))
    done = subprocess.run(["bash", "-c", script], cwd=FOLDER.parent, capture_output=True, text=True, check=False)
    assert "syntax error" not in done.stderr, done.stderr
    return [line.split("\037")[:-1] for line in done.stdout.split("\n") if line]


def parsed(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The command and its options; `click.UsageError` for one that does not exist."""
    command, rest, path = COMMANDS, words, list[str]()
    while isinstance(command, click.Group):
        name, *rest = rest
        path.append(name)
        assert name in command.commands, f"no command {name!r}"
        command = command.commands[name]
    return " ".join(path), command.make_context(path[-1], rest).params


def settings_of(command: str, options: dict[str, Any]) -> None:
    """Raise what the command would raise about its experiment file and its settings."""
    given = options.get("settings") or []
    settings = [one for one in given if not re.search(r"=(\.\.\.)?$", one)]  # a value may be left to the reader
    if command in ("run", "sweep", "tune") and str(options["target"]).startswith("experiments/"):
        places = {"clients": "data.clients", "partition": "data.partition", "device": "engine.device"}
        places |= {name: name for name in ("data", "rounds", "preset", "seed")}
        own = {place: options[name] for name, place in places.items() if name in options}
        methods = (options.get("methods") or "").split(",")
        raw = assemble(str(FOLDER.parent / options["target"]), own if methods == [""] else {}, settings)
        for method in methods:
            resolve(of_method(raw, method) if method else raw)
    if command == "retrain":
        method = "retrain_central" if options["central"] else "retrain"
        made = {name: {"space": "fixed", "model": name} for name in options["pick"].split(",") if name == "resnet18"}
        raw = {"method": method, "data": {"name": "mnist"}, **({method: {"networks": made}} if made else {})}
        resolve(with_options(raw, {"rounds": options["rounds"]}, settings))


def folder_of(command: str, options: dict[str, Any]) -> Path | None:
    """Where the command writes its runs."""
    if command not in ("run", "sweep", "tune", "retrain", "baselines"):
        return None
    if options["out"] is not None:
        return Path(options["out"])
    if command == "baselines":
        return Path(f"{options['directory']}-baselines")
    stem = Path(options.get("target") or "").stem
    return {"sweep": Path("runs") / stem, "tune": Path("runs") / f"{stem}-tuning"}.get(command)


@pytest.mark.parametrize("readme", READMES, ids=lambda readme: readme.parent.name)
def test_the_commands_of_its_readme_can_be_started(readme: Path) -> None:
    """Each has a folder of its own, so that all of a page can be carried out one after the other."""
    found, folders = printed(readme), dict[Path, list[str]]()
    assert len(found) >= 3
    for words in found:
        shown = f"{readme.parent.name}: atoll {' '.join(words)}"
        try:
            command, options = parsed(words)
            settings_of(command, options)
        except (click.UsageError, UserError) as problem:
            pytest.fail(f"{shown}: {problem}")
        folder = folder_of(command, options)
        if folder is not None:
            assert folders.setdefault(folder, words) == words, f"{shown}: {folder} holds {' '.join(folders[folder])}"


def test_a_wrong_command_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("```\nF=runs/x\nfor s in 1 2; do atoll run fedavg --seed $s --out $F; done\n```\n")
    assert printed(page) == [["run", "fedavg", "--seed", s, "--out", "runs/x"] for s in ("1", "2")]
    with pytest.raises(click.UsageError, match="--sed"):
        parsed(["run", "fedavg", "--sed", "1"])
    with pytest.raises(UserError, match="ronds"):
        settings_of(*parsed(["run", "experiments/fedavg/digits.toml", "--set", "fedavg.ronds=1"]))
