"""One experiment with many seeds, one run directory each. Finished runs are reused, unfinished ones resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from atoll.config import Experiment, read_file, resolve
from atoll.errors import ConfigError, RunDirectoryError
from atoll.run import launch
from atoll.run.reader import Run, load

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
    """Start or resume the runs one after the other; each is yielded when it is finished."""
    for seed in seeds:
        folder = out / f"seed-{seed}"
        wanted = experiment.model_copy(update={"seed": seed})
        if not (folder / "config.toml").exists():
            yield launch.start(wanted, folder, data_dir=data_dir, **watch(folder))
            continue
        _refuse_other(folder, wanted)
        found = load(folder)
        yield found if found.finished else launch.resume(folder, data_dir=data_dir, **watch(folder))


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


def _refuse_other(folder: Path, wanted: Experiment) -> None:
    """Raise `RunDirectoryError` if the folder holds a run with other settings than this sweep."""
    there = resolve(read_file(folder / "config.toml"), complete=True)
    differing = [
        name for name in ("method", "seed", "simulation", "stop") if getattr(there, name) != getattr(wanted, name)
    ]
    for part, asked, has in (("data.", wanted.data, there.data), ("", wanted.settings, there.settings)):
        held = has.model_dump()
        given = asked.model_dump(exclude_unset=True)
        differing += [f"{part}{name}" for name, value in given.items() if not _same(name, value, held.get(name))]
    if differing:
        raise RunDirectoryError(
            f"{folder}: it holds a run with another {differing[0]}; choose another folder with --out, or remove it",
            code="different-run-present",
        )


def _same(name: str, asked: Any, has: Any) -> bool:
    """Whether a run was made with this setting. A finished run's file has decided what the setting left open."""
    if asked is None:
        return True
    if name in ("folder", "test") and has is not None:
        return Path(asked).expanduser().resolve() == Path(has)
    if name == "holdout_clients" and isinstance(asked, float):
        return bool(has)
    return bool(asked == has)
