"""A missing optional package is one line with the name of its extra, wherever it is needed first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.errors import ConfigError
from atoll.extras import EXTRAS, missing_extra, require
from refusals import refused

# One interpreter for all commands: it starts without the packages, as on a machine that never had them.
PROGRAM = """
import json, sys

for name in json.loads(sys.argv[1]):
    sys.modules[name] = None
from atoll.cli.app import main

for command in json.loads(sys.argv[2]):
    sys.argv = ["atoll", *command]
    try:
        main()
    except SystemExit as ending:
        print(ending.code, flush=True)
"""


def without(packages: list[str], commands: list[list[str]], cwd: Path) -> list[tuple[str, str]]:
    """Of each command its exit code and its line on the error stream."""
    words = [sys.executable, "-c", PROGRAM, json.dumps(packages), json.dumps(commands)]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    return list(zip(done.stdout.splitlines(), done.stderr.splitlines(), strict=True))


def test_commands_name_the_extra_and_leave_nothing(tmp_path: Path) -> None:
    site = ["site", "join", "bundle", "--data", "rows", "--yes"]
    needed = {
        "flower": [
            ["federation", "init", "new", "--sites", "north,south", "--host", "localhost"],
            ["federation", "status", "federation"],
            site,
            ["doctor", "--federation", "federation"],
            ["run", "fedavg", "--federation", "federation", "--out", "run"],
        ],
        "ray": [["run", "fedavg", "--data", "digits", "--engine", "ray", "--out", "run"]],
        "export": [["predict", "network.onnx", "rows.csv"]],
        "dashboard": [
            ["dashboard", "runs"],
            ["run", "fedavg", "--data", "wine", "--out", "run", "--dashboard"],
        ],
        "tensorboard": [["run", "fedavg", "--data", "wine", "--out", "run", "--track", "tensorboard", "--quiet"]],
        "mlflow": [["run", "fedavg", "--data", "wine", "--out", "run", "--track", "mlflow", "--quiet"]],
        "privacy": [["run", "fedavg", "--data", "wine", "--out", "run", "--set", "privacy.epsilon=8.0", "--quiet"]],
    }
    commands = [command for group in needed.values() for command in group]
    extras = [extra for extra, group in needed.items() for _ in group]
    hidden = ["cryptography", "flwr", "ray", "onnxruntime", "starlette", "uvicorn", "tensorboard", "mlflow"]
    hidden += ["dp_accounting"]
    for extra, (code, line) in zip(extras, without(hidden, commands, tmp_path), strict=True):
        assert code == "2" and line.startswith("atoll: "), line
        assert f"pip install 'atoll[{extra}]'" in line and line.endswith("[extra-missing]"), line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_required_extra(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require(extra)
    package = EXTRAS[extra][-1]
    monkeypatch.setitem(sys.modules, package, None)
    with refused(ConfigError, "extra-missing", package, f"'atoll[{extra}]'"):
        require(extra)


def test_another_failed_import_is_none_of_them() -> None:
    assert missing_extra(ImportError("no numpy", name="numpy")) is None and missing_extra(ImportError("?")) is None
    found = missing_extra(ImportError("no Flower", name="flwr.supercore"))
    assert found is not None and "'atoll[flower]'" in str(found)


def test_the_extras_are_those_of_the_package() -> None:
    import tomllib

    file = Path(__file__).resolve().parents[1] / "pyproject.toml"
    declared = tomllib.loads(file.read_text())["project"]["optional-dependencies"]
    names = {
        extra: {text.partition(">")[0].replace("-", "_") for text in packages} for extra, packages in declared.items()
    }
    assert {extra: set(packages) for extra, packages in EXTRAS.items()} == {
        extra: packages
        for extra, packages in names.items()
        if extra not in ("dev", "docs")  # no command needs them
    }
