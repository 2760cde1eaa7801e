"""What is found by name: Atoll's own and what other packages add, and what is wrong with a plug-in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import atoll
from atoll import spaces
from atoll.config import dump, resolve
from atoll.errors import ArchitectureError, ConfigError, DataError
from atoll.methods import find_method
from atoll.methods.fedavg import FedAvg
from atoll.registry import GROUPS, find, name_of, names
from atoll.testing import made_table
from plugins import install
from refusals import refused

OWN = """
from atoll.methods.fedavg import FedAvg, FedAvgConfig

class OwnConfig(FedAvgConfig):
    rounds: int = 2

class Own(FedAvg):
    name = "own"
    summary = "an own method"
    Config = OwnConfig

class Nameless(FedAvg):
    pass

class Unset(FedAvg):
    name = "unset"
    Config = dict
"""


@pytest.mark.parametrize("group", GROUPS)
def test_everything_registered_can_be_found(group: str) -> None:
    assert names(group)
    for name in names(group):
        found = find(group, name)
        if not isinstance(found, ModuleType) and hasattr(found, "__qualname__"):
            assert name_of(group, found) == name


def test_a_registered_method_runs_and_resumes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch, "own_one", OWN, {"methods": {"own": "own_one:Own"}})
    assert "own" in names("methods")
    data = made_table()
    run = atoll.search("own", data, out=tmp_path / "run", workers=1, rounds=1, hidden=[4])
    assert 'method = "own"' in (run.path / "config.toml").read_text() and run.manifest["method"] == "own"
    assert len(atoll.resume(run.path, rounds=2, data=data).rounds) == 2


def test_a_class_and_its_place_are_the_same_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch, "own_two", OWN, {})
    own, data = find("methods", "own_two:Own"), made_table()
    by_class = atoll.search(own, data, out=tmp_path / "class", workers=0, hidden=[4])
    by_place = atoll.search("own_two:Own", data, out=tmp_path / "place", workers=2, hidden=[4])
    assert by_class.result["candidates"] == by_place.result["candidates"]
    text = (by_class.path / "config.toml").read_text()
    assert 'method = "own_two:Own"' in text and "\n[Own]\n" in text
    assert by_class.manifest["method"] == "Own" and by_class.result["method"] == "own"


def test_an_experiment_of_a_class_survives_its_file() -> None:
    raw = {"method": "soft_fedavg:SoftFedAvg", "data": {"name": "digits"}, "SoftFedAvg": {"rounds": 1}}
    with refused(ConfigError, "name-registered-twice", "'fedavg'", "atoll.methods.fedavg:FedAvg"):
        resolve(raw)
    experiment = resolve({"method": "atoll.methods.fedavg:FedAvg", "data": {"name": "digits"}, "FedAvg": {"lr": 0.2}})
    assert experiment.settings.rounds == 20  # the preset holds for both names
    import tomllib

    assert resolve(tomllib.loads(dump(experiment)), complete=True) == experiment


def test_a_class_inside_a_function_has_no_place() -> None:
    class Inner(FedAvg):
        name = "inner"

    with refused(ConfigError, "plugin-not-at-top", "Inner"):
        name_of("methods", Inner)


@pytest.mark.parametrize(
    ("source", "entry", "code", "named"),
    [
        ("import no_such_library", "own_bad:Own", "plugin-not-importable", ["own_bad", "no_such_library"]),
        ("raise SystemExit(3)", "own_bad:Own", "plugin-not-importable", ["own_bad", "SystemExit"]),
        ("def broken(:", "own_bad:Own", "plugin-not-importable", ["own_bad", "SyntaxError"]),
        ("", "own_bad:Own", "plugin-lacks-member", ["own_bad", "Own"]),
        ("class Own:\n    name = 'bad'", "own_bad:Own", "plugin-lacks-member", ["own_bad:Own", "`summary`"]),
        (OWN, "own_bad:Unset", "plugin-lacks-member", ["`Config`", "MethodConfig"]),
        (OWN, "own_bad:Nameless", "name-registered-twice", ["'fedavg'", "atoll.methods.fedavg:FedAvg"]),
    ],
)
def test_a_faulty_plugin_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, entry: str, code: str, named: list[str]
) -> None:
    install(tmp_path / "site", monkeypatch, "own_bad", source, {"methods": {"bad": entry}})
    with refused(ConfigError, code, "'bad'", *named) as caught:
        find_method("bad")
    assert "\n" not in str(caught.value)
    with refused(ConfigError, code):
        atoll.search("bad", made_table(), out=tmp_path / "run", rounds=1)
    assert not (tmp_path / "run").exists()


def test_the_name_of_a_built_in_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where that name is used: other methods are not disturbed."""
    install(tmp_path / "site", monkeypatch, "own_same", OWN, {"methods": {"fedavg": "own_same:Own"}})
    with refused(ConfigError, "name-registered-twice", "'fedavg'", "own_same:Own", "package own_same", "package atoll"):
        find_method("fedavg")
    assert find_method("realtime").name == "realtime"


def test_a_space_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from torch import nn\n\ndef build(arch):\n    return nn.Linear(arch['input'][0], arch['classes'])\n"
    install(tmp_path / "site", monkeypatch, "own_space", source, {"spaces": {"line": "own_space"}})
    assert spaces.cost({"space": "line", "input": [3], "classes": 2}).params == 8


def test_a_space_is_never_found_by_its_place() -> None:
    """The name of a space arrives in messages: it must not import what a sender likes."""
    with refused(ArchitectureError, "unknown-space", "os:system"):
        spaces.skeleton({"space": "os:system", "input": [3], "classes": 2})


def test_a_data_set_of_another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "import numpy as np\n"
        "from atoll.data.source import Dataset, make_source\n"
        "def read(folder):\n"
        "    x = np.arange(60, dtype=np.float32).reshape(30, 2)\n"
        "    return make_source(x, np.arange(30) % 2, what='stripes')\n"
        "STRIPES = Dataset('table', '30', 2, 'made', read)\n"
    )
    install(tmp_path / "site", monkeypatch, "own_data", source, {"datasets": {"stripes": "own_data:STRIPES"}})
    settings = {"data": {"clients": 3}}
    for name in ("stripes", "own_data:STRIPES"):
        run = atoll.search("fedavg", name, out=tmp_path / name[:3], rounds=1, hidden=[2], workers=0, settings=settings)
        assert run.finished
    with refused(DataError, "plugin-lacks-member", "own_data", "SPOTS"):
        atoll.search("fedavg", "own_data:SPOTS", out=tmp_path / "none", rounds=1)


def test_public_names() -> None:
    assert {name for name in atoll.__all__ if getattr(atoll, name, None) is None} == set()
    import atoll.algorithms.nsga2 as pareto

    assert callable(atoll.search) and pareto.__name__ == "atoll.algorithms.nsga2"
    with pytest.raises(AttributeError):
        atoll.algorithm  # noqa: B018


PROGRAM = """
import sys
from atoll.config import resolve
from atoll.errors import ConfigError
for method in sys.argv[1:]:
    try:
        resolve({"method": method, "data": {"name": "digits"}, method: {"rouns": 3}})
    except ConfigError as problem:
        assert problem.code == "unknown-setting", problem
    assert "torch" not in sys.modules, method
"""


def test_a_wrong_setting_is_reported_before_torch_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *names("methods")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
