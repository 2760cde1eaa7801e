"""Networks trained side by side (runs of `atoll retrain`): curves, and a table for validation.

The multi-objective paper's Fig. 6 and 7 (with the clients' own accuracy beside the global one), Fig. 11 and 12, and
Tables I and III to VI.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.errors import ConfigError
from atoll.report.figures import Figure
from atoll.report.figures.canvas import INK, PALETTE, new_figure, plain, save, short, tidy, whole_rounds
from atoll.report.figures.titles import entitle
from atoll.report.figures.tracks import rounds_of, settings
from atoll.run.reader import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = {
    "test_accuracy": "accuracy on test data (%)",
    "accuracy": "accuracy on validation data (%)",
    "client_accuracy": "clients' own networks on\ntheir own training rows (%)",
    "connections": "weights of one upload,\nmean of the clients",
}
SENT = "connections"
WIDE = 10  # connections that differ by more than this factor are drawn on a logarithmic axis
STYLES = ("-", "--", ":")  # when there are more networks than colours


def networks_of(run: Run) -> list[str]:
    """The networks that a run trains side by side; empty for other runs."""
    return list(rounds_of(run)[0]["networks"]) if run.metrics_kind == "networks" else []


def curves(run: Run, quantity: str) -> dict[str, dict[int, float]]:
    """Network -> the quantity after every round in which it was measured."""
    found: dict[str, dict[int, float]] = {name: {} for name in networks_of(run)}
    for event in rounds_of(run):
        for name, row in event["networks"].items():
            if quantity in row:
                found[name][event["round"]] = row[quantity]
    return {name: curve for name, curve in found.items() if curve}


def draw_retraining(runs: Mapping[str, Run], path: Path) -> Path:
    """A column for each run, a panel for each quantity that some run has; test accuracy replaces validation accuracy.

    Uploads of constant size are given in the legend and need no panel.
    """
    shown = {name: run for name, run in runs.items() if networks_of(run)}
    if not shown:
        raise ConfigError(
            "none of these runs trains networks side by side; `atoll retrain` makes such a run", code="not-side-by-side"
        )
    tested = any(curves(run, "test_accuracy") for run in shown.values())
    steady = all(len(set(curve.values())) == 1 for run in shown.values() for curve in curves(run, SENT).values())
    needless = [name for name, so in (("accuracy", tested), (SENT, steady)) if so]
    quantities = [
        quantity
        for quantity in PANELS
        if quantity not in needless and any(curves(run, quantity) for run in shown.values())
    ] or [SENT]
    figure = new_figure(6.4 * len(shown), 3.1 * len(quantities) + 0.6)
    panels = figure.subplots(len(quantities), len(shown), squeeze=False, sharex="col", sharey="row")
    colours = _colours([name for run in shown.values() for name in networks_of(run)])
    for column, (label, run) in enumerate(shown.items()):
        for row, quantity in enumerate(quantities):
            _panel(panels[row][column], curves(run, quantity), quantity, colours, _labels(run, steady))
        panels[0][column].set_title(plain(label), fontsize=11, color=INK)
        panels[-1][column].set_xlabel("round")
        panels[0][column].legend(frameon=False, fontsize=8)
    for row, quantity in enumerate(quantities):
        panels[row][0].set_ylabel(PANELS[quantity])
        if quantity == SENT and _wide(shown.values()):
            panels[row][0].set_yscale("log")  # shared by the row
    entitle(figure, "Networks trained side by side", shown)
    return save(figure, path)


def validation_table(runs: Mapping[str, Run]) -> str:
    """Markdown: the settings of each network, and per run its last accuracy on test data and its connections."""
    names = list(dict.fromkeys(name for run in runs.values() for name in networks_of(run)))
    if not names:
        raise ConfigError(
            "none of these runs trains networks side by side; `atoll retrain` makes such a run", code="not-side-by-side"
        )
    architectures: dict[str, dict[str, Any]] = {}
    for run in reversed(list(runs.values())):
        architectures |= settings(run).get("networks", {})
    rows: list[tuple[str, list[str]]] = []
    for label, read in SETTINGS.items():
        cells = [read(architectures.get(name, {})) for name in names]
        if any(cell != "/" for cell in cells):
            rows.append((label, cells))
    for label, run in runs.items():
        last = [_last(run, name) for name in names]
        rounds = run.rounds[-1]["round"]
        rows.append((f"test accuracy, {label}, round {rounds}", [_share(row) for row in last]))
        rows.append((f"connections, {label}", [f"{row['connections']:,.0f}" if row else "/" for row in last]))
    lines = [f"| | {' | '.join(names)} |", f"|{'---|' * (len(names) + 1)}"]
    return "\n".join([*lines, *(f"| {label} | {' | '.join(cells)} |" for label, cells in rows)]) + "\n"


def write_validation(runs: Mapping[str, Run], path: Path) -> Path:
    """The table as a file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(validation_table(runs), encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write '{path}' ({error.strerror or error}); name another folder", code="cannot-write-file"
        ) from None
    return path


def _setting(key: str, form: str = "{}") -> Any:
    return lambda arch: form.format(arch[key]) if key in arch else "/"


def _layers(key: str) -> Any:
    return lambda arch: ", ".join(map(str, arch[key])) if key in arch else "/"


SETTINGS = {
    "network": _setting("model"),
    "filters": _layers("filters"),
    "kernel": _setting("kernel"),
    "hidden layers": _layers("hidden"),
    "epsilon": _setting("epsilon"),
    "xi": _setting("xi", "{:.4g}"),
    "learning rate": _setting("lr", "{:.4g}"),
}


def _colours(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The colour and line style of each network, the same in every panel."""
    different = list(dict.fromkeys(names))
    return {
        name: (PALETTE[number % len(PALETTE)], STYLES[number // len(PALETTE) % len(STYLES)])
        for number, name in enumerate(different)
    }


def _labels(run: Run, steady: bool) -> dict[str, str]:
    """The name of each network in the legend."""
    uploads = {name: max(curve.values()) for name, curve in curves(run, SENT).items()} if steady else {}
    weights = {name: f", {short(upload)} weights" for name, upload in uploads.items()}
    return {name: plain(name) + weights.get(name, "") for name in networks_of(run)}


def _panel(
    axes: Axes,
    found: Mapping[str, dict[int, float]],
    quantity: str,
    colours: Mapping[str, tuple[str, str]],
    labels: Mapping[str, str],
) -> None:
    factor = 1 if quantity == SENT else 100
    for name, curve in found.items():
        colour, style = colours[name]
        marker = "o" if len(curve) == 1 else None  # a single point has no visible line
        values = [factor * value for value in curve.values()]
        axes.plot(list(curve), values, style, color=colour, marker=marker, linewidth=1.6, label=labels[name])
    if quantity == SENT:
        axes.yaxis.set_major_formatter("{x:,.0f}")
    whole_rounds(axes)
    tidy(axes)


def _wide(runs: Iterable[Run]) -> bool:
    """Whether connections differ so much that the smaller networks would lie on the axis."""
    values = [value for run in runs for curve in curves(run, SENT).values() for value in curve.values()]
    return min(values) > 0 and max(values) > WIDE * min(values)


def _last(run: Run, name: str) -> dict[str, Any]:
    row = rounds_of(run)[-1].get("networks", {}).get(name, {})
    return row if isinstance(row, dict) else {}


def _share(row: Mapping[str, float]) -> str:
    if not row:
        return "/"
    value = row.get("test_accuracy", row.get("accuracy"))
    return "/" if value is None else f"{value:.2%}"


def _has_networks(run: Run) -> bool:
    return bool(networks_of(run))


RETRAINING = Figure(
    "retraining",
    "networks trained side by side: their accuracy and uploads after every round",
    _has_networks,
    lambda runs, path, _: draw_retraining(runs, path),
)
VALIDATION = Figure(
    "validation",
    "the same networks as a Markdown table: settings, last accuracy, uploads",
    _has_networks,
    lambda runs, path, _: write_validation(runs, path.with_suffix(".md")),
)
