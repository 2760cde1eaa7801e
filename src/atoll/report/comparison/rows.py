"""Runs of several methods or settings side by side: one row per network they hand over, over seeds.

A group is a folder of runs, as `atoll sweep` writes it, or the single runs of one method, if their seeds differ. Each
of its picks is a row; personal networks, each on its own client, are one row together. Rows are compared seed by seed
with the first one: the same seed means the same partition and the same splits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from atoll.errors import ConfigError, RunDirectoryError, nearest
from atoll.report.statistics import Interval, holm, sign_flip_p, t_interval
from atoll.run.accounts import account_of
from atoll.run.baselines.tuning import OF_RIVALS, TuningCost, tuning_costs
from atoll.run.reader import Run, load
from atoll.run.sweep import plan_of, runs_in

Measure = Literal["error", "f1"]
MEASURES: dict[Measure, str] = {"error": "test error", "f1": "weighted F1"}


@dataclass(frozen=True)
class Measured:
    """One network of one run, or all its personal networks, each measured on its own client."""

    run: Run
    error: float  # on all test rows
    clients: Mapping[str, float]  # weighted F1 on each client's own test rows; empty where clients have none
    objectives: Mapping[str, float]
    test_rows: int

    @property
    def seed(self) -> int:
        return int(self.run.manifest["seed"])

    @property
    def f1(self) -> float:
        """The mean over clients."""
        return float(np.mean(list(self.clients.values()))) if self.clients else math.nan

    def value(self, measure: Measure) -> float:
        return self.error if measure == "error" else self.f1


@dataclass(frozen=True)
class Row:
    """One kind of network of a group: the same pick of each of its runs."""

    group: str
    pick: str
    found: list[Measured]

    @property
    def name(self) -> str:
        """The group and the pick. Of a network that is trained round by round, the last round is named as such."""
        last = {"model": "final", "networks": self.group}.get(self.found[0].run.manifest.get("metrics_kind", ""))
        if self.pick == last:
            return f"{self.group}, last round"
        return self.group if self.pick == self.group else f"{self.group} {self.pick}".strip()

    @cached_property
    def by_seed(self) -> dict[int, Measured]:
        return {one.seed: one for one in self.found}

    def values(self, measure: Measure) -> list[float]:
        return [one.value(measure) for one in self.found]

    def of_client(self, client: str) -> list[float]:
        return [one.clients[client] for one in self.found if client in one.clients]

    def mean(self, objective: str) -> float:
        known = [one.objectives[objective] for one in self.found if objective in one.objectives]
        return float(np.mean(known)) if known else math.nan

    def mean_result(self, name: str) -> float:
        """The mean over runs of a number of `result.json`."""
        return _mean_known(one.run.result.get(name) for one in self.found)

    def mean_cost(self, name: str) -> float:
        """The mean over runs of a number of the ledger."""
        return _mean_known(one.run.result["ledger"].get(name) for one in self.found)


def _mean_known(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else math.nan


@dataclass(frozen=True)
class Difference:
    """A row minus the reference, seed by seed."""

    row: Row
    seeds: list[int]
    interval: Interval
    p: float  # corrected over all rows; NaN with too few seeds


@dataclass(frozen=True)
class Comparison:
    """Rows that were measured on the same test rows. The first is the reference."""

    rows: list[Row]
    measure: Measure
    notes: list[str] = field(default_factory=list)
    every: list[Row] = field(default_factory=list)  # of the whole comparison, where only some `rows` are shown
    tuning: list[TuningCost] = field(default_factory=list)  # outside of the budgets

    @property
    def tests(self) -> int:
        """Differences over which p-values are corrected: of all rows, also where only some are shown."""
        return len(self.every or self.rows) - 1

    @cached_property
    def differences(self) -> list[Difference]:
        reference, *others = self.every or self.rows
        pairs = []
        for row in others:
            seeds = [seed for seed in reference.by_seed if seed in row.by_seed]
            values = [
                row.by_seed[seed].value(self.measure) - reference.by_seed[seed].value(self.measure) for seed in seeds
            ]
            pairs.append((row, seeds, values))
        corrected = holm([sign_flip_p(values) for _, _, values in pairs])
        return [
            Difference(row, seeds, t_interval(values) if values else Interval(*[math.nan] * 3), p)
            for (row, seeds, values), p in zip(pairs, corrected, strict=True)
            if row in self.rows
        ]

    @property
    def clients(self) -> list[str]:
        """All clients with test rows of their own, in the order of the first run that has them."""
        return list(dict.fromkeys(name for row in self.rows for one in row.found for name in one.clients))


# -- from run directories to rows --------------------------------------------------------------------------------------


def compare_runs(folders: Sequence[Path], measure: str = "error", against: str | None = None) -> Comparison:
    """The runs in these folders, in the given order. Runs that are not finished are left out.

    A folder is a run directory, a folder of runs (`atoll sweep`) or a folder of such folders (`atoll baselines`).
    `against` names the group that the others are compared with; it comes first.
    """
    if measure not in MEASURES:
        raise ConfigError(f"--measure {measure}: use {' or '.join(MEASURES)}", code="invalid-setting")
    groups = _groups(folders)
    if against is not None:
        if against not in groups:
            raise ConfigError(
                f"--against {against}: no such group of runs; {nearest(against, groups)}", code="unknown-group"
            )
        groups = {against: groups.pop(against), **groups}
    rows, notes = [], []
    for name, runs in groups.items():
        finished = [run for run in runs if run.finished]
        if not finished:
            raise RunDirectoryError(f"{name}: no finished run; see `atoll show`", code="no-finished-run")
        if len(finished) < len(runs):
            notes.append(f"{len(runs) - len(finished)} of {len(runs)} runs of {name!r} are not finished: left out")
        seeds = Counter(int(run.manifest["seed"]) for run in finished)
        twice = [seed for seed, count in seeds.items() if count > 1]
        if twice:
            raise RunDirectoryError(
                f"{name}: {seeds[twice[0]]} runs have the seed {twice[0]}; put runs of other settings into folders of "
                "their own",
                code="seed-occurs-twice",
            )
        rows += _rows(name, finished)
        notes += _absent_clients(name, finished)
    if not rows:
        raise RunDirectoryError(
            f"{', '.join(groups)}: no network was measured on test rows; give the data a test part",
            code="no-test-rows",
        )
    chosen: Measure = "error" if measure == "error" else "f1"
    without = [row.group for row in rows if not all(one.clients for one in row.found)]
    if chosen == "f1" and without:
        raise RunDirectoryError(
            f"--measure f1: the clients of {without[0]!r} have no test rows of their own; use --measure error",
            code="no-test-rows",
        )
    tuning = [one for folder in folders for one in tuning_costs(folder)]
    return Comparison(rows, chosen, [*notes, *_refuse_other_data(rows)], tuning=tuning)


def _groups(folders: Sequence[Path]) -> dict[str, list[Run]]:
    singles: dict[str, list[Run]] = {}
    for folder in folders:
        if (folder / "config.toml").is_file():
            run = load(folder)
            singles.setdefault(str(run.manifest["method"]), []).append(run)
    groups: dict[str, list[Run]] = {}
    for folder in folders:
        if (folder / "config.toml").is_file():
            run = load(folder)
            method = str(run.manifest["method"])
            seeds = [one.manifest["seed"] for one in singles[method]]
            groups.setdefault(method if len(set(seeds)) == len(seeds) else folder.name, []).append(run)
        else:
            for name, runs in _groups_in(folder).items():
                groups.setdefault(name, []).extend(runs)
    return groups


def _groups_in(folder: Path) -> dict[str, list[Run]]:
    """The group of a sweep's folder, or those of a folder of such folders, in the order of the sweep's methods."""
    order = {name: place for place, name in enumerate(plan_of(folder).get("methods", ()))}
    below = sorted(
        (path for path in folder.glob("*") if path.is_dir() and path.name != OF_RIVALS),
        key=lambda path: (order.get(path.name, len(order)), path.name),
    )
    if any((path / "config.toml").is_file() for path in below) or not below:
        return {folder.name: runs_in(folder)}
    found = {path.name: runs_in(path) for path in below if any(path.glob("*/config.toml"))}
    return found or {folder.name: runs_in(folder)}  # which says that there are none


def _rows(group: str, runs: Sequence[Run]) -> list[Row]:
    """One row per pick: the recommended one, High and Knee, the others. A pick that is the network of an earlier row in
    each of its runs has no row of its own."""
    picked = [_picked(run) for run in runs]
    names = list(dict.fromkeys(pick for own in picked for pick in own))
    names.sort(key=lambda pick: (pick != runs[0].recommended, pick not in ("high", "knee")))
    found_rows: list[Row] = []
    shown: list[set[tuple[int, str]]] = []  # of each row, the network of every run
    for name in names:
        networks = {(place, own[name]["id"]) for place, own in enumerate(picked) if name in own}
        found = [_measured(run, own[name]) for run, own in zip(runs, picked, strict=True) if name in own]
        known = [one for one in found if one is not None]
        if known and not any(networks <= earlier for earlier in shown):
            found_rows.append(Row(group, name, known))
            shown.append(networks)
    personal = [one for run in runs if (one := _personal(run)) is not None]
    if len(found_rows) == 1 and not personal:
        return [Row(group, "", found_rows[0].found)]  # its name needs no addition
    return found_rows + ([Row(group, "personal", personal)] if personal else [])


def _picked(run: Run) -> dict[str, dict[str, Any]]:
    """The networks for all clients, by pick. One that no client has trained is left out."""
    return {
        pick: entry
        for entry in run.result["candidates"]
        for pick in entry["picks"]
        if not entry.get("owner") and entry.get("about", {}).get("trained_rounds") != 0
    }


def _measured(run: Run, entry: Mapping[str, Any]) -> Measured | None:
    if "test" not in entry:
        return None
    test, clients = entry["test"], entry.get("clients", {})
    own = {name: float(found["test_f1"]) for name, found in clients.items() if "test_f1" in found}
    return Measured(run, float(test["test_error"]), own, entry["objectives"], int(test["test_rows"]))


def _personal(run: Run) -> Measured | None:
    """Each client's own network on its own test rows, all together. A client without one uses the network for all."""
    own = [entry for entry in run.result["candidates"] if entry.get("owner") and entry.get("clients")]
    if not own:
        return None
    common = next(iter(_picked(run).values()), {}).get("clients", {})
    found = dict(common) | {
        entry["owner"]: entry["clients"][entry["owner"]] for entry in own if entry["owner"] in entry["clients"]
    }
    rows = sum(one["test_rows"] for one in found.values())
    wrong = sum(one["test_error"] * one["test_rows"] for one in found.values())
    clients = {name: float(one["test_f1"]) for name, one in found.items()}
    means = {
        name: float(np.mean([entry["objectives"][name] for entry in own]))
        for name in own[0]["objectives"]
        if all(name in entry["objectives"] for entry in own)
    }
    return Measured(run, wrong / rows, clients, means, rows)


def _refuse_other_data(rows: Sequence[Row]) -> list[str]:
    """Networks must be measured on the same rows. Other differences of the data are only noted."""
    first = rows[0].found[0]
    for row in rows[1:]:
        for one in row.found:
            pairs = {
                "data": (first.run.manifest["source"], one.run.manifest["source"]),
                "classes": (len(first.run.classes), len(one.run.classes)),
            }
            if one.seed == first.seed:
                pairs["test rows"] = (first.test_rows, one.test_rows)
            for what, (here, there) in pairs.items():
                if here != there:
                    raise RunDirectoryError(
                        f"{one.run.path} and {first.run.path} cannot be compared: {what} {there!r} and {here!r}; "
                        "compare runs on the same data",
                        code="not-comparable",
                    )
    notes = []
    for what in ("clients", "rows"):
        values = {row.group: row.found[0].run.manifest["data"].get(what) for row in rows}
        if len(set(values.values())) > 1 and not any(one.run.manifest["centralised"] for r in rows for one in r.found):
            notes.append(
                f"the runs have different numbers of {what}: {', '.join(f'{k} {v}' for k, v in values.items())}"
            )
    return notes


def _absent_clients(group: str, runs: Sequence[Run]) -> list[str]:
    absent: Counter[str] = Counter()
    for run in runs:
        accounts = run.result.get("clients", {})
        absent.update(name for name, own in accounts.items() if account_of(own).useless)
    return [f"client {name!r} never took part in {n} of {len(runs)} runs of {group!r}" for name, n in absent.items()]
