"""`atoll site`: a site's side of a real federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atoll.commands.console import tell
from atoll.commands.foreground import foreground

if TYPE_CHECKING:
    from atoll.sites.bundle import Bundle
    from atoll.sites.data_check import DataSummary

app = typer.Typer(help="A site of a real federation: join it with data that stays here.", no_args_is_help=True)

SHARED = """\
what the server will get from this site, when a run asks for it:
  - names of the columns and classes, how many rows there are for training, validation and test
  - the number, mean and variance of each column, if the run scales all sites alike (scale = "federated")
  - updates of models trained here, and how many rows they get right
  - versions of Python and of the packages in use
what stays here: every row. What a run may ask for is limited by {file}"""


@app.callback()
def site() -> None:
    """A site of a real federation: join it with data that stays here."""


@app.command()
def join(
    folder: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that the operator gave to this site.")],
    data: Annotated[Path, typer.Option(help="This site's data: a folder with one CSV or NPZ file, or pictures.")],
    label: Annotated[str, typer.Option(help="The column of the class, for the look at the data.")] = "label",
    share_labels: Annotated[
        bool | None, typer.Option(help="May the number of rows per class leave this site? Asked if not given.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Ask nothing; label counts stay here unless allowed before.")
    ] = False,
) -> None:
    """Check the data, show what will be shared, and stay connected until Ctrl-C or SIGTERM."""
    from atoll.sites.bundle import Bundle
    from atoll.sites.data_check import look
    from atoll.sites.node import run_node
    from atoll.sites.site_file import answer_labels

    bundle = Bundle.open(folder)
    _tell(bundle, look(data, label, bundle.site.name))
    allowed = _labels(bundle, share_labels, yes)
    if not yes and not typer.confirm(f"join the federation at {bundle.site.link} as site '{bundle.site.name}'?"):
        raise typer.Exit(0)
    answer_labels(bundle.file, allowed)
    with foreground() as stop:
        run_node(bundle, data.resolve(), tell, stop, label=label)


def _tell(bundle: Bundle, summary: DataSummary) -> None:
    columns = f" ({', '.join(summary.columns[:6])}{', ...' if len(summary.columns) > 6 else ''})"
    tell(f"site '{bundle.site.name}': {summary.rows:,} rows, {summary.form}{columns if summary.columns else ''}")
    counted = (f"{name}: {count:,}" for name, count in zip(summary.classes, summary.per_class, strict=True))
    tell(f"classes: {', '.join(counted)}")
    if summary.note:
        tell(f"note: {summary.note}")
    for line in SHARED.format(file=bundle.file).splitlines():
        tell(line)


def _labels(bundle: Bundle, given: bool | None, yes: bool) -> bool:
    """May label counts leave? What the command says, else what is asked, else what was answered before."""
    before = bundle.site.share_labels
    allowed = before if given is None else given
    if given is None and not yes:
        allowed = typer.confirm("may the number of rows per class leave this site, too?", default=before)
    tell(f"rows per class: {'the server may know them' if allowed else 'stay here'}")
    return allowed
