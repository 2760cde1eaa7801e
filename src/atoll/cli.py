"""The command line. Commands only: what they do is elsewhere.

Exit codes: 0 done; 1 a fault of Atoll; 2 something typed or supplied is wrong; 3 paused, can be resumed; 4 the run
directory is damaged; 130 stopped by Ctrl-C after a checkpoint.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import click
import typer

from atoll.commands import datasets, federation, looking, running, site
from atoll.commands.console import DataDir, complain, out_console
from atoll.commands.cost import cost
from atoll.commands.devices import devices_app
from atoll.commands.running import INTERRUPTED
from atoll.errors import AtollError, ConfigError

app = typer.Typer(
    help="Federated neural architecture search: find the right network for data that stays where it is.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for command in (
    running.run,
    running.resume,
    running.retrain,
    running.sweep,
    running.show,
    looking.compare,
    cost,
    looking.explain,
    looking.figures,
    looking.methods,
    datasets.partition,
):
    app.command()(command)
app.add_typer(datasets.app, name="datasets")
app.add_typer(devices_app, name="devices")
app.add_typer(federation.app, name="federation")
app.add_typer(site.app, name="site")


@app.command()
def doctor(
    data_dir: DataDir = None,
    federation_dir: federation.Examined = None,
    data: Annotated[Path | None, typer.Option(help="With a site's bundle: look at this data, too.")] = None,
) -> None:
    """Versions, cores, and which data is found: the first thing to send with a question."""
    from atoll.report.tables import health_table

    if federation_dir is not None:
        raise typer.Exit(federation.examine(federation_dir, data))
    out_console.print(health_table(data_dir))


def main() -> None:
    """The program `atoll`: a user's mistake is one line on the error stream, never a traceback."""
    from atoll.learning.determinism import prepare_environment

    prepare_environment()
    try:
        sys.exit(app(standalone_mode=False))  # a command that ends early gives its exit code, the others None
    except click.exceptions.NoArgsIsHelpError:
        sys.exit(2)  # typer has shown the help
    except click.ClickException as problem:
        complain(problem.format_message())
        sys.exit(2)
    except (KeyboardInterrupt, click.exceptions.Abort):
        complain("stopped at once; the last checkpoint stands")
        sys.exit(INTERRUPTED)
    except AtollError as problem:
        complain(f"{problem} [{problem.code}]" if problem.code else str(problem))
        sys.exit(problem.exit_code)
    except OSError as problem:
        complain(
            f"{problem.filename or 'file system'}: {problem.strerror or problem}; make room or choose another folder"
        )
        sys.exit(ConfigError.exit_code)
