"""Round by round: what was measured, by the kind of metrics that the method reports, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from atoll.report.html.charts.frame import COLOURS, Axis
from atoll.report.html.charts.lines import POINTS, Line, LineChart, Points, line_chart
from atoll.report.html.charts.scales import amount, count, duration, fitting, percent, plain
from atoll.report.html.charts.scatter import Layer, Mark, ScatterChart, scatter_chart
from atoll.report.html.markup import Html, tag
from atoll.report.html.page import section
from atoll.report.html.tables import TableColumn
from atoll.report.view import RunView
from atoll.run.digest import Series

PICKS = ("high", "knee")
OTHER = 12  # numbers of a method of an unknown kind that are drawn
PHASES = {
    "final": "final training",
    "search": "search",
    "warmup": "warm-up",
    "start": "training of the start network",
    "refine": "one population",
    "polish": "polishing of weights",
}
CHANCE = 1 / 8  # share of skip connections before training


def rounds_section(view: RunView, prefix: str = "", points: int = POINTS) -> Html | None:
    """The charts of the metrics."""
    charts = [chart for chart in _charts(view, prefix, points) if chart is not None]
    if not charts:
        return None
    return section(f"{prefix}rounds", "Round by round", tag("div", charts, class_="charts"))


def _charts(view: RunView, prefix: str, points: int) -> Iterator[Html | None]:
    kinds = {"front": _front, "policy": _policy, "pruning": _pruning, "networks": _networks, "model": _model}
    for number, chart in enumerate([*kinds.get(view.kind, _other)(view), *_spent(view)]):
        yield (
            chart
            if isinstance(chart, Html) or chart is None
            else line_chart(_placed(chart, view, f"{prefix}rounds-{number}", points))
        )


def _spent(view: RunView) -> Iterator[LineChart]:
    """What clients have spent under `[privacy]`; one line if all have spent the same."""
    found = {name: list(series) for name, series in view.digest.epsilons.items()}
    if found:
        names = ["largest"] if found["largest"] == found["smallest"] else ["largest", "smallest"]
        drawn = [Line(name, found[name], f"c{place}", steps=True) for place, name in enumerate(names)]
        yield LineChart("Privacy", drawn, "epsilon spent by a client", about="for single rows", zero=True)


def _placed(chart: LineChart, view: RunView, key: str, points: int) -> LineChart:
    from dataclasses import replace

    return replace(chart, key=key, points=points, boundaries=boundaries(view))


def boundaries(view: RunView) -> list[tuple[float, str]]:
    """Where another phase of the run begins."""
    word = "closing phase" if view.method == "realtime" else PHASES["final"]
    named = {**PHASES, "final": word}
    return [(number - 0.5, named.get(phase, phase)) for number, phase in view.digest.phases[1:]]


def curve(view: RunView, name: str, accuracy: bool = False) -> Points:
    """A number of the metrics by round; with `accuracy`, one minus it."""
    series = view.digest.series.get(name, Series())
    return [(number, 1 - value if accuracy else value) for number, value in series]


def accuracy_lines(view: RunView, prefix: str = "", look: str = "c0", name: str = "") -> list[Line]:
    """Test accuracy if there is any, with the accuracy of the rounds, on validation rows, faint behind it."""
    test, validation = curve(view, f"{prefix}test_error", True), curve(view, f"{prefix}error", True)
    if not test:
        return [Line(f"{name} on {view.measured_on}".strip(), validation, look)]
    lines = [Line(f"{name} on test rows".strip(), test, look)]
    if validation and list(validation) != list(test):
        lines.append(Line(f"{name} on {view.measured_on}".strip(), validation, look, "faint"))
    return lines


def _model(view: RunView) -> Iterator[LineChart]:
    yield LineChart("Accuracy", accuracy_lines(view), "rows answered correctly", percent)
    losses = [
        Line("on test rows", curve(view, "test_loss"), "c0"),
        Line("on validation rows", curve(view, "loss"), "c0", "faint"),
    ]
    yield LineChart("Loss", losses, "cross-entropy", plain)
    if view.method == "nevofed":
        yield from _evolved(view)


def _evolved(view: RunView) -> Iterator[LineChart]:
    yield LineChart(
        "Fitness over all clients", [Line("psi", curve(view, "psi"))], "weighted F1, mean of clients", plain
    )
    sizes = [
        Line("hidden nodes", curve(view, "hidden"), "c0"),
        Line("connections", curve(view, "connections"), "c1", "dashes"),
    ]
    yield LineChart("Size of the best network", sizes, "number", plain, zero=True)


def _front(view: RunView) -> Iterator[LineChart]:
    lines = [
        line
        for number, pick in enumerate(PICKS)
        for line in accuracy_lines(view, f"{pick}.", f"c{number}", pick.title())
        if line.points
    ]
    if lines:
        yield LineChart("Accuracy of High and Knee", lines, "rows answered correctly", percent)
    else:
        yield LineChart("Lowest error of the front", [Line("", curve(view, "error"))], "error", percent)
    cost = [Line(pick.title(), curve(view, f"{pick}.macs"), f"c{n}", steps=True) for n, pick in enumerate(PICKS)]
    yield LineChart("Cost of High and Knee", cost, "MACs of one forward pass", count, zero=True)
    hypervolume = [(number, value) for number, value in curve(view, "hypervolume")]
    yield LineChart(
        "Hypervolume",
        [Line("", hypervolume, "c2")],
        "share of the space of error and cost",
        plain,
        "How much of the space of error and cost the front dominates: 1 is perfect.",
    )


def _policy(view: RunView) -> Iterator[LineChart]:
    before = view.digest.phases[-1][0] if view.digest.phases and view.digest.phases[-1][1] == "final" else None

    def searching(points: Points) -> Points:
        return [point for point in points if before is None or point[0] < before]

    moving = Line("moving average", searching(curve(view, "moving_accuracy")), "c0")
    each = Line("each round", searching(curve(view, "accuracy")), "c0", "faint")
    yield LineChart("Accuracy of sampled networks", [moving, each], "on training batches", percent)
    entropy = [
        Line("of the policy", curve(view, "entropy"), "c2"),
        Line("without any signal, median", curve(view, "entropy_without_signal"), "c6", "dashes"),
        Line("5th percentile", curve(view, "entropy_without_signal_5"), "c6", "dots"),
    ]
    yield LineChart("Entropy of an edge's operations", entropy, "nats", plain)
    deviation = [Line("", curve(view, "accuracy_deviation"), "c0")]
    yield LineChart("Deviation of the accuracy over replies", deviation, "of each round", percent, zero=True)
    changed = [Line("", curve(view, "compensation"), "c4")]
    yield LineChart("Size of the compensation", changed, "share of a late gradient", percent, zero=True)
    skips = [
        Line("expected", curve(view, "skip_expected"), "c3"),
        Line("in the most likely cells", curve(view, "skip_share"), "c3", "dots"),
    ]
    yield LineChart("Skip connections", skips, "share of operations", percent, zero=True)
    if before is not None:
        final = [point for point in curve(view, "error", True) if point[0] >= before]
        tested = [point for point in curve(view, "test_error", True) if point[0] >= before]
        lines = [
            Line("on test rows", tested, "c0"),
            Line("on validation rows", final, "c0", "faint" if tested else "line"),
        ]
        yield LineChart("Training of the network that was found", lines, "rows answered correctly", percent)


def _pruning(view: RunView) -> Iterator[LineChart | Html]:
    ends = [
        _IterationEnd(place, one["network"], one.get("layer", ""), float(macs), 1 - float(error))
        for place, one in view.digest.chosen.items()
        if (macs := one.get("resources", {}).get("macs")) is not None
        and (error := one.get("test_error", one.get("error"))) is not None
    ]
    if len(ends) > 1:
        yield _sequence(ends)
    yield LineChart("Accuracy", accuracy_lines(view), "rows answered correctly", percent)


class _IterationEnd(NamedTuple):
    """The network that an iteration ended with, and the layer that it has pruned."""

    iteration: int
    network: str
    layer: str
    macs: float
    right: float

    @property
    def mark(self) -> Mark:
        layer = f": {self.layer}" if self.layer else ""
        first = f"{self.network}, iteration {self.iteration}{layer}"
        return Mark(self.macs, self.right, f"{first}\n{percent(self.right)} correct, {count(self.macs)} MACs")


def _sequence(ends: Sequence[_IterationEnd]) -> Html:
    from atoll.report.html.charts.scales import linear

    macs, right = [one.macs for one in ends], [one.right for one in ends]
    columns = [TableColumn("network", False), TableColumn("pruned", False), TableColumn("correct"), TableColumn("MACs")]
    return scatter_chart(
        ScatterChart(
            "Networks of falling cost",
            Axis("MACs of one forward pass", fitting(macs), count),
            Axis("rows answered correctly", linear(right), percent),
            [Layer("", [one.mark for one in ends], [(sorted(zip(macs, right, strict=True)), "c0 thin")], steps=False)],
            about="The network that each iteration ended with.",
            numbers=(columns, [[one.network, one.layer, percent(one.right), count(one.macs)] for one in ends]),
            spoken=f"{len(ends)} networks from {count(max(macs))} to {count(min(macs))} MACs",
            height=250,
        )
    )


def _networks(view: RunView) -> Iterator[LineChart]:
    names = list(dict.fromkeys(name.split(".")[1] for name in view.digest.series if name.startswith("networks.")))

    def lines(quantity: str) -> list[Line]:
        return [
            Line(
                name,
                curve(view, f"networks.{name}.{quantity}"),
                f"c{number % COLOURS}",
                "line" if number < COLOURS else "dashes",
            )
            for number, name in enumerate(names)
        ]

    tested = any(line.points for line in lines("test_accuracy"))
    yield LineChart(
        "Accuracy",
        lines("test_accuracy" if tested else "accuracy"),
        f"on {'test' if tested else 'validation'} rows",
        percent,
    )
    yield LineChart("Clients' own models", lines("client_accuracy"), "on their own training rows", percent)
    yield LineChart("Weights of one upload", lines("connections"), "mean of the clients", count)


def _other(view: RunView) -> Iterator[LineChart]:
    """A method from outside: every number that it reports."""
    shown = [name for name, series in view.digest.series.items() if len(series) > 1][:OTHER]
    for name in shown:
        share = name.endswith(("error", "accuracy"))
        yield LineChart(
            name.replace("_", " ").replace(".", ", "), [Line("", curve(view, name))], name, percent if share else plain
        )


# -- cost by round -----------------------------------------------------------------------------------------------------


def cost_charts(view: RunView, prefix: str = "", points: int = POINTS) -> list[Html]:
    """What the rounds cost the clients: bytes and MACs so far, replies that were not used, seconds of each round."""
    digest = view.digest
    seconds = _each(digest.seconds)
    virtual = list(digest.costs["simulated_seconds"]) if digest.total.simulated_seconds else []
    lost = [
        Line(word, list(digest.replies[fate]), look)
        for fate, word, look in (
            ("late", "late, used later", "c4"),
            ("stale", "too late", "c1"),
            ("rejected", "rejected", "c3"),
            ("failed", "no reply or an error", "c6"),
        )
        if any(digest.replies[fate].values)
    ]
    charts = [
        LineChart(
            "Bytes so far",
            [
                Line("sent by the clients", so_far(digest.costs["bytes_up"]), "c0"),
                Line("received by the clients", so_far(digest.costs["bytes_down"]), "c5", "dashes"),
            ],
            "all clients together",
            amount,
            zero=True,
        ),
        LineChart(
            "Computation so far",
            [Line("", so_far(digest.costs["client_macs"]), "c2")],
            "MACs of all clients",
            count,
            zero=True,
        ),
        LineChart(
            "Duration of each round",
            [Line("virtual seconds", virtual, "c3")] if virtual else [Line("", seconds, "c3")],
            "on the virtual network" if virtual else "on this machine",
            duration,
            zero=True,
        ),
        LineChart("Replies that were not used in their round", lost, "replies", plain, zero=True),
    ]
    drawn = [line_chart(_placed(chart, view, f"{prefix}cost-{number}", points)) for number, chart in enumerate(charts)]
    return [chart for chart in drawn if chart is not None]


def so_far(series: Series) -> Points:
    """Sums up to each round."""
    return list(zip(series.rounds, accumulate(series.values), strict=True))


def _each(series: Series) -> Points:
    before, found = 0.0, []
    for number, value in series:
        found.append((number, max(0.0, value - before)))
        before = value
    return found
