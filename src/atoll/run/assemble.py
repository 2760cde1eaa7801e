"""The tables of an experiment file, from the arguments of a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atoll.config import Experiment, Raw, merge, override, read_file, resolve_data, settings_table
from atoll.data.settings import SITES, DataSettings, name_or_folder
from atoll.errors import ConfigError, nearest
from atoll.registry import names

METHOD_OPTIONS = ("rounds",)
ORIGIN = ("name", "folder")  # settings that select the data: --data replaces both


def assemble(target: str, options: Mapping[str, Any], settings: Sequence[str]) -> Raw:
    """The tables described by `target` (an experiment file or a method), the options and the --set assignments."""
    federation = options.get("engine.federation")
    raw = _target(target, options.get("data")) if federation is None else _on_sites(target, options.get("data"))
    return with_options(raw, options, settings)


def with_options(raw: Raw, options: Mapping[str, Any], settings: Sequence[str]) -> Raw:
    """These tables with the options and the --set assignments put on top."""
    for name, value in options.items():
        if value is not None and name != "data":
            place = f"{settings_table(raw['method'])}.{name}" if name in METHOD_OPTIONS else name
            raw = put(raw, place, value)
    for assignment in settings:
        raw = override(raw, assignment)
    return raw


def assemble_data(target: str, options: Mapping[str, Any], settings: Sequence[str]) -> tuple[DataSettings, int]:
    """The data settings and the seed of an experiment file, a data set or a folder; options override them."""
    raw: Raw = read_file(Path(target)) if target.endswith(".toml") else {"data": name_or_folder(target)}
    for name, value in options.items():
        if value is not None:
            raw = put(raw, name, value)
    for assignment in settings:
        raw = override(raw, assignment)
    return resolve_data({"data": {}, **raw})


def free_run_directory(experiment: Experiment) -> Path:
    """runs/METHOD-DATA-N with the first N that is not in use."""
    data = (experiment.data.name or "").rpartition(":")[2] or Path(experiment.data.folder or "data").name
    number = 1
    while (path := Path("runs") / f"{settings_table(experiment.method)}-{data}-{number}").exists():
        number += 1
    return path


def _is_method(target: str) -> bool:
    """Whether a target names a method, by its registered name or its place (`module:Class`), and not a file."""
    return target in names("methods") or (":" in target and not target.endswith(".toml"))


def _target(target: str, data: str | None) -> Raw:
    if _is_method(target):
        if data is None:
            way_out = "name a data set (see `atoll datasets`) or a folder of own data"
            raise ConfigError(f"{target}: --data is missing; {way_out}", code="data-not-named")
        return {"method": target, "data": name_or_folder(data)}
    if not target.endswith(".toml") and not Path(target).exists():
        raise ConfigError(
            f"'{target}' is neither a method nor an experiment file; {nearest(target, names('methods'))}",
            code="no-such-experiment",
        )
    raw = read_file(Path(target))
    if not isinstance(raw.get("method"), str):
        raise ConfigError(
            f"{target}: method is missing; write for instance method = 'fedavg' on its first line",
            code="method-not-named",
        )
    if data is not None:
        table = raw.get("data")
        kept = {key: value for key, value in table.items() if key not in ORIGIN} if isinstance(table, dict) else {}
        raw = {**raw, "data": {**kept, **name_or_folder(data)}}
    return raw


def _on_sites(target: str, data: str | None) -> Raw:
    """The tables of a run on a federation, whose sites hold the data."""
    if data is not None:
        raise ConfigError(
            f"--data {data}: the sites of a federation have their own data; leave --data or --federation out",
            code="data-held-by-sites",
        )
    raw: Raw = {"method": target} if _is_method(target) else _target(target, None)
    table = raw.get("data")
    kept = {key: value for key, value in table.items() if key not in ORIGIN} if isinstance(table, dict) else {}
    return put({**raw, "data": {**kept, "name": SITES}}, "engine.name", "flower")


def put(raw: Raw, place: str, value: Any) -> Raw:
    """A copy of `raw` with the value at a dotted name (`data.clients`)."""
    for key in reversed(place.split(".")):
        value = {key: value}
    return merge(raw, value)
