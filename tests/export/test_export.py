"""A network found on raw data answers new raw rows, in Python and without Atoll."""

from __future__ import annotations

import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from export.answering import IMAGES_ONLY, SETTINGS, alone, found_by, same
from export.made_data import FORMS


def exported(method: str, form: str, folder: Path, python: str = sys.executable, **settings: Any) -> None:
    data, new = FORMS[form](folder)
    run = found_by(method, data, folder / "run", **settings)
    expected = run.predict(new, run.recommended)
    assert expected.values.shape == (len(expected.labels), len(expected.classes)) and len(expected.labels) > 4
    run.export(folder / "net.onnx", run.recommended)
    same(alone(folder / "net.onnx", new, python), expected)


@pytest.mark.parametrize(
    ("method", "form"),
    [("fedavg", "mixed"), ("realtime", "image folder"), ("nevofed", "numeric"), ("moefl", "npz images")],
)
def test_a_stranger_answers_raw_rows(method: str, form: str, tmp_path: Path) -> None:
    exported(method, form, tmp_path)


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An environment of its own, with numpy and onnxruntime only."""
    place = tmp_path_factory.mktemp("bare") / "env"
    venv.create(place, with_pip=True)
    wanted = [f"{name}=={version(name)}" for name in ("numpy", "onnxruntime")]
    subprocess.run([str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted], check=True)
    return str(place / "bin" / "python")


def cases() -> list[Any]:
    """Every method on every form with `make soak`; with `make deploy-test` each method on one form, in turn."""
    found = []
    for number, method in enumerate(SETTINGS):
        forms = [form for form in FORMS if method not in IMAGES_ONLY or "image" in form]
        first = forms[number % len(forms)]
        found += [pytest.param(method, form, marks=[] if form == first else pytest.mark.soak) for form in forms]
    return found


@pytest.mark.deploy
@pytest.mark.parametrize(("method", "form"), cases())
def test_every_method_on_every_form(method: str, form: str, tmp_path: Path, bare_python: str) -> None:
    settings: dict[str, Any] = {"network": "recurrent", "steps": 4} if (method, form) == ("nevofed", "series") else {}
    exported(method, form, tmp_path, bare_python, **settings)
