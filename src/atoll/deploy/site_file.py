"""A site's own file, `site.toml` in its bundle: its name, the server's address, what it shares and its limits.

Only the site changes it; nothing that the server sends can.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, ValidationError, model_validator

from atoll.deploy.layout import check_names, split_address
from atoll.deploy.limits import Limits
from atoll.errors import ConfigError, SiteError, nearest
from atoll.store.files import replace_file

if TYPE_CHECKING:
    from atoll.data import DataSettings

TEXT = """\
# This site's own file. Only the site changes it; the server cannot.
name = "{name}"
server = "{server}"

[share]
# May the number of rows per class leave this site? Some methods use it. `atoll site join` asks before it sets this.
labels = false

[limits]
# A task that exceeds one of these is refused at this site, before anything is computed.
# methods = ["fedavg", "realtime"]   # without this line: all methods
# jobs = ["my_package.my_method"]    # modules of plug-ins whose jobs may run here
parameters = {limits.parameters}      # weights of one network
steps = {limits.steps}           # training steps (batches) in one task
memory = {limits.memory}        # bytes that a task's tensors and network may take, besides 1 GB for its work
batch = {limits.batch}                   # the smallest batch: a step on one row would reveal too much about it
minutes = {limits.minutes:g}                # of one task; then it is abandoned and the server gets an error
# epsilon = 8.0                      # only runs with [privacy]; what all of them together may spend of one row
# delta = {limits.delta:g}                       # with which that is computed

# With limits.epsilon: how runs must read this site's files. A server that asks in another way is refused.
# [data]
# label = "outcome"                  # the column of the class
# classes = ["ill", "well"]          # all of them, whichever occur here
# drop = ["name"]                    # columns that are not used
"""


class Share(BaseModel):
    """What may leave the site besides schema, sizes, sums for scaling and model updates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    labels: StrictBool = False


# Settings of `[data]` that decide how files are read, so that answers to other ones would tell what is in them.
PINNED = (
    *("label", "classes", "drop", "missing", "missing_words", "categories", "max_categories", "dates", "date_order"),
    *("window", "window_step", "separator", "decimal", "encoding", "client_column"),
)


class SiteFile(BaseModel):
    """The validated file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: StrictStr
    server: StrictStr
    share: Share = Share()
    limits: Limits = Field(default_factory=lambda: Limits())
    data: dict[StrictStr, Any] | None = None

    @model_validator(mode="after")
    def _data_is_pinned(self) -> SiteFile:
        if self.data is None:
            if self.limits.epsilon is not None:
                raise ValueError(
                    f"limits.epsilon = {self.limits.epsilon:g} needs a table [data] that says how this site's files "
                    "are read: label, classes, and what else is not the default"
                )
            return self
        for name in self.data:
            if name not in PINNED:
                raise ValueError(f"data.{name}: not a setting of how files are read; {nearest(name, PINNED)}")
        try:
            classes = self._settings(self.data).classes
        except ConfigError as problem:
            raise ValueError(str(problem)) from None
        if classes is None or len(classes) < 2:
            raise ValueError("data.classes: missing; name all classes, for instance classes = ['ill', 'well']")
        return self

    @property
    def pinned(self) -> DataSettings | None:
        """How this site's files are read, where the site has decided it."""
        return None if self.data is None else self._settings(self.data)

    @staticmethod
    def _settings(table: dict[str, Any]) -> DataSettings:
        from atoll.data.settings import SITES, checked_settings

        return checked_settings({"name": SITES, **table})

    @property
    def share_labels(self) -> bool:
        return self.share.labels


TABLES: dict[str, type[BaseModel]] = {"share": Share, "limits": Limits}


def text_of(name: str, server: str) -> str:
    """The file of a new site."""
    return TEXT.format(name=name, server=server, limits=Limits())


def read_site(path: Path) -> SiteFile:
    """The site's file; a `SiteError` names the first problem."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SiteError(
            f"{path}: missing; a bundle is the folder that `atoll federation init` made for a site",
            code="site-file-missing",
        ) from None
    except (OSError, ValueError, RecursionError) as problem:
        raise SiteError(f"{path}: cannot be read ({problem}); fix the file", code="site-file-unreadable") from None
    try:
        site = SiteFile.model_validate(table)
    except ValidationError as problem:
        raise SiteError(f"{path}: {_one_line(problem)}", code="site-file-invalid") from None
    check_names([site.name])
    split_address(site.server)
    return site


def answer_labels(path: Path, share: bool) -> SiteFile:
    """Write whether the label counts may leave the site into its file; the rest of the file is unchanged."""
    before = read_site(path)
    if before.share.labels == share:
        return before
    text = path.read_text(encoding="utf-8")
    word = "true" if share else "false"
    changed, places = re.subn(r"(?m)^(\s*labels\s*=\s*)(true|false)", rf"\g<1>{word}", text)
    if places == 0:
        head, found, tail = text.partition("[share]\n")
        changed = f"{head}{found}labels = {word}\n{tail}" if found else f"{text.rstrip()}\n\n[share]\nlabels = {word}\n"
    replace_file(path, changed.encode())
    after = read_site(path)
    if after != before.model_copy(update={"share": Share(labels=share)}):
        replace_file(path, text.encode())
        raise SiteError(
            f"{path}: cannot write the answer into it; set labels = {word} under [share] yourself",
            code="site-file-not-written",
        )
    return after


def _one_line(problem: ValidationError) -> str:
    first: Any = problem.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = TABLES.get(str(first["loc"][0]), SiteFile).model_fields
        return f"{place}: unknown setting; {nearest(str(first['loc'][-1]), known)}"
    if not place:  # of several tables
        return str(first["msg"].removeprefix("Value error, "))
    if first["type"] == "missing":
        return f"{place}: missing; restore the line from the bundle"
    return f"{place} = {first['input']!r}: {first['msg'].removeprefix('Value error, ')}"
