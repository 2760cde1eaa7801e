"""Curves and tables of networks trained side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll.api import search
from atoll.errors import ConfigError
from atoll.report.figures.catalogue import draw_figures
from atoll.report.figures.front import draw_front
from atoll.report.figures.retraining import curves, draw_retraining, networks_of, validation_table
from atoll.report.figures.tracks import front
from atoll.run.reader import Run
from atoll.testing import made_table
from refusals import refused

NETWORKS: dict[str, Any] = {
    "thin": {"space": "sparse", "model": "mlp", "hidden": [20, 5], "epsilon": 3, "xi": 0.25, "lr": 0.2, "graph": 7},
    "full": {"space": "fixed", "model": "mlp", "hidden": [10]},
}


@pytest.fixture(scope="module")
def retrained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("retrained") / "run"
    return search(
        "retrain", made_table(), out=folder, workers=0, rounds=3, networks=NETWORKS, test_every=3, client_accuracy=True
    )


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("searched") / "run"
    quick = {"rounds": 4, "fitness_rounds": 2, "population": 4, "epochs": 1, "batch": 8}
    return search("moefl", made_table(), out=folder, workers=0, **quick)


def test_curves_have_a_point_where_something_was_measured(retrained: Run) -> None:
    assert networks_of(retrained) == ["thin", "full"]
    assert list(curves(retrained, "accuracy")["thin"]) == [1, 2, 3]
    assert list(curves(retrained, "test_accuracy")["full"]) == [3]
    assert set(curves(retrained, "connections")["full"].values()) == {6 * 10 + 10 + 10 * 3 + 3}
    assert curves(retrained, "nonsense") == {}


def test_the_table_has_settings_and_figures(retrained: Run) -> None:
    lines = validation_table({"IID": retrained}).splitlines()
    assert lines[0] == "| | thin | full |"
    assert "| hidden layers | 20, 5 | 10 |" in lines
    assert "| xi | 0.25 | / |" in lines
    last = retrained.rounds[-1]["metrics"]["networks"]
    accuracies = " | ".join(f"{last[name]['test_accuracy']:.2%}" for name in NETWORKS)
    assert f"| test accuracy, IID, round 3 | {accuracies} |" in lines
    assert lines[-1].endswith("| 103 |")
    assert not any("filters" in line for line in lines)  # a row that says nothing of any network is left out


def test_figures_are_written_and_found_by_the_command(retrained: Run, searched: Run, tmp_path: Path) -> None:
    assert draw_retraining({"one": retrained, "two": retrained}, tmp_path / "two.png").stat().st_size > 10_000
    names = {path.name for path in draw_figures([retrained.path], out=tmp_path / "a")}
    assert names == {"retraining.png", "validation.md"}
    names = {path.name for path in draw_figures([searched.path], out=tmp_path / "b", file_format="svg")}
    assert names == {"front.svg", "rounds.svg", "hypervolume.svg", "training.svg"}


def test_uploads_that_never_change_are_told_in_the_legend(retrained: Run, tmp_path: Path) -> None:
    changing = draw_retraining({"run": retrained}, tmp_path / "changing.svg").read_text()
    assert "weights of one upload" in changing and "<!-- full -->" in changing  # the sparse one's change
    alone = search(
        "retrain", made_table(), out=tmp_path / "alone", workers=0, rounds=2, networks={"full": NETWORKS["full"]}
    )
    steady = draw_retraining({"run": alone}, tmp_path / "steady.svg").read_text()
    assert "<!-- full, 103 weights -->" in steady and "weights of one upload" not in steady


def test_the_front_of_a_sparse_search_is_error_against_connections(searched: Run, tmp_path: Path) -> None:
    points = front(searched)
    assert points and all(list(point.costs) == ["connections"] for point in points)
    assert "high" in points[0].picks
    figure = draw_front({"run": searched}, tmp_path / "front.svg").read_text()
    assert "weights of one upload" in figure
    assert all(f"<!-- {pick} -->" in figure for pick in ("High", "Knee", "High2", "Knee2"))


def test_other_runs_have_nothing_to_show_here(searched: Run, tmp_path: Path) -> None:
    assert networks_of(searched) == []
    with refused(ConfigError, "not-side-by-side"):
        draw_retraining({"run": searched}, tmp_path / "x.png")
    with refused(ConfigError, "not-side-by-side"):
        validation_table({"run": searched})
