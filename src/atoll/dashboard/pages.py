"""The pages of the dashboard, as parts that are replaced when they change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from atoll.dashboard.followed import FollowedRun
from atoll.errors import AtollError
from atoll.report.html.charts.frame import COLOURS
from atoll.report.html.charts.lines import Line, LineChart, line_chart, sparkline
from atoll.report.html.charts.scales import amount, count, duration, percent, plain
from atoll.report.html.markup import Html, join, lines, tag
from atoll.report.html.page import document, section, top
from atoll.report.html.run_report import heading, subtitle
from atoll.report.html.sections.classes import classes_section
from atoll.report.html.sections.clients import clients_section
from atoll.report.html.sections.cost import cost_section
from atoll.report.html.sections.front import front_section
from atoll.report.html.sections.networks import networks_table
from atoll.report.html.sections.rounds import curve, rounds_section, so_far
from atoll.report.html.sections.summary import summary_section
from atoll.report.html.sections.timeline import timeline_section
from atoll.report.html.tables import TableColumn, facts, table
from atoll.report.view import NOT_AS_WRITTEN, STATES, RunView

POINTS, LAYERS = 160, 16  # a live page is sent again and again: fewer points than in a report
MOST_BESIDE = 8  # runs side by side
WORDS = {**STATES, "reading": "being read", "waiting": "has not begun yet"}


@dataclass(frozen=True)
class FederationState:
    """What `atoll federation status` gives."""

    columns: Sequence[str] = ()
    sites: Sequence[Sequence[str]] = ()  # a row for each
    runs: Sequence[str] = ()
    notes: Sequence[str] = ()


Status = Callable[[str], FederationState]  # the federation's directory -> its state


@dataclass(frozen=True)
class LivePage:
    """A page: its title, and its parts by their ids."""

    title: str
    parts: dict[str, Html] = field(default_factory=dict)
    rows: dict[str, Html] = field(default_factory=dict)  # of the table of runs
    version: int = 0  # of what it shows


def shell(page: LivePage, back: str = ".") -> str:
    """The whole document. Its parts are filled in, and the script replaces them later."""
    head = [
        tag("link", rel="stylesheet", href=f"{back}/static/page.css"),
        tag("script", src=f"{back}/static/page.js"),
        tag("script", src=f"{back}/static/live.js", defer=True),
    ]
    status = tag("span", "connecting", class_="live scripted", role="status", id="live")
    parts = [tag("div", part, id=name, class_="part") for name, part in page.parts.items()]
    main = tag("main", parts, id="content", data_version=page.version)
    is_list = "runs" in page.parts
    links = None if is_list else tag("a", "All runs", href=f"{back}/")
    above = top(join(links, " \u00b7 " if links else "", status))
    return document(page.title, head, tag("div", above, main, class_="page wide" if is_list else "page"))


# -- the list of runs --------------------------------------------------------------------------------------------------


def index_page(runs: Sequence[FollowedRun], root: str) -> LivePage:
    """All runs, those that changed last first."""
    rows = {run.id: _safe_row(run) for run in runs}
    head = join(
        tag("h1", "Runs"),
        tag("p", index_summary(runs, root), class_="subtitle", id="counted"),
    )
    return LivePage(f"Atoll: runs in {root}", {"head": head, "runs": _index_table(runs, rows)}, rows)


def index_summary(runs: Sequence[FollowedRun], root: str) -> str:
    states = ("running", "finished", "stopped", "damaged", "foreign", "waiting", "reading")
    number = {state: sum(run.state == state for run in runs) for state in states}
    words = [f"{found} {WORDS[state].partition(';')[0]}" for state, found in number.items() if found]
    return f"{len(runs)} in {root}: {', '.join(words)}" if runs else f"none in {root} yet"


def _index_table(runs: Sequence[FollowedRun], rows: dict[str, Html]) -> Html:
    methods = sorted({run.view.method for run in runs if run.view is not None})
    states = sorted({run.state for run in runs})
    tools = tag(
        "div",
        tag(
            "label",
            tag("span", "Search", class_="hidden"),
            tag("input", type="search", id="search", placeholder="Search name, method, data"),
        ),
        _filter("state", [(state, WORDS[state].partition(";")[0]) for state in states]),
        _filter("method", [(method, method) for method in methods]),
        class_="tools scripted",
    )
    heads = [
        ("", "pick for side by side"),
        ("run", ""),
        ("state", ""),
        ("method", ""),
        ("data", ""),
        ("seed", "n"),
        ("round", "n"),
    ]
    heads += [("accuracy", "n"), ("", "accuracy over the rounds"), ("changed", "")]
    head = tag(
        "tr",
        (
            tag("th", word or tag("span", extra, class_="hidden"), scope="col", class_="n" if extra == "n" else None)
            for word, extra in heads
        ),
    )
    inner = tag("table", tag("thead", head), tag("tbody", list(rows.values()), id="rows"), class_="runs")
    button = tag("div", tag("button", "Show the picked runs side by side", type="submit"), class_="tools")
    scroll = tag("div", inner, class_="scroll", role="region", aria_label="Runs", tabindex=0)
    return tag("form", tools, scroll, button, action="side", method="get")


def _filter(word: str, choices: Sequence[tuple[str, str]]) -> Html:
    options = [tag("option", f"every {word}", value="")] + [tag("option", text, value=value) for value, text in choices]
    return tag("label", tag("span", word, class_="hidden"), tag("select", options, class_="filter", data_filter=word))


def _safe_row(run: FollowedRun) -> Html:
    """The row of a run, whatever its files say."""
    try:
        return index_row(run)
    except (AtollError, *NOT_AS_WRITTEN) as problem:
        run.cannot_be_drawn(problem)
        return index_row(run)


def index_row(run: FollowedRun) -> Html:
    """One run in the list."""
    view = run.view
    cells: list[object] = [""] * 6
    if view is not None:
        errors = view.digest.series.get("error")
        accuracy = [(number, 1 - value) for number, value in errors] if errors is not None else []
        of = f" / {view.planned:,}" if view.planned else ""
        cells = [
            view.method,
            view.data,
            tag("td", str(view.seed), class_="n"),
            tag("td", f"{view.rounds:,}{of}", class_="n"),
            tag("td", _accuracy(view), class_="n"),
            sparkline(accuracy),
        ]
    shown = [cell if isinstance(cell, Html) and cell.startswith("<td") else tag("td", cell) for cell in cells]
    name = tag("a", run.name, href=f"run/{run.id}")
    pick = tag("input", type="checkbox", name="run", value=run.id, aria_label=f"pick {run.name}", disabled=view is None)
    reason = tag("span", run.reason, class_="reason") if run.reason else None
    brief = join(state_mark(run.state), f" {_brief(view)}" if view is not None else "")
    return tag(
        "tr",
        tag("td", pick, class_="pick"),
        tag(
            "th",
            name if view is not None or run.state == "waiting" else run.name,
            reason,
            tag("span", brief, class_="brief"),
            scope="row",
            class_="name",
        ),
        tag("td", state_mark(run.state)),
        shown,
        tag("td", _ago(run.seconds)),
        id=f"run-{run.id}",
        data_state=run.state,
        data_method=view.method if view is not None else "",
        data_text=" ".join([run.name, *([view.method, view.data] if view is not None else [])]).lower(),
    )


def _brief(view: RunView) -> str:
    """A run in a line, for a narrow screen."""
    of = f" of {view.planned:,}" if view.planned else ""
    parts = (view.method, f"{view.rounds:,}{of} rounds", _accuracy(view))
    return " \u00b7 ".join(part for part in parts if part)


def _accuracy(view: RunView) -> str:
    if view.best is not None and "test" in view.best:
        return f"{percent(1 - view.best['test']['test_error'])} test"
    errors = view.digest.series.get("error")
    return percent(1 - errors.last) if errors is not None and len(errors) else ""


def state_mark(state: str) -> Html:
    return tag("span", WORDS[state].partition(";")[0], class_=f"state {state}")


def _ago(moment: float) -> str:
    if not moment:
        return ""
    seconds = max(0.0, time.time() - moment)
    return "now" if seconds < 60 else time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


# -- one run -----------------------------------------------------------------------------------------------------------


def run_page(run: FollowedRun, federation: FederationState | None = None) -> LivePage:
    """A run as it is now: the sections of its report that are quickly drawn, with the last numbers."""
    view = run.view
    if view is None:
        words = (
            run.reason or "It is being read."
            if run.state != "waiting"
            else "It has not begun yet; this page follows it."
        )
        return LivePage(run.name, {"head": join(tag("h1", run.name), tag("p", state_mark(run.state)), tag("p", words))})
    sections = {
        "summary": summary_section(view, None),
        "federation": None if federation is None else federation_section(federation),
        "front": front_section(view, layers=LAYERS),
        "rounds": rounds_section(view, points=POINTS),
        "networks": networks_table(view),
        "clients": clients_section(view),
        "classes": classes_section(view),
        "cost": cost_section(view, None, points=POINTS),
        "timeline": timeline_section(view, points=POINTS),
        "failures": _failures(view),
    }
    parts = {"head": _run_head(run, view)}
    parts |= {f"part-{name}": part if part is not None else Html("") for name, part in sections.items()}
    return LivePage(f"{view.name}: {heading(view)}", parts)


def _run_head(run: FollowedRun, view: RunView) -> Html:
    done = view.rounds / view.planned if view.planned else 0.0
    bar = None
    if view.state != "finished" and view.planned:
        bar = tag("progress", value=view.rounds, max=view.planned, aria_label="rounds done")
    full = (
        tag("p", tag("a", "The full report, with all networks drawn", href=f"{run.id}/report")) if view.rounds else None
    )
    hint = None
    if view.state == "stopped":
        hint = tag("pre", lines(f"atoll resume {view.path}"), tabindex=0, role="region", aria_label="how to continue")
    return join(
        tag("h1", heading(view)),
        tag("p", subtitle(view), " · ", view.name, class_="subtitle"),
        tag("p", bar, f" {percent(done)} of the rounds" if bar is not None else "") if bar is not None else None,
        hint,
        full,
    )


def _failures(view: RunView) -> Html | None:
    """Rounds that too few clients answered."""
    found = view.digest.failures
    if not found:
        return None
    columns = [TableColumn("round"), TableColumn("attempt"), TableColumn("why", False)]
    rows = [[str(one.round), str(one.attempt), one.reason] for one in reversed(found[-20:])]
    lead = f"{view.digest.failed_attempts} attempts of rounds got too few replies; the last ones:"
    return section(
        "failed-attempts", "Rounds that were repeated", table(columns, rows, label="Failed attempts"), lead=lead
    )


def federation_section(state: FederationState) -> Html:
    """The sites: what `atoll federation status` shows."""
    columns = [TableColumn(word, word == "rows") for word in state.columns]
    return section(
        "federation",
        "The federation",
        [tag("p", note) for note in state.notes],
        table(columns, [list(site) for site in state.sites], label="Sites") if state.sites else None,
        tag("ul", (tag("li", line) for line in state.runs)) if state.runs else None,
    )


# -- several runs side by side -----------------------------------------------------------------------------------------


def side_page(runs: Sequence[FollowedRun]) -> LivePage:
    """The same charts for all, and a column of numbers for each."""
    views = [run.view for run in runs if run.view is not None][:MOST_BESIDE]
    if not views:
        words = "Pick two or more runs in the list, then show them side by side."
        return LivePage("Side by side", {"head": join(tag("h1", "Side by side"), tag("p", words))})
    columns = [
        tag(
            "div",
            tag("h2", tag("a", view.name, href=f"run/{run.id}")),
            tag("p", subtitle(view), class_="subtitle"),
            facts(_numbers(view)),
        )
        for run, view in zip([run for run in runs if run.view is not None], views, strict=False)
    ]
    parts = {
        "head": tag("h1", f"{len(views)} runs side by side"),
        "charts": tag("div", list(_charts(views)), class_="charts"),
        "columns": tag("section", tag("div", columns, class_="side")),
    }
    return LivePage("Side by side", parts)


def _numbers(view: RunView) -> list[tuple[str, object]]:
    total = view.digest.total
    found: list[tuple[str, object]] = [("method", view.method), ("data", view.data), ("round", f"{view.rounds:,}")]
    found += [
        ("accuracy", _accuracy(view) or "-"),
        ("sent", amount(total.bytes_up)),
        ("computed", f"{count(total.client_macs)} MACs"),
    ]
    if len(view.digest.seconds):
        found.append(("time", duration(view.digest.seconds.last)))
    return found


def _charts(views: Sequence[RunView]) -> Iterable[Html]:
    """A chart for each quantity; accuracies of different data are in charts of their own."""
    looks = {id(view): f"c{number % COLOURS}" for number, view in enumerate(views)}
    for data in dict.fromkeys(view.data for view in views):
        own = [view for view in views if view.data == data]
        wanted = [Line(view.name, _errors(view), looks[id(view)]) for view in own]
        title = "Accuracy" if len({view.data for view in views}) == 1 else f"Accuracy on {data}"
        yield from _drawn(
            LineChart(title, wanted, "rows answered correctly", percent, key=f"side-{data}", points=POINTS)
        )
    hypervolume = [Line(view.name, curve(view, "hypervolume"), looks[id(view)]) for view in views]
    yield from _drawn(LineChart("Hypervolume", hypervolume, "share of the space", plain, key="side-hv", points=POINTS))
    for name, title, form in (("bytes_up", "Sent so far", amount), ("client_macs", "Computed so far", count)):
        wanted = [Line(view.name, so_far(view.digest.costs[name]), looks[id(view)]) for view in views]
        yield from _drawn(
            LineChart(title, wanted, "all clients together", form, zero=True, key=f"side-{name}", points=POINTS)
        )


def _errors(view: RunView) -> Sequence[tuple[float, float]]:
    tested = curve(view, "test_error", True)
    return tested or curve(view, "error", True)


def _drawn(chart: LineChart) -> Iterable[Html]:
    drawn = line_chart(chart)
    return [] if drawn is None else [drawn]
