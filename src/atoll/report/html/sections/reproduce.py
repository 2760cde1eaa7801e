"""How to make the run again, and how to use its network."""

from __future__ import annotations

import shlex

from atoll.config import to_toml
from atoll.report.html.markup import Html, lines, tag
from atoll.report.html.page import section
from atoll.report.html.tables import TableColumn, table
from atoll.report.view import RunView

ELSEWHERE = {"in-memory", "sites"}  # data that an experiment file cannot name


def reproduce_section(view: RunView, prefix: str = "") -> Html:
    """The experiment file and the command; versions; the commands and the Python that use the network."""
    parts: list[Html | None] = [
        tag("h3", "Make it again"),
        _how(view),
        tag(
            "details",
            tag("summary", "experiment.toml: the complete settings"),
            tag("pre", lines(to_toml(dict(view.config))), tabindex=0, role="region", aria_label="experiment.toml"),
        ),
        tag("details", tag("summary", "Versions and digests"), _versions(view)),
        *(_use(view) if view.result is not None else [_resume(view)]),
    ]
    lead = (
        "The same seed gives the same bits, for any number of workers, with the same versions on the same kind of CPU."
    )
    return section(f"{prefix}reproduce", "Reproduce it, use it", parts, lead=lead)


def _how(view: RunView) -> Html:
    name = str(view.config.get("data", {}).get("name", ""))
    if name in ELSEWHERE:
        where = "was in memory" if name == "in-memory" else "stayed on the sites of a federation"
        return tag("p", f"The data {where}, so an experiment file alone does not make this run again.")
    command = "atoll run experiment.toml --out again"
    return tag("pre", lines(command), tabindex=0, role="region", aria_label="Command")


def _versions(view: RunView) -> Html:
    rows = [[name, str(value)] for name, value in view.manifest.get("versions", {}).items()]
    rows += [
        ["digest of the data", str(view.manifest["data"].get("digest", ""))],
        ["run", str(view.manifest.get("run", ""))],
    ]
    rows += [["started", str(view.manifest.get("created", ""))]]
    return table([TableColumn("what", False), TableColumn("value", False)], rows, label="Versions and digests")


def _use(view: RunView) -> list[Html | None]:
    path = shlex.quote(view.path.name)
    best = view.best
    image = best is not None and len(best["architecture"].get("input", ())) == 3
    example = "image.png" if image else "new.csv"
    shell = f"atoll predict {path} {example}\natoll export {path} -o net.onnx\natoll show {path}"
    python = (
        "import atoll\n\n"
        f"run = atoll.load({view.path.name!r})\n"
        f"run.predict({example!r}, {view.recommended!r}).labels  # raw rows in, classes out\n"
        f"model = run.model({view.recommended!r})  # an ordinary torch module"
    )
    return [
        tag("h3", "Use the network"),
        tag(
            "p",
            f"Beside the run directory {view.path.name}: it answers raw rows, also without Atoll once it is exported.",
        ),
        tag("pre", lines(shell), tabindex=0, role="region", aria_label="Commands"),
        tag("pre", lines(python), tabindex=0, role="region", aria_label="Python"),
    ]


def _resume(view: RunView) -> Html:
    text = f"atoll resume {shlex.quote(view.path.name)}"
    return tag("pre", lines(text), tabindex=0, role="region", aria_label="Command")
