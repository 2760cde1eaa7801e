"""`atoll report`: one or several runs as a single HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from atoll.errors import AtollError, ConfigError, RunDamaged, RunDirectoryError
from atoll.report.figures.catalogue import named_runs
from atoll.report.html.charts.lines import POINTS
from atoll.report.html.markup import Html, tag
from atoll.report.html.page import contents, single_file, top
from atoll.report.html.sections.classes import classes_section
from atoll.report.html.sections.clients import clients_section
from atoll.report.html.sections.cost import cost_section
from atoll.report.html.sections.front import MOST_LAYERS, front_section
from atoll.report.html.sections.networks import MOST, networks_section
from atoll.report.html.sections.overview import overview_section
from atoll.report.html.sections.reproduce import reproduce_section
from atoll.report.html.sections.rounds import rounds_section
from atoll.report.html.sections.summary import summary_section
from atoll.report.html.sections.timeline import timeline_section
from atoll.report.reference import reference_of
from atoll.report.view import NOT_AS_WRITTEN, STATES, RunView, view
from atoll.run.reader import Run, load

LARGEST = 2_000_000  # bytes of a report; a larger one is drawn again with less detail
TITLES = {
    "summary": "In short",
    "front": "Front",
    "rounds": "Rounds",
    "networks": "Networks",
    "clients": "Clients",
    "classes": "Classes",
    "cost": "Cost",
    "timeline": "Virtual network",
    "reproduce": "Reproduce, use",
}


def write_report(directories: Sequence[Path], out: Path) -> Path:
    """The report of these runs in one file."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"'{out}': a report is an HTML file; end its name with .html", code="unknown-report-format")
    runs = named_runs(directories)
    try:
        text = report([_ready(name, run) for name, run in runs.items()])
    except NOT_AS_WRITTEN as problem:
        places = ", ".join(str(run.path) for run in runs.values())
        reason = f"{type(problem).__name__}: {problem}"
        raise RunDamaged(f"{places}: files are not as Atoll writes them ({reason})", code="file-damaged") from problem
    return write_text(out, text)


def write_text(out: Path, text: str) -> Path:
    """Write a page; a folder that does not exist is made."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise ConfigError(
            f"cannot write '{out}' ({problem.strerror or problem}); name another file", code="cannot-write-file"
        ) from None
    return out


def _ready(name: str, run: Run) -> RunView:
    found = view(run, name)
    if not found.rounds:
        raise RunDirectoryError(f"{run.path}: no round is done yet, there is nothing to report", code="no-round-done")
    return replace(found, rivals=rivals_beside(run.path))


def rivals_beside(path: Path) -> dict[str, RunView]:
    """The rivals that `atoll baselines` has trained for this run: the first finished run of each."""
    found: dict[str, RunView] = {}
    folder = path.with_name(f"{path.name}-baselines")
    for place in sorted(folder.glob("*/seed-*/result.json")):
        name = place.parent.parent.name
        if name != "tuning" and name not in found:
            try:
                found[name] = view(load(place.parent), name)
            except AtollError:
                continue  # a rival that cannot be read is no reason to refuse the report
    return found


def report(views: Sequence[RunView]) -> str:
    """The page. If it is too large it is drawn with fewer points, earlier fronts and networks."""
    detail = 1.0
    while True:
        text = _page(views, detail)
        if len(text.encode()) <= LARGEST or detail < 0.02:
            return text
        detail /= 2


def _page(views: Sequence[RunView], detail: float) -> str:
    whole = _with_each_other(views)
    made = datetime.now(UTC).strftime("%Y-%m-%d")
    if len(whole) == 1:
        one = whole[0]
        parts = run_sections(one, "", detail)
        title = heading(one)
        body: list[object] = [
            tag("h1", title),
            tag("p", subtitle(one), class_="subtitle"),
            contents([(name, TITLES[name]) for name in parts]),
            list(parts.values()),
        ]
    else:
        title = f"{len(whole)} runs: {', '.join(dict.fromkeys(one.method for one in whole))}"
        links = contents([(f"run-{number}", one.name) for number, one in enumerate(whole, start=1)])
        body = [tag("h1", title), links, overview_section(whole)]
        for number, one in enumerate(whole, start=1):
            prefix = f"r{number}-"
            parts = run_sections(one, prefix, detail / len(whole))
            head = [tag("h2", f"{one.name}: {heading(one)}"), tag("p", subtitle(one), class_="subtitle")]
            links = contents([(f"{prefix}{name}", TITLES[name]) for name in parts])
            body.append(tag("article", head, links, list(parts.values()), id=f"run-{number}"))
    source = "the run directory" if len(whole) == 1 else "run directories"
    words = f"Made by Atoll on {made} from {source}. This file is complete: it loads nothing from anywhere."
    foot = tag("footer", words)
    main = tag("main", body, id="content")
    return single_file(title, tag("div", top("report"), main, foot, class_="page"))


def _with_each_other(views: Sequence[RunView]) -> list[RunView]:
    """Runs of one network are rivals in the fronts of the others, if they have the same data."""
    fixed = {one.name: one for one in views if not one.digest.fronts and one.best is not None}
    return [
        replace(one, rivals={**one.rivals, **_of_same_data(one, fixed)}) if one.digest.fronts else one for one in views
    ]


def _of_same_data(one: RunView, others: Mapping[str, RunView]) -> dict[str, RunView]:
    return {name: other for name, other in others.items() if other.data == one.data and other.classes == one.classes}


def run_sections(one: RunView, prefix: str, detail: float = 1.0) -> dict[str, Html]:
    """The sections of one run by their names; those that it has nothing for are left out."""
    points, reference = max(40, int(POINTS * min(1.0, detail * 2))), reference_of(one)
    layers, most = max(2, int(MOST_LAYERS * min(1.0, detail * 2))), max(4, int(MOST * min(1.0, detail * 2)))
    found = {
        "summary": summary_section(one, reference, prefix),
        "front": front_section(one, prefix, layers),
        "rounds": rounds_section(one, prefix, points),
        "networks": networks_section(one, prefix, most),
        "clients": clients_section(one, prefix),
        "classes": classes_section(one, prefix),
        "cost": cost_section(one, reference, prefix, points),
        "timeline": timeline_section(one, prefix, points),
        "reproduce": reproduce_section(one, prefix),
    }
    return {name: part for name, part in found.items() if part is not None}


def heading(one: RunView) -> str:
    return f"{one.method} on {one.data}"


def subtitle(one: RunView) -> Html:
    """Seed, rounds, clients, when, and the state."""
    clients = int(one.manifest["data"]["clients"])
    rounds = f"{one.rounds:,} rounds" if one.rounds != 1 else "1 round"
    who = f"{clients:,} clients" if clients != 1 else "1 client"
    started = str(one.manifest.get("created", ""))[:10]
    words = " · ".join(part for part in (rounds, f"seed {one.seed}", who, started) if part)
    return tag("span", tag("span", STATES[one.state].partition(";")[0], class_=f"state {one.state}"), f" · {words}")
