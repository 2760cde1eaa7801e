"""The resident worker of a site: answers its node's messages, one after the other, for as long as the node runs.

Started by `atoll site join` as `python -m atoll.deploy.worker FACTS`, with the site's facts as JSON. It keeps modules,
data and tensors of the last run in memory; what must survive it is in the site's folder. A task that does not end ends
with this process: the node starts it again.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from socket import socket

from atoll.core import wire
from atoll.deploy import worker_socket
from atoll.deploy.bundle import installed
from atoll.deploy.site import Site, SiteNode, log, logging_to_stderr
from atoll.deploy.site_file import read_site
from atoll.errors import AtollError, SiteError

# Seconds that a message may take longer than limits.minutes: its data has to be read. Then the process is ended from
# outside of Python, whatever it is doing.
SLACK = 600.0


def main() -> None:
    from atoll.training.determinism import prepare_environment, single_thread

    prepare_environment()
    with logging_to_stderr():
        try:
            facts = json.loads(sys.argv[1])
            site = site_of(facts)
            listener = worker_socket.listen(site.folder)
        except AtollError as problem:
            log.error("atoll: %s", problem)
            sys.exit(problem.exit_code)
        single_thread()  # imports torch
        import atoll.clients.jobs  # noqa: F401

        serve(listener, SiteNode(site), facts)


def serve(listener: socket, node: SiteNode, facts: Mapping[str, str]) -> None:
    """Answer one message after the other until a task has not ended in time."""
    versions = installed()
    while not node.spent:
        connection, _ = listener.accept()
        with connection:
            if not worker_socket.is_same_user(connection):
                user = worker_socket.peer_user(connection)
                log.warning("atoll: a process of user %d tried to use the site's worker and was refused", user)
                continue
            with contextlib.suppress(OSError):  # the other end may be gone at any time
                kind, frame = worker_socket.receive(connection), worker_socket.receive(connection)
                if kind is not None and frame is not None:
                    worker_socket.send(connection, b"")
                    worker_socket.send(
                        connection, answer(node, facts, versions, kind.decode(errors="replace"), bytes(frame))
                    )
    os._exit(0)  # an orderly end would wait for the task


def answer(node: SiteNode, facts: Mapping[str, str], versions: Mapping[str, str], kind: str, frame: bytes) -> bytes:
    """The node's answer. The site's file is read for each message: its limits hold from now on."""
    try:
        _check_versions(versions, facts["name"])
        node.site = site_of(facts)
    except SiteError as problem:
        log.warning("atoll: %s", problem)
        return wire.encode({"error": str(problem)}, digests=False)
    minutes = 60.0 if node.site.limits is None else node.site.limits.minutes
    faulthandler.dump_traceback_later(60 * minutes + SLACK, exit=True)
    try:
        return node.answer(kind, frame)
    finally:
        faulthandler.cancel_dump_traceback_later()


def _check_versions(loaded: Mapping[str, str], name: str) -> None:
    """The worker's modules stay as they were loaded, whatever is installed later."""
    now = installed()
    for package in sorted({*loaded, *now}):
        if loaded.get(package) != now.get(package):
            raise SiteError(
                f"site '{name}': its worker runs {package} {loaded.get(package)}, but {now.get(package)} is installed "
                "now; stop the node there and start it again: atoll site join BUNDLE --data FOLDER",
                code="worker-other-version",
            )


def site_of(facts: Mapping[str, str]) -> Site:
    """The site that a node was started as."""
    own = read_site(Path(facts["site"]))
    if own.name != facts["name"]:
        raise SiteError(
            f"the node is started as '{facts['name']}', but its site file is that of '{own.name}'; join again",
            code="wrong-site-file",
        )
    return Site(own.name, Path(facts["data"]), Path(facts["folder"]), own.share_labels, own.limits, own.pinned)


if __name__ == "__main__":
    main()
