"""The found cells against random ones of about the same size, all trained alike.

    python experiments/fedrl/random_cells.py RUN --count 5 --rounds 30 --out against.toml
    atoll run against.toml --out runs/against
    atoll figures runs/against

RUN is a finished search. The file that is written trains its found network and so many random ones side by side, by
federated averaging on the run's data, as the run trains what it found.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from atoll.config import to_toml
from atoll.errors import ConfigError
from atoll.rng import Generator, stream
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


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("run", type=Path)
    options.add_argument("--count", type=int, default=5)
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--nearness", type=float, default=0.1)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--out", type=Path, default=Path("against.toml"))
    given = options.parse_args()
    raw = assemble_retraining(load(given.run), ["best"], {"rounds": given.rounds, "seed": given.seed})
    found = raw["retrain"]["networks"]["best"]
    rng = stream(given.seed, "random cells")
    for number in range(1, given.count + 1):
        raw["retrain"]["networks"][f"random-{number}"] = random_like(found, given.nearness, rng)
    for name, network in raw["retrain"]["networks"].items():
        print(f"{name:>10}  {darts.weight_count(network):>9,} weights")
    given.out.write_text(to_toml(raw), encoding="utf-8")


if __name__ == "__main__":
    main()
