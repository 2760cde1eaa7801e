"""Fig. 7: how long it takes to send a round's sub-models when larger ones go over faster links.

    python experiments/fedrl/latency.py --data-dir DATA [--rounds 200] [--seeds 5] [--out latency.png]

Ten participants travel by foot, bicycle, bus, tram, train or car, half of them by one and half by another, or by all of
these; DATA has the 4G/LTE bandwidth logs in `lte_4g_logs`. In every round ten sub-models are drawn from the DARTS space
(16 channels, 8 cells) by the uniform policy and sent by each of three rules, under the same conditions. A table is
printed and a figure drawn.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from atoll.algorithms.sampling import RULES, Rule, assign, transmitted
from atoll.report.figures.canvas import BLUE, FAINT, ORANGE, new_figure, save, tidy
from atoll.rng import Generator, stream
from atoll.simulation.links import Link, links_for
from atoll.simulation.settings import SimulationSettings
from atoll.spaces.darts import space as darts

ALONE = ("foot", "bicycle", "bus", "tram", "train", "car")
MIXES: dict[str, Any] = {  # the paper's "Bus+Car" is half of the participants on buses and half in cars
    **{means: [means] for means in ALONE},
    **{" + ".join(pair): list(pair) for pair in combinations(ALONE, 2)},
    "all": "all",
}
WORDS: dict[Rule, str] = {"adaptive": "adaptive", "random": "random", "same": "all of the mean size"}
COLOURS: dict[Rule, str] = {"adaptive": BLUE, "random": ORANGE, "same": FAINT}
PARTICIPANTS = 10
BYTES = 4  # of a weight
SUPERNET = darts.supernet([3, 32, 32], 10, channels=16, cells=8)


@dataclass(frozen=True)
class Latency:
    """Seconds until the last participant has its sub-model, and the mean over participants."""

    maximal: float
    mean: float


@dataclass(frozen=True)
class Found:
    """Latencies under one mix of transport: rule -> one for each round, round by round and seed by seed."""

    mix: str
    rounds: dict[Rule, list[Latency]]

    def mean(self, rule: Rule, what: str) -> float:
        return float(np.mean([getattr(latency, what) for latency in self.rounds[rule]]))

    def ahead(self, rounds: int) -> int:
        """In how many seeds, of `rounds` rounds each, the mean of `adaptive` is below both others."""
        means = {
            rule: np.reshape([one.maximal for one in found], (-1, rounds)).mean(1)
            for rule, found in self.rounds.items()
        }
        return int(np.sum(means["adaptive"] < np.minimum(means["random"], means["same"])))

    def adaptive_is_not_slower(self, other: Rule) -> float:
        """Share of the rounds."""
        pairs = zip(self.rounds["adaptive"], self.rounds[other], strict=True)
        return float(np.mean([ours.maximal <= theirs.maximal for ours, theirs in pairs]))


def round_latency(sizes: Sequence[float], links: Sequence[Link], at: float, rule: Rule, rng: Generator) -> Latency:
    """The latency of a round that begins at `at` and sends one sub-model over each link; `sizes` are in bytes.

    The server knows the data rates at that moment, not how they will change.
    """
    order = assign(sizes, [link.rate(at) for link in links], rule, rng)
    bytes_down = transmitted(sizes, order, rule)
    seconds = [link.download(at, size) - at for link, size in zip(links, bytes_down, strict=True)]
    return Latency(max(seconds), sum(seconds) / len(seconds))


def sizes(rng: Generator) -> list[float]:
    """Bytes of ten sub-models, every operation of every edge equally likely."""
    weights = darts.operation_weights(SUPERNET)
    drawn = {kind: rng.integers(table.shape[1], size=(PARTICIPANTS, len(table))) for kind, table in weights.items()}
    own = sum(weights[kind][np.arange(len(weights[kind])), keys].sum(axis=1) for kind, keys in drawn.items())
    return [float(BYTES * (darts.shared_weights(SUPERNET) + count)) for count in np.asarray(own)]


def study(mix: str, rounds: int, every: float, seed: int, data_dir: Path | None) -> Iterator[dict[Rule, Latency]]:
    """Each round's latency by each rule; a round begins `every` seconds after the one before."""
    settings = SimulationSettings(traces="lte", transport=MIXES[mix])
    names = [f"participant-{number}" for number in range(PARTICIPANTS)]
    links = list(links_for(settings, seed, names, data_dir).of.values())
    for number in range(rounds):
        drawn = sizes(stream(seed, "latency", mix, "sizes", number))
        yield {
            rule: round_latency(drawn, links, number * every, rule, stream(seed, "latency", mix, rule, number))
            for rule in RULES
        }


def heading() -> str:
    columns = ["transport", *(f"{rule}, maximal" for rule in RULES), *(f"{rule}, mean" for rule in RULES)]
    columns += ["not slower than random", "not slower than same", "seeds below both"]
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def row(found: Found, rounds: int) -> str:
    cells = [f"{found.mean(rule, what):.3f} s" for what in ("maximal", "mean") for rule in RULES]
    cells += [f"{found.adaptive_is_not_slower(other):.0%}" for other in ("random", "same")]
    return f"| {found.mix} | {' | '.join(cells)} | {found.ahead(rounds)} |"


def draw(found: Sequence[Found], path: Path) -> None:
    figure = new_figure(10.4, 1.2 + 0.34 * len(found))
    for axes, what in zip(figure.subplots(1, 2, sharey=True), ("maximal", "mean"), strict=True):
        for place, rule in enumerate(RULES):
            places = np.arange(len(found)) + (place - 1) * 0.27
            axes.barh(places, [one.mean(rule, what) for one in found], 0.25, color=COLOURS[rule], label=WORDS[rule])
        axes.set_yticks(range(len(found)), [one.mix for one in found])
        axes.set_xlabel(f"{what} latency of a round (s)")
        tidy(axes)
        axes.grid(visible=False, axis="y")
    figure.axes[0].invert_yaxis()
    figure.axes[0].legend(frameon=False, fontsize=9)
    figure.suptitle("Sending ten sub-models over 4G, by who gets which", fontsize=12)
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="the folder with lte_4g_logs; default: ATOLL_DATA")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two rounds")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "latency.png")
    options = parser.parse_args()
    print(heading())
    found = []
    for mix in MIXES:
        rounds: dict[Rule, list[Latency]] = {rule: [] for rule in RULES}
        for seed in range(1, options.seeds + 1):
            for latencies in study(mix, options.rounds, options.every, seed, options.data_dir):
                for rule, latency in latencies.items():
                    rounds[rule].append(latency)
        found.append(Found(mix, rounds))
        print(row(found[-1], options.rounds), flush=True)
    draw(found, options.out)


if __name__ == "__main__":
    main()
