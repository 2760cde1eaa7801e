"""Real-time search: what prefix sharing saves, and a round against a round of the offline search.

    python benchmarks/realtime.py [--rounds 10] [--generations 3]

Both searches run on the same 10 clients (population 10, a fifth of each client's rows for validation, one local epoch)
through the real engine, in one process and in turns. Then 20 keys are evaluated with common prefixes shared and key by
key: random keys, and the populations that the real-time run evaluated. First rounds, which train parents too, are not
counted. The paper's hours give 4.07 offline rounds for one: (6.55 / 50) / (16.1 / 500).

Fashion-MNIST (1,000 rows, the channels of experiments/realtime) is used if ATOLL_DATA names a folder that holds it,
else scikit-learn's digits (8x8) with the channels of the preset. The deeper the master, the less random keys have in
common, so they are also compared at the paper's depth of 12 blocks, with thin channels.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from atoll.training.determinism import prepare_environment, single_thread

prepare_environment()

from prefix import POPULATION, THIN, compare  # noqa: E402

from atoll.data import Federated, load  # noqa: E402
from atoll.data.settings import DataSettings  # noqa: E402
from atoll.errors import DataError  # noqa: E402
from atoll.federation.base import Federation  # noqa: E402
from atoll.federation.local import local_federation  # noqa: E402
from atoll.methods.choice_search import Key  # noqa: E402
from atoll.methods.offline import Offline, OfflineConfig  # noqa: E402
from atoll.methods.realtime import Realtime  # noqa: E402
from atoll.methods.realtime_config import RealtimeConfig  # noqa: E402
from atoll.rng import Generator, stream  # noqa: E402
from atoll.spaces.choice import space as choice  # noqa: E402

SEED = 1
FASHION_CHANNELS = [8, 8, 16, 16, 32, 32, 64, 64]
SHARED: dict[str, Any] = {"population": POPULATION, "batch": 50, "lr": 0.1, "test_every": 0}
TARGETS = {"random": 1.3, "evolved": 1.5, "round": 4.0}


class Noting(Realtime):
    """Real-time search that remembers which keys it evaluated together."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.populations: list[list[choice.Key]] = []

    def errors(self, keys: Sequence[Key], *arguments: Any) -> Any:
        self.populations.append([tuple(key) for key in keys])
        return super().errors(keys, *arguments)


@dataclass
class Race:
    """One search, a round at a time."""

    method: Any
    federation: Federation
    state: Any = None
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    macs: list[int] = field(default_factory=list)

    def round(self) -> None:
        if self.state is None:
            self.state = self.method.init(self.federation, stream(SEED, "init"))
        number = self.state.round + 1
        self.federation.begin(number)
        wall, processor = time.monotonic(), time.process_time()
        self.state, _ = self.method.step(self.state, self.federation, stream(SEED, "server", number, 1))
        if number > 1:
            self.wall.append(time.monotonic() - wall)
            self.processor.append(time.process_time() - processor)
            self.macs.append(self.federation.ledger.current.client_macs)


def the_data() -> tuple[str, Federated, list[int] | None]:
    """Its name, itself, and the channels for it (None: those of the preset)."""
    common: dict[str, Any] = {"clients": 10, "split": (0.8, 0.2, 0.0)}
    if os.environ.get("ATOLL_DATA"):
        try:
            data = load(DataSettings(name="fashion_mnist", rows=1000, **common), SEED)
            return "fashion", data, FASHION_CHANNELS
        except DataError as problem:
            print(f"no Fashion-MNIST ({problem}), so:")
    return "digits", load(DataSettings(name="digits", **common), SEED), None


def race(data: Federated, channels: list[int] | None, rounds: int, generations: int) -> tuple[Race, Race, Noting]:
    """Both searches in turns: after each generation of the slow one its share of the quick one's rounds."""
    shared = {**SHARED, "channels": channels}
    noting = Noting(RealtimeConfig(rounds=rounds + 1, **shared), data.schema)
    offline = Offline(OfflineConfig(rounds=generations + 2, generations=generations + 1, **shared), data.schema)
    quick = Race(noting, local_federation(data, SEED, workers=0))
    slow = Race(offline, local_federation(data, SEED, workers=0))
    quick.round()
    for turn in range(generations + 1):
        slow.round()
        while len(quick.wall) < rounds * turn // generations:
            quick.round()
    return quick, slow, noting


def verdict(ratio: float, target: str) -> str:
    return f"{ratio:.2f} (target {TARGETS[target]:.1f}{'' if ratio >= TARGETS[target] else ', MISSED'})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--generations", type=int, default=3)
    options = parser.parse_args()
    single_thread()
    name, data, channels = the_data()
    quick, slow, noting = race(data, channels, options.rounds, options.generations)

    print(f"{name}: {data}, channels {noting.architecture['channels']}")
    kinds: dict[str, Callable[[Race], list[Any]]] = {
        "wall time": lambda run: run.wall,
        "processor time": lambda run: run.processor,
        "client MACs": lambda run: run.macs,
    }
    for kind, values in kinds.items():
        one, other = median(values(quick)), median(values(slow))
        print(f"an offline round over a real-time round, {kind}: {verdict(other / one, 'round')}")

    rng = stream(SEED, "benchmark")
    arch = noting.architecture
    paper = {**arch, "channels": THIN, "stem": THIN[0]}
    shallow, deep = (random_keys(name, space, rng) for space in (arch, paper))
    evolved = median([compare(name, arch, "evolved", keys, rng) for keys in noting.populations[1:][-3:]])
    print(f"key by key over shared, random keys: {verdict(shallow, 'random')}; of 12 blocks: {verdict(deep, 'random')}")
    print(f"key by key over shared, populations of this run: {verdict(evolved, 'evolved')}")


def random_keys(name: str, arch: dict[str, Any], rng: Generator) -> float:
    blocks = choice.blocks(arch)
    drawn = [choice.random_keys(2 * POPULATION, blocks, rng) for _ in range(3)]
    return median([compare(name, arch, "random", keys, rng) for keys in drawn])


if __name__ == "__main__":
    main()
