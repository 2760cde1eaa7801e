"""`atoll data check`: everything that is wrong with data, the settings that help, and what the data holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from atoll.data import catalog
from atoll.data.files.agreement import Problem
from atoll.data.files.folder import judge, open_folder
from atoll.data.files.suggestions import (
    ProblemGroup,
    Table,
    as_options,
    as_toml,
    grouped,
    merged,
    solution_lines,
    suggested,
    with_settings,
)
from atoll.data.files.summary import DataSummary, notes_on, summarise, summarise_source
from atoll.data.loading import assign, settle_files, settle_source, without
from atoll.data.settings import SITES, DataSettings
from atoll.errors import DataError, UserError

MOST_SHOWN = 50  # kinds of problems in the terminal


@dataclass(frozen=True)
class Report:
    """What a check found. `settings` solve the problems but those `left`; `advised` are what the notes recommend."""

    what: str
    problems: list[Problem] = field(default_factory=list)
    left: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)
    settings: Table = field(default_factory=dict)
    summary: DataSummary | None = None
    held_out: list[str] = field(default_factory=list)
    test_rows: int = 0

    @property
    def groups(self) -> list[ProblemGroup]:
        return grouped(self.problems)

    @property
    def advised(self) -> Table:
        return merged(self.settings, self.notes)

    def lines(self) -> list[str]:
        """The report for the terminal, without the tables of the summary."""
        if not self.problems:
            lines = [f"{self.what}: no problem found"]
        else:
            count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
            kinds = (
                f" of {len(self.groups)} kind{'s' if len(self.groups) > 1 else ''}"
                if len(self.groups) < len(self.problems)
                else ""
            )
            lines = [f"{self.what}: {count}{kinds}"]
            for group in self.groups[:MOST_SHOWN]:
                lines += group.lines(with_settings=True)
            if len(self.groups) > MOST_SHOWN:
                lines.append(f"- and {len(self.groups) - MOST_SHOWN} more kinds; --json has all")
            lines += solution_lines(self.settings, self.left if self.settings else [])
        if self.notes:
            lines += ["notes:", *(line for group in grouped(self.notes) for line in group.lines())]
        if self.advised:
            lines += ["the notes suggest, in place of other values:", *as_toml(self.advised).split("\n")[1:]]
        return lines

    def plain(self) -> dict[str, Any]:
        """The same as JSON values."""
        found: dict[str, Any] = {
            "data": self.what,
            "problems": [asdict(group) for group in self.groups],
            "settings": self.settings,
            "toml": as_toml(self.settings) if self.settings else "",
            "options": as_options(self.settings),
            "left": [asdict(group) for group in grouped(self.left)],
            "notes": [asdict(group) for group in grouped(self.notes)],
            "held_out": self.held_out,
            "test_rows": self.test_rows,
        }
        if self.summary is not None:
            more = {"rows": self.summary.rows, "classes": self.summary.classes}
            found |= {**asdict(self.summary), **more, "baseline_error": self.summary.baseline_error}
        return found


def check(settings: DataSettings, seed: int, data_dir: str | Path | None = None) -> Report:
    """The report on the data of these settings. Data that cannot even be opened is one problem."""
    what = settings.name or str(settings.folder)
    try:
        return _check_named(settings, seed, data_dir) if settings.name is not None else _check_files(settings, seed)
    except UserError as problem:
        found = [Problem(problem.code, str(problem))]
        return Report(what, found, found)


def _check_files(settings: DataSettings, seed: int) -> Report:
    opened = open_folder(settings)
    found = judge(opened, settings)
    table, left = suggested(found) if found.problems else ({}, [])
    problems, federated = list(found.problems), None
    if not left:  # what the files do not show: too many clients, or a class that only a client has that is held out
        try:
            tried = judge(opened, with_settings(settings, table)) if table else found
            federated, _ = settle_files(tried, seed)
        except DataError as problem:
            left = [Problem(problem.code, str(problem))]
            problems += left
    seen = replace(found, settings=settings.model_copy(update={"label": found.label}))
    summary = summarise(seen)
    held_out = federated.held_out if federated is not None else []
    notes = notes_on(seen, summary, held_out)
    tested = sum(files.rows for files in opened.test)
    return Report(str(opened.place), problems, left, notes, table, summary, held_out, tested)


def _check_named(settings: DataSettings, seed: int, data_dir: str | Path | None) -> Report:
    what = settings.name or ""
    if what == SITES:
        raise DataError(
            "the data of an experiment on real sites stays there; each checks its own with `atoll site join`",
            code="data-held-by-sites",
        )
    source = without(catalog.read(what, data_dir, settings.size, settings.attributes), settings.exclude or ())
    assigned = assign(source, settings, seed)
    if source.images is None:  # else all images would be decoded
        settle_source(source, settings, seed)
    tested = 0 if assigned.source.test is None else len(assigned.source.test[1])
    return Report(what, summary=summarise_source(assigned), held_out=assigned.held_out, test_rows=tested)
