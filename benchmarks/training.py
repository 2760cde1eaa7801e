"""A round of MNIST clients, as the product trains them, against a plain PyTorch loop and a hand-fused one.

    python benchmarks/training.py [--clients 100] [--repetitions 5] [--networks]

100 clients of 600 rows each train the 199,210-parameter MLP for 5 epochs (batch 50, learning rate 0.1). Every
contestant sees the same batches, and their weights must agree to 1e-5. Times are taken in turns in one run, client by
client; what counts is the ratio of the medians. Real MNIST is used if ATOLL_DATA names a folder that holds
mnist.npz, else made data of the same shape.

`--networks` also compares the convolution networks with the plain loop, which keeps images channels-first where the
product keeps them channels-last. Batch norm magnifies what the two round differently (a ReLU that flips, a channel
that hardly varies), so there the difference of the weights is shown for information only.
"""

# ruff: noqa: E402  (torch reads the environment when it is loaded)
from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from atoll.training.determinism import prepare_environment, single_thread

prepare_environment()

import numpy as np
import torch
from torch.nn import functional

from atoll.core.messages import Array, Tensors
from atoll.rng import stream
from atoll.spaces import build, initial
from atoll.training.batches import bounds
from atoll.training.networks import network, values
from atoll.training.sgd import (
    TrainSettings,
    train,
)

Contestant = Callable[[Mapping[str, Any], Tensors, Array, Array, TrainSettings, np.random.Generator], Tensors]

MLP = {"space": "fixed", "model": "mlp", "input": [1, 28, 28], "classes": 10, "hidden": [200, 200]}
NETWORKS: dict[str, dict[str, Any]] = {
    "cnn": {"input": [1, 28, 28]},
    "resnet18": {"input": [3, 32, 32], "width": 0.25},
    "mobilenet": {"input": [3, 32, 32], "width": 0.25},
    "convnet": {"input": [3, 32, 32], "width": 0.5},
}


def product(
    arch: Mapping[str, Any], weights: Tensors, x: Array, y: Array, settings: TrainSettings, rng: np.random.Generator
) -> Tensors:
    return train(network(arch), weights, x, y, settings, rng).weights


def plain(
    arch: Mapping[str, Any], weights: Tensors, x: Array, y: Array, settings: TrainSettings, rng: np.random.Generator
) -> Tensors:
    """What one would write first: a module and torch's optimiser."""
    module = build(arch)
    module.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
    optimiser = torch.optim.SGD(module.parameters(), lr=settings.lr)
    rows, labels = torch.tensor(x), torch.tensor(y)
    for _ in range(settings.epochs):
        order = torch.from_numpy(rng.permutation(len(x)))
        for start, stop in bounds(len(x), settings.batch):
            index = order[start:stop]
            optimiser.zero_grad()
            functional.cross_entropy(module(rows[index]), labels[index]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return values(weights, list(module.parameters()))


@torch.no_grad()
def fused(
    arch: Mapping[str, Any], weights: Tensors, x: Array, y: Array, settings: TrainSettings, rng: np.random.Generator
) -> Tensors:
    """The MLP's products written by hand into buffers made once, gradients subtracted in place."""
    size, rate = settings.batch, settings.lr
    w1, b1, w2, b2, w3, b3 = parameters = [torch.tensor(array) for array in weights.values()]
    g1, c1, g2, c2, g3, c3 = [torch.empty_like(parameter) for parameter in parameters]
    (h1, h2, d1, d2), (out, d3) = torch.empty(4, size, len(b1)), torch.empty(2, size, len(b3))
    rows, one_hot = torch.tensor(x).flatten(1), torch.eye(len(b3))[torch.tensor(y)]
    batch, target = torch.empty(size, rows.shape[1]), torch.empty(size, len(b3))
    for _ in range(settings.epochs):
        order = torch.from_numpy(rng.permutation(len(x)))
        for start in range(0, len(x), size):
            index = order[start : start + size]
            torch.index_select(rows, 0, index, out=batch)
            torch.index_select(one_hot, 0, index, out=target)
            torch.addmm(b1, batch, w1.t(), out=h1).relu_()
            torch.addmm(b2, h1, w2.t(), out=h2).relu_()
            torch.addmm(b3, h2, w3.t(), out=out)
            torch.softmax(out, 1, out=d3).sub_(target).div_(size)
            torch.mm(d3, w3, out=d2).mul_(h2.sign())
            torch.mm(d2, w2, out=d1).mul_(h1.sign())
            for delta, inputs, weight, bias, gradient, bias_gradient in (
                (d3, h2, w3, b3, g3, c3),
                (d2, h1, w2, b2, g2, c2),
                (d1, batch, w1, b1, g1, c1),
            ):
                weight.sub_(torch.mm(delta.t(), inputs, out=gradient), alpha=rate)
                bias.sub_(torch.sum(delta, 0, out=bias_gradient), alpha=rate)
    return Tensors({name: parameter.numpy() for name, parameter in zip(weights, parameters, strict=True)})


def race(
    contestants: Mapping[str, Contestant],
    arch: Mapping[str, Any],
    x: Array,
    y: Array,
    settings: TrainSettings,
    clients: int,
    repetitions: int,
) -> dict[str, float]:
    """Median seconds of a round, by contestant; each client's start, batches and rows are the same for all."""
    weights = initial(arch, stream(1))
    rows = len(x) // clients
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for name, run in contestants.items():
        difference = compare(
            run(arch, weights, x[:rows], y[:rows], settings, stream(0)),
            plain(arch, weights, x[:rows], y[:rows], settings, stream(0)),
        )
        print(f"  {name:8} largest difference from plain, relative to a tensor's largest value: {difference:.1e}")
        if arch["model"] == "mlp" and difference > 1e-5:
            raise SystemExit(f"{name} did not compute what the plain loop does: its time means nothing")
    for _ in range(repetitions):
        round_seconds = dict.fromkeys(contestants, 0.0)
        for client in range(clients):
            part = slice(client * rows, (client + 1) * rows)
            for name, run in contestants.items():  # in turns, client by client: a busy moment strikes all alike
                began = time.perf_counter()
                run(arch, weights, x[part], y[part], settings, stream(client))
                round_seconds[name] += time.perf_counter() - began
        for name, taken in round_seconds.items():
            seconds[name].append(taken)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def compare(ours: Tensors, theirs: Tensors) -> float:
    return max(float(np.abs(ours[name] - theirs[name]).max() / np.abs(theirs[name]).max()) for name in theirs)


def mnist() -> tuple[Array, Array]:
    file = Path(os.environ.get("ATOLL_DATA", ".")) / "mnist.npz"
    if file.is_file():
        with np.load(file, allow_pickle=False) as arrays:
            return arrays["x_train"].reshape(-1, 1, 28, 28).astype(np.float32) / 255, arrays["y_train"].astype(np.int64)
    print("made data (ATOLL_DATA names no folder with mnist.npz)")
    return made((1, 28, 28), 60_000)


def made(shape: tuple[int, ...], rows: int) -> tuple[Array, Array]:
    rng = stream(0, "made data")
    return rng.random((rows, *shape), dtype=np.float32), rng.integers(0, 10, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--networks", action="store_true", help="also the convolution networks")
    options = parser.parse_args()
    single_thread()
    x, y = mnist()
    x, y = x[: 600 * options.clients], y[: 600 * options.clients]
    print(f"mlp, {options.clients} clients of 600 rows, 5 epochs, batch 50, one thread")
    contestants: dict[str, Contestant] = {"product": product, "plain": plain, "fused": fused}
    taken = race(contestants, MLP, x, y, TrainSettings(5, 50, 0.1), options.clients, options.repetitions)
    for name, seconds in taken.items():
        print(f"  {name:8} {seconds:7.3f} s a round")
    print(f"  product / plain {taken['product'] / taken['plain']:.3f} (target: at most 0.9)")
    print(f"  product / fused {taken['product'] / taken['fused']:.3f} (target: at most 1.1)")
    for model, rest in NETWORKS.items() if options.networks else ():
        print(f"{model}, {rest}, 1 client of 200 rows, batch 50")
        arch = {"space": "fixed", "model": model, "classes": 10, **rest}
        rows = made(tuple(rest["input"]), 200)
        taken = race(
            {"product": product, "plain": plain}, arch, *rows, TrainSettings(1, 50, 0.01), 1, options.repetitions
        )
        print(f"  product / plain {taken['product'] / taken['plain']:.3f}")


if __name__ == "__main__":
    main()
