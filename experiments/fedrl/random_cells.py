"""The found cells against random ones and a hand-made network, all trained alike.

    python experiments/fedrl/random_cells.py RUN --rounds 30 --out against.toml
    atoll run against.toml --out runs/against
    python experiments/fedrl/random_cells.py RUN --result runs/against
    atoll figures runs/against

RUN is a finished search. The file that is written trains its found network, random cells of about the same number of
weights (`same-1`, ...), random cells of any size (`any-1`, ...) and a ResNet18 of no more MACs side by side, by
federated averaging on the run's data, as the run trains what it found. `--result` prints the found network's test error
beside the mean of the random ones and its standard error.
"""

from __future__ import annotations

import argparse
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from atoll import spaces
from atoll.config import to_toml
from atoll.errors import ConfigError
from atoll.rng import Generator, stream
from atoll.run.baselines.rivals import scaled
from atoll.run.reader import load
from atoll.run.retrain import assemble_retraining
from atoll.spaces.darts import space as darts

TRIES = 20_000


def random_like(found: dict[str, Any], nearness: float, rng: Generator) -> dict[str, Any]:
    """A network of random cells whose number of weights differs by at most this share from the found one's."""
    size = darts.weight_count(found)
    for _ in range(TRIES):
        drawn = {**found, "genotype": darts.random_genotype(rng)}
        if abs(darts.weight_count(drawn) - size) <= nearness * size:
            return drawn
    raise ConfigError(
        f"--nearness {nearness}: none of {TRIES} random networks is that near to {size} weights; raise it"
    )


def result(run: Path) -> None:
    """The test errors of a run of the written file."""
    found = {one["id"]: one["objectives"] for one in load(run).result["candidates"]}
    own = {name.split(":")[0]: values["test_error"] for name, values in found.items()}
    for kind in ("same", "any"):
        others = [error for name, error in own.items() if name.startswith(f"{kind}-")]
        middle, spread = mean(others), stdev(others) / sqrt(len(others))
        better = sum(own["best"] < error for error in others)
        print(
            f"found {own['best']:.2%}, {len(others)} random cells ({kind} size) {middle:.2%} with a standard error of "
            f"{spread:.2%} (best {min(others):.2%}): {(middle - own['best']) / spread:+.1f} standard errors better, "
            f"better than {better}"
        )
    print(f"ResNet18 of no more MACs {own['resnet18']:.2%}")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("run", type=Path)
    options.add_argument("--count", type=int, default=10)
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--nearness", type=float, default=0.1)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--out", type=Path, default=Path("against.toml"))
    options.add_argument("--result", type=Path, default=None)
    given = options.parse_args()
    if given.result is not None:
        result(given.result)
        return
    raw = assemble_retraining(load(given.run), ["best"], {"rounds": given.rounds, "seed": given.seed})
    networks = raw["retrain"]["networks"]
    found = networks["best"]
    rng = stream(given.seed, "random cells")
    for number in range(1, given.count + 1):
        networks[f"same-{number}"] = random_like(found, given.nearness, rng)
        networks[f"any-{number}"] = {**found, "genotype": darts.random_genotype(rng)}
    data = {"input": found["input"], "classes": found["classes"]}
    wide = {"space": "fixed", "model": "resnet18", "widths": [8, 16, 32, 64], **data}
    networks["resnet18"] = scaled(wide, spaces.cost(found).macs)
    for name, network in networks.items():
        cost = spaces.cost(network)
        print(f"{name:>10}  {cost.params:>9,} weights  {cost.macs:>11,} MACs")
    given.out.write_text(to_toml(raw), encoding="utf-8")


if __name__ == "__main__":
    main()
