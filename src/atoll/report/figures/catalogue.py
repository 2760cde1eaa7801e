"""`atoll figures`: every registered figure that applies to a set of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from atoll.errors import ConfigError, RunDirectoryError, nearest
from atoll.registry import find, names
from atoll.report.figures import Figure
from atoll.report.figures.canvas import FORMATS
from atoll.report.figures.tracks import rounds_of, settings
from atoll.run.reader import Run, load

FOLDER = "figures"  # within a run directory, of which it is no part: it can be deleted and drawn again


def registered_figures() -> list[Figure]:
    """The figures of the registry's group `figures`, in the order of their names."""
    return [find("figures", name) for name in names("figures")]


def draw_figures(
    directories: Sequence[Path],
    beside: Sequence[Path] = (),
    out: Path | None = None,
    file_format: str = "png",
) -> list[Path]:
    """Draw every figure that applies to the runs in these directories, finished or not.

    The files are written into `out`, or else into a folder of the first run; returns their paths. The runs of `beside`
    are shown for comparison in the figures that can do so.
    """
    if file_format not in FORMATS:
        raise ConfigError(
            f"format {file_format!r}: unknown; {nearest(file_format, FORMATS)}", code="unknown-figure-format"
        )
    runs, compared = named_runs(directories), named_runs(beside)
    for run in (*runs.values(), *compared.values()):
        rounds_of(run)  # a run without rounds is an error before anything is written
    folder = out if out is not None else Path(directories[0]) / FOLDER
    written = []
    for figure in registered_figures():
        shown = {name: run for name, run in runs.items() if figure.applies(run)}
        if len(shown) >= figure.minimum:
            written.append(figure.draw(shown, folder / f"{figure.name}.{file_format}", compared))
    if not written:
        raise RunDirectoryError(
            f"{directories[0]}: no figure applies to it; its rounds hold no metrics that can be drawn",
            code="run-without-figures",
        )
    return written


def named_runs(directories: Sequence[Path]) -> dict[str, Run]:
    """Runs by their names in legends: the folder's name, with as much of the path as distinguishes it from others."""
    paths = [Path(directory).absolute() for directory in directories]
    found: dict[str, Run] = {}
    for directory, path in zip(directories, paths, strict=True):
        run = load(directory)
        ends = ("/".join(path.parts[-length:]) for length in range(1, len(path.parts)))
        others = [other for other in paths if other != path]
        label = next((end for end in ends if not any(str(other).endswith(f"/{end}") for other in others)), str(path))
        model = settings(run).get("model")
        found[f"{label} ({model})" if isinstance(model, str) and model.lower() not in label.lower() else label] = run
    return found
