"""Experiment files: strict, complete, and the same after a detour over the disk."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import atoll
from atoll.config import PRESETS, dump, merge, override, read_file, resolve, resolve_data, to_toml
from atoll.errors import ConfigError, UserError
from atoll.methods import find_method
from atoll.registry import names
from atoll.run.assemble import assemble, assemble_data
from atoll.testing import made_table
from refusals import refused

DIGITS = {"method": "fedavg", "data": {"name": "digits"}}


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "code", "named"),
    [
        ({"fedavg": {"leraning_rate": 1}}, "unknown-setting", ["fedavg.leraning_rate", "lr"]),
        ({"fedavg": {"epoch": 1}}, "unknown-setting", ["fedavg.epoch", "'epochs'"]),
        ({"data": {"name": "digits", "client": 3}}, "unknown-setting", ["data.client", "'clients'"]),
        ({"engine": {"worker": 3}}, "unknown-setting", ["engine.worker", "'workers'"]),
        ({"sed": 1}, "unknown-setting", ["sed", "'seed'"]),
        ({"realtime": {"rounds": 1}}, "unknown-setting", ["realtime"]),
        ({"method": 5}, "method-not-named", ["method = 5", "fedavg"]),
        ({"preset": "smal"}, "unknown-preset", ["preset = 'smal'", "'small'"]),
        ({"preset": ["small"]}, "unknown-preset", ["preset = ['small']"]),
        ({"fedavg": {"rounds": "20"}}, "invalid-setting", ["fedavg.rounds = '20'"]),
        ({"fedavg": {"rounds": True}}, "invalid-setting", ["fedavg.rounds = True"]),
        ({"fedavg": {"rounds": 2.0}}, "invalid-setting", ["fedavg.rounds = 2.0"]),
        ({"fedavg": {"rounds": 0}}, "invalid-setting", ["fedavg.rounds = 0", "1"]),
        ({"fedavg": {"fraction": 1.5}}, "invalid-setting", ["fedavg.fraction = 1.5"]),
        ({"fedavg": {"fraction": 0}}, "invalid-setting", ["fedavg.fraction = 0"]),
        ({"fedavg": {"lr": "fast"}}, "invalid-setting", ["fedavg.lr = 'fast'"]),
        ({"fedavg": {"lr": float("inf")}}, "invalid-setting", ["fedavg.lr = inf"]),
        ({"fedavg": {"lr": float("nan")}}, "invalid-setting", ["fedavg.lr = nan"]),
        ({"fedavg": {"hidden": [8, "a"]}}, "invalid-setting", ["fedavg.hidden.1 = 'a'"]),
        ({"fedavg": {"average": "equal"}}, "unknown-setting", ["fedavg.average"]),
        ({"robust": {"client_weights": "all"}}, "invalid-setting", ["robust.client_weights = 'all'", "'capped'"]),
        ({"fedavg": 5}, "not-a-table", ["fedavg = 5", "[fedavg]"]),
        ({"data": 5}, "not-a-table", ["data = 5", "[data]"]),
        ({"data": {"name": "digits", "clients": "ten"}}, "invalid-setting", ["data.clients = 'ten'"]),
        ({"seed": -1}, "invalid-setting", ["seed = -1"]),
        ({"seed": "a"}, "invalid-setting", ["seed = 'a'"]),
        ({"seed": True}, "invalid-setting", ["seed = True"]),
        ({"patience": 0}, "invalid-setting", ["patience = 0"]),
        ({"engine": {"workers": -1}}, "invalid-setting", ["engine.workers = -1"]),
        ({"engine": {"name": "cloud"}}, "unknown-engine", ["engine.name = 'cloud'", "local"]),
        ({"engine": {"device": "potato"}}, "invalid-setting", ["engine.device = 'potato'", "cpu"]),
        ({"engine": {"deadline": 0}}, "invalid-setting", ["engine.deadline = 0"]),
    ],
)
def test_a_fault_is_one_line_with_the_place_and_the_value(raw: dict[str, Any], code: str, named: list[str]) -> None:
    with refused(ConfigError, code, *named) as caught:
        resolve({**DIGITS, **raw})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        ({"method": "fedavgg"}, ["'fedavgg'", "'fedavg'"]),
        ({"data": {}}, ["data.name", "data.folder"]),
        ({"data": {"name": "digits", "folder": "x"}}, ["data.name", "data.folder"]),
        ({"data": {"name": "digits", "clients": 0}}, ["data.clients = 0", "1"]),
    ],
)
def test_faults_found_by_the_methods_and_the_data(raw: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({**DIGITS, **raw})
    assert all(value in str(caught.value) for value in named) and "\n" not in str(caught.value)


def test_missing_data_is_said() -> None:
    with refused(ConfigError, "missing-setting", "data"):
        resolve({"method": "fedavg"})


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"method = ", "not-toml"),
        (b"\xff\xfe", "experiment-unreadable"),
        (b"a = " + b"[" * 5000, "not-toml"),
        (b"a = " + b"1" * 5000, "not-toml"),
        (b"a = 1\na = 2", "not-toml"),
    ],
)
def test_a_file_that_is_no_toml(tmp_path: Path, content: bytes, code: str) -> None:
    path = tmp_path / "experiment.toml"
    path.write_bytes(content)
    with refused(ConfigError, code, path):
        read_file(path)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with refused(ConfigError, "no-such-experiment", tmp_path / "none.toml"):
        read_file(tmp_path / "none.toml")
    with refused(ConfigError, "experiment-is-folder", tmp_path):
        read_file(tmp_path)


# -- presets ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", names("methods"))
@pytest.mark.parametrize("preset", PRESETS)
def test_every_method_has_every_preset(method: str, preset: str) -> None:
    experiment = resolve({"method": method, "preset": preset, "data": {"name": "digits"}})
    assert experiment.preset == preset and experiment.settings.rounds >= 1
    assert isinstance(experiment.settings, find_method(method).Config)
    assert resolve(tomllib.loads(dump(experiment))) == experiment


def test_what_a_user_set_wins_over_the_preset() -> None:
    settings = resolve({**DIGITS, "preset": "paper", "fedavg": {"epochs": 7}, "data": {"name": "digits", "clients": 3}})
    assert settings.settings.epochs == 7 and settings.data.clients == 3  # type: ignore[attr-defined]
    assert settings.settings.rounds == 500  # the paper's


def test_settings_are_frozen() -> None:
    experiment = resolve(DIGITS)
    for model, field in ((experiment, "seed"), (experiment.engine, "workers"), (experiment.settings, "rounds")):
        with pytest.raises(ValueError, match="frozen"):
            setattr(model, field, 3)


# -- overrides ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("0.5", 0.5),
        ("1e-3", 0.001),
        ("true", True),
        ("[1, 2]", [1, 2]),
        ("[]", []),
        ('["a", "b"]', ["a", "b"]),
        ('"3"', "3"),
        ("digits", "digits"),
        ("dirichlet:0.5", "dirichlet:0.5"),
        ("two words", "two words"),
        ("a=b", "a=b"),
        ("", ""),
        ("1\nother = 2", "1\nother = 2"),
        ("{x = 1}", {"x": 1}),
    ],
)
def test_the_forms_of_set(text: str, value: object) -> None:
    found = override({"a": {"kept": 1}}, f"a.b={text}")
    assert found == {"a": {"kept": 1, "b": value}} and type(found["a"]["b"]) is type(value)


@pytest.mark.parametrize("assignment", ["a.b", "=3", ".a=3", "a.=3", "a..b=3", ""])
def test_a_malformed_set_says_the_form(assignment: str) -> None:
    with refused(ConfigError, "bad-assignment", assignment):
        override({}, assignment)


def test_set_reaches_every_table() -> None:
    raw = DIGITS
    for assignment in ("fedavg.lr=0.5", "data.clients=4", "engine.workers=0", "seed=9", "fedavg.hidden=[4, 4]"):
        raw = override(raw, assignment)
    experiment = resolve(raw)
    assert experiment.seed == 9 and experiment.data.clients == 4 and experiment.engine.workers == 0
    assert experiment.settings.lr == 0.5 and experiment.settings.hidden == [4, 4]  # type: ignore[attr-defined]
    assert DIGITS == {"method": "fedavg", "data": {"name": "digits"}}  # nothing is changed in place


def test_merging_goes_table_by_table() -> None:
    assert merge({"a": {"x": 1, "y": 2}, "b": 1}, {"a": {"y": 3}, "c": 4}) == {"a": {"x": 1, "y": 3}, "b": 1, "c": 4}
    assert merge({"a": {"x": 1}}, {"a": 5}) == {"a": 5} and merge({"a": 5}, {"a": {"x": 1}}) == {"a": {"x": 1}}


# -- back to TOML -------------------------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
plain = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), words)
tables = st.recursive(
    st.dictionaries(words, plain | st.lists(plain, max_size=3), max_size=4),
    lambda inner: st.dictionaries(words, plain | inner | st.lists(inner, max_size=2), max_size=3),
)


@given(tables)
def test_toml_text_reads_back_equal(table: dict[str, Any]) -> None:
    found = tomllib.loads(to_toml(table))
    assert found == table and repr(found) == repr(tomllib.loads(to_toml(found)))


def test_unset_values_are_left_out() -> None:
    assert to_toml({"a": None, "b": 1, "c": {"d": None}}) == "b = 1\n\n[c]\n"
    nested = {"a": [{"b": None, "c": [{"d": None, "e": 1}]}, {"f": None}]}
    assert tomllib.loads(to_toml(nested)) == {"a": [{"c": [{"e": 1}]}, {}]}
    for value in ({1, 2}, [1, None]):  # a list has no place for what is unset
        with pytest.raises(TypeError):
            to_toml({"a": value})


shares = st.floats(1e-6, 1.0)
experiments = st.fixed_dictionaries(
    {
        "method": st.just("fedavg"),
        "seed": st.integers(0, 2**63 - 1),
        "data": st.fixed_dictionaries(
            {"name": words.filter(bool)},
            optional={
                "clients": st.integers(1, 10**6),
                "split": st.just([0.5, 0.25, 0.25]),
                "scale": st.sampled_from(["none", "client", "federated"]),
                "share_labels": st.booleans(),
                "label": words.filter(bool),
            },
        ),
        "fedavg": st.fixed_dictionaries(
            {"rounds": st.integers(1, 10**9)},
            optional={"lr": shares, "fraction": shares, "hidden": st.lists(st.integers(1, 99)), "model": words},
        ),
    },
    optional={
        "engine": st.fixed_dictionaries({}, optional={"workers": st.integers(0, 99), "deadline": shares}),
        "preset": st.sampled_from(PRESETS),
        "patience": st.integers(1, 99),
    },
)


@given(experiments)
def test_a_dumped_experiment_resolves_to_an_equal_one(raw: dict[str, Any]) -> None:
    experiment = resolve(raw)
    text = dump(experiment)
    assert resolve(tomllib.loads(text)) == experiment
    assert dump(resolve(tomllib.loads(text))) == text


# -- the words of a command line ----------------------------------------------------------------------------------


def test_options_go_where_they_belong() -> None:
    options = {"data": "digits", "data.clients": 4, "rounds": 2, "seed": None, "engine.workers": 0}
    raw = assemble("fedavg", options, ["fedavg.lr=0.5"])
    assert raw == {
        "method": "fedavg",
        "data": {"name": "digits", "clients": 4},
        "engine": {"workers": 0},
        "fedavg": {"rounds": 2, "lr": 0.5},
    }


def test_an_experiment_file_with_options_on_top(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("method = 'fedavg'\nseed = 3\n[data]\nname = 'wine'\nclients = 4\n[fedavg]\nrounds = 9\n")
    raw = assemble(str(path), {"data": "digits", "rounds": 2}, [])
    assert raw["data"] == {"name": "digits", "clients": 4} and raw["fedavg"] == {"rounds": 2} and raw["seed"] == 3
    raw = assemble(str(path), {"data": str(tmp_path)}, [])
    assert raw["data"] == {"folder": str(tmp_path), "clients": 4}
    path.write_text("method = 'fedavg'\ndata = 5\n")
    assert assemble(str(path), {"data": "digits"}, [])["data"] == {"name": "digits"}


@pytest.mark.parametrize(
    ("target", "data", "code", "named"),
    [
        ("fedavgg", "digits", "no-such-experiment", ["'fedavgg'", "'fedavg'"]),
        ("fedavg", None, "data-not-named", ["--data"]),
        ("none.toml", None, "no-such-experiment", ["none.toml"]),
    ],
)
def test_wrong_words(target: str, data: str | None, code: str, named: list[str]) -> None:
    with refused(ConfigError, code, *named):
        assemble(target, {"data": data}, [])


def test_a_data_set_that_is_unknown() -> None:
    with pytest.raises(UserError, match="'digitss'"):
        assemble("fedavg", {"data": "digitss"}, [])


def test_a_file_without_a_method(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("[data]\nname = 'digits'\n")
    with refused(ConfigError, "method-not-named", path):
        assemble(str(path), {}, [])


def test_the_data_table_alone(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_text("method = 'fedavg'\nseed = 3\nunknown = 1\n[data]\nname = 'wine'\n")
    data, seed = assemble_data(str(path), {"data.clients": 4}, ["data.partition=iid"])
    assert (data.name, data.clients, data.partition, seed) == ("wine", 4, "iid", 3)
    wrong: dict[str, dict[str, Any]] = {
        "unknown-setting": {"data": {"name": "wine", "foo": 1}},
        "invalid-setting": {"data": {"name": "wine"}, "seed": "a"},
        "not-a-table": {"data": 5},
        "missing-setting": {},
    }
    for code, raw in wrong.items():
        with refused(ConfigError, code):
            resolve_data(raw)


def test_what_a_preset_sets_can_be_unset_and_stays_so_under_any_preset() -> None:
    """The limit of the preset `small` does not come back from a run of the preset `paper`."""
    raw: dict[str, Any] = {"method": "moefl", "preset": "paper", "data": {"name": "wine"}}
    experiment = resolve(raw)
    assert experiment.settings.max_connections is None  # type: ignore[attr-defined]
    there = tomllib.loads(dump(experiment))
    assert there["moefl"]["max_connections"] == "none" and "max_error" not in there["moefl"]
    assert resolve({**there, "preset": "small"}).settings == experiment.settings
    assert resolve(there, complete=True) == experiment
    plain = resolve({"method": "moefl", "data": {"name": "wine"}, "moefl": {"max_connections": "none"}})
    assert plain.settings.max_connections is None  # type: ignore[attr-defined]


def test_none_is_a_value_where_text_is() -> None:
    experiment = resolve(
        {
            "method": "fedavg",
            "data": {"name": "wine", "scale": "none"},
            "fedavg": {"clip": "none"},
            "stop": {"macs": "none"},
        }
    )
    assert experiment.data.scale == "none" and experiment.stop.macs is None
    assert experiment.settings.clip is None  # type: ignore[attr-defined]
    folder = resolve({"method": "fedavg", "data": {"folder": "none"}})
    assert folder.data.folder == "none"
    with refused(ConfigError, "invalid-setting", "fedavg.lr = 'none'"):
        resolve({"method": "fedavg", "data": {"name": "wine"}, "fedavg": {"lr": "none"}})


@pytest.mark.parametrize(
    ("method", "settings", "named"),
    [
        ("realtime", {"rounds": 40, "finish": 0.01}, ["realtime.finish", "0.01 of 40 rounds"]),
        ("moefl", {"rounds": 20, "fitness_rounds": 4, "finish": 0.05}, ["moefl.finish", "0.05 of 20", "4 rounds"]),
        ("nevofed", {"rounds": 1, "refine": 0.4, "polish": 0.0}, ["nevofed.refine", "0.4 of 1 rounds"]),
    ],
)
def test_a_share_that_is_less_than_a_round_is_said(method: str, settings: dict[str, Any], named: list[str]) -> None:
    experiment = resolve({"method": method, "data": {"name": "wine"}, method: settings})
    (line,) = experiment.settings.without_effect()
    assert all(word in line for word in named) and "use more rounds" in line
    longer = {**settings, "rounds": 100 * settings["rounds"]}
    assert resolve({"method": method, "data": {"name": "wine"}, method: longer}).settings.without_effect() == []
    off = {**settings, "refine" if method == "nevofed" else "finish": 0.0}
    assert resolve({"method": method, "data": {"name": "wine"}, method: off}).settings.without_effect() == []


def test_what_has_no_effect_is_said_before_a_run_starts(tmp_path: Path) -> None:
    told: list[str] = []

    class Watcher:
        def noted(self, lines: list[str]) -> None:
            told.extend(lines)

        def round_done(self, number: int, *_: Any) -> None:
            assert told

        def round_failed(self, *_: Any) -> None: ...

    settings: dict[str, Any] = {"rounds": 2, "finish": 0.1, "population": 2, "widths": [4], "batch": 8}
    run = atoll.search(
        "realtime", made_table(clients=3), out=tmp_path / "run", workers=0, watcher=Watcher(), **settings
    )
    assert run.manifest["notes"] == told and told[0].startswith("realtime.finish: 0.1 of 2 rounds")
