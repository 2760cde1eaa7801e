"""The local engine: what a round costs beside plain loops, what a second worker gives, what idle clients cost.

    python benchmarks/engine.py [--clients 100] [--repetitions 5] [--rounds 15] [--ray]

A round of 100 MNIST clients (600 rows each, MLP 784-200-200-10, 5 epochs, batch 50, learning rate 0.1) goes through
federated averaging and the real engine with one worker and with two, and through loops without an engine over the
same clients, batches and first weights, rows already in memory, averaged at the end. What each client ends with must
be equal to 1e-5 of a tensor's largest value; a few in a hundred go another way, where the input of a ReLU is so near to
0 that rounding decides.

Idle clients: two runs in programs of their own, with checkpoints and all, in turns round by round. In both, 100
clients of 6 rows take part in a round: in one they are all there are, in the other they are drawn from 10,000. The
memory is the sum of the largest resident sizes of the server and its worker while the rounds go on, the data (100
times as much) counted in both.

With --ray only the round on Ray is measured: a cluster of this machine with one actor, then with two. The weights must
be those of the local engine to the bit.

Everything else is timed in turns in one run; a ratio is the median of the repetitions' ratios. Real MNIST is used if
ATOLL_DATA names a folder that holds mnist.npz, else made images of the same size.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from atoll.training.determinism import prepare_environment, single_thread

prepare_environment()

import numpy as np  # noqa: E402

from atoll.algorithms.aggregation import Mean  # noqa: E402
from atoll.config import resolve  # noqa: E402
from atoll.core.messages import Array, Reply, Task, Tensors  # noqa: E402
from atoll.data import Federated  # noqa: E402
from atoll.errors import Paused  # noqa: E402
from atoll.federation.base import Federation  # noqa: E402
from atoll.federation.executor import stream_name  # noqa: E402
from atoll.federation.local import clients_of, local_transport  # noqa: E402
from atoll.federation.ray import RayTransport  # noqa: E402
from atoll.federation.transport import Transport  # noqa: E402
from atoll.methods.fedavg import FedAvg, FedAvgConfig, FedAvgState  # noqa: E402
from atoll.rng import stream  # noqa: E402
from atoll.run import launch  # noqa: E402
from atoll.spaces import initial  # noqa: E402
from atoll.training.sgd import TrainSettings  # noqa: E402
from training import MLP, Contestant, compare, fused, plain  # noqa: E402

SEED = 1
ROUND = 1
ROWS = 600  # of a client
FEW_ROWS = 6  # of a client when there are 10,000 of them: 60,000 rows in all
TAKING_PART = 100
TRAINING: dict[str, Any] = {"epochs": 5, "batch": 50, "lr": 0.1}

Kept = dict[str, Tensors] | None
Row = tuple[str, float, str, float]  # what, measured, at most or at least, target


def mnist() -> tuple[Array, Array]:
    """60,000 images as bytes, as the data sets of the catalogue are kept."""
    file = Path(os.environ.get("ATOLL_DATA", ".")) / "mnist.npz"
    if file.is_file():
        with np.load(file, allow_pickle=False) as arrays:
            return arrays["x_train"], arrays["y_train"].astype(np.int64)
    rng = stream(0, "made data")
    return rng.integers(0, 256, (60_000, 28, 28), dtype=np.uint8), rng.integers(0, 10, 60_000)


def federated(clients: int, rows: int) -> Federated:
    """So many clients with so many training rows each and nothing else."""
    x, y = mnist()
    count = clients * rows
    part = x if count == len(x) else x[:count].copy()  # a mere view would keep all of them in memory
    return Federated.from_arrays(part, y[:count], np.arange(count) % clients, split=(1.0, 0.0, 0.0))


# -- a round through the engine, and without one --------------------------------------------------------------------


class Recording(Federation):
    """The engine; while `kept` is set it also keeps what each client returns."""

    kept: dict[str, Tensors] | None = None

    def __init__(self, data: Federated, workers: int, make: Callable[..., Transport] = local_transport) -> None:
        known, benchmark, held_out = clients_of(data)
        super().__init__(make(data, SEED, workers), known, benchmark, held_out=held_out)

    def map(self, tasks: Sequence[Task]) -> Iterator[Reply]:
        for reply in super().map(tasks):
            if self.kept is not None:
                self.kept[reply.task.client] = reply.payload["weights"]
            yield reply


def engine_round(federation: Recording, method: FedAvg, weights: Tensors, kept: Kept = None) -> None:
    """One round of federated averaging. Always the round of the same number, so that it gives the same bits."""
    federation.begin(ROUND)
    federation.kept = kept
    method.step(FedAvgState(ROUND - 1, weights), federation, stream(SEED, "server"))


def loop_round(train: Contestant, parts: dict[str, tuple[Array, Array]], weights: Tensors, kept: Kept = None) -> None:
    """The same without an engine: one client after the other, in this process."""
    mean = Mean()
    for name, (x, y) in parts.items():
        rng = stream(*stream_name(SEED, ROUND, name, 0))
        trained = train(MLP, weights, x, y, TrainSettings(**TRAINING), rng)
        mean.add(trained, len(y))
        if kept is not None:
            kept[name] = trained
    mean.result()


def race(clients: int, repetitions: int) -> list[Row]:
    """Ratios of a round's times: engine to loops, and one worker to two."""
    data = federated(clients, ROWS)
    parts = {name: data.client(name).part("train") for name in data.names}
    weights = initial(MLP, stream(SEED))
    method = FedAvg(FedAvgConfig(model="mlp", hidden=[200, 200], rounds=1, test_every=0, **TRAINING), data.schema)
    with Recording(data, 1) as alone, Recording(data, 2) as pair:
        rounds: dict[str, Callable[..., None]] = {
            "plain": partial(loop_round, plain, parts, weights),
            "fused": partial(loop_round, fused, parts, weights),
            "one worker": partial(engine_round, alone, method, weights),
            "two workers": partial(engine_round, pair, method, weights),
        }
        _check(rounds)
        taken = [{name: _seconds(run) for name, run in rounds.items()} for _ in range(repetitions)]
    for name in rounds:
        print(f"  {name:12} {median(row[name] for row in taken):7.3f} s a round")

    def ratio(above: str, below: str) -> float:
        return median(row[above] / row[below] for row in taken)

    return [
        ("one worker / plain PyTorch loop", ratio("one worker", "plain"), "at most", 0.9),
        ("one worker / hand-fused loop", ratio("one worker", "fused"), "at most", 1.1),
        ("one worker / two workers", ratio("one worker", "two workers"), "at least", 1.7),
    ]


def ray_growth(clients: int, repetitions: int) -> list[Row]:
    """A round on one actor to one on two. Not in turns: a program has one cluster at a time."""
    data = federated(clients, ROWS)
    weights = initial(MLP, stream(SEED))
    method = FedAvg(FedAvgConfig(model="mlp", hidden=[200, 200], rounds=1, test_every=0, **TRAINING), data.schema)
    expected: dict[str, Tensors] = {}
    with Recording(data, 1) as local:
        engine_round(local, method, weights, kept=expected)
    seconds = []
    for actors in (1, 2):
        found: dict[str, Tensors] = {}
        with Recording(data, actors, RayTransport) as federation:
            engine_round(federation, method, weights, kept=found)
            if any(found[name].whole_digest() != expected[name].whole_digest() for name in expected):
                raise SystemExit(
                    f"{actors} actors did not compute what the local engine does: their time means nothing"
                )
            run = partial(engine_round, federation, method, weights)
            seconds.append(median(_seconds(run) for _ in range(repetitions)))
        print(f"  {actors} {'actor ' if actors == 1 else 'actors'}     {seconds[-1]:7.3f} s a round")
    return [("Ray: one actor / two actors", seconds[0] / seconds[1], "at least", 1.7)]


def _check(rounds: dict[str, Callable[..., None]]) -> None:
    """Everybody must compute the same; this also starts the workers and warms everything up."""
    results: dict[str, dict[str, Tensors]] = {name: {} for name in rounds}
    for name, run in rounds.items():
        run(kept=results[name])
    for name, clients in results.items():
        differences = [compare(weights, results["plain"][client]) for client, weights in clients.items()]
        equal = sum(difference <= 1e-5 for difference in differences)
        share = f"{equal} of {len(differences)} clients"
        print(f"  {name:12} {share} end with plain's weights to 1e-5 (median {median(differences):.1e})")
        if len(differences) - equal > max(1, len(differences) // 5):
            raise SystemExit(f"{name} did not compute what the plain loop does: its time means nothing")


def _seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


# -- idle clients -----------------------------------------------------------------------------------------------------


def idle_clients(rounds: int) -> list[Row]:
    """Ratios of time and memory: 100 clients of 10,000 to 100 of 100."""
    with paced_run(TAKING_PART) as all_of_few, paced_run(100 * TAKING_PART) as few_of_many:
        for run in (all_of_few, few_of_many):
            _go(run)  # the first round starts the worker
        taken = [(_go(few_of_many), _go(all_of_few)) for _ in range(rounds)]
        many, few = _end(few_of_many), _end(all_of_few)
    print(f"  100 of 10,000: {median(a for a, _ in taken):.3f} s a round, {many / 1e6:.0f} MB")
    print(f"  100 of 100:    {median(b for _, b in taken):.3f} s a round, {few / 1e6:.0f} MB")
    time_ratio = median(above / below for above, below in taken)
    return [
        ("100 of 10,000 clients / 100 of 100, time", time_ratio, "at most", 1.2),
        ("100 of 10,000 clients / 100 of 100, memory", many / few, "at most", 1.2),
    ]


@contextmanager
def paced_run(clients: int) -> Iterator[subprocess.Popen[str]]:
    """A run in a program of its own that does a round for every line it is given."""
    command = [sys.executable, __file__, "--run-of", str(clients)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        try:
            yield run
        finally:
            run.kill()


def _go(run: subprocess.Popen[str]) -> float:
    """Seconds of the next round."""
    assert run.stdin and run.stdout
    run.stdin.write("go\n")
    run.stdin.flush()
    return float(json.loads(run.stdout.readline()))


def _end(run: subprocess.Popen[str]) -> int:
    """No more rounds; the bytes of memory that the run has needed."""
    output, _ = run.communicate()
    return int(output)


class Pacer:
    """Inside the paced program: waits for leave before each round, tells the time after it, the memory at the end."""

    def __init__(self) -> None:
        self.began = 0.0

    def stop(self) -> bool:
        """Asked by the loop before each round, ahead of its checkpoint."""
        if sys.stdin.readline():
            self.began = time.perf_counter()
            return False
        print(sum(_largest_resident(process) for process in (os.getpid(), *_children())), flush=True)
        return True

    def round_done(self, *_: object) -> None:
        print(json.dumps(time.perf_counter() - self.began), flush=True)

    def round_failed(self, *_: object) -> None:
        raise SystemExit("a round failed")


def run_of(clients: int) -> None:
    data = federated(clients, FEW_ROWS)
    Path("/proc/self/clear_refs").write_text("5")  # the largest resident size counts from here, without the loading
    fedavg = {"model": "mlp", "hidden": [200, 200], "rounds": 10**6, "test_every": 0, **TRAINING}
    fedavg["fraction"] = TAKING_PART / clients
    tables = {"method": "fedavg", "data": {"name": "in-memory"}, "engine": {"workers": 1}, "fedavg": fedavg}
    pacer = Pacer()
    with tempfile.TemporaryDirectory() as folder:
        try:
            launch.start(resolve(tables), Path(folder) / "run", data=data, watcher=pacer, stop=pacer.stop)
        except Paused:
            return


def _children() -> Iterator[int]:
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = status.read_text().rpartition(")")[2].split()[1]
        except OSError:  # it ended meanwhile
            continue
        if int(parent) == os.getpid():
            yield int(status.parent.name)


def _largest_resident(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


# -- all together -----------------------------------------------------------------------------------------------------


def show(rows: Sequence[Row]) -> None:
    """Rows for the table of docs/performance.md."""
    print("| ratio | measured | target |\n|---|---|---|")
    for what, measured, bound, target in rows:
        met = measured <= target if bound == "at most" else measured >= target
        print(f"| {what} | {measured:.3f} | {bound} {target}{'' if met else ': **missed**'} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=5, help="of the long rounds")
    parser.add_argument("--rounds", type=int, default=15, help="of the runs that compare few and many clients")
    parser.add_argument("--ray", action="store_true", help="only the growth from one actor of Ray to two")
    parser.add_argument("--run-of", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    single_thread()
    if options.run_of:
        run_of(options.run_of)
        return
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    print(f"{cores} cores, load {load:.1f}{': not idle, the ratios will be rough' if load > 0.5 else ''}")
    print(f"{options.clients} clients of {ROWS} rows, 5 epochs, batch 50")
    if options.ray:
        show(ray_growth(options.clients, options.repetitions))
        return
    rows = race(options.clients, options.repetitions)
    print(f"{TAKING_PART} clients of {FEW_ROWS} rows take part, {options.rounds} rounds")
    show(rows + idle_clients(options.rounds))


if __name__ == "__main__":
    main()
