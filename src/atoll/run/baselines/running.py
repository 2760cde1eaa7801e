"""Rivals tuned and run, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from atoll.config import merge
from atoll.errors import ConfigError
from atoll.run.baselines.rivals import Rival, rivals_of
from atoll.run.baselines.tuning import OF_RIVALS, RATES, Tuned, tune
from atoll.run.reader import Run
from atoll.run.sweep import RunOptions, sweep


class RivalRuns(NamedTuple):
    """The runs of one rival, or the searches that it cannot be made for, and why."""

    name: str
    tuned: Tuned | None
    runs: list[Run]
    problem: str = ""
    without: tuple[Path, ...] = ()  # these searches

    def cost_share(self, searches: Mapping[int, Run]) -> float:
        """The client MACs of its runs, as a share of those of the searches."""
        spent = sum(int(run.result["ledger"]["client_macs"]) for run in self.runs)
        paid = sum(int(searches[int(run.manifest["seed"])].result["ledger"]["client_macs"]) for run in self.runs)
        return spent / paid


def run_rivals(
    searches: Mapping[int, Run],
    out: Path,
    *,
    rates: Sequence[float] = RATES,
    wanted: Sequence[str] | None = None,
    workers: int | None = None,
    data_dir: Path | None = None,
    watch: RunOptions = lambda folder: {},
) -> Iterator[RivalRuns]:
    """Tune and run the rivals one after the other, in folders of `out`; what is there already is used again.

    `searches` gives each seed the search whose client MACs its rivals get. Learning rates are chosen with the first.
    A rival that cannot exist for some searches, and was not asked for by name, comes first: with a problem instead of
    runs, before anything is trained. The other searches have it.
    """
    engine = {} if workers is None else {"engine": {"workers": workers}}
    made: dict[Path, dict[str, Rival]] = {}
    for search in searches.values():
        if search.path not in made:
            rivals = rivals_of(search, data_dir, wanted)
            made[search.path] = {one.name: replace(one, raw=merge(one.raw, engine)) for one in rivals}
    problems: dict[tuple[str, str], list[Path]] = {}
    for path, own in made.items():
        for one in own.values():
            if one.problem:
                problems.setdefault((one.name, one.problem), []).append(path)
    for (name, problem), paths in problems.items():
        yield RivalRuns(name, None, [], problem, tuple(paths))
    if all(one.problem for own in made.values() for one in own.values()):
        raise ConfigError(
            f"{', '.join(map(str, made))}: no rival is left to train; compare a longer search", code="budget-too-small"
        )
    for name in dict.fromkeys(name for own in made.values() for name in own):
        found = {seed: made[search.path].get(name) for seed, search in searches.items()}
        possible = {seed: one for seed, one in found.items() if one is not None and not one.problem}
        if name == "like-knee" and not wanted and all(_knee_is_high(made[searches[seed].path]) for seed in possible):
            continue  # it would be `like-high` once more
        if possible:
            tuned, rate = _rate(next(iter(possible.values())), rates, out, data_dir, watch)
            runs = [
                run
                for seed, one in possible.items()
                for run in sweep(one.experiment(rate), [seed], out / name, data_dir=data_dir, watch=watch)
            ]
            yield RivalRuns(name, tuned, runs)


def _knee_is_high(rivals: Mapping[str, Rival]) -> bool:
    """Whether `like-knee` is the network of `like-high`."""
    high, knee = (rivals[name].raw["retrain"]["networks"][name] for name in ("like-high", "like-knee"))
    return bool(high == knee)


def _rate(
    rival: Rival, rates: Sequence[float], out: Path, data_dir: Path | None, watch: RunOptions
) -> tuple[Tuned | None, float | None]:
    """The learning rate of a rival, and how it was chosen if it was."""
    if rival.table == "moefl" or rival.rate is not None:  # learning rates are among the genes of moefl
        return None, rival.rate
    if len(rates) <= 1:
        return None, rates[0] if rates else None
    tuned = tune(rival, rates, out / OF_RIVALS / rival.name, data_dir, watch)
    return tuned, tuned.rate
