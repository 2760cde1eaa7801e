"""Experiment files: TOML in, frozen and strict models out, and back to TOML.

    method = "fedavg"          # a registered method, or module:Class; its own settings are in the table of its name
    seed = 1
    [data]                     # see atoll.data.settings
    [engine]
    [simulation]               # only for runs on a virtual network, see atoll.simulation.settings
    [stop]                     # limits at which a run ends before its last round, see atoll.core.stopping
    [faults]                   # faults and attacks on purpose, see atoll.federation.faults
    [robust]                   # what limits the influence of single clients, see atoll.federation.trust
    [privacy]                  # differential privacy of single rows, see atoll.privacy.settings
    [fedavg]                   # of a method given as module:Class: [Class]

A preset (`small` unless another is named) fills in what a file or command does not set. What a user set is never
altered. TOML has no word for "nothing": `clip = "none"` unsets what a preset sets, for every setting that may be unset.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, TypeAdapter, ValidationError, field_validator

from atoll.core.messages import Late
from atoll.core.stopping import StopSettings
from atoll.data.settings import DataSettings
from atoll.errors import ConfigError, nearest
from atoll.federation.exchange import MINIMUM, ExchangeRules
from atoll.federation.faults import FaultSettings
from atoll.federation.trust import RobustSettings
from atoll.methods import find_method
from atoll.methods.base import Method, MethodConfig
from atoll.privacy.settings import PrivacySettings
from atoll.registry import names
from atoll.simulation.settings import SimulationSettings

Raw = dict[str, Any]
PRESETS = ("small", "paper")
UNSET = "none"
COMMON = ("method", "preset", "seed", "patience", "data", "engine", "simulation", "stop", "robust", "faults", "privacy")


class EngineSettings(BaseModel):
    """How tasks reach clients: the `[engine]` table."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    name: str = "local"  # a registered engine: local, flower, ray, ...
    workers: int | None = Field(default=None, ge=0)  # None: one per core; 0: everything in this process
    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:\d+)?)$")
    # Replies that an exchange waits for: a share of the participating clients, late ones that are used included.
    quorum: float = Field(default=1.0, gt=0, le=1)
    # Good replies without which an exchange does not count, as a share of its tasks: the round is repeated.
    minimum: float = Field(default=MINIMUM, ge=0, le=1)
    # Seconds that each wait for replies lasts, on the virtual network its own. None: no end; real sites: two hours. One
    # task of a local client or on Ray takes six hours at most, or a deadline that is longer.
    deadline: float | None = Field(default=None, gt=0, le=1e9)
    late: Late | None = None  # what becomes of late replies, as far as the method can; None: as the method does best
    fair: int = Field(default=0, ge=0)  # a client left out of this many rounds in a row is waited for; 0: never
    ray_address: str | None = None  # ray: host:port of a cluster's head; None: a cluster of this machine alone
    federation: str | None = None  # flower: the federation's directory, see `atoll federation init`
    sites: int | None = Field(default=None, ge=1)  # flower: start with this many sites; None: all must be connected
    wait: float = Field(default=180.0, gt=0)  # flower: seconds that are waited for a site that is not connected

    def rules(
        self, late: Sequence[Late], deadline: float | None = None, rounds_late: int | None = None
    ) -> ExchangeRules:
        """How long exchanges wait, for a method that can do this with late replies, what it does best first, and takes
        them up to `rounds_late` rounds late.

        `deadline` is the engine's own, where the settings have none.
        """
        wait = deadline if self.deadline is None else self.deadline
        return ExchangeRules(self.quorum, self.minimum, wait, self.late or late[0], rounds_late, self.fair)

    @field_validator("name")
    @classmethod
    def _engine_is_known(cls, value: str) -> str:
        if ":" not in value and value not in names("engines"):
            raise ConfigError(
                f"engine.name = {value!r}: unknown; {nearest(value, names('engines'))}", code="unknown-engine"
            )
        return value


class Experiment(BaseModel):
    """A complete experiment."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    method: StrictStr  # a registered method (`atoll methods`), or module:Class
    preset: StrictStr = "small"  # small (minutes on two cores) or paper
    seed: StrictInt = Field(default=1, ge=0, lt=2**63)  # same seed, same bits
    patience: StrictInt = Field(default=3, ge=1)  # rounds in a row that may fail before the run pauses
    data: DataSettings
    engine: EngineSettings = EngineSettings()
    simulation: SimulationSettings | None = None  # None: no virtual network
    stop: StopSettings = StopSettings()
    robust: RobustSettings = RobustSettings()
    faults: FaultSettings | None = None  # None: clients are as they are
    privacy: PrivacySettings | None = None  # None: no formal privacy
    settings: MethodConfig


class DataAndSeed(BaseModel):
    """What decides who holds which rows."""

    model_config = ConfigDict(frozen=True)

    data: DataSettings
    seed: StrictInt = Field(default=1, ge=0, lt=2**63)


def read_file(path: Path) -> Raw:
    """The tables of an experiment file, not yet checked."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        hint = nearest(str(path), names("methods"))
        raise ConfigError(
            f"{path}: no such file, and no method of that name ({hint})", code="no-such-experiment"
        ) from None
    except IsADirectoryError:
        raise ConfigError(
            f"{path}: a folder, not an experiment file; own data is named by --data", code="experiment-is-folder"
        ) from None
    except (OSError, UnicodeDecodeError, MemoryError) as problem:
        raise ConfigError(f"{path}: cannot be read ({problem or 'too large'})", code="experiment-unreadable") from None
    except (ValueError, RecursionError) as problem:  # a number of thousands of digits is a plain ValueError
        raise ConfigError(f"{path}: not valid TOML: {problem}", code="not-toml") from None


def read_faults(path: Path) -> Raw:
    """The rules of a file for `--faults`, not yet checked."""
    if not path.exists():
        raise ConfigError(
            f"--faults {path}: no such file; give a .toml file with [[rule]] tables", code="no-such-faults-file"
        )
    found = read_file(path)
    if not found:
        raise ConfigError(f"--faults {path}: it has no [[rule]]; add one, or leave --faults out", code="no-fault-rules")
    return found


def resolve(raw: Raw, complete: bool = False) -> Experiment:
    """Preset and user's tables merged and checked. Wrong values are a `ConfigError` that names the place.

    `complete` tables, those of a run directory, have been through this before: no preset is put under them.
    """
    method = raw.get("method")
    if not isinstance(method, str):
        raise ConfigError(
            f"method = {method!r}: must name a method; {nearest('', names('methods'))}", code="method-not-named"
        )
    method_class, own = find_method(method), settings_table(method)
    if own in COMMON:
        raise ConfigError(f"method = {method!r}: [{own}] is a table of Atoll's; rename the class", code="name-reserved")
    for key in raw:
        if key not in (*COMMON, own):
            raise ConfigError(f"{key}: unknown setting; {nearest(key, (*COMMON, own))}", code="unknown-setting")
    merged = dict(raw) if complete else merge(preset(method_class, own, raw.get("preset", "small")), raw)
    settings = _validate(method_class.Config, merged.pop(own, {}), own)
    experiment: Experiment = _validate(Experiment, {**merged, "settings": settings}, "")
    return experiment


def resolve_data(raw: Raw) -> tuple[DataSettings, int]:
    """The data table and the seed alone, checked. Other tables are not looked at."""
    plain = {key: raw[key] for key in ("data", "seed") if key in raw}
    checked: DataAndSeed = _validate(DataAndSeed, plain, "")
    return checked.data, checked.seed


def settings_table(method: str) -> str:
    """The name of the table that holds a method's own settings: the method's, or its class's."""
    return re.split("[:.]", method)[-1]


def preset(method: type[Method[Any]], table: str, name: Any) -> Raw:
    """The tables of a preset: `presets/METHOD/NAME.toml` in the method's package. None is needed for `small`, where the
    defaults of the method's `Config` serve."""
    if name not in PRESETS:
        raise ConfigError(f"preset = {name!r}: unknown; {nearest(str(name), PRESETS)}", code="unknown-preset")
    package = sys.modules[method.__module__.partition(".")[0]]
    path = Path(getattr(package, "__file__", None) or "").parent / "presets" / method.name / f"{name}.toml"
    if path.is_file():
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
        return {table if key == method.name else key: value for key, value in tables.items()}
    if name == PRESETS[0]:
        return {}
    raise ConfigError(f"preset = {name!r}: method {method.name} has none; leave it out", code="unknown-preset")


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Raw:
    """`base` with the values of `over` put on top, table by table."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def override(raw: Raw, assignment: str) -> Raw:
    """`raw` with one `a.b=value` from the command line; the value is read as TOML, and as text where that fails."""
    path, equals, text = assignment.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise ConfigError(
            f"--set {assignment}: must have the form key=value, for instance --set fedavg.lr=0.05",
            code="bad-assignment",
        )
    value: Any = text
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        table = {}
    if table.keys() == {"value"}:  # with a line break in the text there may be more
        value = table["value"]
    for key in reversed(keys):
        value = {key: value}
    return merge(raw, value)


def dump(experiment: Experiment) -> str:
    """The experiment as TOML text that `resolve` reads back to an equal one, whatever preset is put under it."""
    table, plain = settings_table(experiment.method), experiment.model_dump(mode="json", exclude={"settings"})
    own = experiment.settings.model_dump(mode="json")
    for name in _with_preset(find_method(experiment.method), table):
        if own.get(name, "") is None:
            own[name] = UNSET
    return to_toml({**plain, table: own})


def _with_preset(method: type[Method[Any]], table: str) -> set[str]:
    """The method's own settings that some preset sets."""
    found: set[str] = set()
    for name in PRESETS:
        with suppress(ConfigError):  # it has no preset of this name
            found |= preset(method, table, name).get(table, {}).keys()
    return found


def to_toml(table: Mapping[str, Any]) -> str:
    """TOML text of nested tables. None means unset and is left out."""
    return tomli_w.dumps(_without_unset(table))


def _without_unset(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_unset(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, (list, tuple)):
        return [_without_unset(item) for item in value]
    return value


def _with_unset(model: type[Any], values: Any) -> Any:
    """The values with None instead of the word for it, where a setting may be None and no text is a value of it."""
    if not isinstance(values, Mapping):
        return values
    found = dict(values)
    for name, field in model.model_fields.items():
        kinds = get_args(field.annotation) or (field.annotation,)
        table = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        if table is not None and isinstance(found.get(name), Mapping):
            found[name] = _with_unset(table, found[name])
        elif found.get(name) == UNSET and NoneType in kinds and not _is_of(field.annotation, UNSET):
            found[name] = None
    return found


def _is_of(annotation: Any, value: Any) -> bool:
    try:
        TypeAdapter(annotation).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


def _validate(model: type[Any], values: Any, place: str) -> Any:
    try:
        return model.model_validate(_with_unset(model, values))
    except ValidationError as problem:
        text, code = _one_line(problem, model, place)
        raise ConfigError(text, code=code) from None


def _one_line(problem: ValidationError, model: type[BaseModel], place: str) -> tuple[str, str]:
    """The first fault in words (where it is, what stands there, what the rule is), and its code."""
    first, *others = problem.errors()
    same = [one for one in others if one["loc"][:-1] == first["loc"][:-1]]
    words = [one["msg"].removeprefix("Input should be ") for one in same if "literal[" in str(one["loc"][-1:])]
    if words:  # a number or a word: both rules are about one value
        first = {**first, "loc": first["loc"][:-1], "msg": ", or ".join([first["msg"], *words])}
    path = ".".join(str(part) for part in ((place,) if place else ()) + first["loc"])
    if first["type"] == "extra_forbidden":
        hint = nearest(str(first["loc"][-1]), _known(model, first["loc"][:-1]))
        return f"{path}: unknown setting; {hint}", "unknown-setting"
    if first["type"] == "missing":
        return f"{path}: missing; it must be set", "missing-setting"
    if first["type"] in ("model_type", "dict_type"):
        rule = f"must be a table; write [{path}] on a line of its own and its settings below"
        return f"{path} = {first['input']!r}: {rule}", "not-a-table"
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if first["type"] == "value_error" and path in ("", "data", "simulation"):
        return message, "invalid-setting"
    return f"{path} = {first['input']!r}: {message}", "invalid-setting"


def _known(model: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    """The names of the settings at a place within a model."""
    for part in place:
        field = model.model_fields.get(str(part))
        kinds = () if field is None else (field.annotation, *get_args(field.annotation))
        model = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), model)
    return list(model.model_fields)
