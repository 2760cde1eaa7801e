"""A private training step against a plain one, per network: DP-SGD with torch.func and with Opacus.

    python benchmarks/privacy.py [--batch 50] [--repetitions 5] [--only cells]

Both train with the same number of rows per step (Poisson batches have this number on average). Times are processor time
of one thread, taken in turns; what counts is the ratio of the medians. Opacus computes the gradients of rows only, no
clipping and no noise, so its column is a lower bound; "-": it cannot compute this network. The output is the table of
docs/privacy.md.
"""

# ruff: noqa: E402  (torch reads the environment when it is loaded)
from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

from atoll.training.determinism import prepare_environment, single_thread

prepare_environment()

import numpy as np
import torch
from opacus.grad_sample import GradSampleModule
from torch.nn import functional

from atoll.rng import stream
from atoll.spaces import build, initial
from atoll.spaces.darts import space as darts
from atoll.spaces.pruned import space as pruned
from atoll.training import private, sgd
from atoll.training.networks import load, network

IMAGE = {"input": [1, 28, 28], "classes": 10}
CONVNET = {"space": "fixed", "model": "convnet", "widths": [16, 16, 32, 32, 64, 64], "norm": "group"}
CELLS = {"space": "darts", "channels": 4, "cells": 2, "norm": "group"}
NETWORKS: dict[str, dict[str, Any]] = {
    "fixed: mlp 200-200": {"space": "fixed", "model": "mlp", "hidden": [200, 200]},
    "fixed: convnet": CONVNET,
    "choice: residual": {"space": "choice", "channels": [16, 16, 32], "norm": "group", "key": [1, 1, 1]},
    "choice: inverted": {"space": "choice", "channels": [16, 16, 32], "norm": "group", "key": [2, 2, 2]},
    "choice: separable": {"space": "choice", "channels": [16, 16, 32], "norm": "group", "key": [3, 3, 3]},
    "cells: genotype": {**CELLS, "form": "genotype", "genotype": darts.random_genotype(stream(1, "genotype"))},
    "cells: supernet": {**CELLS, "form": "mixed"},
    "widths: convnet": pruned.from_fixed({**IMAGE, **CONVNET, "widths": [12, 12, 24, 24, 48, 48]}),
    "sparse: mlp 200-200": {"space": "sparse", "model": "mlp", "hidden": [200, 200], "epsilon": 20, "graph": 1},
}
STEPS = 4


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--batch", type=int, default=50)
    options.add_argument("--repetitions", type=int, default=5)
    options.add_argument("--only", default="", metavar="TEXT", help="networks whose name has this text")
    given = options.parse_args()
    single_thread()
    warnings.simplefilter("ignore")
    print("| network | plain, ms | private, times plain | Opacus, times plain |\n|---|---|---|---|")
    for name, arch in NETWORKS.items():
        if given.only not in name:
            continue
        contestants = steps({**IMAGE, **arch}, given.batch)
        found: dict[str, list[float]] = {kind: [] for kind in contestants}
        for kind, run in list(contestants.items()):
            try:
                run()  # warm
            except Exception:
                if kind != "opacus":
                    raise
                del contestants[kind]
        for _ in range(given.repetitions):
            for kind, run in contestants.items():
                start = time.process_time()
                run()
                found[kind].append((time.process_time() - start) / STEPS)
        plain, own = statistics.median(found["plain"]), statistics.median(found["private"])
        other = f"{statistics.median(found['opacus']) / plain:.2f}" if found.get("opacus") else "-"
        print(f"| {name} | {1e3 * plain:.2f} | {own / plain:.2f} | {other} |", flush=True)


def steps(arch: dict[str, Any], batch: int) -> dict[str, Callable[[], object]]:
    """The same number of steps by each contestant, on made rows."""
    rng = stream(1, "rows")
    rows = batch * STEPS
    x = rng.standard_normal((rows, *arch["input"])).astype(np.float32)
    y = rng.integers(10, size=rows)
    weights, module = initial(arch, rng), network(arch)
    noisy = private.PrivateSteps(1.0, 1.0, 1 / STEPS, STEPS)
    hooked = build(arch)
    load(hooked, weights)
    opacus = GradSampleModule(hooked, loss_reduction="sum")
    inputs, labels = torch.tensor(x), torch.tensor(y)

    def by_opacus() -> None:
        for start in range(0, rows, batch):
            opacus.zero_grad()
            outputs = opacus(inputs[start : start + batch])
            functional.cross_entropy(outputs, labels[start : start + batch], reduction="sum").backward()  # type: ignore[no-untyped-call]

    settings = sgd.TrainSettings(batch=batch)
    return {
        "plain": lambda: sgd.train(module, weights, x, y, settings, stream(1, "order")),
        "private": lambda: private.train(module, weights, x, y, settings, noisy, stream(1, "noise")),
        "opacus": by_opacus,
    }


if __name__ == "__main__":
    main()
