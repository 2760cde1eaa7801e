"""Output in the terminal: the progress of a run, and a table of its result."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from atoll.core.ledger import Account
from atoll.run.reader import Run

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


class LiveProgress:
    """A bar with the round, the best error, the bytes sent and received, and the remaining time."""

    def __init__(self, console: Console) -> None:
        self._best = math.inf
        self._console = console
        self._bar = Progress(
            TextColumn("[bold]{task.fields[place]}"),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("", total=None, place="starting")
        self._bar.start()

    def round_done(self, number: int, rounds: int, metrics: dict[str, Any], total: Account, seconds: float) -> None:
        self._best = min(self._best, metrics.get("error", math.inf))
        words = _words(metrics, self._best, total)
        self._bar.update(
            self._task, completed=number, total=rounds, description=words, place=f"round {number}/{rounds}"
        )

    def round_failed(self, number: int, reason: str, attempt: int, patience: int) -> None:
        text = f"round {number} failed ({attempt} of {patience}): {printable(reason)}"
        self._console.print(text, style="yellow", markup=False, highlight=False)

    def close(self) -> None:
        self._bar.stop()


class PlainProgress:
    """One line per round (every few rounds in long runs), for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._best = math.inf
        self._console = console

    def round_done(self, number: int, rounds: int, metrics: dict[str, Any], total: Account, seconds: float) -> None:
        self._best = min(self._best, metrics.get("error", math.inf))
        if number == rounds or number % max(1, rounds // 100) == 0:
            text = f"round {number}/{rounds}  {_words(metrics, self._best, total)}  {seconds:.0f} s"
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def round_failed(self, number: int, reason: str, attempt: int, patience: int) -> None:
        text = f"round {number} failed ({attempt} of {patience}): {printable(reason)}"
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        pass


class NoProgress(PlainProgress):
    """`--quiet`: only failed rounds."""

    def round_done(self, number: int, rounds: int, metrics: dict[str, Any], total: Account, seconds: float) -> None:
        pass


def progress(console: Console, quiet: bool) -> LiveProgress | PlainProgress:
    """The kind of progress that suits the output: a bar in a terminal, else lines."""
    if quiet:
        return NoProgress(console)
    return LiveProgress(console) if console.is_terminal else PlainProgress(console)


def show_run(console: Console, run: Run) -> None:
    """The networks and the cost of a finished run; for an unfinished one, its progress."""
    if not run.finished:
        done = run.rounds
        last = done[-1]["metrics"].get("error") if done else None
        error = "" if last is None else f", error {last:.4f}"
        state = f"{run.path}: {run.manifest['method']}, {len(done)} rounds done{error}, not finished"
        for text in (state, f"continue with: atoll resume {shlex.quote(str(run.path))}"):
            console.print(printable(text), markup=False, highlight=False, soft_wrap=True)
        return
    result = run.result
    table = Table(title=cell(f"{result['method']}, {result['rounds']} rounds, seed {result['seed']}"))
    for name, side in (("network", "left"), ("picks", "left")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    names = list(result["candidates"][0]["objectives"]) if result["candidates"] else []
    for name in names:
        table.add_column(cell(name.replace("_", " ")), justify="right")
    for candidate in result["candidates"]:
        values = [_objective(name, candidate["objectives"].get(name)) for name in names]
        table.add_row(cell(candidate["id"]), cell(", ".join(candidate["picks"])), *values)
    console.print(table)
    ledger = result["ledger"]
    simulated = ledger["simulated_seconds"]
    console.print(
        f"clients sent {amount(ledger['bytes_up'])}, received {amount(ledger['bytes_down'])}, "
        f"computed {ledger['client_macs'] / 1e9:,.1f} GMAC; {result['wall_seconds']:.0f} s"
        + (f", {simulated:,.1f} s on the virtual network" if simulated else ""),
        markup=False,
    )
    console.print(printable(f"run directory: {run.path}"), markup=False, highlight=False, soft_wrap=True)


def printable(text: str) -> str:
    """Text without control characters, which file and client names may contain: `\\x1b` is written out."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )


def cell(text: str) -> str:
    """External text for a table cell: neither escape codes nor rich markup take effect."""
    return escape(printable(text))


def show_next(console: Console, run: Run) -> None:
    """Suggest what to do with a finished run."""
    pick = next((pick for c in run.result["candidates"] for pick in c["picks"] if pick == "knee"), "high")
    evolved = any(c["architecture"].get("space") == "genome" for c in run.result["candidates"])
    # A search that has ended by its own rule cannot be continued, but its networks can be tuned.
    ended = next((c["about"]["ended"] for c in run.result["candidates"] if "ended" in c.get("about", {})), None)
    tune = f"atoll retrain {run.path} --from found --pick final  # the search is over: {ended}"
    for what, how in (
        ("view it", f"atoll explain {run.path}" if evolved else f"atoll figures {run.path}"),
        ("continue", tune if ended else f"atoll resume {run.path} --rounds {2 * run.result['rounds']}"),
        ("use it", f"atoll.load({str(run.path)!r}).model({pick!r})  # in Python: an ordinary torch module"),
    ):
        console.print(f"{what + ':':<12}{how}", markup=False, highlight=False, soft_wrap=True)


def amount(count: float) -> str:
    """A number of bytes with its unit: 12.3 MB."""
    power = 0
    while count >= 1000 and power < len(UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.0f} {UNITS[0]}" if power == 0 else f"{count:.1f} {UNITS[power]}"


def _words(metrics: dict[str, Any], best: float, total: Account) -> str:
    now = f"error {metrics['error']:.4f}, best {best:.4f}" if "error" in metrics else "no error measured yet"
    return f"{now}, up {amount(total.bytes_up)}, down {amount(total.bytes_down)}"


def _objective(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name.endswith(("error", "f1", "psi")):
        return f"{value:.4f}"
    return amount(value) if name.endswith("bytes") else f"{value:,.0f}"


@contextmanager
def downloading(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """Yields a function (file, bytes so far, total bytes or None) that updates one bar per file."""
    tasks: dict[str, TaskID] = {}
    bars = Progress(console=console)

    def advance(file: str, done: int, total: int | None) -> None:
        if file not in tasks:
            bars.start()  # only now: without a download there is no bar
            tasks[file] = bars.add_task(escape(file), total=total)
        bars.update(tasks[file], completed=done, total=total)

    try:
        yield advance
    finally:
        if tasks:
            bars.stop()
