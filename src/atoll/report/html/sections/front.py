"""The Pareto front: error against cost of the networks that no other one beats, now and in earlier rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll.report.html.charts.frame import Axis, LegendEntry
from atoll.report.html.charts.scales import amount, count, duration, fitting, percent
from atoll.report.html.charts.scatter import Layer, Mark, ScatterChart, scatter_chart
from atoll.report.html.markup import Html
from atoll.report.html.page import section
from atoll.report.html.tables import TableColumn
from atoll.report.view import RunView
from atoll.run.digest import FrontOfRound

MOST_LAYERS = 40  # positions of the slider
COSTS = {
    "macs": ("multiply-accumulates of one forward pass", count),
    "params": ("weights", count),
    "upload_bytes": ("bytes of one upload", amount),
    "latency": ("seconds of one round on a client", duration),
    "connections": ("weights of one upload, mean of the clients", count),
}
SHAPES = {"high": "circle", "knee": "diamond", "high1": "circle", "knee1": "diamond"}
SHAPES |= {"high2": "circle", "knee2": "diamond"}


def front_section(view: RunView, prefix: str = "", layers: int = MOST_LAYERS) -> Html | None:
    """One chart for each cost that the search minimised."""
    if not view.digest.fronts:
        return None
    names = objectives(view, view.digest.fronts[-1])[1:]
    charts = [_chart(view, place, cost, prefix, layers) for place, cost in enumerate(names, start=1)]
    return section(
        f"{prefix}front",
        "The front",
        charts,
        lead="Networks that no other one beats in both error and cost. To the left is cheaper, further down is better.",
    )


def objectives(view: RunView, front: FrontOfRound) -> tuple[str, ...]:
    """What the numbers of a front are: the error, then the costs."""
    return front.objectives or tuple(view.settings.get("objectives", ("error", "macs")))


def _chart(view: RunView, place: int, cost: str, prefix: str, most: int) -> Html:
    label, form = COSTS.get(cost, (cost.replace("_", " "), count))
    fronts = chosen(view.digest.fronts, most)
    tested = _test_errors(view)
    rivals = [mark for name, rival in view.rivals.items() if (mark := rival_mark(name, rival, cost)) is not None]
    costs = [values[place] for front in fronts for _, values in front.networks if len(values) > place]
    errors = [values[0] for front in fronts for _, values in front.networks]
    last = fronts[-1]
    shown_tests = {name: error for name, error in tested.items() if any(name == other for other, _ in last.networks)}
    x = Axis(label, fitting([*costs, *(mark.x for mark in rivals)]), form, most=5)
    y_values = [*errors, *shown_tests.values(), *(mark.y for mark in rivals)]
    y = Axis("error", fitting(y_values, zero=True, wide=4), percent)
    layers = [_layer(front, place, form, shown_tests if front is last else {}) for front in fronts]
    word = (
        f"round {last.round}"
        if view.result is None or last.round == view.rounds
        else f"the end of the search, round {last.round}"
    )
    picks = [pick for pick in SHAPES if pick in last.picks]
    entries = [LegendEntry("on validation rows, which the search used", "c0", "dot")]
    if shown_tests:
        entries.append(LegendEntry("the same network on test rows", "c0", "ring"))
    entries += [LegendEntry(pick.title(), "ink", SHAPES[pick]) for pick in ("high", "knee") if pick in picks]
    if rivals:
        entries.append(LegendEntry("rival: a fixed network, on test rows", "c1", "star"))
    return scatter_chart(
        ScatterChart(
            f"Error against {label}",
            x,
            y,
            layers,
            rivals,
            f"After {word}: {len(last.networks)} network{'' if len(last.networks) == 1 else 's'}."
            + (" Move the slider to see earlier rounds." if len(layers) > 1 else ""),
            entries,
            _numbers(last, place, label, form, shown_tests),
            "round",
            _spoken(last, place, word, label, form),
            f"{prefix}front-{cost}",
        )
    )


def _spoken(front: FrontOfRound, place: int, word: str, label: str, form: Any) -> str:
    errors, costs = [values[0] for _, values in front.networks], [values[place] for _, values in front.networks]
    return (
        f"Front after {word}: {len(errors)} networks, errors from {percent(min(errors))} to {percent(max(errors))}, "
        f"{label} from {form(min(costs))} to {form(max(costs))}"
    )


def chosen(fronts: Sequence[FrontOfRound], most: int) -> list[FrontOfRound]:
    """At most this many, evenly spread, with the first and the last."""
    if len(fronts) <= most:
        return list(fronts)
    places = {round(place * (len(fronts) - 1) / (most - 1)) for place in range(most)}
    return [fronts[place] for place in sorted(places)]


def _layer(front: FrontOfRound, place: int, form: Any, tested: Mapping[str, float]) -> Layer:
    marks, line = [], []
    by_name: dict[str, list[str]] = {}
    for pick, name in front.picks.items():
        by_name.setdefault(name, []).append(pick)
    for name, values in sorted(front.networks, key=lambda network: network[1][place] if len(network[1]) > place else 0):
        if len(values) <= place:
            continue
        cost, error = values[place], values[0]
        picks = [pick for pick in by_name.get(name, []) if pick in SHAPES]
        picks = [pick for pick in picks if pick.rstrip("1") not in picks or not pick.endswith("1")]  # high1 is high
        named = f" ({', '.join(picks)})" if picks else ""
        tip = f"{name}{named}\nerror {percent(error)}, {form(cost)}"
        if name in tested:
            tip += f"\non test rows {percent(tested[name])}"
            marks.append(Mark(cost, tested[name], "", "ring"))
        marks.append(Mark(cost, error, tip, "dot"))
        line.append((cost, error))
        for shape in dict.fromkeys(SHAPES[pick] for pick in picks):
            label = " and ".join(pick.title() for pick in picks) if shape == SHAPES[picks[0]] else ""
            marks.append(Mark(cost, error, "", shape, "ink", label))
    return Layer(str(front.round), marks, [(line, "c0 thin")])


def _test_errors(view: RunView) -> dict[str, float]:
    """Network -> error on test rows; none if a training followed the search, which changed the networks."""
    if view.result is None or view.digest.fronts[-1].round != view.digest.round:
        return {}
    found = {entry["id"]: entry["objectives"].get("test_error") for entry in view.candidates}
    return {name: float(error) for name, error in found.items() if error is not None}


def rival_mark(name: str, rival: RunView, cost: str) -> Mark | None:
    """The recommended network of another run as a star, if its cost of this kind is known."""
    best = rival.best
    if best is None or "test" not in best or cost not in best["objectives"]:
        return None
    value, error = float(best["objectives"][cost]), float(best["test"]["test_error"])
    form = COSTS.get(cost, ("", count))[1]
    return Mark(value, error, f"{name}\ntest error {percent(error)}, {form(value)}", "star", "c1", name[:24])


def _numbers(
    front: FrontOfRound, place: int, label: str, form: Any, tested: Mapping[str, float]
) -> tuple[list[TableColumn], list[list[str]]]:
    columns = [TableColumn("network", False), TableColumn("picks", False), TableColumn("error"), TableColumn(label)]
    if tested:
        columns.append(TableColumn("test error"))
    rows = []
    for name, values in front.networks:
        picks = ", ".join(pick for pick, picked in front.picks.items() if picked == name)
        row = [name, picks, percent(values[0]), form(values[place]) if len(values) > place else ""]
        rows.append([*row, percent(tested[name]) if name in tested else ""] if tested else row)
    return columns, rows
