"""What one server carries: rounds of federated averaging with thin clients on the loopback.

    python benchmarks/scale.py [--clients 1,10] [--bytes 1000] [--polls 3,0.2] [--rounds 4]

The server is a real one: SuperLink, proxy, TLS, keys, the server's program. The clients are threads of one process,
each with the key of a site of its own. They speak Flower's fleet protocol with the functions of Flower's own node, and
answer as a site does, with a few rows and a network of this many bytes. So what a message costs at a site (a fork, a
worker) is left out, and what is left is the server. A poll is the pause of an idle client between two looks for
messages; that of Flower's node is 3 seconds.

For each case a row for the table of docs/scale.md: seconds of a round (median), messages and bytes in a second, and per
round the seconds of processor time of SuperLink, proxy and server's program, with their memory at the end. On one
machine the clients take processor time, too: it is printed as well. In the end, from the same figures: what one more
message costs the SuperLink (from the two largest numbers of clients), at how many sites that takes FLOOR seconds of a
round, and what idle clients cost it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
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

from overhead import atoll, by_role, free_port, memory, start, taken

from atoll.deploy.supervisor import flower_environment

SCRIPT = Path(__file__).resolve()
COUNTED = ("SuperLink", "proxy", "server's program")
ANSWERING = threading.Lock()  # threads share the networks that a process keeps built
COLUMNS = (
    *("clients", "bytes each way", "poll", "a round", "messages/s", "MB/s"),
    "processor seconds of a round: SuperLink, proxy, server's program (clients)",
    "memory of the three",
)
FLOOR = 5.0  # seconds of a round on sites, whatever they compute: up to here the server does not count
IDLE = 20.0  # seconds without a run
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
        print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|", flush=True)
        said, found = [], dict[tuple[int, float], dict[int, float]]()
        sizes = [int(size) for size in given.bytes.split(",")]
        for poll in map(float, given.polls.split(",")):
            for count in sorted(map(int, given.clients.split(","))):
                said.append(with_clients(count, poll, sizes, given.rounds, found))
        print("", *said, *(of_a_message(*case, by_count) for case, by_count in found.items()), sep="\n")


def of_a_message(size: int, poll: float, seconds: dict[int, float]) -> str:
    """What a message costs the SuperLink: a round costs something even without any."""
    about = f"{worded(size)}, poll {poll:g} s"
    if len(seconds) < 2:
        return f"{about}: one number of clients says nothing about one more"
    (few, less), (many, more) = sorted(seconds.items())[-2:]
    one = (more - less) / (2 * (many - few))
    sites = f"; 2 N c is {FLOOR:g} s at N = {FLOOR / (2 * one):.0f}" if one > 0 else ""
    return f"{about}, from {few} to {many} clients: c = {1000 * one:.1f} ms of the SuperLink for a message{sites}"


def worded(size: int) -> str:
    return f"{size // 1_000_000} MB" if size >= 1_000_000 else f"{size / 1000:g} kB"


def with_clients(
    count: int, poll: float, sizes: list[int], rounds: int, found: dict[tuple[int, float], dict[int, float]]
) -> str:
    """A server with this many clients, and a run for each size of the network. Prints the rows; what idle clients cost.
    `found` gets the SuperLink's seconds of a round."""
    place = Path(f"federation-{count}-{poll:g}")
    names = [f"c{number:02d}" for number in range(1, count + 1)]
    words = ("--host", "localhost", "--port", str(free_port()))
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
            if server.poll() is not None:
                raise SystemExit(f"the server did not start: {(place / 'logs' / 'server.log').read_text()}")
            time.sleep(0.2)
        time.sleep(3)
        clients = subprocess.Popen(command, env=environment)
        atoll("federation", "status", str(place), "--wait", "300")
        said = idle(count, poll)
        for size in sizes:
            seconds = run(place, count, poll, size, rounds, clients.pid)
            found.setdefault((size, poll), {})[count] = seconds
            for bundle in (place / "bundles").iterdir():  # what 50 sites keep of a run is gigabytes
                shutil.rmtree(bundle / "work" / "runs", ignore_errors=True)
        return said
    finally:
        for process in (clients, server):
            if process is not None:
                process.send_signal(signal.SIGTERM)
                process.wait(120)


def superlink_seconds() -> float:
    return sum(taken(pid) for pid in by_role().get("SuperLink", []))


def idle(count: int, poll: float) -> str:
    before = superlink_seconds()
    time.sleep(IDLE)
    share = (superlink_seconds() - before) / IDLE
    return f"{count} clients that poll every {poll:g} s and have nothing to do: {share:.3f} of the SuperLink's core"


def run(place: Path, count: int, poll: float, size: int, rounds: int, clients: int) -> float:
    """Prints one row; the SuperLink's seconds of a round."""
    out = Path(f"run-{count}-{poll:g}-{size}")
    hidden = max(1, size // 20)  # 2 inputs, 2 outputs: 5 numbers of 4 bytes for each hidden unit
    settings = (f"fedavg.hidden=[{hidden}]", "fedavg.test_every=0", "fedavg.lr=0.0001", "data.split=[0.8,0.0,0.2]")
    words = [word for setting in settings for word in ("--set", setting)]
    with Sampling(out.resolve() / "events.jsonl", clients) as sampling:
        atoll("run", "fedavg", "--federation", str(place), "--rounds", str(rounds), "--out", str(out), *words)
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    seconds = [after["wall_seconds"] - before["wall_seconds"] for before, after in pairwise(events)]
    used = events[-1]["ledger"]["replies"]["used"]
    if used != count:
        raise SystemExit(f"{count} clients, {size} bytes: {used} replies were used; the figures would mean nothing")
    ledger = events[-1]["ledger"]
    per_round, moved = statistics.median(seconds), ledger["bytes_down"] + ledger["bytes_up"]
    by, held = sampling.found()
    cells = [
        str(count),
        worded(size),
        f"{poll:g} s",
        f"{per_round:.2f} s",
        f"{2 * count / per_round:.1f}",
        f"{moved / per_round / 1e6:.2f}",
        f"{', '.join(f'{by[role]:.2f}' for role in COUNTED)} ({by['clients']:.2f})",
        f"{', '.join(f'{held[role] / 1e6:.0f}' for role in COUNTED)} MB",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)
    return by["SuperLink"]


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
