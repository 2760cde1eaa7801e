"""A run as Python sees it: read from its directory only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import atoll
from atoll.errors import RunDamaged, RunDirectoryError
from atoll.run.reader import Run, load
from atoll.testing import made_images
from refusals import refused

EVIL = "<script>alert(1)</script>[red]\x1b[2J"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A convolutional network, so that there is batch norm to be calibrated."""
    data = made_images(clients=3, side=8, rows=20)
    return atoll.search(
        "fedavg",
        data,
        out=tmp_path_factory.mktemp("run") / "run",
        rounds=2,
        workers=0,
        model="convnet",
        widths=[4, 4, 4, 4, 4, 4],
    )


@pytest.fixture
def copy(run: Run, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run.path, tmp_path / "copy"))


def test_the_form_of_a_result(run: Run) -> None:
    result = run.result
    assert result["schema"] == 3 and result["method"] == "fedavg" and result["status"] == "finished"
    assert (result["seed"], result["rounds"], result["planned_rounds"]) == (1, 2, 2) and result["wall_seconds"] > 0
    (candidate,) = result["candidates"]
    assert candidate.keys() == {"id", "architecture", "objectives", "picks", "weights", "clients", "test"}
    measured = {"test_f1", "test_error", "test_rows", "baseline_error", "confusion"}
    assert all(own.keys() == measured for own in (candidate["test"], *candidate["clients"].values()))
    assert candidate["picks"] == ["high", "final", "best"] and (run.path / candidate["weights"]).is_file()
    assert candidate["objectives"].keys() == {"error", "test_error", "macs", "params", "upload_bytes"}
    ledger = result["ledger"]
    assert ledger["rounds"] == len(ledger["per_round"]) == 3  # two of training, one to measure what came out
    assert ledger["tasks"] == sum(ledger["replies"].values()) == sum(row["tasks"] for row in ledger["per_round"])


def test_clients_are_accounted_for_in_events_and_in_the_result(run: Run, copy: Path) -> None:
    """Two rounds, one task each; the final measurements are no part of the search."""
    assert run.clients == {name: {"asked": 2, "used": 2, "rounds": 2, "idle": 0} for name in run.clients}
    assert len(run.clients) == 3 and run.problems == [] and run.classes == ("0", "1", "2")
    (copy / "result.json").unlink()
    assert load(copy).clients == run.clients


def test_history(run: Run) -> None:
    assert [event["round"] for event in run.history] == [1, 2] and run.rounds == run.history
    assert all({"metrics", "ledger", "wall_seconds"} <= event.keys() for event in run.history)
    assert all(0 <= event["metrics"]["error"] <= 1 for event in run.history)


def test_a_model_works_on_a_single_image_and_gives_the_same_in_a_batch(run: Run) -> None:
    module = run.model("high")
    assert isinstance(module, torch.nn.Module) and not module.training
    images = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        together = module(images)
        alone = torch.cat([module(image[None]) for image in images])
    assert together.shape == (5, 3) and torch.allclose(together, alone, atol=1e-5)
    assert torch.equal(run.model("final")(images), run.model()(images))  # by id, and the default pick


def test_a_model_without_torch(run: Run) -> None:
    model = run.load_model("high")
    assert model.schema.shape == (1, 8, 8) and model.architecture["model"] == "convnet"
    assert all(np.isfinite(array).all() for array in model.weights.values()) and model.statistics


def test_an_unknown_pick_names_those_there_are(run: Run) -> None:
    with refused(RunDirectoryError, "unknown-pick", "'hihg'", "'high'", "final, high"):
        run.model("hihg")


def test_the_entry_of_a_network(run: Run) -> None:
    assert run.candidate("high") == run.candidate("final") == run.result["candidates"][0]
    with refused(RunDirectoryError, "unknown-pick", "'hihg'", "'high'"):
        run.candidate("hihg")


def test_what_is_no_run(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with refused(RunDirectoryError, "not-a-run-directory", path):
            load(path)


def test_a_run_that_is_not_finished(copy: Path) -> None:
    (copy / "result.json").unlink()
    unfinished = load(copy)
    assert not unfinished.finished and len(unfinished.rounds) == 2
    with refused(RunDirectoryError, "no-result-yet", f"atoll resume {copy}"):
        _ = unfinished.result
    with refused(RunDirectoryError, "no-model-yet", copy):
        unfinished.model()
    assert "<pre>Run(" in unfinished._repr_html_()
    (copy / "events.jsonl").unlink()  # killed in its first instant
    assert unfinished.history == [] and "0 rounds" in repr(unfinished)


def test_damage_is_said(copy: Path) -> None:
    weights = copy / load(copy).result["candidates"][0]["weights"]
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + b"x")
    with refused(RunDamaged, "wrong-checksum", weights):
        load(copy).model()
    weights.unlink()
    with refused(RunDamaged, "file-missing", weights.relative_to(copy)):
        load(copy).model()
    (copy / "result.json").write_text("{")
    with refused(RunDamaged, "file-damaged", copy, "result.json"):
        _ = load(copy).result
    (copy / "manifest.json").unlink()
    with refused(RunDamaged, "file-missing", copy, "manifest.json"):
        _ = load(copy).manifest


def with_evil_names(copy: Path) -> Run:
    result = json.loads((copy / "result.json").read_text())
    del result["digest"]
    result["candidates"][0]["id"] = EVIL
    result["candidates"][0]["picks"] = [EVIL]
    result["candidates"][0]["objectives"] = {EVIL: 1.0}
    (copy / "result.json").write_text(json.dumps(result))
    return load(copy)


def test_text_for_people(run: Run, copy: Path) -> None:
    assert repr(run) == f"Run('{run.path}', fedavg, 2 rounds, finished)"
    html = run._repr_html_()
    assert "<td>final</td><td>high, final, best</td>" in html and "<th>error</th>" in html
    evil = with_evil_names(copy)._repr_html_()
    assert "<script" not in evil and evil.count("&lt;script&gt;") == 3
