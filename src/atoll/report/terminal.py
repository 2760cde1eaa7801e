"""Output in the terminal: the progress of a run, and how text and amounts are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from atoll.core.ledger import Account
from atoll.core.messages import printable

if TYPE_CHECKING:
    from atoll.run.estimate import Estimate

MESSAGE = 5.0  # seconds that a message to a real site takes, even if there is nothing to compute
UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


class LiveProgress:
    """A bar with the round, its error, the bytes sent and received, and the remaining time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("[bold]{task.fields[place]}"),
            BarColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._bar.add_task("", total=None, place="starting")
        self._words = _RoundInWords()
        self._bar.start()

    def round_done(self, number: int, rounds: int, metrics: dict[str, Any], total: Account, seconds: float) -> None:
        words = self._words(metrics, total)
        self._bar.update(
            self._task, completed=number, total=rounds, description=words, place=f"round {number}/{rounds}"
        )

    def round_failed(self, number: int, reason: str, attempt: int, patience: int) -> None:
        text = f"round {number} failed ({attempt} of {patience}): {printable(reason)}"
        self._console.print(text, style="yellow", markup=False, highlight=False)

    def client_set_aside(self, number: int, client: str, reason: str) -> None:
        self._console.print(_set_aside(number, client, reason), style="yellow", markup=False, highlight=False)

    def noted(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        self._bar.stop()


class PlainProgress:
    """One line per round (every few rounds in long runs), for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._words = _RoundInWords()

    def round_done(self, number: int, rounds: int, metrics: dict[str, Any], total: Account, seconds: float) -> None:
        words = self._words(metrics, total)
        if number == rounds or number % max(1, rounds // 100) == 0:
            text = f"round {number}/{rounds}  {words}  {seconds:.0f} s"
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def round_failed(self, number: int, reason: str, attempt: int, patience: int) -> None:
        text = f"round {number} failed ({attempt} of {patience}): {printable(reason)}"
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def client_set_aside(self, number: int, client: str, reason: str) -> None:
        self._console.print(_set_aside(number, client, reason), markup=False, highlight=False, soft_wrap=True)

    def noted(self, lines: Sequence[str]) -> None:
        for line in lines:
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        pass


class NoProgress(PlainProgress):
    """`--quiet`: only failed rounds and clients that are set aside."""

    def round_done(self, number: int, rounds: int, metrics: dict[str, Any], total: Account, seconds: float) -> None:
        pass


def progress(console: Console | None = None, quiet: bool = False) -> LiveProgress | PlainProgress:
    """The kind of progress that suits the output: a bar in a terminal or notebook, else lines."""
    console = console or Console()
    if quiet:
        return NoProgress(console)
    in_notebook = console.is_jupyter and find_spec("ipywidgets") is not None  # without it rich shows nothing there
    return LiveProgress(console) if console.is_terminal or in_notebook else PlainProgress(console)


def cell(text: str) -> str:
    """External text for a table cell: neither escape codes nor rich markup take effect."""
    return escape(printable(text))


def amount(count: float) -> str:
    """A number of bytes with its unit: 12.3 MB."""
    power = 0
    while count >= 1000 and power < len(UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.0f} {UNITS[0]}" if power == 0 else f"{count:.1f} {UNITS[power]}"


def estimated(found: Estimate, bandwidth: float | None, real: bool = False) -> Iterator[str]:
    """An estimate in words; `bandwidth` in Mbit/s, `real`: on sites with nodes of Flower."""
    total, clients = found.total, found.clients
    yield (
        f"{found.rounds} rounds and the final measurements: {amount(total.bytes_down)} down and "
        f"{amount(total.bytes_up)} up, {total.client_macs:,} MACs, all clients together"
    )
    name, most = max(clients.items(), key=lambda one: one[1].down + one[1].up)
    yield (
        f"the busiest of {len(clients)} clients, {name}: {amount(most.down)} down, {amount(most.up)} up, "
        f"{most.messages:,} messages"
    )
    if total.simulated_seconds:
        yield f"on the virtual network: {_seconds(total.simulated_seconds)} s"
    if real:
        messages = max(own.messages for own in clients.values())
        yield (
            f"on real sites: up to {messages * MESSAGE:,.0f} s more, about {MESSAGE:g} s for each of {messages:,} "
            "messages to a site"
        )
    if bandwidth is not None:
        yield f"at {bandwidth:g} Mbit/s for each client: {found.transfer(bandwidth * 1e6 / 8):,.1f} s of transfer"


def _seconds(value: float) -> str:
    """Of fast networks a whole run takes seconds."""
    return f"{value:,.2f}" if value < 10 else f"{value:,.0f}"


def _set_aside(number: int, client: str, reason: str) -> str:
    return f"round {number}: client {printable(repr(client))} is set aside ({printable(reason)})"


class _RoundInWords:
    """The last error that was measured, and what the run has cost so far."""

    def __init__(self) -> None:
        self._error = "no error measured yet"

    def __call__(self, metrics: dict[str, Any], total: Account) -> str:
        if "error" in metrics:
            self._error = f"error {metrics['error']:.4f}"
        virtual = f", {_seconds(total.simulated_seconds)} virtual s" if total.simulated_seconds else ""
        return f"{self._error}, up {amount(total.bytes_up)}, down {amount(total.bytes_down)}{virtual}"


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
