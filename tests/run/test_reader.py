"""A run as Python sees it: read from its directory only."""

from __future__ import annotations

import json
import shutil
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

import atoll
from atoll.core.ledger import Account
from atoll.errors import RunDamaged, RunDirectoryError
from atoll.report.terminal import LiveProgress, NoProgress, PlainProgress, amount, printable, progress, show_run
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
    assert result["schema"] == 2 and result["method"] == "fedavg" and result["status"] == "finished"
    assert (result["seed"], result["rounds"]) == (1, 2) and result["wall_seconds"] > 0
    (candidate,) = result["candidates"]
    assert candidate.keys() == {"id", "architecture", "objectives", "picks", "weights", "clients"}
    assert all(own.keys() == {"test_f1", "test_error", "test_rows"} for own in candidate["clients"].values())
    assert candidate["picks"] == ["high"] and (run.path / candidate["weights"]).is_file()
    assert candidate["objectives"].keys() == {"error", "test_error", "macs", "params", "upload_bytes"}
    ledger = result["ledger"]
    assert ledger["rounds"] == len(ledger["per_round"]) == 3  # two of training, one to measure what came out
    assert ledger["tasks"] == sum(ledger["replies"].values()) == sum(row["tasks"] for row in ledger["per_round"])


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
    result["candidates"][0]["id"] = EVIL
    result["candidates"][0]["picks"] = [EVIL]
    result["candidates"][0]["objectives"] = {EVIL: 1.0}
    (copy / "result.json").write_text(json.dumps(result))
    return load(copy)


def test_text_for_people(run: Run, copy: Path) -> None:
    assert repr(run) == f"Run('{run.path}', fedavg, 2 rounds, finished)"
    html = run._repr_html_()
    assert "<td>final</td><td>high</td>" in html and "<th>error</th>" in html
    evil = with_evil_names(copy)._repr_html_()
    assert "<script" not in evil and evil.count("&lt;script&gt;") == 3


# -- in the terminal ----------------------------------------------------------------------------------------------


def console(terminal: bool = False) -> Console:
    return Console(file=StringIO(), force_terminal=terminal, width=120, color_system=None)


def shown(screen: Console) -> str:
    assert isinstance(screen.file, StringIO)
    return screen.file.getvalue()


def test_names_cannot_command_the_terminal(copy: Path) -> None:
    screen = console()
    show_run(screen, with_evil_names(copy))
    assert "\x1b" not in shown(screen) and "[red]" in shown(screen) and "\\x1b[2J" in shown(screen)
    assert printable("a\x1b[2Jb\n\udcffä") == "a\\x1b[2Jb\\n\\udcffä"


@pytest.mark.parametrize("kind", [LiveProgress, PlainProgress])
def test_progress_tells_round_error_and_bytes(kind: type[LiveProgress] | type[PlainProgress]) -> None:
    screen = console(terminal=kind is LiveProgress)
    bar = kind(screen)
    bar.round_done(1, 3, {"error": 0.25}, Account(bytes_up=1_500_000, bytes_down=999), 1.0)
    bar.round_failed(2, f"all gone {EVIL}", 1, 3)
    bar.round_done(2, 3, {"error": 0.5}, Account(), 2.0)
    bar.round_done(3, 3, {}, Account(), 3.0)
    bar.close()
    text = shown(screen)
    assert "round 3/3" in text and "round 2 failed (1 of 3): all gone" in text and "\x1b[2J" not in text
    if kind is PlainProgress:
        lines = text.splitlines()
        assert lines[0] == "round 1/3  error 0.2500, best 0.2500, up 1.5 MB, down 999 B  1 s"
        assert lines[2].startswith("round 2/3  error 0.5000, best 0.2500")


def test_the_right_kind_of_progress() -> None:
    assert type(progress(console(), quiet=False)) is PlainProgress
    assert type(progress(console(), quiet=True)) is NoProgress
    live = progress(console(terminal=True), quiet=False)
    assert type(live) is LiveProgress
    live.close()


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_234_567, "1.2 MB"), (10**15, "1.0 PB"), (10**19, "10000.0 PB")],
)
def test_amounts(count: int, words: str) -> None:
    assert amount(count) == words
