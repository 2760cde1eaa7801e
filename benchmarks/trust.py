"""What trust costs: the share of a round that reply checks, norm rule, event log and checkpoint take.

    ATOLL_DATA=FOLDER python benchmarks/trust.py [--rounds 5] [--clients 100]

FedAvg on MNIST as in `experiments/fedavg/mnist_iid.toml` (MLP 784-200-200-10, 5 local epochs), all in this process.
Processor seconds as a share of those of the rounds with their checkpoints; start and final measurements do not count as
time of rounds. A checkpoint is written before every round and at the end.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atoll
from atoll.core import checks
from atoll.federation import trust
from atoll.run import loop
from atoll.store import RunDirectory

spent: dict[str, float] = {}


def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    inside = False  # a check of a table calls itself for each of its values

    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal inside
        if inside:
            return function(*arguments, **named)
        inside, start = True, time.process_time()
        try:
            return function(*arguments, **named)
        finally:
            inside = False
            spent[name] = spent.get(name, 0.0) + time.process_time() - start

    return call


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--clients", type=int, default=100)
    given = options.parse_args()
    checks.inspect = timed("reply checks", checks.inspect)
    trust.measured = timed("norm rule", trust.measured)
    RunDirectory.event = timed("event log", RunDirectory.event)  # type: ignore[method-assign]
    RunDirectory.checkpoint = timed("checkpoint", RunDirectory.checkpoint)  # type: ignore[method-assign]
    loop.Loop._refuse_nonfinite = timed("finite weights", loop.Loop._refuse_nonfinite)  # type: ignore[method-assign]
    loop.Loop._round = timed("round", loop.Loop._round)  # type: ignore[method-assign]
    loop.CHECKPOINT_SHARE = 0
    data = {"clients": given.clients, "partition": "iid", "split": [1.0, 0.0, 0.0]}
    network: dict[str, Any] = {"model": "mlp", "hidden": [200, 200], "epochs": 5, "batch": 50, "lr": 0.1}
    with tempfile.TemporaryDirectory() as folder:
        out, settings = Path(folder) / "run", {"data": data}
        atoll.search("fedavg", "mnist", out=out, rounds=given.rounds, workers=0, settings=settings, **network)
    whole = spent.pop("round") + spent["checkpoint"]
    for name, seconds in sorted(spent.items()):
        print(f"{name:15} {1000 * seconds / given.rounds:8.1f} ms a round  {seconds / whole:7.2%}")
    total = sum(spent.values())
    print(f"{'all of it':15} {1000 * total / given.rounds:8.1f} ms a round  {total / whole:7.2%}")


if __name__ == "__main__":
    main()
