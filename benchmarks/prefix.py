"""How much prefix-shared evaluation saves: time and MACs of 20 keys one by one over those of the tree walk.

    python benchmarks/prefix.py

Prints one line per input and kind of population. "random" are independent keys; "evolved" are the parents and
offspring of a population after some generations of NSGA-II under a made-up error that likes certain branches, so that
its keys are as related as those of a real run. Both ways are timed in turns, in processor seconds of one thread, and
the medians compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from atoll.training.determinism import prepare_environment, single_thread

prepare_environment()

import torch  # noqa: E402  (it reads the environment when it is loaded)

from atoll import spaces  # noqa: E402
from atoll.algorithms import genetic, nsga2  # noqa: E402
from atoll.spaces.choice import space as choice  # noqa: E402
from atoll.training.batches import Rows, bounds  # noqa: E402
from atoll.training.evaluation import count_batch  # noqa: E402
from atoll.training.networks import load, network  # noqa: E402
from atoll.training.shared_prefix import evaluate_keys  # noqa: E402

POPULATION = 10
ROWS = 200
REPEATS = 7
THIN = [8] * 3 + [16] * 3 + [32] * 3 + [64] * 3

INPUTS: dict[str, dict[str, Any]] = {
    "28x28": {"space": "choice", "input": [1, 28, 28], "classes": 10, "channels": THIN},
    "8x8": {"space": "choice", "input": [1, 8, 8], "classes": 10, "channels": THIN},
    "table": {"space": "choice", "input": [30], "classes": 2, "widths": [64] * 8},
}


def evolved_keys(arch: dict[str, Any], generations: int, rng: np.random.Generator) -> list[choice.Key]:
    """Parents and offspring of the last generation of a search whose error each branch lowers by a fixed amount."""
    blocks = choice.blocks(arch)
    worth = rng.random((blocks, choice.BRANCHES)) / blocks

    def objectives(bits: Sequence[genetic.Bits]) -> np.ndarray[Any, np.dtype[np.float64]]:
        keys = [choice.from_bits(key) for key in bits]
        errors = [1 - sum(worth[number, branch] for number, branch in enumerate(key)) for key in keys]
        noisy = np.array(errors) + rng.normal(0, 0.01, len(keys))  # the master moves under the keys every round
        return np.stack([noisy, [choice.cost(choice.sub_model(arch, key)).macs for key in keys]], axis=1)

    parents = [choice.to_bits(key) for key in choice.random_keys(POPULATION, blocks, rng)]
    rank, crowding = None, None
    for _ in range(generations):
        everyone = [*parents, *genetic.breed(parents, rank, crowding, POPULATION, rng)]
        values = objectives(everyone)
        taken = nsga2.select(values, POPULATION)
        parents = [everyone[index] for index in taken]
        all_ranks, all_crowding = nsga2.rank_and_crowding(values)
        rank, crowding = all_ranks[taken], all_crowding[taken]
    return [choice.from_bits(key) for key in everyone]


def medians(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float]:
    """Both timed in turns, so that other load falls on both alike."""
    times: tuple[list[float], list[float]] = ([], [])
    for work in (first, second):
        work()
    for _ in range(REPEATS):
        for work, record in zip((first, second), times, strict=True):
            start = time.process_time()
            work()
            record.append(time.process_time() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def compare(name: str, arch: dict[str, Any], kind: str, keys: list[choice.Key], rng: np.random.Generator) -> float:
    """Print how both ways compare on these keys; the ratio in time."""
    weights = spaces.initial(arch, rng)
    x = rng.standard_normal((ROWS, *arch["input"]), dtype=np.float32)
    y = rng.integers(arch["classes"], size=ROWS)
    master = network(arch)
    assert isinstance(master, choice.ChoiceNetwork)

    def one_by_one() -> None:
        # Weights and rows are loaded once here too: only the sharing is compared.
        load(master, weights)
        rows = Rows(x, y, master)
        with torch.inference_mode():
            for start, stop in bounds(ROWS, 100):
                inputs, labels = rows.between(start, stop)
                for key in keys:
                    count_batch(master(inputs, key), labels)

    one, shared = medians(one_by_one, lambda: evaluate_keys(master, weights, keys, x, y))
    macs = sum(choice.cost(choice.sub_model(arch, key)).macs for key in keys)
    executed = choice.executed_macs(arch, keys)
    print(
        f"{name:>6} {kind:>8}: key by key {one * 1000:7.1f} ms, shared {shared * 1000:7.1f} ms, "
        f"ratio {one / shared:.2f} in time, {macs / executed:.2f} in MACs, {len(set(keys))} different keys"
    )
    return one / shared


def main() -> None:
    single_thread()
    for name, arch in INPUTS.items():
        for seed in range(3):
            rng = np.random.default_rng(seed)
            compare(name, arch, "random", choice.random_keys(2 * POPULATION, choice.blocks(arch), rng), rng)
            compare(name, arch, "evolved", evolved_keys(arch, 50, rng), rng)


if __name__ == "__main__":
    main()
