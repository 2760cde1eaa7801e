"""The cost of runs to their clients, read from their ledgers: the federated NetAdapt paper's Fig. 6."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.core.ledger import Account
from atoll.devices import DeviceProfile
from atoll.errors import ConfigError, RunDirectoryError
from atoll.report.figures import Figure, Runs
from atoll.report.figures.canvas import FAINT, INK, PALETTE, new_figure, plain, save, tidy
from atoll.report.figures.titles import entitle
from atoll.report.figures.tracks import rounds_of
from atoll.run.reader import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUANTITIES = {
    "client_macs": "multiply-accumulates",
    "bytes_up": "bytes up",
    "bytes_down": "bytes down",
    "seconds": "seconds",
    "joules": "joules",
}
SEARCH = "search"


@dataclass(frozen=True)
class RunCost:
    """Sums over all clients and the selected rounds of one run."""

    name: str
    rounds: int
    clients: int
    account: Account
    seconds: float | None = None  # of all clients together, by a device profile
    joules: float | None = None

    def amount(self, quantity: str) -> float | None:
        if quantity in {"seconds", "joules"}:
            return self.seconds if quantity == "seconds" else self.joules
        value: float = getattr(self.account, quantity)
        return value

    def per_client(self, quantity: str) -> float | None:
        whole = self.amount(quantity)
        return None if whole is None else whole / self.clients

    def ratio(self, quantity: str, other: RunCost) -> float | None:
        """This amount divided by the other; None if either is unknown or the other is zero."""
        mine, theirs = self.amount(quantity), other.amount(quantity)
        return mine / theirs if mine is not None and theirs else None


def run_cost(
    name: str, run: Run, device: DeviceProfile | None = None, search_only: bool = False, iterations: int | None = None
) -> RunCost:
    """The cost of a run, finished or not.

    `search_only` leaves out rounds of other phases (training before or after the search) and the measurements at the
    end of the run. `iterations` counts only the first N iterations of a search by pruning, so that a run that was
    stopped early can be compared with a complete one; it also leaves out other phases.
    """
    rounds: list[Mapping[str, Any]] = list(run.rounds)
    if not rounds:
        raise RunDirectoryError(f"{run.path}: no round is done yet, so it has no cost", code="no-round-done")
    if search_only or iterations is not None:
        rounds = [event for event in rounds if event["metrics"].get("phase", SEARCH) == SEARCH]
    if iterations is not None:
        rounds = _first_iterations(run, rounds, iterations)
    total = Account()
    for event in rounds:
        total.add(_account(event["ledger"]))
    if run.finished and not search_only and iterations is None:
        total = _account({key: value for key, value in run.result["ledger"].items() if key in _KEYS})
    clients = int(run.manifest["data"]["clients"])
    found = RunCost(name, len(rounds), clients, total)
    if device is None:
        return found
    used = (total.client_macs, total.bytes_up, total.bytes_down)
    return RunCost(name, len(rounds), clients, total, device.seconds(*used), device.joules(*used))


_KEYS = frozenset(Account.__dataclass_fields__)


def _account(row: Mapping[str, Any]) -> Account:
    return Account(**{**row, "replies": dict(row["replies"])})


def whole_iterations(run: Run) -> int:
    """The number of completed iterations; 0 for runs without iterations.

    In a run that is not finished, an iteration counts as completed once a later one has begun.
    """
    if run.metrics_kind != "pruning":
        return 0
    last = max((event["iteration"] for event in rounds_of(run, SEARCH)), default=0)
    return last if run.finished else max(0, last - 1)


def _first_iterations(run: Run, rounds: Sequence[Mapping[str, Any]], wanted: int) -> list[Mapping[str, Any]]:
    if run.metrics_kind != "pruning":
        raise ConfigError(f"{run.path}: its rounds have no iterations; leave out --iterations", code="no-iterations")
    whole = whole_iterations(run)
    if wanted > whole:
        raise ConfigError(
            f"--iterations {wanted}: {run.path} has completed only {whole}; give at most {whole}",
            code="too-many-iterations",
        )
    return [event for event in rounds if event["metrics"]["iteration"] <= wanted]


def draw_cost(
    costs: Sequence[RunCost], against: RunCost, path: Path, title: str = "", runs: Runs | None = None
) -> Path:
    """Bars on a logarithmic axis, grouped by quantity: the cost of each run as a multiple of that of `against`."""
    shown = [name for name in QUANTITIES if any(one.ratio(name, against) for one in costs)]
    if not shown:
        raise ConfigError(
            f"{against.name}: its cost is zero, so there is nothing to compare with", code="nothing-to-compare"
        )
    figure = new_figure(max(6.4, 1.2 + 0.42 * len(costs) * len(shown) + 0.5 * len(shown)), 4.4)
    axes = figure.add_subplot()
    width = 0.84 / len(costs)
    for number, one in enumerate(costs):
        _bars(axes, one, against, shown, number, width)
    _logarithmic(axes, [ratio for one in costs for name in shown if (ratio := one.ratio(name, against))])
    axes.axhline(1.0, color=INK, linewidth=0.8)
    axes.set_xticks([place + 0.42 - width / 2 for place in range(len(shown))], [QUANTITIES[name] for name in shown])
    axes.set_ylabel(f"cost to the clients, as a multiple of\n{plain(against.name)}")
    tidy(axes)
    axes.grid(axis="x", visible=False)
    axes.tick_params(axis="x", length=0)
    entitle(figure, title or "Cost to the clients", runs or {})
    figure.legend(loc="outside lower center", ncols=min(4, len(costs)), frameon=False, fontsize=9, labelcolor=INK)
    return save(figure, path)


def _logarithmic(axes: Axes, ratios: Sequence[float]) -> None:
    """A logarithmic axis with plain numbers, space for the labels of the bars, and a range of at least 0.95 to 1.5."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    axes.set_yscale("log")
    low, high = min(0.95, *ratios), max(1.5, *ratios)
    room = (high / low) ** 0.1
    axes.set_ylim(low / room, high * room)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 500 else (1.0,)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _bars(axes: Axes, one: RunCost, against: RunCost, shown: Sequence[str], number: int, width: float) -> None:
    heights = [one.ratio(name, against) for name in shown]
    places = [place + number * width for place, height in enumerate(heights) if height]
    known = [height for height in heights if height]
    colour = FAINT if one is against else PALETTE[number % len(PALETTE)]
    # From 1, not from the end of the axis: a downward bar is a saving.
    axes.bar(places, [height - 1 for height in known], 0.92 * width, bottom=1.0, color=colour, label=plain(one.name))
    for place, height in zip(places, known, strict=True):
        below = height < 1
        words = f"{height:.2g}x" if height < 10 else f"{height:,.0f}x"
        axes.annotate(
            words,
            (place, height),
            (0, -3 if below else 3),
            textcoords="offset points",
            ha="center",
            va="top" if below else "bottom",
            fontsize=8,
            color=INK,
        )


def _draw_searches(runs: Runs, path: Path) -> Path:
    """The iterations that all of these searches have completed."""
    common = min(whole_iterations(run) for run in runs.values())
    costs = [run_cost(name, run, iterations=common) for name, run in runs.items()]
    return draw_cost(costs, costs[0], path, f"Cost to the clients, iterations 1 to {common} of the search", runs)


COST = Figure(
    "cost",
    "what several searches by pruning cost their clients",
    # With all rows in one place there are no clients whose cost could be compared.
    lambda run: whole_iterations(run) > 0 and not run.manifest["centralised"],
    lambda runs, path, _: _draw_searches(runs, path),
    minimum=2,
)
