"""Rounds of long tuning that give a network which was not searched as many sequential steps as one that was.

    python experiments/decnas/equal_steps.py RUN --rounds 30

RUN is a finished search (`decnas`). Its final network was tuned in every round of the search, a client's steps in each,
and is then trained for `--rounds` rounds of `--epochs` passes. A width multiplier begins with the long tuning. The
number of rounds in which it takes as many steps in all is printed, for

    atoll retrain RUN --from found --pick width:=final --rounds NUMBER ...

How it was computed goes to the standard error, so that the number can be used in a command.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from atoll.config import read_file, resolve
from atoll.errors import ConfigError
from atoll.methods.decnas.settings import DecnasConfig
from atoll.run.reader import load
from atoll.training.batches import bounds


class Steps(NamedTuple):
    """Sequential steps of a client, on average over the clients."""

    searched: int  # rounds of the search in which the final network was tuned
    in_search: float  # steps of such a round
    in_tuning: float  # steps of a round of long tuning

    def rounds(self, tuning: int) -> int:
        """Rounds of long tuning for a network that was not searched, where the others have this many."""
        return tuning + math.ceil(self.searched * self.in_search / self.in_tuning - 1e-9)


def steps_of(run: Path, epochs: int = 1) -> Steps:
    found = load(run)
    settings = resolve(read_file(run / "config.toml"), complete=True).settings
    if not isinstance(settings, DecnasConfig):
        raise ConfigError(f"{run}: a run of {found.manifest['method']}; give one of decnas", code="not-a-search")
    rounds = [event["metrics"] for event in found.rounds if event["metrics"].get("phase") == "search"]
    tuned = sum(settings.rounds_of(metrics["iteration"]) > 0 for metrics in rounds)
    sizes = [rows["train"] for rows in found.manifest["clients"].values() if rows.get("train")]
    passes = [len(bounds(rows, settings.batch)) for rows in sizes]
    return Steps(
        tuned,
        mean(min(settings.steps or math.inf, settings.epochs * own) for own in passes),
        mean(epochs * own for own in passes),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, required=True, help="of long tuning of the network that was found")
    parser.add_argument("--epochs", type=int, default=1, help="of a round of long tuning (retrain.epochs)")
    given = parser.parse_args()
    own = steps_of(given.run, given.epochs)
    number = own.rounds(given.rounds)
    searched, tuning = own.searched * own.in_search, given.rounds * own.in_tuning
    print(
        f"search: {own.searched} rounds of {own.in_search:.4g} steps; long tuning: {given.rounds} rounds of "
        f"{own.in_tuning:.4g}; {searched + tuning:,.0f} steps in all, as many as {number} rounds of long tuning",
        file=sys.stderr,
    )
    print(number)


if __name__ == "__main__":
    main()
