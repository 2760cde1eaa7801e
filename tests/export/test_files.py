"""Exported files: every format, the model card, statistics of a client, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll.data import Federated
from atoll.errors import ConfigError, DataError, ExportError
from atoll.export import files
from atoll.preparation.answers import ExportedNetwork
from atoll.preparation.tables import RowError
from atoll.rng import stream
from atoll.run.reader import Run
from export.answering import found_by
from export.made_data import mixed, numeric
from refusals import refused


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("mixed")
    data, _ = mixed(folder)
    return found_by("fedavg", data | {"units": {"age": "years"}}, folder / "run")


ROW = {"visit": "2022-02-03", "sex": "f", "age": 61, "dose": 2.5}


def test_every_format_gives_the_same_answers(run: Run, tmp_path: Path) -> None:
    for suffix in ("onnx", "pt2", "safetensors"):
        done = run.export(tmp_path / f"net.{suffix}")
        assert done.difference < 1e-5 and done.files[0] == tmp_path / f"net.{suffix}"
    expected = run.predict([ROW]).values
    found = ExportedNetwork(tmp_path / "net.onnx").predict([ROW])
    np.testing.assert_allclose(found.values, expected, atol=1e-6)
    assert (
        abs(found.values.sum() - 1) < 1e-6 and found.kind == "probabilities" and found.classes == ("none", "recovered")
    )
    assert {path.name for path in tmp_path.iterdir()} == {
        *(f"net.{kind}" for kind in ("onnx", "pt2", "safetensors", "json", "md")),
        "net_predict.py",
    }


def test_the_model_card_says_what_one_must_know(run: Run, tmp_path: Path) -> None:
    run.export(tmp_path / "net.onnx")
    card = (tmp_path / "net.md").read_text(encoding="utf-8")
    for part in ("fedavg", "| age | number | years |", "none, recovered", "sensitivity", "python net_predict.py"):
        assert part in card, part
    test = run.candidate("high")["test"]
    assert f"error {test['test_error']:.2%}" in card and str(test["test_rows"]) in card


def test_evolved_networks_are_written_as_numpy(tmp_path: Path) -> None:
    data, _ = numeric(tmp_path)
    found = found_by("nevofed", data, tmp_path / "run", rounds=2)
    done = found.export(tmp_path / "net.py", "global")
    assert done.difference < 1e-5
    names: dict[str, Any] = {}
    exec((tmp_path / "net.py").read_text(encoding="utf-8"), names)
    rows = [[60.0, 0.004, 800.0]]
    assert names["predict"](rows) == found.predict(rows, "global").labels
    assert "A score for each class" in (tmp_path / "net.md").read_text(encoding="utf-8")


def test_what_cannot_be_written_leaves_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(ConfigError, "unknown-export-format", "net.h5", ".onnx"):
        run.export(tmp_path / "net.h5")
    with refused(ConfigError, "unknown-export-format", "net.py"):
        run.export(tmp_path / "net.py")
    with refused(ConfigError, "no-such-folder", "nowhere"):
        run.export(tmp_path / "nowhere" / "net.onnx")
    monkeypatch.setattr(files, "TOLERANCE", -1.0)
    with refused(ExportError, "export-differs", "net.pt2"):
        run.export(tmp_path / "net.pt2")
    assert list(tmp_path.iterdir()) == []


def test_files_that_do_not_belong_together_are_refused(run: Run, tmp_path: Path) -> None:
    run.export(tmp_path / "net.onnx")
    about = json.loads((tmp_path / "net.json").read_text(encoding="utf-8"))
    for change, code in (
        ({"networks": {"net.onnx": "0"}}, "wrong-checksum"),
        ({"preparation": about["preparation"] | {"format": 9}}, "preparation-format"),
    ):
        (tmp_path / "net.json").write_text(json.dumps(about | change), encoding="utf-8")
        with pytest.raises(RowError) as caught:
            ExportedNetwork(tmp_path / "net.onnx")
        assert caught.value.code == code and "net.json" in str(caught.value)
    (tmp_path / "net.json").unlink()
    with pytest.raises(RowError, match=r"net\.json"):
        ExportedNetwork(tmp_path / "net.onnx")


def test_clients_that_scale_by_their_own_rows(tmp_path: Path) -> None:
    """A personal network carries its client's statistics; a global one must be given some."""
    rng = stream(5, "own scales")
    x = np.concatenate([rng.normal(0, 1, (40, 2)), rng.normal(500, 90, (40, 2))])
    y = (x > np.repeat([0, 500], 40)[:, None]).all(axis=1).astype(int)
    data = Federated.from_arrays(x, y, ["a"] * 40 + ["b"] * 40, scale="client")
    import atoll

    found = atoll.search("nevofed", data, out=tmp_path / "run", rounds=3, workers=0, population=20)
    personal = found.load_model("personal-b").preparation
    assert personal.statistics is not None and personal.statistics.mean[0] == pytest.approx(500, abs=60)
    found.predict([[700.0, 700.0]], "personal-b")
    with refused(DataError, "statistics-missing", "client"):
        found.predict([[700.0, 700.0]], "global")
    own = [{"x0": float(a), "x1": float(b)} for a, b in x[40:]]
    by_rows = found.predictor("global", statistics=own)
    (tmp_path / "b.json").write_text(json.dumps(data.preparation_of("b").plain()), encoding="utf-8")
    by_file = found.predictor("global", statistics=tmp_path / "b.json")
    means = [one.preparation.statistics.mean for one in (by_rows, by_file)]
    np.testing.assert_allclose(*means, atol=30)  # of all rows, or of the training rows only
    assert by_file(x[40:]).labels == found.predict(x[40:], "global", statistics=tmp_path / "b.json").labels
    found.export(tmp_path / "net.onnx", "global", statistics=tmp_path / "b.json")
    with refused(DataError, "statistics-differ", "run.json"):
        (tmp_path / "run.json").write_text((tmp_path / "run" / "preparation.json").read_text())
        found.predict(x, "global", statistics=tmp_path / "run.json")


def test_a_single_row_and_a_batch(run: Run) -> None:
    import torch

    module = run.model("high")
    inputs = len(run.load_model("high").preparation.inputs)
    batch = torch.zeros(3, inputs)
    assert torch.allclose(module(batch)[0], module(batch[0])) and module(batch[0]).shape == (2,)
