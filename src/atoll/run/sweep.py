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


def _refuse_other(folder: Path, wanted: Experiment) -> None:
    """Raise `RunDirectoryError` if the folder holds a run with other settings than this sweep."""
    there = resolve(read_file(folder / "config.toml"), complete=True)
    asked, has = wanted.settings.model_dump(exclude_unset=True), there.settings.model_dump()
    differing = [name for name, value in asked.items() if has.get(name) != value]
    if there.method != wanted.method or there.seed != wanted.seed or differing:
        what = differing[0] if differing else "method"
        raise RunDirectoryError(
            f"{folder}: it holds a run with another {what}; choose another folder with --out, or remove this one",
            code="different-run-present",
        )
