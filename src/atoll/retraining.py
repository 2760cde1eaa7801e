"""From a run and the picks of it to a run of method `retrain`: chosen networks, trained from scratch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll.assemble import put
from atoll.config import Raw, override, read_file
from atoll.data.catalog import DATASETS
from atoll.data.settings import name_or_folder
from atoll.errors import ConfigError, RunDirectoryError, nearest
from atoll.reading import Run

STANDARD = "standard"  # the pick that no search finds: the fully connected network that sparse ones are compared with
# How the searching run trained its networks, as far as the method has such a setting.
INHERITED = ("fraction", "epochs", "batch", "lr", "decay", "momentum", "weight_decay")
DEALING = ("clients", "partition")  # what holds for other data too


def assemble_retraining(
    run: Run, picks: Sequence[str], options: Mapping[str, Any], settings: Sequence[str] = ()
) -> Raw:
    """The tables of an experiment that trains these picks as the run trained its networks, on its data.

    `options` are places and values on top (`rounds`, `data.partition`, ...); `data` names other data.
    """
    before = read_file(run.path / "config.toml")
    own = before.get(before["method"], {})
    raw: Raw = {
        "method": "retrain",
        "seed": before["seed"],
        "data": _data(before["data"], options.get("data")),
        "engine": before.get("engine", {}),
        "retrain": {name: own[name] for name in INHERITED if name in own} | {"networks": _networks(run, picks)},
    }
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
    return {pick: _standard(run) if pick == STANDARD else run.load_model(pick).architecture for pick in wanted}


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
