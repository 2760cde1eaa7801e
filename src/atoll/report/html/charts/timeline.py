"""What each client did when, on a virtual network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll.report.html.charts.frame import Axis, Chart, LegendEntry, draw, x_share
from atoll.report.html.charts.scales import Scale, duration
from atoll.report.html.markup import Html, svg
from atoll.report.html.tables import TableColumn

CLIENTS = 30
ROW = 20
TASKS = 1500  # drawn at most
PARTS = (("download", "c5"), ("compute", "c2"), ("upload", "c0"))
WORDS = {"late": "late", "stale": "too late", "failed": "no reply", "rejected": "rejected"}
LOOKS = {"late": "c4", "stale": "c1", "failed": "ink", "rejected": "c3"}


def timeline_chart(rounds: Sequence[Mapping[str, Any]], title: str, key: str = "") -> Html | None:
    """The last rounds: a row for each client, its tasks as bars of download, compute and upload."""
    shown = [one for one in rounds if one["tasks"]]
    if not shown or shown[-1]["to"] <= shown[0]["from"]:
        return None
    names = sorted({str(row[0]) for one in shown for row in one["tasks"]})
    clients = names[:CLIENTS]
    while len(shown) > 1 and sum(len(one["tasks"]) for one in shown) > TASKS:
        shown = shown[1:]
    start, end = float(shown[0]["from"]), float(shown[-1]["to"])
    x = Axis("virtual seconds since the start of the run", Scale(start, end), duration)
    height = ROW * len(clients)
    places = {name: place for place, name in enumerate(clients)}
    tasks = [row for one in shown for row in one["tasks"] if str(row[0]) in places]
    drawn = [
        svg("line", x1=x_share(x, one["to"]), x2=x_share(x, one["to"]), y1=0, y2=height, class_="boundary")
        for one in shown[:-1]
    ]
    drawn += [part for row in tasks for part in _task(row, places[str(row[0])], x, start)]
    fates = [fate for fate in WORDS if any(row[6] == fate for row in tasks)]
    entries = [LegendEntry(word, look, "square") for word, look in PARTS]
    entries += [LegendEntry(WORDS[fate], LOOKS[fate], "diamond") for fate in fates]
    first, last = shown[0]["round"], shown[-1]["round"]
    about = f"Round {first}" if first == last else f"Rounds {first} to {last}, with a dashed line between two"
    about += f"; {len(names) - len(clients)} more clients are not shown." if len(names) > len(clients) else "."
    y = Axis("", Scale(0, len(clients)), lambda value: "", ())
    chart = Chart(
        title,
        x,
        y,
        about,
        entries,
        numbers=(COLUMNS, _numbers(tasks)),
        height=height,
        spoken=f"{title}: {len(tasks)} tasks of {len(clients)} clients in {duration(end - start)}",
        classes="named",
        key=key,
        names=[(ROW * place + ROW / 2, _short(name)) for place, name in enumerate(clients)],
    )
    return draw(chart, drawn)


COLUMNS = [TableColumn("client", False), *map(TableColumn, ("round", "sent", "downloaded", "computed", "received"))]
COLUMNS.append(TableColumn("reply", False))


def _task(row: Sequence[Any], place: int, x: Axis, start: float) -> list[Html]:
    _, _, began, downloaded, computed, arrived, fate, *held = row
    top = ROW * place + 4
    if (held[0] if held else arrived) < start:
        return []
    if downloaded is None or computed is None:
        middle = ROW * place + ROW / 2
        drawn = [
            svg(
                "line", x1=x_share(x, max(began, start)), x2=x_share(x, arrived), y1=middle, y2=middle, class_="waiting"
            )
        ]
    else:
        moments = [max(moment, start) for moment in (began, downloaded, computed, arrived)]
        drawn = [
            svg(
                "rect", x=x_share(x, first), width=f"{100 * (x.scale.at(then) - x.scale.at(first)):.2f}%", y=top,
                height=ROW - 8, class_=f"fill {look}",
            )
            for (_, look), first, then in zip(PARTS, moments[:-1], moments[1:], strict=True)
            if then > first
        ]  # fmt: skip
    if fate in LOOKS:
        path = svg("path", d="M0 -5L5 0L0 5L-5 0Z", class_=f"fill {LOOKS[fate]}")
        at = held[0] if held else arrived
        drawn.append(svg("svg", path, x=x_share(x, at), y=ROW * place + ROW / 2, overflow="visible"))
    return drawn


def _numbers(tasks: Sequence[Sequence[Any]]) -> list[list[str]]:
    return [
        [str(row[0]), str(row[1]), *("" if time is None else f"{time:,.2f}" for time in row[2:6]), str(row[6])]
        for row in tasks[-40:]
    ]


def _short(name: str) -> str:
    return name if len(name) <= 14 else f"{name[:6]}…{name[-7:]}"
