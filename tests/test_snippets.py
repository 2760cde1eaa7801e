"""What the pages print can be typed: their TOML is valid, and the commands within their text exist with their options.

Blocks of commands and of Python are executed elsewhere: tests/examples, tests/deploy/test_tutorial.py.
"""

from __future__ import annotations

import re
import shlex
import tomllib

import click
import pytest
import typer

from atoll.cli.app import app
from atoll.config import resolve
from atoll.devices.table import LayerTable
from atoll.federation.faults import FaultSettings
from atoll.registry import GROUPS, names
from atoll.run.sweep import of_method
from scripts import ROOT

PAGES = {
    page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8")
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}
TOML = re.compile(r"^```toml\n(.*?)^```", re.S | re.M)
BLOCK = re.compile(r"^```.*?^```", re.S | re.M)
INLINE = re.compile(r"`atoll ([a-z-][^`]*)`")
SNIPPETS = [
    pytest.param(text, id=f"{page}-{number}")
    for page, whole in PAGES.items()
    for number, text in enumerate(TOML.findall(whole))
]
COMMANDS = typer.main.get_command(app)


@pytest.mark.parametrize("text", SNIPPETS)
def test_toml_can_be_used(text: str) -> None:
    raw = tomllib.loads(text)
    if "rule" in raw:
        assert FaultSettings(**raw).rule
    elif "layers" in raw:
        assert LayerTable.model_validate(tuple(raw["layers"])).root
    elif "project" in raw:
        assert {group.removeprefix("atoll.") for group in raw["project"]["entry-points"]} <= set(GROUPS)
    else:  # an experiment, or some of its tables
        methods = [raw["method"]] if "method" in raw else [name for name in raw if name in names("methods")]
        for method in methods or ["fedavg"]:
            assert resolve({"data": {"name": "wine"}} | of_method(raw, method)).method == method


@pytest.mark.parametrize("page", [page for page, whole in PAGES.items() if INLINE.search(whole)])
def test_commands_in_the_text_exist(page: str) -> None:
    for words in INLINE.findall(BLOCK.sub("", PAGES[page])):
        for line in alternatives(words):
            fault = typing_fault(line)
            assert fault is None, f"{page}: atoll {words}: {fault}"


def alternatives(words: str) -> list[list[str]]:
    """`federation init / server DIR` are two commands: each with the words before and after them."""
    plain = shlex.split(words.replace("[", " ").replace("]", " ").replace("...", " "))
    if "/" not in plain:
        return [plain]
    first, last = plain.index("/") - 1, len(plain) - 1 - plain[::-1].index("/") + 1
    return [[*plain[:first], one, *plain[last + 1 :]] for one in plain[first : last + 1] if one != "/"]


def typing_fault(words: list[str]) -> str | None:
    """What is wrong with a command: an unknown command or option."""
    command, rest = COMMANDS, list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found = command.commands.get(rest[0])
        if found is None:
            return f"no command {rest[0]!r}"
        command = found
        del rest[0]
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
    unknown = [word for word in rest if word.startswith("-") and word.partition("=")[0] not in known]
    return f"no option {unknown[0]}" if unknown else None


def test_a_wrong_command_is_noticed() -> None:
    assert typing_fault(["runn", "fedavg"]) == "no command 'runn'"
    assert typing_fault(["run", "fedavg", "--dat", "wine"]) == "no option --dat"
    assert alternatives("site join / install BUNDLE") == [["site", "join", "BUNDLE"], ["site", "install", "BUNDLE"]]
