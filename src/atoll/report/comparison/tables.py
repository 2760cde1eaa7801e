"""A comparison as tables in plain text, for the terminal and for Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from atoll.report.comparison.rows import MEASURES, Comparison, Difference, Row
from atoll.report.comparison.volumes import own_volumes
from atoll.report.figures.canvas import short
from atoll.report.statistics import FEWEST
from atoll.report.terminal import amount

SIGNIFICANT = 0.05
MOST_CLIENTS = 40  # of which a table is made
MOST_SEEDS = 10  # whose hypervolumes stand in a table


class Section(NamedTuple):
    """One table of a comparison, in plain text."""

    title: str
    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join("| " + " | ".join(word.replace("|", "\\|") for word in line) + " |" for line in lines) + "\n"


def sections(found: Comparison) -> list[Section]:
    """Was it worth it? The networks and what they cost, the differences to the first row, and the clients."""
    parts = [_networks(found), _costs(found), _tuning(found), _differences(found), _volumes(found), _by_client(found)]
    return [part for part in parts if part.rows]


def markdown(found: Comparison) -> str:
    """Everything as Markdown tables."""
    return "\n".join([part.markdown() for part in sections(found)] + [f"{text}\n" for text in found.notes])


def _networks(found: Comparison) -> Section:
    """Of sparse networks MACs are connections; what is executed stands beside them where the two differ."""
    columns = ["network", "seeds", "test error", "weighted F1", "MACs", "executed", "weights", "hidden nodes"]
    rows, masked = [], not all(math.isnan(row.mean("executed_macs")) for row in found.rows)
    for row in found.rows:
        f1, executed = row.values("f1"), row.mean("executed_macs")
        rows.append(
            [
                row.name,
                str(len(row.found)),
                percents(row.values("error")),
                "" if any(map(math.isnan, f1)) else spread(f1),
                _amount(row.mean("macs")),
                _amount(row.mean("macs") if math.isnan(executed) else executed) if masked else "",
                _amount(row.mean("params")),
                "" if math.isnan(row.mean("hidden")) else f"{row.mean('hidden'):.1f}",
            ]
        )
    return _without_empty(Section("networks on test rows, mean and deviation over seeds", columns, rows))


def _costs(found: Comparison) -> Section:
    """What the runs cost their clients, one row per group."""
    columns = ["runs", "rounds", "client MACs", "sent", "received"]
    groups = {row.group: row for row in reversed(found.rows)}
    rows = []
    for name in dict.fromkeys(row.group for row in found.rows):
        row = groups[name]
        rows.append(
            [
                name,
                f"{row.mean_result('rounds'):g}",
                short(row.mean_cost("client_macs")),
                amount(row.mean_cost("bytes_up")),
                amount(row.mean_cost("bytes_down")),
            ]
        )
    return _without_empty(Section("what the runs cost all clients together (mean over seeds)", columns, rows))


def _tuning(found: Comparison) -> Section:
    """The choice of learning rates, which is part of no budget."""
    columns = ["learning rate of", "chosen", "of", "client MACs", "sent"]
    rows = [[one.name, f"{one.rates[0]:g}", one.grid, short(one.macs), amount(one.sent)] for one in found.tuning]
    return Section("what the choice of learning rates cost besides, on one seed", columns, rows)


def _volumes(found: Comparison) -> Section:
    """Each search's own hypervolume, of its validation errors; on one scale for all it is in the files."""
    columns = ["search", "seeds", "hypervolume", "by seed", "difference", "95 % interval", "p", "verdict"]
    rows = []
    for one in own_volumes(found):
        mean, low, high = one.difference
        rows.append(
            [
                one.group,
                str(len(one.by_seed)),
                spread(list(one.by_seed.values())),
                "; ".join(f"{seed}: {value:.4f}" for seed, value in list(one.by_seed.items())[:MOST_SEEDS]),
                "" if math.isnan(mean) else f"{mean:+.4f}",
                "" if math.isnan(low) else f"{low:+.4f} to {high:+.4f}",
                "" if math.isnan(one.p) else f"{one.p:.3g}",
                _verdict(one.p, mean) if one.against else "",
            ]
        )
    return _without_empty(Section("hypervolume of each search by validation error, and its difference", columns, rows))


def _differences(found: Comparison) -> Section:
    reference, scale = found.rows[0].name, 100 if found.measure == "error" else 1
    unit = ", points" if found.measure == "error" else ""
    columns = ["network", "seeds", f"difference{unit}", "95 % interval", "p", "verdict"]
    rows = []
    for one in found.differences:
        mean, low, high = (value * scale for value in one.interval)
        digits = 2 if found.measure == "error" else 4
        interval = "" if math.isnan(low) else f"{low:+.{digits}f} to {high:+.{digits}f}"
        rows.append(
            [
                one.row.name,
                str(len(one.seeds)),
                "no common seed" if math.isnan(mean) else f"{mean:+.{digits}f}",
                interval,
                "" if math.isnan(one.p) else f"{one.p:.3g}",
                verdict(one),
            ]
        )
    return Section(f"{MEASURES[found.measure]} minus that of {reference}, seed by seed", columns, rows)


def verdict(one: Difference) -> str:
    """The test in words."""
    return _verdict(one.p, one.interval.mean)


def _verdict(p: float, mean: float) -> str:
    if math.isnan(p):
        return f"too few seeds ({FEWEST} needed)"
    if p >= SIGNIFICANT:
        return "no difference shown"
    return "lower" if mean < 0 else "higher"


def _by_client(found: Comparison) -> Section:
    rows = [row for row in found.rows if any(one.clients for one in row.found)]
    clients = found.clients if len(found.clients) <= MOST_CLIENTS else []
    cells = [[client, *(spread(row.of_client(client)) for row in rows)] for client in clients]
    if cells and len(rows) > 1:
        cells.append(["clients won", *(str(count) for count in wins(rows, clients))])
    return Section("weighted F1 on each client's test rows", ["client", *(row.name for row in rows)], cells)


def wins(rows: Sequence[Row], clients: Sequence[str]) -> list[int]:
    """On how many clients each row has the highest mean; where two are equal, both have."""
    counts = [0] * len(rows)
    for client in clients:
        means = [float(np.mean(row.of_client(client))) if row.of_client(client) else -math.inf for row in rows]
        for place, mean in enumerate(means):
            counts[place] += mean == max(means)
    return counts


def spread(values: Sequence[float], scale: float = 1.0, digits: int = 4) -> str:
    """Mean and standard deviation (of a sample); of a single value the value alone."""
    if not values:
        return ""
    deviation = f" ± {scale * np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{scale * np.mean(values):.{digits}f}{deviation}"


def percents(values: Sequence[float]) -> str:
    return f"{spread(values, 100, 2)} %"


def _amount(value: float) -> str:
    return "" if math.isnan(value) else short(value)


def _without_empty(section: Section) -> Section:
    kept = [place for place in range(len(section.columns)) if any(row[place] for row in section.rows)]
    return Section(
        section.title, [section.columns[place] for place in kept], [[row[p] for p in kept] for row in section.rows]
    )
