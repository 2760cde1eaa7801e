"""What a comparison shows, in sentences, and what was equal for all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from atoll.core.stopping import PATIENCE
from atoll.report.comparison.fronts import leading, runs_of
from atoll.report.comparison.rows import MEASURES, Comparison, Difference, Row
from atoll.report.comparison.tables import SIGNIFICANT
from atoll.report.html.charts.scales import amount, count, duration, percent
from atoll.report.statistics import FEWEST, t_interval

BUDGETS: dict[str, Callable[[Any], str]] = {
    "macs": lambda value: f"{count(value)} MACs of all clients",
    "upload": lambda value: f"{amount(value)} sent by all clients",
    "rounds": lambda value: f"{value:,} rounds",
    "minutes": lambda value: f"{value:g} minutes",
    "accuracy": lambda value: f"a validation accuracy of {percent(value)}",
    "plateau": lambda value: f"{PATIENCE if value == 'auto' else value} rounds without progress",
}
SPENT = {"macs": "client_macs", "upload": "bytes_up"}


def in_short(found: Comparison, tested: Comparison) -> list[str]:
    """Who was compared, who has the lowest error, and which differences are more than chance."""
    rows = leading(found.rows)
    seeds = [len(row.found) for row in rows]
    manifest = rows[0].found[0].run.manifest
    names = [row.group for row in rows]
    number = f"{seeds[0]} seeds each" if len(set(seeds)) == 1 else f"{min(seeds)} to {max(seeds)} seeds"
    first = (
        f"{_listed(names)} on {manifest['source']}: {len(names)} group{'s' if len(names) > 1 else ''} of runs with "
        f"{number}, {found.rows[0].found[0].test_rows:,} test rows."
    )
    return [first, _best(rows, found), _differences(tested), _cheapest(rows)]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _best(rows: Sequence[Row], found: Comparison) -> str:
    lower_is_better = found.measure == "error"
    means = {row.group: t_interval(row.values(found.measure)) for row in rows}
    best = (min if lower_is_better else max)(means, key=lambda name: means[name].mean)
    one = means[best]
    interval = "" if math.isnan(one.low) else f" (95 % interval {_value(one.low, found)} to {_value(one.high, found)})"
    word = "lowest" if lower_is_better else "highest"
    return f"The {word} mean {MEASURES[found.measure]} has {best}: {_value(one.mean, found)}{interval}."


def _value(value: float, found: Comparison) -> str:
    return percent(value) if found.measure == "error" else f"{value:.3f}"


def _differences(tested: Comparison) -> str:
    if len(tested.rows) < 2:
        return ""
    reference = tested.rows[0].group
    shown = [one for one in tested.differences if not math.isnan(one.p)]
    if not shown:
        fewest = min(len(one.seeds) for one in tested.differences)
        needed = f"that takes {FEWEST} common seeds, there are {fewest}"
        return f"Whether differences are more than chance is not tested: {needed}."
    clear = [one for one in shown if one.p < SIGNIFICANT]
    if not clear:
        least = min(one.p for one in shown)
        return f"No difference to {reference} is more than chance would give (p at least {least:.2g})."
    words = [f"{one.row.group} {_direction(one, tested)}" for one in clear]
    rest = [one.row.group for one in shown if one not in clear]
    text = f"Compared with {reference}, seed by seed, more than chance: {'; '.join(words)}."
    return text + (f" For {_listed(rest)} no difference is shown." if rest else "")


def _direction(one: Difference, tested: Comparison) -> str:
    size = abs(one.interval.mean)
    word = "lower" if one.interval.mean < 0 else "higher"
    amount_of = f"{100 * size:.2g} points" if tested.measure == "error" else f"{size:.3f}"
    return f"is {word} by {amount_of} (p = {one.p:.2g})"


def _cheapest(rows: Sequence[Row]) -> str:
    spent = {row.group: row.mean_cost("bytes_up") for row in rows}
    central = {row.group for row in rows if row.found[0].run.manifest.get("centralised")}
    known = {name: value for name, value in spent.items() if not math.isnan(value) and name not in central}
    if len(known) < 2:
        return ""
    least, most = min(known, key=lambda name: known[name]), max(known, key=lambda name: known[name])
    if known[least] == known[most]:
        return ""
    return f"Per run, {least} sent the fewest bytes ({amount(known[least])}), {most} the most ({amount(known[most])})."


def enough_seeds(tested: Comparison) -> str:
    """A warning if the exact test cannot show anything with this number of seeds and rows."""
    number = tested.tests
    if number < 1:
        return ""
    seeds = min((len(one.seeds) for one in tested.differences), default=0)
    least = number * 2 / 2**seeds if seeds else 1.0
    if seeds < FEWEST or least < SIGNIFICANT:
        return ""
    needed = math.ceil(math.log2(2 * number / SIGNIFICANT)) + (math.log2(2 * number / SIGNIFICANT) % 1 == 0)
    return (
        f"With {seeds} seeds and {number} comparisons the smallest possible corrected p is {least:.2g}: nothing can be "
        f"shown. {needed} seeds would do, or fewer groups."
    )


# -- what was equal for all --------------------------------------------------------------------------------------------


def settings_of(found: Comparison) -> dict[str, dict[str, str]]:
    """What is the same for all, or not: name -> group -> value in words."""
    table: dict[str, dict[str, str]] = {}
    for group, runs in runs_of(found).items():
        config, manifest = runs[0].config, runs[0].manifest
        data, stop = config.get("data", {}), config.get("stop", {})
        values = {
            "data": str(manifest["source"]),
            "clients": "all rows in one place" if manifest.get("centralised") else f"{manifest['data']['clients']:,}",
            "partition": str(data.get("partition", "")),
            "train, validation, test": ", ".join(f"{part:g}" for part in data.get("split", ())),
            "budget": budget_words(stop),
            "virtual network": _network(config.get("simulation")),
            "seeds": _ranges(sorted(int(run.manifest["seed"]) for run in runs)),
        }
        for name, value in values.items():
            table.setdefault(name, {})[group] = value
    return {name: own for name, own in table.items() if any(own.values())}


def budget_words(stop: Mapping[str, Any]) -> str:
    """The rules of `[stop]` in words."""
    return ", ".join(words(stop[name]) for name, words in BUDGETS.items() if stop.get(name) is not None)


def budget_share(stop: Mapping[str, Any], result: Mapping[str, Any]) -> float:
    """The largest share of a budget that a run has used; NaN without one."""
    shares = [result["ledger"][SPENT[name]] / stop[name] for name in SPENT if stop.get(name)]
    shares += [result["rounds"] / stop["rounds"]] if stop.get("rounds") else []
    return max(shares, default=math.nan)


def _network(plain: Any) -> str:
    if not isinstance(plain, dict):
        return ""
    return ", ".join(f"{name} {value}" for name, value in plain.items() if value not in (None, 0.0, 0, "all"))


def _ranges(numbers: Sequence[int]) -> str:
    """1, 2, 3, 7 is 1-3, 7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def seconds_words(value: float) -> str:
    return "" if math.isnan(value) or not value else duration(value)
