"""`atoll figures`: the right figures for the runs at hand, with the right words in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from atoll import search
from atoll.cli.app import app
from atoll.errors import AtollError, ConfigError, RunDirectoryError
from atoll.report.figures.catalogue import draw_figures, registered_figures
from atoll.run.reader import Run
from refusals import refused

PNG = b"\x89PNG\r\n\x1a\n"


def words(path: Path) -> set[str]:
    """The texts in an SVG figure, which matplotlib writes as comments beside their outlines."""
    return {line.strip()[5:-4].strip() for line in path.read_text().splitlines() if line.strip().startswith("<!-- ")}


def drawn(paths: list[Path]) -> dict[str, Path]:
    return {path.stem: path for path in paths}


def test_an_unfinished_search_is_drawn_into_its_own_folder(searched: Run) -> None:
    written = draw_figures([searched.path])
    assert sorted(path.name for path in written) == ["front.png", "hypervolume.png", "rounds.png"]
    assert all(path.parent == searched.path / "figures" and path.read_bytes().startswith(PNG) for path in written)


def test_figures_name_the_picks_and_what_they_are_compared_with(searched: Run, trained: Run, tmp_path: Path) -> None:
    figures = drawn(draw_figures([searched.path], [trained.path], tmp_path / "out", "svg"))
    assert {"High", "Knee", "trained (resnet18)"} <= words(figures["front"]) & words(figures["rounds"])
    assert "multiply-accumulates of one forward pass (thousands)" in words(figures["front"])
    assert "MACs of one forward pass" in words(figures["rounds"])


def test_a_training_alone_has_its_curve_only(trained: Run) -> None:
    assert [path.name for path in draw_figures([trained.path])] == ["rounds.png"]


def test_an_offline_search_shows_its_training_from_scratch(offline: Run, searched: Run, tmp_path: Path) -> None:
    figures = drawn(draw_figures([searched.path, offline.path], out=tmp_path / "out", file_format="svg"))
    assert {"front", "rounds", "hypervolume", "training"} == set(figures)
    assert {"High, 3 k MACs", "Knee, 3 k MACs", "round of the final training"} <= words(figures["training"])
    assert {"searched, High", "offline, Knee, validation rows", "offline: final training"} <= words(figures["rounds"])


def test_three_objectives_are_two_panels(made_run: Any) -> None:
    metrics = {"front": [["1", 0.2, 10.0, 3.5], ["2", 0.4, 5.0, 1.5]]}
    run = made_run("three", "realtime", [metrics], 'objectives = ["error", "params", "latency"]')
    (figure,) = draw_figures([run.path], file_format="svg")
    assert {"parameters", "seconds of one round on a client"} <= words(figure)


def test_runs_of_the_same_name_are_told_apart(made_run: Any, tmp_path: Path) -> None:
    runs = [made_run(f"{place}/run", "fedavg", [{"error": 0.5}]) for place in ("a", "b")]
    (figure,) = draw_figures([run.path for run in runs], out=tmp_path / "out", file_format="svg")
    assert {"a/run", "b/run"} <= words(figure)


@pytest.mark.parametrize("name", ["$x_1$ & <b>", "ünïcödé", "a" * 200, "%d \\frac"])
def test_any_folder_name_can_be_drawn(made_run: Any, name: str) -> None:
    run = made_run(name, "fedavg", [{"error": 0.5}])
    assert draw_figures([run.path])[0].read_bytes().startswith(PNG)


def test_a_real_search_has_its_networks_drawn(tmp_path: Path) -> None:
    run = search(
        "realtime",
        {"name": "digits", "clients": 2, "rows": 120},
        out=tmp_path / "real",
        rounds=1,
        workers=0,
        channels=[4, 8],
        epochs=1,
    )
    figures = drawn(draw_figures([run.path], file_format="svg"))
    assert set(figures) == {"front", "rounds", "hypervolume", "networks"}
    key = next(candidate["id"] for candidate in run.result["candidates"] if "high" in candidate["picks"])
    assert any(key in word and "test error" in word for word in words(figures["networks"]))


def test_the_command_prints_what_was_written(searched: Run, trained: Run, tmp_path: Path) -> None:
    options = ["--beside", str(trained.path), "--out", str(tmp_path / "out"), "--format", "svg"]
    ended = CliRunner().invoke(app, ["figures", str(searched.path), *options])
    assert ended.exit_code == 0, ended
    names = [Path(line.removeprefix("drawn in ")).name for line in ended.stdout.splitlines()]
    assert sorted(names) == ["front.svg", "hypervolume.svg", "rounds.svg"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(names)


def test_the_command_lists_the_registered_figures() -> None:
    ended = CliRunner().invoke(app, ["figures", "--list"])
    assert ended.exit_code == 0, ended
    assert all(figure.name in ended.stdout for figure in registered_figures())


def test_mistakes_are_said_before_anything_is_written(searched: Run, made_run: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    empty = made_run("empty", "fedavg", [])
    useless = made_run("useless", "fedavg", [{"clients": 3}])
    cases: list[tuple[list[Path], dict[str, Any], type[AtollError], str, object]] = [
        ([searched.path, empty.path], {}, RunDirectoryError, "no-round-done", empty.path),
        ([searched.path], {"file_format": "pdf"}, ConfigError, "unknown-figure-format", "'pdf'"),
        ([useless.path], {}, RunDirectoryError, "run-without-figures", useless.path),
    ]
    for directories, options, kind, code, named in cases:
        with refused(kind, code, named):
            draw_figures(directories, out=out, **options)
        assert not out.exists()
    with pytest.raises(RunDirectoryError, match="nowhere"):
        draw_figures([tmp_path / "nowhere"], out=out)
    with pytest.raises(RunDirectoryError, match=str(tmp_path)):
        draw_figures([searched.path], out=out, beside=[tmp_path])
    assert not out.exists()


def test_a_file_in_the_way_is_said(searched: Run, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with refused(ConfigError, "cannot-write-file", blocked):
        draw_figures([searched.path], out=blocked)
