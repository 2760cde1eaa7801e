"""The sections of a comparison page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from atoll.report.comparison.clients import worst_by_seed
from atoll.report.comparison.fronts import (
    FoundNetwork,
    common_scale,
    front_of_fronts,
    hypervolumes,
    leading,
    networks,
    runs_of,
)
from atoll.report.comparison.reaching import (
    QUANTITIES,
    ErrorByCost,
    cost_to_reach,
    levels,
    mean_curve,
    progress,
    quantities,
)
from atoll.report.comparison.rows import MEASURES, Comparison, Measure, Row
from atoll.report.comparison.tables import SIGNIFICANT, verdict, wins
from atoll.report.html.charts.frame import COLOURS, Axis, LegendEntry
from atoll.report.html.charts.lines import Line, LineChart, line_chart
from atoll.report.html.charts.rows import IntervalRow, interval_rows
from atoll.report.html.charts.scales import Form, Scale, amount, count, duration, fitting, linear, percent, plain
from atoll.report.html.charts.scatter import Layer, Mark, ScatterChart, scatter_chart
from atoll.report.html.comparison.words import budget_share, seconds_words, settings_of
from atoll.report.html.markup import Html, tag
from atoll.report.html.page import notes, section
from atoll.report.html.tables import TableColumn, table
from atoll.report.statistics import Interval, t_interval
from atoll.run.metrics import measured_on

FORMS: Mapping[str, Form] = {
    "client_macs": count,
    "bytes_up": amount,
    "round": plain,
    "simulated_seconds": duration,
    "wall_seconds": duration,
}
MOST_CLIENTS = 60
SHOWN = 400  # networks in the chart of all fronts


def looks(found: Comparison) -> dict[str, str]:
    """Each group has one colour on the whole page."""
    return {group: f"c{place % COLOURS}" for place, group in enumerate(dict.fromkeys(row.group for row in found.rows))}


def equal_section(found: Comparison) -> Html:
    """What was the same for all runs, and what was not."""
    settings, groups = settings_of(found), list(runs_of(found))
    different = [name for name, own in settings.items() if len(set(own.values())) > 1]
    columns = [TableColumn("setting", False), *(TableColumn(group, False) for group in groups)]
    equal = [[name, own[groups[0]] or "-"] for name, own in settings.items() if name not in different]
    parts: list[Html | None] = [
        table([TableColumn("the same for all", False), TableColumn("", False)], equal, label="The same for all")
        if equal
        else None
    ]
    if different:
        rows = [[name, *(settings[name].get(group, "") or "-" for group in groups)] for name in different]
        parts += [
            notes("Not the same for all", [f"The runs differ in {', '.join(different)}. Keep that in mind below."]),
            table(columns, rows, label="Not the same for all"),
        ]
    return section("equal", "On equal terms?", parts)


def errors_section(found: Comparison, tested: Comparison) -> Html:
    """Means with intervals, and paired differences to the reference."""
    measures: list[Measure] = ["error", "f1"] if found.measure == "error" else ["f1", "error"]
    parts = [_means(found, measure) for measure in measures]
    return section("errors", "Who is better?", parts, _difference_rows(tested, looks(found)))


def _means(found: Comparison, measure: Measure) -> Html | None:
    if measure == "f1" and not all(one.clients for row in found.rows for one in row.found):
        return None
    colours, first = looks(found), leading(found.rows)
    form: Form = percent if measure == "error" else _three
    rows = [_interval_row(row.name, row.values(measure), colours[row.group], form, row in first) for row in found.rows]
    about = "A dot is the mean over seeds, the line its 95 % interval, faint dots are single runs."
    if any(row not in first for row in found.rows):
        about += " In bold: the network that each method recommends."
    word = MEASURES[measure]
    label = "on test rows" if measure == "error" else "mean over the clients, each on its own test rows"
    return interval_rows(word[:1].upper() + word[1:], rows, label=f"{word} {label}", form=form, about=about)


def _three(value: float) -> str:
    return f"{value:.3g}"


def _interval_row(name: str, values: Sequence[float], look: str, form: Form, strong: bool = False) -> IntervalRow:
    known = [value for value in values if not math.isnan(value)]
    found = t_interval(known) if known else Interval(math.nan, math.nan, math.nan)
    ends = "" if math.isnan(found.low) else f" ({form(found.low)} to {form(found.high)})"
    text = "-" if math.isnan(found.mean) else f"{form(found.mean)}{ends}"
    return IntervalRow(name, found.mean, found.low, found.high, known, text, look, strong=strong)


def _difference_rows(tested: Comparison, colours: Mapping[str, str]) -> Html | None:
    if len(tested.rows) < 2:
        return None
    points = tested.measure == "error"
    scale = 100 if points else 1

    def form(value: float) -> str:
        return f"{value:+.2g}" if abs(value) >= 1e-9 else "0"

    rows, reference = [], tested.rows[0]
    for one in tested.differences:
        mean, low, high = (scale * value for value in one.interval)
        values = [
            scale * (one.row.by_seed[seed].value(tested.measure) - reference.by_seed[seed].value(tested.measure))
            for seed in one.seeds
        ]
        ends = "" if math.isnan(low) else f" ({form(low)} to {form(high)})"
        chance = "" if math.isnan(one.p) else f", p = {one.p:.2g}"
        clear = not math.isnan(one.p) and one.p < SIGNIFICANT
        text = "no common seed" if math.isnan(mean) else f"{form(mean)}{ends}"
        rows.append(
            IntervalRow(
                one.row.group, mean, low, high, values, text, colours[one.row.group], f"{verdict(one)}{chance}", clear
            )
        )
    unit = ", points" if points else ""
    return interval_rows(
        f"Difference to {reference.group}, seed by seed",
        rows,
        label=f"{MEASURES[tested.measure]} minus that of {reference.group}{unit}",
        form=form,
        zero=True,
        about="The same seed means the same partition and the same splits. The p-value is that of the exact sign-flip "
        "test, corrected over the rows by Holm's rule.",
    )


def fronts_section(found: Comparison) -> Html | None:
    """All networks, the front of fronts, and hypervolumes on one scale."""
    every = networks(found)
    scale = common_scale(found, every)
    if scale is None:
        return None
    colours, front = looks(found), front_of_fronts(every)
    volumes = hypervolumes(every, scale)
    rows = [
        _interval_row(group, list(own.values()), colours[group], lambda value: f"{value:.3f}")
        for group, own in volumes.items()
    ]
    columns = [
        TableColumn("network", False),
        TableColumn("group", False),
        TableColumn("seed"),
        TableColumn("picks", False),
    ]
    columns += [TableColumn("test error"), TableColumn("MACs")]
    members = [
        [one.name, one.group, str(one.seed), ", ".join(one.picks), percent(one.error), count(one.cost)] for one in front
    ]
    return section(
        "fronts",
        "The front of fronts",
        _fronts_chart(every, front, colours),
        tag(
            "details",
            tag("summary", f"The {len(front)} networks of this front"),
            table(columns, members, label="Front of fronts"),
        ),
        interval_rows(
            "Hypervolume",
            rows,
            label="share of the common box that a run's networks dominate",
            form=lambda value: f"{value:.2g}",
            about=f"The same box for all: errors up to {percent(scale.error)} (the best constant answer), costs from "
            f"{count(scale.cheapest)} to {count(scale.dearest)} MACs on a logarithmic scale. 1 would be perfect.",
        ),
        lead="Every network that a run handed over, by its test error and its cost. Test rows chose the front here: it "
        "describes what was found, and is no promise for new rows.",
    )


def _fronts_chart(every: Sequence[FoundNetwork], front: Sequence[FoundNetwork], colours: Mapping[str, str]) -> Html:
    on_front = {id(one) for one in front}
    shown = [*(one for one in every if id(one) not in on_front)][: SHOWN - len(front)]
    marks = [Mark(one.cost, one.error, _tip(one), "faint", colours[one.group]) for one in shown]
    marks += [Mark(one.cost, one.error, _tip(one), "dot", colours[one.group]) for one in front]
    entries = [
        LegendEntry(f"{group} ({sum(one.group == group for one in front)} on the front)", look, "dot")
        for group, look in colours.items()
        if any(one.group == group for one in every)
    ]
    costs, errors = [one.cost for one in every], [one.error for one in every]
    absent = [group for group in colours if not any(one.group == group for one in every)]
    about = "Large dots are on the front: no network of any run is both better and cheaper."
    if absent:
        about += f" Without {', '.join(absent)}: no network there serves all clients."
    return scatter_chart(
        ScatterChart(
            "All networks of all runs",
            Axis("multiply-accumulates of one forward pass", fitting(costs), count, most=5),
            Axis("test error", fitting(errors, zero=True, wide=8), percent),
            [Layer("", marks, [([(one.cost, one.error) for one in front], "ink thin")])],
            about=about,
            legend=entries,
            spoken=f"{len(every)} networks, {len(front)} of them on the common front",
        )
    )


def _tip(one: FoundNetwork) -> str:
    picks = f" ({', '.join(one.picks)})" if one.picks else ""
    return f"{one.group}, seed {one.seed}: {one.name}{picks}\ntest error {percent(one.error)}, {count(one.cost)} MACs"


def reaching_section(found: Comparison) -> Html | None:
    """What it costs to reach an accuracy, in every quantity that all runs have."""
    groups = progress(found)
    kinds = quantities(groups)
    if not kinds:
        return None
    colours, marks = looks(found), levels(groups)
    views = [
        tag(
            "div",
            _curves(groups, kind, colours),
            _levels_table(groups, kind, marks) if marks else None,
            data_view=kind,
        )
        for kind in kinds
    ]
    options = [tag("option", QUANTITIES[kind], value=kind) for kind in kinds]
    choice = tag("label", "Cost in ", tag("select", options), class_="scripted tools")
    return section(
        "reaching",
        "What an accuracy costs",
        tag("div", choice, views, class_="choice"),
        lead="The best accuracy that a method has measured so far, against what the clients have spent by then: mean "
        "over seeds with its 95 % interval. A search by a policy counts from its last phase on. "
        f"{_measured_on(found, groups)}",
    )


def _measured_on(found: Comparison, groups: Mapping[str, Sequence[ErrorByCost]]) -> str:
    """The rows that the curves are about, by method where they differ."""
    rows: dict[str, list[str]] = {}
    for group, runs in runs_of(found).items():
        if group in groups:
            rows.setdefault(measured_on(runs[0].manifest), []).append(group)
    if len(rows) == 1:
        return f"It is measured on {next(iter(rows))}."
    each = "; ".join(f"on {words}: {', '.join(names)}" for words, names in rows.items())
    return f"Measured {each}. Curves on different rows cannot be compared."


def _curves(groups: Mapping[str, Sequence[ErrorByCost]], kind: str, colours: Mapping[str, str]) -> Html | None:
    most = max((one.spent[kind][-1] for runs in groups.values() for one in runs if one.accuracy), default=1.0)
    lines, least = [], most
    for group, runs in groups.items():
        curve = mean_curve(runs, kind, most)
        if not curve:
            continue
        least = min(least, curve[0][0])
        band = [(cost, max(0.0, one.low), min(1.0, one.high)) for cost, one in curve if not math.isnan(one.low)]
        lines.append(Line(group, [(cost, one.mean) for cost, one in curve], colours[group], band=band))
    wide = most > 3 * least > 0
    scale = Scale(least / 1.05, most * 1.05, True) if wide else linear([least, most])
    heights = [value for line in lines for _, value in line.points]
    return line_chart(
        LineChart(
            f"Accuracy against {QUANTITIES[kind]}",
            lines,
            "accuracy, best so far",
            percent,
            x_label=QUANTITIES[kind],
            x_form=FORMS[kind],
            x=scale,
            y=linear(heights, room=0.08),
            key=f"reaching-{kind}",
            height=300,
        )
    )


def _levels_table(groups: Mapping[str, Sequence[ErrorByCost]], kind: str, marks: Sequence[float]) -> Html:
    columns = [TableColumn("cost to reach", False), *(TableColumn(percent(level)) for level in marks)]
    rows = []
    for group, runs in groups.items():
        cells = []
        for level in marks:
            one = cost_to_reach(runs, level, kind)
            part = "" if one.reached == one.runs else f", {one.reached} of {one.runs}"
            cells.append("never" if not one.reached else f"{FORMS[kind](one.interval.mean)}{part}")
        rows.append([group, *cells])
    return table(columns, rows, label=f"Cost to reach an accuracy: {QUANTITIES[kind]}")


def clients_section(found: Comparison) -> Html | None:
    """How the networks do on the clients for which they are worst."""
    colours = looks(found)
    rows = [(row, worst_by_seed(row)) for row in found.rows]
    known = [(row, values) for row, values in rows if values]
    if not known:
        return None
    first = leading(found.rows)
    drawn = [_interval_row(row.name, values, colours[row.group], _three, row in first) for row, values in known]
    return section(
        "clients",
        "For whom is it worst?",
        interval_rows(
            "Worst tenth of the clients",
            drawn,
            label="weighted F1 of the network on their own test rows",
            form=lambda value: f"{value:.2g}",
            about="The mean of the lowest tenth of the clients in each run (at least one client), over seeds.",
        ),
        _clients_table(found),
    )


def _clients_table(found: Comparison) -> Html | None:
    rows = [row for row in leading(found.rows) if any(one.clients for one in row.found)]
    clients = found.clients
    if not rows or len(clients) > MOST_CLIENTS:
        return None
    columns = [TableColumn("client", False), *(TableColumn(row.group) for row in rows)]
    body: list[list[object]] = []
    for client in clients:
        means = [_mean(row.of_client(client)) for row in rows]
        best = max((mean for mean in means if not math.isnan(mean)), default=math.nan)
        cells = [
            "" if math.isnan(mean) else tag("b", f"{mean:.3f}") if mean == best else f"{mean:.3f}" for mean in means
        ]
        body.append([client, *cells])
    body.append(["clients won", *(str(number) for number in wins(rows, clients))])
    return tag(
        "details",
        tag("summary", "Each client: mean weighted F1 of the recommended networks"),
        table(columns, body, label="Weighted F1 on each client", sortable=True, marked=[len(body) - 1]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def cost_section(found: Comparison) -> Html:
    """What the runs cost, and why they ended."""
    columns = [TableColumn("group", False), TableColumn("rounds"), TableColumn("client MACs"), TableColumn("sent")]
    columns += [
        TableColumn("received"),
        TableColumn("virtual time"),
        TableColumn("time"),
        TableColumn("of the budget"),
        TableColumn("ended by", False),
    ]
    rows = []
    for group, runs in runs_of(found).items():
        row = next(one for one in found.rows if one.group == group)
        share = _mean(
            [value for run in runs if not math.isnan(value := budget_share(run.config.get("stop", {}), run.result))]
        )
        stopped = [str(run.result["stopped"]).partition(" =")[0] for run in runs if run.result.get("stopped")]
        ended = ", ".join(dict.fromkeys(stopped)) or "its own last round"
        if stopped and len(stopped) < len(runs):
            ended += f" ({len(stopped)} of {len(runs)} runs)"
        rows.append(
            [
                group,
                f"{row.mean_result('rounds'):,.3g}",
                count(row.mean_cost("client_macs")),
                amount(row.mean_cost("bytes_up")),
                amount(row.mean_cost("bytes_down")),
                seconds_words(row.mean_cost("simulated_seconds")),
                seconds_words(row.mean_result("wall_seconds")),
                "-" if math.isnan(share) else percent(share),
                ended,
            ]
        )
    kept = [place for place in range(len(columns)) if any(row[place] not in ("", "-") for row in rows)]
    return section(
        "cost",
        "What the runs cost",
        table(
            [columns[place] for place in kept],
            [[row[place] for place in kept] for row in rows],
            label="Cost of the runs",
        ),
        _tuning_table(found),
        lead="Mean over seeds, all clients together. A run ends after the round in which it reaches its budget, so it "
        "may use somewhat more; one whose own rounds are over before uses less.",
    )


def _tuning_table(found: Comparison) -> Html | None:
    """The choice of learning rates, which is part of no budget."""
    if not found.tuning:
        return None
    columns = [TableColumn("learning rate of", False), TableColumn("chosen"), TableColumn("of", False)]
    columns += [TableColumn("client MACs"), TableColumn("sent")]
    rows = [[one.name, f"{one.rates[0]:g}", one.grid, count(one.macs), amount(one.sent)] for one in found.tuning]
    return table(columns, rows, label="What the choice of learning rates cost besides, on one seed")


def rows_table(rows: Sequence[Row]) -> Html:
    """Every row in numbers."""
    columns = [
        TableColumn("network", False),
        TableColumn("seeds"),
        TableColumn("test error"),
        TableColumn("weighted F1"),
    ]
    columns += [TableColumn("worst tenth"), TableColumn("MACs"), TableColumn("weights")]
    body = []
    for row in rows:
        macs, params, worst = row.mean("macs"), row.mean("params"), worst_by_seed(row)
        f1 = row.values("f1")
        body.append(
            [
                row.name,
                str(len(row.found)),
                percent(_mean(row.values("error"))),
                "" if any(map(math.isnan, f1)) else f"{_mean(f1):.3f}",
                f"{_mean(worst):.3f}" if worst else "",
                "" if math.isnan(macs) else count(macs),
                "" if math.isnan(params) else count(params),
            ]
        )
    return table(columns, body, label="All rows", sortable=True)
