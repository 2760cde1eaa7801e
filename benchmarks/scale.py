"""What one server carries: rounds of federated averaging with thin clients on the loopback.

    python benchmarks/scale.py [--clients 1,10] [--bytes 1000] [--polls 3,0.2] [--rounds 4]

The server is a real one: SuperLink, proxy, TLS, keys, the server's program. The clients are threads of one process,
each with the key of a site of its own. They speak Flower's fleet protocol with the functions of Flower's own node, and
answer as a site does, with a few rows and a network of this many bytes. So what a message costs at a site (a fork, a
worker) is left out, and what is left is the server. A poll is the pause of an idle client between two looks for
messages; that of Flower's node is 3 seconds.

For each case: seconds of a round (median), messages and bytes in a second, and per round the seconds of processor time
of SuperLink, proxy and server's program, with their memory at the end. On one machine the clients take processor time,
too: it is printed as well.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from overhead import atoll, by_role, free_ports, memory, start, taken

from atoll.deploy.supervisor import flower_environment

SCRIPT = Path(__file__).resolve()
COUNTED = ("SuperLink", "proxy", "server's program")
ANSWERING = threading.Lock()  # threads share the networks that a process keeps built
ROWS = "\n".join(["x,z,label", *(f"{row % 5},{row % 3},{row % 2}" for row in range(20))]) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--clients", default="1,10")
    options.add_argument("--bytes", default="1000")
    options.add_argument("--polls", default="3,0.2")
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument("--play", help=argparse.SUPPRESS)  # the clients' process: a federation's directory
    given = options.parse_args()
    if given.play is not None:
        play(Path(given.play), float(given.polls))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for count in map(int, given.clients.split(",")):
            for poll in map(float, given.polls.split(",")):
                with_clients(count, poll, [int(size) for size in given.bytes.split(",")], given.rounds)


def with_clients(count: int, poll: float, sizes: list[int], rounds: int) -> None:
    """A server with this many clients, and a run for each size of the network."""
    place = Path(f"federation-{count}-{poll:g}")
    names = [f"c{number:02d}" for number in range(1, count + 1)]
    public, own = map(str, free_ports(2))
    words = ("--host", "localhost", "--port", public, "--superlink-port", own)
    atoll("federation", "init", str(place), "--sites", ",".join(names), *words)
    for name in names:
        data = place / "bundles" / name / "data"
        data.mkdir()
        (data / "rows.csv").write_text(ROWS)
    server = start("federation", "server", str(place))
    command = [sys.executable, str(SCRIPT), "--play", str(place), "--polls", str(poll)]
    environment = flower_environment(place.resolve() / "clients") | {"PYTHONPATH": ":".join(sys.path)}
    clients = None
    try:
        while not (place / "state" / "nodes.json").exists():
            time.sleep(0.2)
        time.sleep(3)
        clients = subprocess.Popen(command, env=environment)
        atoll("federation", "status", str(place), "--wait", "300")
        for size in sizes:
            run(place, count, poll, size, rounds, clients.pid)
    finally:
        for process in (clients, server):
            if process is not None:
                process.send_signal(signal.SIGTERM)
                process.wait(120)


def run(place: Path, count: int, poll: float, size: int, rounds: int, clients: int) -> None:
    out = Path(f"run-{count}-{poll:g}-{size}")
    hidden = max(1, size // 20)  # 2 inputs, 2 outputs: 5 numbers of 4 bytes for each hidden unit
    settings = (f"fedavg.hidden=[{hidden}]", "fedavg.test_every=0", "fedavg.lr=0.0001", "data.split=[0.8,0.0,0.2]")
    words = [word for setting in settings for word in ("--set", setting)]
    with Sampling(out.resolve() / "events.jsonl", clients) as sampling:
        atoll("run", "fedavg", "--federation", str(place), "--rounds", str(rounds), "--out", str(out), *words)
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    seconds = [after["wall_seconds"] - before["wall_seconds"] for before, after in pairwise(events)]
    ledger = events[-1]["ledger"]
    per_round, moved = statistics.median(seconds), ledger["bytes_down"] + ledger["bytes_up"]
    taken_by, held = sampling.found()
    roles = ", ".join(f"{role} {taken_by[role]:.2f} s and {held[role] / 1e6:.0f} MB" for role in COUNTED)
    print(
        f"{count:>3} clients, {size:>10,} bytes, poll {poll:g} s: {per_round:7.2f} s a round, "
        f"{2 * count / per_round:7.1f} messages/s, {moved / per_round / 1e6:7.2f} MB/s; {roles}; "
        f"clients {taken_by['clients']:.2f} s",
        flush=True,
    )


@dataclass
class Sampling:
    """Processor time and memory by role, when the first and the last round have ended."""

    events: Path
    clients: int
    samples: list[tuple[int, dict[str, float], dict[str, int]]] = field(default_factory=list)

    def __enter__(self) -> Sampling:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.2):
            rounds = len(self.events.read_bytes().splitlines()) if self.events.exists() else 0
            if rounds and (not self.samples or rounds != self.samples[-1][0]):
                roles = by_role()
                seconds = {role: sum(taken(pid) for pid in roles.get(role, [])) for role in COUNTED}
                held = {role: sum(memory(pid) for pid in roles.get(role, [])) for role in COUNTED}
                self.samples.append((rounds, seconds | {"clients": taken(self.clients)}, held))

    def found(self) -> tuple[dict[str, float], dict[str, int]]:
        """Seconds of a round, and bytes after the last one that was seen."""
        first, last = self.samples[0], self.samples[-1]
        passed = max(1, last[0] - first[0])
        return {role: (last[1][role] - first[1][role]) / passed for role in last[1]}, last[2]


# -- the clients -------------------------------------------------------------------------------------------------------


def play(place: Path, poll: float) -> None:
    """All sites of a federation in this process, until SIGTERM."""
    from atoll.training.determinism import prepare_environment, single_thread

    prepare_environment()
    single_thread()
    from flwr.supercore.task_identity import TaskIdentity

    import atoll.clients.jobs  # noqa: F401

    # Flower sets this in the processes that it starts; a message cannot be made without it.
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    sites = [
        threading.Thread(target=site, args=(bundle, poll, ended)) for bundle in sorted((place / "bundles").iterdir())
    ]
    for one in sites:
        one.start()
    for one in sites:
        one.join()


def site(folder: Path, poll: float, ended: threading.Event) -> None:
    """One site, from its bundle. Flower's functions are internal to it: they are used nowhere else."""
    from flwr.supernode.fleet_http_connection import http_request_response

    from atoll.deploy.bundle import Bundle
    from atoll.deploy.certificates import read_private_key

    bundle = Bundle.open(folder)
    key = read_private_key(bundle.key)
    keys = (key, key.public_key())
    with http_request_response(bundle.site.server, False, str(bundle.ca), keys) as connection:
        _, receive, send, _, _, pull, push, confirm = connection
        while not ended.is_set():
            received = receive()
            if received is None:
                ended.wait(poll)
                continue
            answer_one(bundle, received, send, pull, push, confirm)


def answer_one(bundle, received, send, pull, push, confirm) -> None:  # type: ignore[no-untyped-def]  # Flower's own
    """Pull a message's content, answer it, push the answer."""
    from flwr.app import Message
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree, push_objects

    from atoll.deploy.flower.frames import content, frame_of
    from atoll.deploy.site import Site, SiteNode

    head, tree = received
    run = head.metadata.run_id
    message = pull_and_inflate_object_from_tree(
        tree, lambda name: pull(run, name), lambda name: confirm(run, name), return_type=Message
    )
    message.metadata.__dict__["_message_id"] = tree.object_id
    frame = frame_of(message)
    assert frame is not None
    with ANSWERING:
        node = SiteNode(Site(bundle.site.name, bundle.folder / "data", bundle.work))
        answer = node.answer(message.metadata.message_type.partition(".")[2], frame)
    reply = Message(content(answer), reply_to=message)
    reply.metadata.__dict__["_message_id"] = reply.object_id
    with no_object_id_recompute():
        wanted, session = send(reply, get_object_tree(reply), 0.0)
        push_objects(
            get_all_nested_objects(reply),
            lambda name, data: push(run, session, name, data),
            object_ids_to_push=wanted,
        )


if __name__ == "__main__":
    main()
