"""A site's own file, `site.toml` in its bundle: who it is, what it answered, what it allows.

The site keeps it; nothing that the server sends can change it.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, ValidationError

from atoll.deploy.layout import check_names, split_address
from atoll.deploy.limits import Limits
from atoll.errors import SiteError, nearest
from atoll.store.files import replace_file

TEXT = """\
# This site's own file. The site decides what stands here; the server cannot change it.
name = "{name}"
server = "{server}"

[share]
# Rows per class help some methods choose their clients. `atoll site join` asks before it sets this.
labels = false

[limits]
# A task that asks for more is refused here, before anything is computed.
# methods = ["fedavg", "realtime"]   # without this line: all methods
parameters = {limits.parameters}      # weights of one network
steps = {limits.steps}           # training steps (batches) in one task
memory = {limits.memory}        # bytes that a task's tensors and network may take
batch = {limits.batch}                   # the smallest batch: a step on one row would tell too much about that row
minutes = {limits.minutes:g}                # that one task may take; then it is given up, and the server is told
"""


class Share(BaseModel):
    """What may leave the site besides schema, sizes, sums for scaling and model updates."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    labels: StrictBool = False


class SiteFile(BaseModel):
    """The whole file, checked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: StrictStr
    server: StrictStr
    share: Share = Share()
    limits: Limits = Field(default_factory=lambda: Limits())

    @property
    def share_labels(self) -> bool:
        return self.share.labels


TABLES: dict[str, type[BaseModel]] = {"share": Share, "limits": Limits}


def text_of(name: str, server: str) -> str:
    """The file as a new site gets it."""
    return TEXT.format(name=name, server=server, limits=Limits())


def read_site(path: Path) -> SiteFile:
    """The site's file; a `SiteError` names the first fault."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SiteError(
            f"{path}: missing; a bundle is the folder that `atoll federation init` made for a site",
            code="site-file-missing",
        ) from None
    except (OSError, ValueError, RecursionError) as problem:
        raise SiteError(f"{path}: cannot be read ({problem}); correct it", code="site-file-unreadable") from None
    try:
        site = SiteFile.model_validate(table)
    except ValidationError as problem:
        raise SiteError(f"{path}: {_one_line(problem)}", code="site-file-invalid") from None
    check_names([site.name])
    split_address(site.server)
    return site


def answer_labels(path: Path, share: bool) -> SiteFile:
    """Write the site's answer about its label counts into its file; all else in the file stays as it is."""
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
    if first["type"] == "missing":
        return f"{place}: missing; restore the line from the bundle"
    return f"{place} = {first['input']!r}: {first['msg'].removeprefix('Value error, ')}"
