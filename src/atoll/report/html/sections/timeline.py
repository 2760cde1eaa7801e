"""A run on a virtual network: who did what when, and how long replies took."""

from __future__ import annotations

from atoll.report.html.charts.lines import POINTS, Line, LineChart, line_chart
from atoll.report.html.charts.scales import duration
from atoll.report.html.charts.timeline import timeline_chart
from atoll.report.html.markup import Html
from atoll.report.html.page import section
from atoll.report.view import RunView


def timeline_section(view: RunView, prefix: str = "", points: int = POINTS) -> Html | None:
    """The last rounds as a timeline, and the latency of every round."""
    chart = timeline_chart(view.digest.timeline, "What the clients did in the last rounds", f"{prefix}timeline")
    if chart is None:
        return None
    lines = [
        Line("slowest reply", list(view.digest.latencies["longest"]), "c1"),
        Line("mean reply", list(view.digest.latencies["mean"]), "c0", "dashes"),
    ]
    latency = line_chart(
        LineChart(
            "Latency of replies", lines, "virtual seconds", duration, zero=True, key=f"{prefix}latency", points=points
        )
    )
    lead = "Nothing was slowed down: a clock of the network's own decided when each reply arrived."
    return section(f"{prefix}timeline", "On the virtual network", chart, latency, lead=lead)
