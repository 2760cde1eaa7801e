"""One experiment with many seeds, or several methods with many seeds, one run directory each.

Finished runs are reused, unfinished ones resumed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from atoll.config import Experiment, Raw, read_file, resolve, settings_table
from atoll.core.ledger import Account, account_from_plain
from atoll.errors import ConfigError, RunDirectoryError
from atoll.registry import names
from atoll.run import launch
from atoll.run.reader import Run, load
from atoll.store.files import replace_file

PLAN = "sweep.json"  # what a sweep over methods was asked for
# Settings of the engine that change how a run is carried out, not what comes out.
ANYWHERE = {"name", "workers", "ray_address", "federation", "wait"}

RunOptions = Callable[[Path], dict[str, Any]]  # run directory -> options of `launch.start`: watcher and stop


def seeds_from(text: str, first: int) -> list[int]:
    """`20`: that many seeds, starting at `first`; `3-8`: a range; `1,5,9`: a list."""
    try:
        if "," in text:
            found = [int(part) for part in text.split(",")]
        elif "-" in text.strip("-"):
            low, high = (int(part) for part in text.split("-"))
            found = list(range(low, high + 1))
        else:
            found = list(range(first, first + int(text)))
    except ValueError:
        raise ConfigError(
            f"--seeds {text}: write a number (20), a range (1-20) or a list (1,2,5)", code="invalid-seeds"
        ) from None
    if not found or min(found) < 0 or len(set(found)) != len(found):
        raise ConfigError(f"--seeds {text}: name at least one seed, none twice and none below 0", code="invalid-seeds")
    return found


def sweep(
    experiment: Experiment,
    seeds: Sequence[int],
    out: Path,
    *,
    data_dir: Path | None = None,
    watch: RunOptions = lambda folder: {},
) -> Iterator[Run]:
    """Start or resume the runs one after the other; each is yielded when it is finished.

    A folder that holds a run with other settings is refused before the first run begins.
    """
    _refuse_others(experiment, seeds, out, data_dir)
    for seed in seeds:
        yield _finished(experiment.model_copy(update={"seed": seed}), out / f"seed-{seed}", data_dir, watch)


def _finished(experiment: Experiment, folder: Path, data_dir: Path | None, watch: RunOptions) -> Run:
    """The run in this folder, started or resumed if it has to be."""
    if not (folder / "config.toml").exists():
        return launch.start(experiment, folder, data_dir=data_dir, **watch(folder))
    found = load(folder)
    return found if found.finished else launch.resume(folder, data_dir=data_dir, **watch(folder))


def of_method(raw: Raw, method: str) -> Raw:
    """The tables of an experiment file for one of several methods: those that all share, and its own."""
    others = {settings_table(name) for name in names("methods")} - {settings_table(method)}
    return {**{key: value for key, value in raw.items() if key not in others}, "method": method}


def methods_from(text: str) -> list[str]:
    """`fedavg,realtime`: names of methods, each once."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found or len(set(found)) != len(found):
        raise ConfigError(f"--methods {text}: name at least one method, none twice", code="invalid-methods")
    tables = [settings_table(name) for name in found]
    if len(set(tables)) != len(tables):
        raise ConfigError(f"--methods {text}: two of them have the same name; rename a class", code="invalid-methods")
    return found


def sweep_methods(
    experiments: Mapping[str, Experiment],
    seeds: Sequence[int],
    out: Path,
    *,
    data_dir: Path | None = None,
    watch: RunOptions = lambda folder: {},
    command: str = "",
) -> Iterator[Run]:
    """Several methods on the same data, partition and budget: runs in OUT/METHOD/seed-N, seed by seed.

    Seed by seed, so that a sweep that is stopped early has all methods equally often.
    """
    for name, experiment in experiments.items():  # what cannot run is refused before the first run begins
        _refuse_others(experiment, seeds, out / name, data_dir)
    out.mkdir(parents=True, exist_ok=True)
    about = {"command": command, "methods": list(experiments), "seeds": list(seeds)}
    replace_file(out / PLAN, (json.dumps(about, indent=1, ensure_ascii=False) + "\n").encode())
    for seed in seeds:
        for name, experiment in experiments.items():
            own = experiment.model_copy(update={"seed": seed})
            yield _finished(own, out / name / f"seed-{seed}", data_dir, watch)


def plan_of(folder: Path) -> dict[str, Any]:
    """What `sweep_methods` has written about a sweep: its command, methods and seeds. Empty if it is no such folder."""
    try:
        found = json.loads((folder / PLAN).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def runs_in(folder: Path) -> list[Run]:
    """The runs in the folders of a sweep, seed-2 before seed-10; `RunDirectoryError` if there are none."""
    below = sorted((path.parent for path in folder.glob("*/config.toml")), key=_natural_order)
    if not below:
        raise RunDirectoryError(
            f"{folder}: neither a run directory nor a folder of them; see `atoll sweep`", code="no-runs-found"
        )
    return [load(path) for path in below]


def _natural_order(path: Path) -> tuple[str, int, str]:
    stem, _, number = path.name.rpartition("-")
    return (stem, int(number), "") if number.isdecimal() else (path.name, 0, "")


def _refuse_others(experiment: Experiment, seeds: Sequence[int], out: Path, data_dir: Path | None) -> None:
    """Raise `RunDirectoryError` if one of the folders holds a run with other settings than this sweep."""
    there = [seed for seed in seeds if (out / f"seed-{seed}" / "config.toml").exists()]
    if not there:
        return
    wanted = launch.decided(experiment.model_copy(update={"seed": there[0]}), data_dir)
    for seed in there:
        folder = out / f"seed-{seed}"
        _refuse_other(folder, experiment.model_copy(update={"seed": seed}), wanted)


def _refuse_other(folder: Path, asked: Experiment, decided: Experiment | None) -> None:
    """`decided` is the experiment with everything decided that is left to the data, for any seed. Without it, what is
    left to the data counts as equal."""
    there = resolve(read_file(folder / "config.toml"), complete=True)
    has, wants = _compared(there), _compared(decided or asked) | {"seed": asked.seed}
    if isinstance(asked.data.holdout_clients, float):  # who is held out is drawn by the seed, how many are is not
        for table in (has, wants):
            held = table["data"]["holdout_clients"]
            table["data"]["holdout_clients"] = len(held) if isinstance(held, list) else held
    left_open = ("data.", f"{settings_table(asked.method)}.") if decided is None else ()
    for name, before, now in _differing(has, wants):
        if now is None and name.startswith(left_open):
            continue
        if name.startswith("stop."):
            _refuse_exceeded(folder, asked)
        raise RunDirectoryError(
            f"{folder}: it holds a run with {name} = {_shown(before)}, and this one has {_shown(now)}; choose another "
            "folder with --out, or remove it",
            code="different-run-present",
        )


def _compared(experiment: Experiment) -> dict[str, Any]:
    """The settings that decide what comes out."""
    plain = experiment.model_dump(mode="json", exclude={"preset", "patience", "engine", "settings"})
    engine = experiment.engine.model_dump(mode="json", exclude=ANYWHERE)
    return {**plain, "engine": engine, settings_table(experiment.method): experiment.settings.model_dump(mode="json")}


def _differing(has: Mapping[str, Any], wants: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Dotted names of what differs, with both values."""
    for name in dict.fromkeys([*wants, *has]):
        before, now = has.get(name), wants.get(name)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            yield from _differing(before, now, f"{place}{name}.")
        elif before != now:
            yield f"{place}{name}", before, now


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        value = {name: own for name, own in value.items() if own is not None}
    return "no value" if value is None else json.dumps(value, ensure_ascii=False)


def _refuse_exceeded(folder: Path, wanted: Experiment) -> None:
    """Raise `RunDirectoryError` if the run in this folder has used more than the budget allows now."""
    total, rounds, seconds = Account(), 0, 0.0
    for event in load(folder).rounds:
        total.add(account_from_plain(event["ledger"]))
        rounds, seconds = rounds + 1, float(event["wall_seconds"])
    used = {"rounds": rounds, "upload": total.bytes_up, "macs": total.client_macs, "minutes": seconds / 60}
    for name, amount in used.items():
        limit = getattr(wanted.stop, name)
        if limit is not None and amount > limit:
            raise RunDirectoryError(
                f"{folder}: its run has used {amount:,.4g}, the budget stop.{name} = {limit:,} is exceeded already; "
                "raise it, or choose another folder with --out",
                code="budget-exceeded",
            )
