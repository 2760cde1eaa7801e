"""Output of the commands, and the options that several of them share."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

out_console = Console()
error_console = Console(stderr=True)

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of data sets; default $ATOLL_DATA.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Any setting: a.b=value; may be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="Everything there is to know, for programs.")]


def known(group: str) -> Callable[[str], list[str]]:
    """For the shell's completion: the registered names of a group that begin with what was typed."""

    def complete(incomplete: str) -> list[str]:
        from atoll.registry import names

        return [name for name in names(group) if name.startswith(incomplete)]

    return complete


def tell_json(value: Any) -> None:
    """Print plain data as JSON; what JSON has no form for (times, paths) as text."""
    tell(json.dumps(value, indent=1, default=str))


def tell(text: str, end: str = "\n") -> None:
    """Print text unchanged: no markup, no colours, no line wrapping."""
    from atoll.core.messages import printable

    lines = "\n".join(map(printable, text.split("\n")))
    out_console.print(lines, markup=False, highlight=False, soft_wrap=True, end=end)


def complain(text: str, *more: str) -> None:
    """One line on the error stream, and those that explain it."""
    from atoll.core.messages import printable

    line = printable(" ".join(text.split()))
    error_console.print(f"atoll: {line}", style="red", markup=False, highlight=False, soft_wrap=True)
    for line in more:
        error_console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
