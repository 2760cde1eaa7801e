"""The choice of a learning rate by validation error, from a grid, and what it cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from atoll.config import Raw, merge, resolve, settings_table
from atoll.data.loading import settle
from atoll.errors import ConfigError
from atoll.run.baselines.rivals import Rival
from atoll.run.reader import Run, load
from atoll.run.sweep import RunOptions, sweep

RATES = (0.03, 0.1, 0.3)
SET_ASIDE = 0.2  # of the training rows, for the choice of a learning rate where there are no validation rows
SHARE = 1 / 3  # of the rounds
OF_RIVALS = "tuning"  # the folder, among those of the rivals' runs, with the runs of their grids


def rates_from(text: str) -> list[float]:
    """`0.03,0.1,0.3` as numbers."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < rate < math.inf for rate in found):
        raise ConfigError(f"--rates {text}: write learning rates above 0: 0.03,0.1,0.3", code="invalid-rates")
    return found


@dataclass(frozen=True)
class Tuned:
    """The learning rate that had the lowest validation error, and what finding it cost the clients."""

    rate: float
    errors: dict[float, float]
    macs: int
    set_aside: bool = False  # the runs had validation rows that the data does not have: a fifth of the training rows


def tune(
    rival: Rival, rates: Sequence[float], out: Path, data_dir: Path | None = None, watch: RunOptions | None = None
) -> Tuned:
    """The best of these learning rates, on the rival's own seed with a third of its rounds.

    The error is that on validation rows: of the best network, or of personal networks the mean over their owners.
    """
    raw, set_aside = with_validation_rows(rival.raw, data_dir)
    rival = replace(rival, raw=raw)
    errors, macs = {}, 0
    for rate in rates:
        experiment = rival.experiment(rate, share=SHARE)
        (run,) = sweep(
            experiment,
            [experiment.seed],
            out / f"lr-{rate:g}",
            data_dir=data_dir,
            watch=watch or (lambda _: {}),
        )
        errors[rate], macs = validation_error(run), macs + int(run.result["ledger"]["client_macs"])
    return Tuned(min(errors, key=lambda rate: errors[rate]), errors, macs, set_aside)


def with_validation_rows(raw: Raw, data_dir: Path | None) -> tuple[Raw, bool]:
    """The experiment with validation rows to choose by, and whether they were set aside from the training rows."""
    experiment = resolve(raw)
    table = settings_table(experiment.method)
    if getattr(experiment.settings, "with_validation", False):
        raw = merge(raw, {table: {"with_validation": False}})
    if experiment.engine.name not in ("local", "ray"):  # only sites know their rows; see `validation_error`
        return raw, False
    federated, decided = settle(experiment.data, experiment.seed, data_dir)
    if any(federated.info(name).sizes["validation"] for name in federated.names) or decided.split is None:
        return raw, False
    if decided.blocks == "official":
        raise ConfigError(
            "data.blocks = 'official': the published parts have no validation rows to choose a learning rate by; give "
            "one rate (--rates 0.1), or other blocks",
            code="no-validation-rows",
        )
    train, _, test = decided.split
    split = [round((1 - SET_ASIDE) * train, 9), round(SET_ASIDE * train, 9), test]
    return merge(raw, {"data": {"split": split}}), True


def validation_error(run: Run) -> float:
    holders = [name for name, rows in run.manifest["clients"].items() if rows.get("validation")]
    if not holders:
        raise ConfigError(
            f"{run.path}: no client has validation rows to choose a learning rate by; add some, or give one rate",
            code="no-validation-rows",
        )
    candidates = run.result["candidates"]
    own = [c["objectives"]["error"] for c in candidates if c.get("owner") in holders]
    return sum(own) / len(own) if own else float(min(c["objectives"].get("error", 1.0) for c in candidates))


class TuningCost(NamedTuple):
    """What the choice of a learning rate cost, outside of any budget."""

    name: str  # of the rival, or of the run
    rates: list[float]  # the best one first
    macs: int
    sent: int  # bytes, by all clients

    @property
    def grid(self) -> str:
        """All rates, in words."""
        return ", ".join(f"{rate:g}" for rate in sorted(self.rates))


def tuning_folder(run: Path) -> Path:
    """Where the runs of the grid of a search's own learning rate are."""
    return run.with_name(f"{run.name}-tuning")


def tuning_costs(folder: Path) -> Iterator[TuningCost]:
    """Of the grids beside the runs in this folder: those of its rivals, and that of the search itself."""
    places = {place.name: place for place in sorted((folder / OF_RIVALS).glob("*"))}
    places[folder.name] = tuning_folder(folder)
    for name, place in places.items():
        runs = {path.name: load(path / one) for path in place.glob("lr-*") for one in _seeds(path)}
        finished = {float(label.removeprefix("lr-")): run for label, run in runs.items() if run.finished}
        if finished:
            ledgers = [run.result["ledger"] for run in finished.values()]
            yield TuningCost(
                name,
                sorted(finished, key=lambda rate: (validation_error(finished[rate]), rate)),
                sum(int(one["client_macs"]) for one in ledgers),
                sum(int(one["bytes_up"]) for one in ledgers),
            )


def _seeds(place: Path) -> list[str]:
    return sorted(path.parent.name for path in place.glob("seed-*/config.toml"))[:1]


def about_own_rate(search: Run) -> str | None:
    """A line about the learning rate of the search, beside rivals whose rates were chosen; None if it has none."""
    from atoll.config import read_file

    own = read_file(search.path / "config.toml").get(search.manifest["method"], {}).get("lr")
    if own is None:
        return None
    found = next((one for one in tuning_costs(search.path) if one.name == search.path.name), None)
    if found is None:
        return f"{search.path}: its own learning rate, {own:g}, was not chosen from a grid; atoll tune {search.path}"
    what = f"the best of {found.grid} by validation error"
    if found.rates[0] == own:
        return f"{search.path}: its own learning rate, {own:g}, is {what}"
    return f"{search.path}: its own learning rate is {own:g}; {found.rates[0]:g} is {what}"
