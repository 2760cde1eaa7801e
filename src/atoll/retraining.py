"""From a run and the picks of it to a run of method `retrain`: chosen networks, trained from scratch or further.

Besides what a run found there are picks that no search finds:

| pick        | the network                                                                              |
|-------------|------------------------------------------------------------------------------------------|
| `standard`  | the fully connected network that sparse ones are compared with                            |
| `width:0.5` | the start network of a search by pruning (`m0`) with all its widths times 0.5             |
| `width:=m5` | the same with the largest factor that takes no more multiply-accumulates than `m5` does   |

Started from found weights, a `width:` network is pruned from `m0` by the L2 norm of its filters, all layers alike, and
goes on from there; from scratch it is the classic width multiplier. `standard` always starts from scratch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll.assemble import put
from atoll.config import Raw, override, read_file
from atoll.data.catalog import DATASETS
from atoll.data.settings import name_or_folder
from atoll.errors import ConfigError, RunDirectoryError, nearest
from atoll.reading import Run

STANDARD, WIDTH, FIRST = "standard", "width:", "m0"
STARTS = ("scratch", "found")
# How the searching run trained its networks, as far as the method has such a setting.
INHERITED = ("fraction", "epochs", "batch", "lr", "decay", "momentum", "weight_decay")
DEALING = ("clients", "partition")  # what holds for other data too


def assemble_retraining(
    run: Run,
    picks: Sequence[str],
    options: Mapping[str, Any],
    settings: Sequence[str] = (),
    start: str = "scratch",
) -> Raw:
    """The tables of an experiment that trains these picks as the run trained its networks, on its data.

    `options` are places and values on top (`rounds`, `data.partition`, ...); `data` names other data. They start from
    scratch, or from the weights that the run found.
    """
    if start not in STARTS:
        raise ConfigError(f"--from {start}: unknown; {nearest(start, STARTS)}")
    before = read_file(run.path / "config.toml")
    own = before.get(before["method"], {})
    raw: Raw = {
        "method": "retrain",
        "seed": before["seed"],
        "data": _data(before["data"], options.get("data")),
        "engine": before.get("engine", {}),
        "retrain": {name: own[name] for name in INHERITED if name in own} | {"networks": _networks(run, picks)},
    }
    if start == "found":
        raw["retrain"]["start"] = {n: _weights_file(run, n) for n in raw["retrain"]["networks"] if n != STANDARD}
    for name, value in options.items():
        if value is not None and name != "data":
            raw = put(raw, "retrain.rounds" if name == "rounds" else name, value)
    for assignment in settings:
        raw = override(raw, assignment)
    return raw


def _data(table: Mapping[str, Any], named: str | None) -> Raw:
    if named is None:
        return dict(table)
    return {key: table[key] for key in DEALING if key in table} | name_or_folder(named, list(DATASETS))


def _networks(run: Run, picks: Sequence[str]) -> dict[str, dict[str, Any]]:
    wanted = [pick.strip() for pick in picks if pick.strip()]
    if not wanted:
        raise ConfigError("--pick: no network is named; give picks of the run, for instance --pick high,knee")
    return {pick: _architecture(run, pick) for pick in wanted}


def _architecture(run: Run, pick: str) -> dict[str, Any]:
    if pick.startswith(WIDTH):
        return _narrower(run, pick)
    return _standard(run) if pick == STANDARD else run.load_model(pick).architecture


def _weights_file(run: Run, pick: str) -> str:
    """Absolute: the new run may be gone on with from another folder."""
    return str(run.weights_file(FIRST if pick.startswith(WIDTH) else pick).resolve())


def _narrower(run: Run, pick: str) -> dict[str, Any]:
    """The start network of a search by pruning with all widths times a factor."""
    from atoll.spaces import cost
    from atoll.spaces.multipliers import factor_within, scaled

    first = run.load_model(FIRST).architecture
    word = pick.removeprefix(WIDTH)
    if first.get("space") != "widths":
        raise RunDirectoryError(f"{run.path}: --pick {pick} stands beside pruned networks, and the run has none")
    if word.startswith("="):
        return scaled(first, factor_within(first, cost(run.load_model(word[1:]).architecture).macs))
    try:
        return scaled(first, float(word))
    except ValueError:
        raise ConfigError(f"--pick {pick}: give a factor, such as width:0.5, or a network, such as width:=m5") from None


def _standard(run: Run) -> dict[str, Any]:
    """The standard network of a search for sparse ones; what it would be for other methods nobody has said."""
    known = [name for candidate in run.result["candidates"] for name in (candidate["id"], *candidate["picks"])]
    if STANDARD in known:
        return run.load_model(STANDARD).architecture
    from atoll.spaces import sparse

    found = [c["architecture"] for c in run.result["candidates"] if c["architecture"].get("space") == "sparse"]
    if not found:
        raise RunDirectoryError(
            f"{run.path}: --pick {STANDARD} stands beside sparse networks, and the run has none; "
            f"{nearest(STANDARD, known)}"
        )
    return sparse.standard(found[0])
