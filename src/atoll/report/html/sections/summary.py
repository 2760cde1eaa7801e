"""What was run and found, in words, before anything else."""

from __future__ import annotations

from atoll.report.html.charts.scales import amount, count, duration, percent
from atoll.report.html.markup import Html, join, tag
from atoll.report.html.page import notes, section
from atoll.report.html.tables import facts
from atoll.report.reference import Reference, total
from atoll.report.sentences import paragraphs
from atoll.report.view import RunView

MOST_PROBLEMS = 12


def summary_section(view: RunView, reference: Reference | None, prefix: str = "") -> Html:
    """Sentences, the most important numbers, and what a reader must be warned of."""
    words = tag("div", (tag("p", text) for text in paragraphs(view, reference) if text), class_="summary")
    return section(f"{prefix}summary", "In short", words, facts(key_numbers(view)), problems(view))


def key_numbers(view: RunView) -> list[tuple[str, object]]:
    """The numbers that people ask for first."""
    found: list[tuple[str, object]] = []
    best, spent = view.best, total(view)
    if best is not None and "test" in best:
        own = best["test"]
        found.append(("test accuracy", _with(percent(1 - own["test_error"]), f"of {own['test_rows']:,} rows")))
        if "test_f1" in own:
            found.append(("weighted F1", f"{own['test_f1']:.3f}"))
    elif "error" in view.digest.series:
        found.append(("accuracy", _with(percent(1 - view.digest.series["error"].last), f"on {view.measured_on}")))
    if best is not None and "macs" in best["objectives"]:
        found.append(("MACs", _with(count(best["objectives"]["macs"]), "of one forward pass")))
    if best is not None and "params" in best["objectives"]:
        found.append(("weights", f"{int(best['objectives']['params']):,}"))
    if view.result is None:
        found.append(("rounds", _with(f"{view.rounds:,}", f"of {view.planned:,}" if view.planned else "")))
    if not view.manifest.get("centralised"):
        found.append(("sent by clients", _with(amount(spent.bytes_up), f"{amount(spent.bytes_down)} received")))
    found.append(("computed", _with(count(spent.client_macs), "MACs of all clients")))
    if spent.simulated_seconds:
        found.append(("virtual time", duration(spent.simulated_seconds)))
    return found


def problems(view: RunView) -> Html | None:
    """Warnings about clients and networks."""
    found = view.problems
    shown = found[:MOST_PROBLEMS]
    if len(found) > MOST_PROBLEMS:
        shown.append(f"and {len(found) - MOST_PROBLEMS} more, see the table of the clients")
    return notes("What to know before you trust it", [text[:1].upper() + text[1:] for text in shown])


def _with(value: str, small: str) -> Html:
    return join(value, tag("small", small) if small else None)
