"""How near a compensated late gradient is to the fresh one.

    python experiments/fedrl/compensation.py --data digits
    python experiments/fedrl/compensation.py --data fashion_mnist --rows 10000 --data-dir DATA --strengths 0.5

Ten clients train sub-models of one supernet, drawn uniformly, and the server steps by the mean of their gradients.
Every gradient is also taken `age` rounds later, at the weights of that time, for the same sub-model and the same batch:
the fresh one. Printed is the squared distance to it as a share of its squared length, summed over the last half of the
rounds: of the late gradient as it is, with the paper's constant lambda, and with the adaptive one (DC-ASGD-a) of each
strength. Lower is better; in brackets is the change against the late gradient as it is.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from atoll import spaces
from atoll.algorithms import reinforce
from atoll.algorithms.aggregation import Descent, GradientMean
from atoll.core.messages import Array, Tensors
from atoll.data import DataSettings, load
from atoll.methods.darts_search import by_kind
from atoll.rng import stream
from atoll.spaces.darts import space as darts
from atoll.training import gradients, networks

CONSTANT = 0.1  # lambda of the paper
AGES = (1, 2)


def squared(gradient: Mapping[str, Array]) -> float:
    return float(sum(np.square(array, dtype=np.float64).sum() for array in gradient.values()))


def between(one: Mapping[str, Array], other: Mapping[str, Array]) -> float:
    return squared({name: array - other[name] for name, array in one.items()})


def measure(given: argparse.Namespace, seed: int) -> dict[tuple[int, str], float]:
    """The summed squared distances by age and rule; `fresh` is the summed squared length."""
    settings: dict[str, Any] = {"name": given.data, "clients": 10, "rows": given.rows}
    data = load(DataSettings.model_validate({k: v for k, v in settings.items() if v}), seed, given.data_dir)
    supernet = darts.architecture_for(data.schema, 4, 3)
    start = spaces.initial(supernet, stream(seed, "supernet"))
    weights = start.slice(darts.names(supernet))
    still = Tensors({name: np.zeros_like(array) for name, array in weights.items()})
    velocity, squares = still, still
    uniform = np.stack([start[name] for name in darts.ALPHAS])
    descent = Descent(given.lr, 0.9, 3e-4, 5.0)
    sent: list[tuple[Tensors, list[tuple[dict[str, Any], str, Mapping[str, Array]]]]] = []
    sums: dict[tuple[int, str], float] = defaultdict(float)

    def gradient(architecture: dict[str, Any], client: str, theta: Tensors, number: int) -> Mapping[str, Array]:
        x, y = data.client(client).part("train")
        own = theta.slice(darts.names(architecture))
        rng = stream(seed, "batch", client, number)
        return gradients.batch_gradient(networks.network(architecture, "cpu"), own, x, y, given.batch, rng).gradient

    for number in range(given.rounds):
        keys = stream(seed, "keys", number)
        drawn = [darts.sub_model(supernet, by_kind(reinforce.draw(uniform, keys))) for _ in data.names]
        tasks = [(sub, name, gradient(sub, name, weights, number)) for sub, name in zip(drawn, data.names, strict=True)]
        mean = GradientMean()
        for _, _, own in tasks:
            mean.add(own)
            squares = squares.replaced(reinforce.mean_squares(squares, own))
        sent.append((weights, tasks))
        weights, velocity = descent.step(weights, mean.gradient(), velocity)
        if number < given.rounds // 2:
            continue
        for age in AGES:
            then, tasks = sent[number + 1 - age]
            for sub, client, late in tasks:
                fresh = gradient(sub, client, weights, number + 1 - age)
                rules: dict[str, Any] = {"late": None, "constant": CONSTANT, **{str(s): s for s in given.strengths}}
                for rule, strength in rules.items():
                    if strength is None:
                        moved = late
                    elif rule == "constant":
                        moved = {n: reinforce.compensated(g, weights[n], then[n], strength) for n, g in late.items()}
                    else:
                        moved = {
                            n: reinforce.compensated_adaptively(g, weights[n], then[n], squares[n], strength)
                            for n, g in late.items()
                        }
                    sums[age, rule] += between(moved, fresh)
                sums[age, "fresh"] += squared(fresh)
    return sums


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default="digits")
    options.add_argument("--rows", type=int, default=None)
    options.add_argument("--data-dir", type=Path, default=None)
    options.add_argument("--rounds", type=int, default=120)
    options.add_argument("--batch", type=int, default=16)
    options.add_argument("--lr", type=float, default=0.1)
    options.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument("--strengths", type=float, nargs="+", default=[0.1, 0.25, 0.5, 1.0, 2.0])
    given = options.parse_args()
    torch.set_num_threads(1)
    found = [measure(given, seed) for seed in given.seeds]
    for age in AGES:
        for rule in ("late", "constant", *map(str, given.strengths)):
            shares = [one[age, rule] / one[age, "fresh"] for one in found]
            changes = [one[age, rule] / one[age, "late"] - 1 for one in found]
            words = ", ".join(f"{share:.4f} ({change:+.1%})" for share, change in zip(shares, changes, strict=True))
            name = rule if rule in ("late", "constant") else f"adaptive {rule}"
            print(f"age {age}  {name:<14} {words}  mean {np.mean(changes):+.1%}")


if __name__ == "__main__":
    main()
