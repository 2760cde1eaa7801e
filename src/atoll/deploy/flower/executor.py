"""The executor of a site: Flower's own, but each task runs in a fork of a process that has imported Flower already.

Flower's node starts the program `flower-superexec`, which starts the program `flwr-clientapp` for each message. That
program imports Flower for seconds and works for milliseconds. `install` puts a program of the same name before Flower's
in the node's PATH; it is Flower's executor with another way to launch a task. Should a later version of Flower not look
for it there, the node uses Flower's own and is slower.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from atoll.errors import SiteError

PROGRAM = "flower-superexec"
LOOK = "0.25"  # seconds between two questions for a task, instead of Flower's 1.0


def install(folder: Path, environment: dict[str, str]) -> dict[str, str]:
    """The environment in which Flower's node finds this executor, written to `folder`."""
    folder.mkdir(mode=0o700, exist_ok=True)
    program = folder / PROGRAM
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {__name__} "$@"\n')
    program.chmod(0o700)
    path = f"{folder}{os.pathsep}{environment['PATH']}"
    return environment | {"PATH": path, "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": LOOK}


def main() -> None:
    """Flower's executor, with forks."""
    from flwr.supercore.cli import flower_superexec

    sys.argv[0] = PROGRAM
    importlib.import_module("atoll.deploy.flower.node_program")  # every fork has them from here on
    client = importlib.import_module("flwr.supernode.runtime.run_clientapp")
    client.install_from_fab = with_hint(client.install_from_fab)  # type: ignore[attr-defined]
    loop = importlib.import_module("flwr.supercore.superexec.run_superexec")
    loop.get_executor = forking_executor  # type: ignore[attr-defined]
    flower_superexec()


def with_hint(install: Callable[..., Any]) -> Callable[..., Any]:
    """Flower's installation of the app, which it does for each message before anything of Atoll runs. A full disk is
    one line at the site and, as the reason of the failure, at the server."""

    def installed(*arguments: Any, **options: Any) -> Any:
        try:
            return install(*arguments, **options)
        except OSError as problem:
            if problem.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            places = f"{tempfile.gettempdir()} or {os.environ.get('FLWR_HOME', '~/.flwr')}"
            text = f"no space is left on the disk of {places}; free some there"
            with suppress(OSError):  # the log may be on the same disk
                sys.stderr.write(f"atoll: {text}\n")
            raise SiteError(text, code="disk-full") from problem

    return installed


def forking_executor(*_: Any, **__: Any) -> Any:
    """Flower's executor that starts a program for each task, with a fork instead of the program."""
    from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
    from flwr.supercore.superexec.executor.types import ExecutionSpec, LaunchResult

    class ForkingExecutor(SubprocessExecutor):
        def launch(self, spec: ExecutionSpec) -> LaunchResult:
            if os.fork() == 0:
                run_task(spec)
            return LaunchResult.accepted()

        def reconcile(self) -> None:
            """Called again and again by Flower's loop: forks that have ended are taken away."""
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass  # there are none

    return ForkingExecutor()


def run_task(spec: Any) -> None:
    """One task, in a fork that ends with it."""
    from flwr.supernode.runtime.run_clientapp import run_clientapp

    code = 1
    try:  # whatever happens, even that nothing can be printed: a fork must not go on in its parent's loop
        try:
            run_clientapp(
                runtime_api_address=spec.runtime_api_address,
                token=spec.token,
                insecure=spec.insecure,
                parent_pid=spec.parent_pid,
                runtime_dependency_install=False,
            )
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
