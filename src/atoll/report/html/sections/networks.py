"""The networks that a run found: a table of all, and a drawing of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll.errors import AtollError
from atoll.report.html.charts.scales import amount, count, duration, percent, plain
from atoll.report.html.markup import Html, tag
from atoll.report.html.networks.blocks import StartNetwork, block_row, choice_blocks, layer_blocks, width_blocks
from atoll.report.html.networks.cells import cell_drawing
from atoll.report.html.page import section
from atoll.report.html.tables import TableColumn, table
from atoll.report.view import NOT_AS_WRITTEN, Entry, RunView
from atoll.run.reader import Run

OPEN = 3  # networks whose drawings are open from the start
MOST = 40  # networks that are drawn
HEADINGS = {"macs": "MACs", "params": "weights", "upload_bytes": "upload", "psi": "psi", "test_f1": "test F1"}
SETTINGS = {
    "epsilon": "epsilon {:.4g}",
    "xi": "removes {:.1%} of the weights before an upload",
    "lr": "learning rate {:.3g}",
}
SETTINGS |= {"cells": "{} cells", "channels": "{} channels"}


def networks_section(view: RunView, prefix: str = "", most: int = MOST) -> Html | None:
    """What the run handed over."""
    entries = sorted(view.candidates, key=lambda entry: (not entry["picks"], bool(entry.get("owner"))))
    if not entries:
        return None
    start = StartNetwork.of([own for entry in entries if (own := entry["architecture"]).get("space") == "widths"])
    drawn = [_network(view, entry, start, number < OPEN) for number, entry in enumerate(entries[:most])]
    more = len(entries) - most
    return section(
        f"{prefix}networks",
        "The networks" if len(entries) > 1 else "The network",
        _table(view, entries) if len(entries) > 1 else None,
        drawn,
        tag("p", f"{more} more networks are in result.json.", class_="muted") if more > 0 else None,
    )


def networks_table(view: RunView) -> Html | None:
    """The networks without their drawings."""
    entries = sorted(view.candidates, key=lambda entry: (not entry["picks"], bool(entry.get("owner"))))
    return section("networks", "The networks", _table(view, entries)) if entries else None


def _table(view: RunView, entries: Sequence[Entry]) -> Html:
    names = list(
        dict.fromkeys(name for entry in entries for name in entry["objectives"] if name not in ("error", "test_error"))
    )
    columns = [
        TableColumn("network", False),
        TableColumn("picks", False),
        TableColumn("error", hint="on validation rows"),
    ]
    columns += [
        TableColumn("test error", hint="of the network as it is handed over; in brackets as the search measured it")
    ]
    columns += [TableColumn(HEADINGS.get(name, name.replace("_", " "))) for name in names]
    layers = [str(entry.get("about", {}).get("layer", "")) for entry in entries]
    if any(layers):
        columns.append(TableColumn("pruned", False, hint="the layer whose filters were removed last"))
    rows = []
    for entry, layer in zip(entries, layers, strict=True):
        own = entry["objectives"]
        rows.append(
            [
                entry["id"],
                ", ".join(pick for pick in entry["picks"] if pick != entry["id"]),
                percent(own["error"]) if "error" in own else "",
                _test(entry),
                *(value_text(name, own[name]) if name in own else "" for name in names),
                *([layer] if any(layers) else []),
            ]
        )
    marked = [number for number, entry in enumerate(entries) if view.recommended in (entry["id"], *entry["picks"])]
    return table(columns, rows, label="Networks", sortable=True, marked=marked)


def _test(entry: Entry) -> str:
    if "test" in entry:
        return percent(entry["test"]["test_error"])
    measured = entry["objectives"].get("test_error")
    return "" if measured is None else f"({percent(measured)})"


def value_text(name: str, value: float) -> str:
    """An objective as it is written in tables."""
    if name.endswith("error"):
        return percent(value)
    if name.endswith("bytes"):
        return amount(value)
    if name == "latency":
        return duration(value)
    return count(value) if value >= 10_000 else plain(value)


def _network(view: RunView, entry: Entry, start: StartNetwork, is_open: bool) -> Html:
    own = entry["objectives"]
    picks = [tag("span", pick, class_="pick c0") for pick in entry["picks"] if pick != entry["id"]]
    facts = []
    if _test(entry):
        facts.append(f"test error {_test(entry)}")
    facts += [
        f"{value_text(name, own[name])} {HEADINGS.get(name, name)}"
        for name in ("macs", "params", "hidden")
        if name in own
    ]
    architecture = entry["architecture"]
    facts += [
        text.format(architecture[key])
        for key, text in SETTINGS.items()
        if isinstance(architecture.get(key), (int, float))
    ]
    return tag(
        "details",
        tag("summary", tag("h3", tag("span", entry["id"]), picks), tag("span", ", ".join(facts), class_="muted small")),
        draw_network(view, entry, start),
        open=is_open,
        class_="network opened-in-print",
    )


def draw_network(view: RunView, entry: Entry, start: StartNetwork) -> Html:
    """The architecture, by its space. One that cannot be drawn says why."""
    architecture, name = entry["architecture"], str(entry["id"])
    try:
        match architecture.get("space"):
            case "choice":
                return block_row(choice_blocks(architecture), f"Blocks of {name}")
            case "darts" if architecture.get("form") == "genotype":
                return _cells(architecture, name)
            case "genome":
                return _graph(view, entry)
            case "widths":
                blocks = width_blocks(architecture, start)
                if blocks:
                    lead = tag(
                        "p", "Channels that are left of the start network, layer by layer.", class_="small muted"
                    )
                    return tag("div", lead, block_row(blocks, f"Layers of {name}"))
        return block_row(layer_blocks(architecture), f"Layers of {name}")
    except (AtollError, *NOT_AS_WRITTEN) as problem:
        return tag("p", f"It cannot be drawn: {problem}", class_="muted")


def _cells(architecture: Mapping[str, Any], name: str) -> Html:
    genotype = architecture["genotype"]
    titles = {"normal": "Normal cell", "reduce": "Reduction cell: operations on an input halve the image"}
    return tag(
        "div",
        (
            tag(
                "div",
                tag("p", title, class_="small muted"),
                _scrolling(cell_drawing(genotype[kind], f"{title} of {name}"), f"{title} of {name}"),
            )
            for kind, title in titles.items()
            if kind in genotype
        ),
    )


def _scrolling(drawing: Html, label: str) -> Html:
    """A drawing that may be wider than the screen."""
    return tag("div", drawing, class_="drawing", role="region", tabindex=0, aria_label=label)


def _graph(view: RunView, entry: Entry) -> Html:
    from atoll.report.explain.drawing import graph_of
    from atoll.report.explain.files import evolved

    run = Run(view.path)
    name = str(entry["id"])
    model = run.load_model(name)
    arch = model.architecture
    recurrent, steps, bins = bool(arch["recurrent"]), int(arch["steps"]), bool(arch["edges"])
    graph = graph_of(evolved(run, name, model), model.schema, recurrent, steps, bins)
    columns = [TableColumn("from", False), TableColumn("to", False), TableColumn("weight")]
    rows = [[graph.names[a], graph.names[b], f"{weight:.4g}"] for (a, b), weight in graph.weights.items()]
    return tag(
        "div",
        _scrolling(graph.svg(), f"Graph of {name}"),
        tag(
            "details",
            tag("summary", "Connections", tag("span", f" of {name}", class_="hidden")),
            table(columns, rows, label=f"Connections of {name}"),
            class_="numbers",
        ),
    )
