"""Many problems in few lines, and the settings that solve all of them at once."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atoll.data.files.agreement import Problem
from atoll.data.files.folder import Examination, OpenedFiles, judge
from atoll.data.settings import DataSettings
from atoll.errors import DataError, UserError

MOST_SHOWN = 12  # kinds of problems that a command prints before it refuses
ATTEMPTS = 6  # a setting can bring up another problem: text that becomes a category, then has too many of them

Table = dict[str, Any]


@dataclass(frozen=True)
class ProblemGroup:
    """Problems of one kind with one column: the first in words, the number of all, and the settings that would help."""

    code: str
    column: str
    text: str
    count: int
    settings: Table

    def lines(self, with_settings: bool = False) -> list[str]:
        """For the terminal: one line, and one for each setting."""
        more = f" (and {self.count - 1} more like it)" if self.count > 1 else ""
        settings = as_toml(self.settings).split("\n")[1:] if with_settings else []
        return [f"- {self.text}{more} [{self.code}]", *(f"    {line}" for line in settings)]


class DataProblems(DataError):
    """Several things are wrong with own data: the text is that of the first, `problems` has all. `settings` is a table
    for `[data]` that solves all but those `left`."""

    def __init__(
        self, problems: Sequence[Problem], place: Path, settings: Table, left: Sequence[Problem], *, code: str
    ) -> None:
        more = len(problems) - 1
        see = f"`atoll data check {place}`" if place.exists() else "`problems` of this error"
        hint = f" (and {more} more problem{'s' if more > 1 else ''}: see {see})" if more else ""
        super().__init__(problems[0].text + hint, code=code)
        self.problems, self.place, self.settings, self.left = list(problems), place, settings, list(left)

    def lines(self) -> list[str]:
        groups = grouped(self.problems)
        if len(groups) == 1:
            return [groups[0].lines()[0].removeprefix("- ")]
        shown = [line for group in groups[:MOST_SHOWN] for line in group.lines()]
        if len(groups) > MOST_SHOWN:
            shown.append(f"- and {len(groups) - MOST_SHOWN} more kinds of problems")
        first = f"'{self.place}' has {len(self.problems)} problems [{self.code}]"
        more = f"for a summary of the data: atoll data check {shlex.quote(str(self.place))}"
        return [first, *shown, *solution_lines(self.settings, self.left), more]


def refuse_problems(found: Examination) -> None:
    """Raise the problems of own data, if there are some."""
    if found.problems:
        raise DataProblems(found.problems, found.opened.place, *suggested(found), code=found.problems[0].code)


def grouped(problems: Iterable[Problem]) -> list[ProblemGroup]:
    """Problems by kind and column, in the order of the first of each."""
    groups: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        groups.setdefault((problem.code, problem.column), []).append(problem)
    return [
        ProblemGroup(code, column, members[0].text, len(members), merged({}, members))
        for (code, column), members in groups.items()
    ]


def merged(start: Mapping[str, Any], problems: Iterable[Problem]) -> Table:
    """The settings of all problems in one table for `[data]`: lists and tables grow, of other values the first counts.

    What `start` has already is not changed; it is left out where nothing is added to it. A column that is to be dropped
    needs no other setting.
    """
    helped = [(problem.column, problem.setting) for problem in problems if problem.setting is not None]
    dropped = {column for _, setting in helped if setting[0] == "drop" for column in setting[1]}
    found: Table = {}
    for column, setting in helped:
        if column in dropped and setting[0] != "drop":
            continue
        name, _, key = setting[0].partition(".")
        before = found.get(name, start.get(name))
        if key:
            if key not in (before or {}):
                found[name] = {**(before or {}), key: setting[1]}
        elif isinstance(setting[1], list):
            more = [one for one in setting[1] if one not in (before or ())]
            if more:
                found[name] = [*(before or ()), *more]
        elif name not in found and before != setting[1]:
            found[name] = setting[1]
    return found


def with_settings(settings: DataSettings, table: Mapping[str, Any]) -> DataSettings:
    """The settings with those of the table in place of their own."""
    return DataSettings.model_validate({**settings.model_dump(mode="json"), **table})


def suggested(found: Examination) -> tuple[Table, list[Problem]]:
    """A table for `[data]` that solves the problems, and the problems that no setting solves.

    The suggestions are tried: a setting that is not needed with the others is left out.
    """
    opened, settings = found.opened, found.settings
    table: Table = {}
    left = found.problems
    for _ in range(ATTEMPTS):
        more = merged({**settings.model_dump(mode="json"), **table}, left)
        if not more:
            break
        tried = _tried(opened, settings, {**table, **more})
        if tried is None:  # too many clients would be left out
            more.pop("exclude", None)
            tried = _tried(opened, settings, {**table, **more}) if more else None
        if tried is None:
            break
        table, left = {**table, **more}, tried
    for name in list(table):
        fewer = {key: value for key, value in table.items() if key != name}
        if _tried(opened, settings, fewer) == left:
            table = fewer
    return table, left


def _tried(opened: OpenedFiles, settings: DataSettings, table: Mapping[str, Any]) -> list[Problem] | None:
    """The problems that are left with these settings; None if they leave nothing to look at."""
    try:
        return judge(opened, with_settings(settings, table)).problems
    except UserError:
        return None


def solution_lines(settings: Table, left: Sequence[Problem]) -> list[str]:
    """The settings to paste, and what they leave to correct."""
    lines = []
    if settings:
        lines = ["settings that solve this, for the experiment file:", *as_toml(settings).split("\n")]
        lines.append(f"or for the command line: {as_options(settings)}")
    if left:
        lines += ["this is left to correct by hand:"]
        lines += [line for group in grouped(left) for line in group.lines()]
    return lines


def as_toml(table: Mapping[str, Any]) -> str:
    """The settings as they are written in an experiment file, one on each line."""
    return "\n".join(["[data]", *(f"{name} = {_inline(value)}" for name, value in table.items())])


def as_options(table: Mapping[str, Any]) -> str:
    """The settings as options of a command."""
    return " ".join(f"--set {shlex.quote(f'data.{name}={_inline(value)}')}" for name, value in table.items())


def _inline(value: Any) -> str:
    """A TOML value in one line. Text is written as in JSON, which TOML reads."""
    if isinstance(value, Mapping):
        keys = [key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _inline(key) for key in value]
        return "{" + ", ".join(f"{key} = {_inline(one)}" for key, one in zip(keys, value.values(), strict=True)) + "}"
    return json.dumps(value, ensure_ascii=False)
