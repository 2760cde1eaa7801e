"""`atoll show`, `clients`, `compare`, `explain`, `figures`, `methods`: what there is, and what runs have found."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from atoll.cli.console import Json, out_console, tell, tell_json


def show(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    clients: Annotated[bool, typer.Option("--clients", help="What became of each client's replies.")] = False,
    classes: Annotated[
        bool, typer.Option("--classes", help="The confusion matrix of a network, and the rates of each class.")
    ] = False,
    pick: Annotated[
        str | None, typer.Option(help="With --classes: which network; default: the one the method recommends.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what a run found, what it cost, and how it went."""
    from atoll.report.results import plain_run, show_classes, show_clients, show_run
    from atoll.run.reader import load

    found = load(directory)
    if as_json:
        tell_json(plain_run(found))
        return
    if clients:
        show_clients(out_console, found)
    if classes:
        show_classes(out_console, found, pick)
    if not clients and not classes:
        show_run(out_console, found)


def clients(directory: Annotated[Path, typer.Argument(help="A run directory.")], as_json: Json = False) -> None:
    """What became of each client's replies, and how good the network is on its rows."""
    from atoll.report.results import recommended_entry, show_clients
    from atoll.run.reader import load

    found = load(directory)
    if as_json:
        entry = recommended_entry(found) if found.finished else None
        tell_json({"clients": found.clients, "measured": (entry or {}).get("clients", {}), "problems": found.problems})
    else:
        show_clients(out_console, found)


def compare(
    directories: Annotated[list[Path], typer.Argument(help="Run directories, or folders of them (see `atoll sweep`).")],
    measure: Annotated[
        str, typer.Option(help="What differences are of: error, or f1 (mean over clients of the weighted F1).")
    ] = "error",
    against: Annotated[str | None, typer.Option(help="The group to compare with; default the first.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also a page (.html), a table (.csv) or box plots (.png, .svg).")
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Markdown tables, for a page or a log.")] = False,
    as_json: Json = False,
) -> None:
    """Was it worth it? Networks of runs side by side over seeds, their cost, and paired differences to the first."""
    from atoll.report.comparison.output import plain_comparison, write_comparison
    from atoll.report.comparison.rows import compare_runs
    from atoll.report.comparison.tables import markdown, sections
    from atoll.report.tables import comparison_tables

    with out_console.status("reading the runs"):
        found = compare_runs(directories, measure, against)
        written = None if out is None else write_comparison(found, out, directories)
    if as_json:
        tell_json(plain_comparison(found))
    elif as_markdown:
        tell(markdown(found), end="")
    else:
        for table in comparison_tables(sections(found), out_console.width):
            out_console.print(table)
        for text in found.notes:
            tell(text)
    if written is not None and not as_json:
        tell(f"written: {written}")


def explain(
    directory: Annotated[Path, typer.Argument(help="A run directory, or the folder of a sweep.")],
    pick: Annotated[
        str | None, typer.Option(help="Which network: personal-CLIENT, ...; default: the one the method recommends.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the files; default DIR/explained-PICK, of a sweep DIR/explained.")
    ] = None,
) -> None:
    """Write the rates of a network for each class and client; draw an evolved one and write it as formulas.

    Of an evolved network also its features and a NumPy file; of a sweep, how many of its runs use which feature.
    """
    from atoll.report.explain.files import explain as write_files
    from atoll.run.reader import load

    if directory.is_dir() and not (directory / "config.toml").is_file():
        _explain_sweep(directory, pick, out or directory / "explained")
        return
    run = load(directory)
    pick = pick or run.recommended
    folder = out if out is not None else directory / f"explained-{pick}"
    for path in write_files(run, pick, folder):
        tell(f"written: {path}")
        if path.name == "formula.txt":
            tell(path.read_text(encoding="utf-8"), end="")


def _explain_sweep(directory: Path, pick: str | None, folder: Path) -> None:
    from atoll.report.explain.stability import stability, write_stability
    from atoll.report.tables import stability_table
    from atoll.run.sweep import runs_in

    found = stability(runs_in(directory), pick)
    out_console.print(stability_table(found, out_console.width))
    tell(f"written: {write_stability(found, folder / 'features.csv')}")


def _list_figures(wanted: bool) -> None:
    if wanted:
        from atoll.report.figures.catalogue import registered_figures

        table = Table("figure", "what it shows")
        for figure in registered_figures():
            table.add_row(figure.name, figure.summary)
        out_console.print(table)
        raise typer.Exit


def figures(
    directories: Annotated[list[Path], typer.Argument(help="Run directories, drawn together.")],
    beside: Annotated[list[Path] | None, typer.Option(help="A run to compare with; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the files; default figures/ in the first run.")] = None,
    kind: Annotated[str, typer.Option("--format", help="png or svg.")] = "png",
    listed: Annotated[
        bool, typer.Option("--list", is_eager=True, callback=_list_figures, help="List the figures, and draw nothing.")
    ] = False,
) -> None:
    """Draw fronts, accuracy and cost per round, hypervolume and networks of runs, finished or not."""
    from atoll.report.figures.catalogue import draw_figures

    with out_console.status("drawing"):
        drawn = draw_figures(directories, beside or [], out, kind)
    for path in drawn:
        tell(f"drawn in {path}")


def methods(as_json: Json = False) -> None:
    """The methods there are."""
    from atoll.methods import find_method
    from atoll.registry import names

    if as_json:
        tell_json({name: find_method(name).summary for name in names("methods")})
        return
    table = Table("method", "what it does")
    for name in names("methods"):
        table.add_row(name, find_method(name).summary)
    out_console.print(table)


def cost(
    directories: Annotated[list[Path], typer.Argument(help="Run directories, finished or not.")],
    device: Annotated[str | None, typer.Option(help="Also seconds and joules: phone, board or a file (.toml).")] = None,
    against: Annotated[Path | None, typer.Option(help="The run to compare with; default the first one.")] = None,
    search_only: Annotated[
        bool,
        typer.Option("--search-only", help="Without training before and after the search, and the final evaluation."),
    ] = False,
    iterations: Annotated[int | None, typer.Option(min=1, help="Only the first N of the search.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also a figure with bars (png or svg).")] = None,
    as_json: Json = False,
) -> None:
    """What runs cost their clients: MACs, bytes, seconds and joules of all clients and of one, from the ledgers."""
    from atoll.devices import device_profile
    from atoll.report.figures.catalogue import named_runs
    from atoll.report.figures.cost import draw_cost, run_cost
    from atoll.report.tables import cost_table

    profile = device_profile(device) if device is not None else None
    folders = [*directories]
    if against is not None and against.absolute() not in {folder.absolute() for folder in folders}:
        folders.append(against)
    runs = named_runs(folders)
    costs = [run_cost(name, run, profile, search_only, iterations) for name, run in runs.items()]
    reference = costs[0]
    if against is not None:
        reference = costs[[folder.absolute() for folder in folders].index(against.absolute())]
    if as_json:
        tell_json({"against": reference.name, "runs": [asdict(one) for one in costs]})
    else:
        out_console.print(cost_table(costs, reference, device))
    if out is not None:
        path = draw_cost(costs, reference, out, runs=runs)
        if not as_json:
            tell(f"drawn in {path}")
