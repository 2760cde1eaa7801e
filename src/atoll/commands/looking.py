"""`atoll compare`, `explain`, `figures`, `methods`: what there is, and what runs have found, in words and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from atoll.commands.console import out_console, tell


def compare(
    directories: Annotated[list[Path], typer.Argument(help="Run directories, or folders of them (see `atoll sweep`).")],
    out: Annotated[Path | None, typer.Option(help="Also a picture with box plots (png or svg).")] = None,
) -> None:
    """Runs side by side: mean and deviation over seeds, client by client, Mann-Whitney U."""
    from atoll.report.boxes import draw_boxes
    from atoll.report.comparison import gather, markdown

    groups = gather(directories)
    tell(markdown(groups), end="")
    if out is not None:
        draw_boxes(groups, out)
        tell(f"drawn in {out}")


def explain(
    directory: Annotated[Path, typer.Argument(help="A run directory of a method that evolves networks.")],
    pick: Annotated[str, typer.Option(help="Which network: high (the global one), personal-CLIENT, ...")] = "high",
    out: Annotated[Path | None, typer.Option(help="The folder of the files; default RUN/explained-PICK.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also network.onnx; needs the extra `export`.")] = False,
) -> None:
    """Draw an evolved network, write it as formulas, list its features, and export it as a plain NumPy file."""
    from atoll.reading import load
    from atoll.report.explain import explain as write_files

    folder = out if out is not None else directory / f"explained-{pick}"
    for path in write_files(load(directory), pick, folder, onnx):
        tell(f"written: {path}")
    tell((folder / "formula.txt").read_text(encoding="utf-8"), end="")


def figures(
    directories: Annotated[list[Path], typer.Argument(help="Run directories, drawn together.")],
    beside: Annotated[list[Path] | None, typer.Option(help="A run to compare with; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the pictures; default figures/ in the first run.")] = None,
    kind: Annotated[str, typer.Option("--format", help="png or svg.")] = "png",
) -> None:
    """Draw fronts, accuracy and cost per round, hypervolume and networks of runs, finished or not."""
    from atoll.report.figures import draw_figures

    for path in draw_figures(directories, beside or [], out, kind):
        tell(f"drawn in {path}")


def methods() -> None:
    """The methods there are."""
    from atoll.methods import find_method, method_names

    table = Table("method", "what it does")
    for name in method_names():
        table.add_row(name, find_method(name).summary)
    out_console.print(table)
