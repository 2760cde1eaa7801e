"""The program `atoll`: its commands and its exit codes.

Exit codes: 0 success; 1 a bug in Atoll; 2 something typed or supplied is wrong; 3 paused, can be resumed; 4 the run
directory is damaged; 130 stopped by Ctrl-C after a checkpoint.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import click
import typer

from atoll.cli import data, federation, inspect, pages, run
from atoll.cli.console import DataDir, Json, complain, out_console, tell, tell_json
from atoll.cli.watching import INTERRUPTED
from atoll.core.messages import one_line
from atoll.errors import AtollError, ConfigError, RunDamaged
from atoll.extras import missing_extra

app = typer.Typer(
    help="Federated neural architecture search: find the right network for data that stays where it is.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
for command in (
    run.run,
    run.resume,
    run.retrain,
    run.sweep,
    run.tune,
    run.baselines,
    inspect.show,
    inspect.clients,
    run.export,
    run.predict,
    pages.report,
    pages.dashboard,
    inspect.compare,
    inspect.cost,
    inspect.explain,
    inspect.figures,
    inspect.methods,
    data.partition,
):
    app.command()(command)
app.add_typer(data.data_app, name="data")
app.add_typer(data.app, name="datasets")
app.add_typer(data.devices_app, name="devices")
app.add_typer(federation.app, name="federation")
app.add_typer(federation.site_app, name="site")


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        tell(f"atoll {version('atoll')}")
        raise typer.Exit


@app.callback()
def atoll(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version, and end.")
    ] = False,
) -> None:
    """Federated neural architecture search: find the right network for data that stays where it is."""


@app.command()
def doctor(
    data_dir: DataDir = None,
    federation_dir: federation.Examined = None,
    site_data: Annotated[
        Path | None, typer.Option("--data", help="With a site's bundle: check this data, too.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Versions, cores and available data sets: include this in a bug report."""
    from atoll.report.tables import health, health_table

    if federation_dir is not None:
        raise typer.Exit(federation.examine(federation_dir, site_data))
    if as_json:
        tell_json(health(data_dir))
    else:
        out_console.print(health_table(data_dir))


def main() -> None:
    """Run the command line. A user's error is one line on the error stream (own data: one for each problem), never a
    traceback."""
    from atoll.training.determinism import prepare_environment

    prepare_environment()
    sys.path.append(os.getcwd())  # last: own methods in this folder are found by module:Class, and shadow nothing
    try:
        sys.exit(app(standalone_mode=False))  # a command that exits early returns its exit code, the others None
    except click.exceptions.NoArgsIsHelpError:
        sys.exit(2)  # typer has shown the help
    except click.ClickException as problem:
        complain(problem.format_message())
        sys.exit(2)
    except (KeyboardInterrupt, click.exceptions.Abort):
        complain("stopped immediately; the last checkpoint is intact")
        sys.exit(INTERRUPTED)
    except AtollError as problem:
        complain(*problem.lines())
        sys.exit(problem.exit_code)
    except ImportError as problem:
        lacking = missing_extra(problem)
        if lacking is None:
            raise
        complain(f"{lacking} [{lacking.code}]")
        sys.exit(lacking.exit_code)
    except OSError as problem:
        complain(
            f"{problem.filename or 'file system'}: {problem.strerror or problem}; free space or choose another folder"
        )
        sys.exit(ConfigError.exit_code)
    except Exception as problem:
        damaged = _damaged(sys.argv[1:])
        if damaged is None:
            raise
        kind = type(problem).__name__
        complain(f"{damaged} ({kind}: {one_line(str(problem))}); restore the file from a copy [file-damaged]")
        sys.exit(RunDamaged.exit_code)


def _damaged(words: list[str]) -> str | None:
    """Says which file of a run that the command names was changed, if one was: then a failure is no fault of Atoll."""
    from atoll.run.reader import load
    from atoll.store.integrity import listed_files

    for path in (Path(word) for word in words):
        try:
            found = load(path).unverified_files
        except (AtollError, OSError, ValueError):
            continue
        if found:
            return f"{path}: {listed_files(found)} changed, or not checked by this version, and cannot be used"
    return None
