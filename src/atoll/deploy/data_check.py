"""A check of a site's data before it joins: whether it can be read, what it holds, and what experiments must set."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atoll.data.files.agreement import Problem
from atoll.data.files.folder import OpenedFiles, judge
from atoll.data.files.site import open_site
from atoll.data.files.suggestions import DataProblems, Table, as_toml, grouped, suggested
from atoll.data.files.summary import DataSummary, summarise
from atoll.data.settings import SITES, DataSettings
from atoll.errors import DataError


@dataclass(frozen=True)
class SiteCheck:
    """What `atoll site join` shows of the data, to the site itself only."""

    summary: DataSummary
    problems: list[Problem]  # what an experiment must allow for
    settings: Table  # the settings by which it does

    def lines(self) -> list[str]:
        """What an experiment must allow for, and how; none if every experiment can use the data."""
        if not self.problems:
            return []
        lines = ["experiments must allow for this:", *(line for one in grouped(self.problems) for line in one.lines())]
        return [*lines, "for instance with these settings:", *as_toml(self.settings).split("\n")]


def look(place: Path, label: str, name: str) -> SiteCheck:
    """Read the data as an experiment would. A `DataError` says why no experiment can use it."""
    if not place.exists():
        raise DataError(
            f"--data {place}: no such folder; name the one with this site's data", code="no-such-data-folder"
        )
    if place.is_dir() and all(path.name.startswith(".") for path in place.iterdir()):
        raise DataError(
            f"--data {place}: the folder is empty; put this site's CSV or NPZ file there", code="data-folder-empty"
        )
    settings = DataSettings.model_validate({"name": SITES, "label": label})
    found = judge(OpenedFiles(place, {name: open_site(place, settings)}), settings)
    if found.label != label:
        raise DataError(
            f"--data {place}: no label column '{label}'; name the right one with --label: is it '{found.label}'?",
            code="label-column-missing",
        )
    # One class is enough for a site, since others have the rest.
    problems = [problem for problem in found.problems if problem.code != "single-class"]
    table, left = suggested(found)
    left = [problem for problem in left if problem.code != "single-class"]
    if left:
        ordered = [*left, *(one for one in problems if one not in left)]
        raise DataProblems(ordered, place, table, left, code=left[0].code)
    return SiteCheck(summarise(found), problems, table)
