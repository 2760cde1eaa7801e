"""Write the reference pages of the documentation from the code: settings, commands, error codes.

    python tools/reference.py docs/reference

`make docs` calls it. The words are those of the code: comments and descriptions of settings, help texts of commands,
texts of errors. Change them there.
"""

from __future__ import annotations

import ast
import inspect
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import atoll
from atoll import errors
from atoll.cli.app import app
from atoll.config import EngineSettings, Experiment, preset
from atoll.core.stopping import StopSettings
from atoll.data.settings import DataSettings
from atoll.federation.faults import FaultRule
from atoll.federation.trust import RobustSettings
from atoll.methods import find_method
from atoll.privacy.settings import PrivacySettings
from atoll.registry import GROUPS, names
from atoll.simulation.settings import SimulationSettings

GENERATED = "<!-- Written by tools/reference.py from the code. Do not edit. -->\n\n"
# Carriers of a code -> the error that they become, and the places of code and text among their arguments.
CODED = {"RowError": ("DataError", 1, 0), "Problem": ("DataError", 0, 1), "Fault": ("SiteError", 0, 1)}
KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+){1,3}")
LIMITS = {"ge": "at least {}", "gt": "above {}", "le": "at most {}", "lt": "below {}"}
SHARED: dict[str, tuple[type[BaseModel], str]] = {
    "": (Experiment, "At the top of an experiment file."),
    "data": (DataSettings, "Where the data comes from and how it is partitioned: [guide](../guide.md#data)."),
    "engine": (EngineSettings, "How tasks reach clients: [guide](../guide.md#quorum-deadline-and-late-replies)."),
    "simulation": (SimulationSettings, "The [virtual network](../guide.md#the-virtual-network). Without it: none."),
    "stop": (StopSettings, "Limits at which a run ends before its last round: [guide](../guide.md#stop-rules)."),
    "robust": (RobustSettings, "What limits the influence of a single client: [trust](../trust.md#robust-mode)."),
    "faults": (
        FaultRule,
        "Faults of clients, a `[[faults.rule]]` each: [trust](../trust.md#test-your-own-settings). Without it: none.",
    ),
    "privacy": (PrivacySettings, "Differential privacy of single rows: [privacy](../privacy.md). Without it: none."),
}

ABOUT_SETTINGS = """\
Every key of an experiment file, with its default. `--set TABLE.KEY=VALUE` sets it on the command line. Where the
default is *unset*, the data or another setting decides. `small` and `paper` are the values of the presets where they
differ from the default; a run uses `small` unless it names another. What a run has used is in its `config.toml`.
"""
ABOUT_ERRORS = """\
An error of a user is one line that ends with a code: `atoll: ... [unknown-setting]`. The code is stable, the words may
change. `…` stands for a value. Exit codes: 2 something typed or supplied is wrong, 3 the run is paused and can be
resumed, 4 the run directory is damaged.

| code | exit code | texts |
|---|---|---|
"""


# -- settings ----------------------------------------------------------------------------------------------------------


def settings_page() -> str:
    """All tables of an experiment file."""
    text = GENERATED + "# Settings\n\n"
    text += ABOUT_SETTINGS
    for table, (model, words) in SHARED.items():
        head = f"[{table}]" if table else "Top level"
        text += f"\n## {head}\n\n{words}\n\n" + settings_table(model, {}, skip=("settings", *SHARED))
    text += "\n## Methods\n\nEach method has a table of its name.\n"
    for name in names("methods"):
        method = find_method(name)
        presets = {kind: preset(method, name, kind) for kind in ("small", "paper")}
        text += f"\n### [{name}]\n\n{sentence(method.summary)}\n\n"
        text += settings_table(method.Config, {kind: found.get(name, {}) for kind, found in presets.items()})
        for kind, found in presets.items():
            other = {key: value for key, value in found.items() if key != name}
            if other:
                text += f"\nThe preset `{kind}` also sets {', '.join(_flat(other))}.\n"
    return text


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"`{prefix}{key} = {plain(value)}`"


def settings_table(model: type[BaseModel], presets: Mapping[str, Mapping[str, Any]], skip: tuple[str, ...] = ()) -> str:
    """A row for each setting; tables within it have dots in their names."""
    columns = ["setting", "default", *presets, "what"]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for name, default, words in settings_of(model):
        if name.partition(".")[0] not in skip:
            own = [_preset_value(values, name, default) for values in presets.values()]
            lines.append(f"| `{name}` | {default} | {''.join(f'{value} | ' for value in own)}{cell(words)} |")
    return "\n".join(lines) + "\n"


def _preset_value(values: Mapping[str, Any], name: str, default: str) -> str:
    found = f"`{plain(values[name])}`" if name in values else ""
    return "" if found == default else found


def settings_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Name, default and meaning of every setting of a model."""
    words = comments(model)
    for name, field in model.model_fields.items():
        inner = next((kind for kind in (field.annotation, *get_args(field.annotation)) if _is_model(kind)), None)
        if inner is not None and not prefix and inner not in {one for one, _ in SHARED.values()}:
            yield from settings_of(inner, f"{name}.")
            continue
        given = field.get_default(call_default_factory=True)
        default = "must be set" if given is PydanticUndefined else "unset" if given is None else f"`{plain(given)}`"
        meaning = field.description or words.get(name, "")
        yield f"{prefix}{name}", default, "; ".join(part for part in (meaning, *_rules(field)) if part)


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _rules(field: Any) -> Iterator[str]:
    """What may stand there: choices, and limits of numbers."""
    choices = [value for value in _literals(field.annotation) if isinstance(value, str)]
    if len(choices) > 1:
        yield "one of " + ", ".join(f"`{plain(choice)}`" for choice in choices)
    limits = [
        words.format(f"{value:g}" if isinstance(value, (int, float)) and value < 1e9 else value)
        for one in field.metadata
        for key, words in LIMITS.items()
        if (value := getattr(one, key, None)) is not None
    ]
    if limits:
        yield ", ".join(limits)


def _literals(annotation: Any) -> Iterator[Any]:
    for one in get_args(annotation):
        if isinstance(one, str):
            yield one
        elif not isinstance(one, (int, float)):
            yield from _literals(one)


def comments(model: type[BaseModel]) -> dict[str, str]:
    """The comment of each setting in the source: behind it, or in the lines above it."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if not _is_model(kind) or kind is BaseModel:
            continue
        source = inspect.cleandoc("\n" + inspect.getsource(kind))
        remarks = {
            token.start[0]: token.string.lstrip("# ")
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT
        }
        lines = source.splitlines()
        for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                behind = [remarks[line] for line in range(node.lineno, (node.end_lineno or 0) + 1) if line in remarks]
                above: list[str] = []
                line = node.lineno - 1
                while lines[line - 1].strip().startswith("#"):
                    above.insert(0, remarks[line])
                    line -= 1
                # Lines above a setting without a comment of its own are about it; else they are a heading.
                found[node.target.id] = " ".join(behind or above)
    return found


# -- commands ----------------------------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command with its arguments and options."""
    text = GENERATED + "# Commands\n\nAs `atoll COMMAND --help` shows them. [Exit codes](../guide.md#commands).\n"
    for name, command in commands(typer.main.get_command(app)):
        shown = [one for one in command.params if one.name not in ("help", "install_completion", "show_completion")]
        arguments = [one for one in shown if isinstance(one, click.Argument)]
        usage = " ".join(["atoll", *name.split(), *(_argument(one) for one in arguments), "[OPTIONS]"])
        text += f"\n## atoll {name}\n\n```\n{usage}\n```\n\n{paragraphs(command.help)}\n"
        if shown:
            text += "\n| argument or option | what | default |\n|---|---|---|\n"
        for one in shown:
            word = _argument(one) if isinstance(one, click.Argument) else ", ".join((*one.opts, *one.secondary_opts))
            text += f"| `{word}` | {cell(sentence(_help(command, one)))} | {_default(one)} |\n"
    return text


def commands(group: click.Command, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Name and command of all that can be called."""
    for name, command in sorted(getattr(group, "commands", {}).items()):
        full = f"{before}{name}"
        if not hasattr(command, "commands") or getattr(command, "invoke_without_command", False):
            yield full, command
        yield from commands(command, f"{full} ")


def _argument(one: click.Parameter) -> str:
    word = (one.name or "").upper().replace("_", "-")
    word = f"{word}..." if one.nargs == -1 else word
    return word if one.required else f"[{word}]"


def _help(command: click.Command, one: click.Parameter) -> str:
    """The help of an option, or that of an argument, which click 8.5 takes away from typer's arguments."""
    found = getattr(one, "help", None)
    if not found and command.callback is not None:
        hints = get_type_hints(inspect.unwrap(command.callback), include_extras=True)
        about = getattr(hints.get(one.name or ""), "__metadata__", ())
        found = next((info.help for info in about if getattr(info, "help", None)), "")
    return found or ""


def _default(one: click.Parameter) -> str:
    value = None if callable(one.default) else one.default
    if isinstance(value, bool) or value is None or value is False or value == () or "Sentinel" in type(value).__name__:
        return ""
    return f"`{value}`"


# -- error codes -------------------------------------------------------------------------------------------------------


def errors_page() -> str:
    """Every code, with its exit code and its texts."""
    text = GENERATED + "# Error codes\n\n"
    text += ABOUT_ERRORS
    for code, uses in sorted(error_codes().items()):
        exits = ", ".join(sorted({str(exit_code) for exit_code, _ in uses}))
        words = "<br>".join(cell(words) for words in sorted({words for _, words in uses if words}))
        text += f"| <a id='{code}'></a>`{code}` | {exits} | {words} |\n"
    return text


def error_codes() -> dict[str, list[tuple[int, str]]]:
    """Code -> exit code and text of each place that gives it."""
    found: dict[str, list[tuple[int, str]]] = {}
    for group in GROUPS.values():
        words = f"{group.setting} = …: unknown; did you mean …? known: …"
        found.setdefault(f"unknown-{group.word}", []).append((group.error.exit_code, words))
    for path in sorted(Path(atoll.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for code, kind, words in _uses(node):
                error = getattr(errors, kind, errors.UserError)
                found.setdefault(code, []).append((error.exit_code, words))
    return found


def _uses(node: ast.AST) -> Iterator[tuple[str, str, str]]:
    """Code, class and text of an error that this node makes: a call with a code, or a pair of text and code."""
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
        text, code = node.value.elts
        if isinstance(text, ast.JoinedStr):
            yield from ((one, "ConfigError", _text(text)) for one in _constants(code))
    if not isinstance(node, ast.Call):
        return
    kind = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    given = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
    kind, code_place, text_place = CODED.get(kind, (kind, -1, 0))
    if code_place >= 0 and not given:
        given = node.args[code_place : code_place + 1]
    words = _text(node.args[text_place]) if len(node.args) > text_place else ""
    for value in given:
        yield from ((code, kind, words) for code in _constants(value))


def _constants(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and KEBAB.fullmatch(node.value):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from (*_constants(node.body), *_constants(node.orelse))


def _text(node: ast.expr) -> str:
    """A text as far as the source has it."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    return ""


# -- words -------------------------------------------------------------------------------------------------------------


def plain(value: Any) -> str:
    """A value as an experiment file has it."""
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, BaseModel) else "{}"


def sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[:1].upper() + text[1:] + ("" if not text or text.endswith((".", "?", ":", "!")) else ".")


def paragraphs(text: str | None) -> str:
    return "\n\n".join(sentence(part) for part in (text or "").split("\n\n"))


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").replace("*", "\\*")


PAGES = {"settings.md": settings_page, "commands.md": commands_page, "errors.md": errors_page}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/reference.py FOLDER")
    main(Path(sys.argv[1]))
