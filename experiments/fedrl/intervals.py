"""Accuracies of searches over seeds, and paired differences with their intervals.

    python experiments/fedrl/intervals.py runs/levels/heavy-compensate runs/levels/heavy-use runs/levels/heavy-drop

Each argument is a folder of runs with different seeds, as of `atoll sweep`; or a run, and those belong together whose
names differ in the last number only (`use-1 use-2`). Of each run the moving average of the training accuracy
(`moving_accuracy`) in the last round of its search is taken. Differences are those of the first group to every other,
between runs of the same seed, with Student's interval of their mean at 95 %.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from atoll.errors import DataError
from atoll.report.statistics import Interval, t_interval
from atoll.run.reader import load

Group = Mapping[int, float]  # seed -> accuracy


def last_accuracy(path: Path) -> tuple[int, float]:
    """The seed of a run, and its accuracy at the end of the search."""
    run = load(path)
    found = [event["metrics"] for event in run.rounds if event["metrics"].get("phase") == "search"]
    if not found or "moving_accuracy" not in found[-1]:
        raise DataError(f"{path}: its rounds have no accuracy of a search; give runs of fedrl", code="no-accuracy")
    return int(run.manifest["seed"]), float(found[-1]["moving_accuracy"])


def groups(places: Sequence[Path]) -> dict[str, dict[int, float]]:
    """The accuracies by group and seed, in the order in which the groups were given."""
    found: dict[str, dict[int, float]] = {}
    for place in places:
        alone = (place / "manifest.json").is_file()
        runs = [place] if alone else sorted(path.parent for path in place.glob("*/manifest.json"))
        if not runs:
            raise DataError(f"{place}: neither a run nor a folder of runs", code="no-runs-found")
        group = found.setdefault(re.sub(r"-?\d+$", "", place.name) if alone else place.name, {})
        for run in runs:
            seed, accuracy = last_accuracy(run)
            if seed in group:
                raise DataError(f"{run}: a second run of its group with seed {seed}; give one", code="seed-twice")
            group[seed] = accuracy
    return found


def difference(one: Group, other: Group) -> tuple[int, Interval]:
    """The number of seeds that both have, and the mean difference over them."""
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        raise DataError("two groups have no seed in common: nothing can be paired", code="no-common-seed")
    return len(seeds), t_interval([one[seed] - other[seed] for seed in seeds])


def table(found: Mapping[str, Group]) -> str:
    """Groups by seeds, and the paired differences to the first group, in Markdown."""
    seeds = sorted({seed for group in found.values() for seed in group})
    lines = [" | ".join(["| ", *(f"seed {seed}" for seed in seeds), "mean (95 %) |"]), "|---" * (len(seeds) + 2) + "|"]
    for name, group in found.items():
        own = [f"{group[seed]:.3f}" if seed in group else "" for seed in seeds]
        lines.append(" | ".join([f"| {name}", *own, f"{_text(t_interval(list(group.values())), '.3f')} |"]))
    (first, reference), *others = found.items()
    for name, group in others:
        number, interval = difference(reference, group)
        lines.append(f"\n{first} - {name}: {_text(interval, '+.3f')}, {number} seeds")
    return "\n".join(lines)


def _text(interval: Interval, form: str) -> str:
    return f"{interval.mean:{form}} ({interval.low:{form}} to {interval.high:{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    try:
        print(table(groups(parser.parse_args().runs)))
    except DataError as problem:
        parser.error(str(problem))


if __name__ == "__main__":
    main()
