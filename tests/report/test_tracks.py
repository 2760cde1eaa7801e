"""What figures show is what the events say."""

from __future__ import annotations

import json
from typing import Any

from atoll.errors import RunDirectoryError
from atoll.report.figures.catalogue import draw_figures
from atoll.report.figures.tracks import front, hypervolume, tracks
from atoll.run.reader import Run, load
from refusals import refused


def test_a_search_has_a_track_for_high_and_one_for_knee(searched: Run) -> None:
    high, knee = tracks(searched)
    assert (high.pick, knee.pick) == ("high", "knee")
    assert high.validation == {1: 0.5, 2: 0.2} and knee.validation == {1: 0.5, 2: 0.25}
    assert high.test == {2: 0.22}
    assert knee.macs == {1: 4000, 2: 2000}


def test_a_training_has_one_track_with_the_macs_of_its_network(trained: Run) -> None:
    (track,) = tracks(trained)
    assert track.pick is None
    assert track.validation == {1: 0.4, 2: 0.3} and track.test == {2: 0.35}
    assert track.macs == {1: 9000, 2: 9000}


def test_the_front_is_the_last_rounds_with_its_picks(searched: Run) -> None:
    points = front(searched)
    assert [(point.name, point.error, point.costs) for point in points] == [
        ("12", 0.2, {"macs": 5000.0}),
        ("10", 0.25, {"macs": 2000.0}),
        ("00", 0.75, {"macs": 1000.0}),
    ]
    assert [point.picks for point in points] == [("high",), ("knee",), ()]
    assert all(point.test_error is None for point in points)  # not finished: not measured


def test_a_finished_front_has_test_errors(made_run: Any) -> None:
    metrics = {"front": [["1", 0.2, 10.0]], "high": {"key": "1", "error": 0.2, "macs": 10}}
    candidates = [{"id": "1", "picks": ["high"], "objectives": {"error": 0.2, "test_error": 0.3, "macs": 10}}]
    run = made_run("run", "realtime", [metrics], 'objectives = ["error", "params"]', candidates)
    (point,) = front(run)
    assert point.test_error == 0.3
    assert point.costs == {"params": 10.0}  # named by the run's own settings


def test_the_front_of_an_offline_search_is_not_that_of_its_trained_networks(offline: Run) -> None:
    points = front(offline)
    assert [(point.name, point.error) for point in points] == [("11", 0.6), ("01", 0.7)]
    # The result's test error belongs to weights that were trained later.
    assert points[0].test_error is None
    assert hypervolume(offline) == {1: 0.3, 2: 0.3}
    assert [track.validation for track in tracks(offline, "final")] == [{3: 0.3, 4: 0.1}] * 2


def test_a_training_has_no_front(trained: Run) -> None:
    assert front(trained) == [] and hypervolume(trained) == {}


def test_a_run_without_rounds_says_so(made_run: Any) -> None:
    run = made_run("empty", "fedavg", [])
    with refused(RunDirectoryError, "no-round-done", run.path):
        tracks(run)


def test_only_the_declared_kind_decides_what_metrics_mean(searched: Run) -> None:
    """A kind from outside may use the same keys for something else."""
    path = searched.path / "manifest.json"
    path.write_text(json.dumps({**searched.manifest, "metrics_kind": "own"}))
    own = load(searched.path)
    assert tracks(own) == [] and front(own) == [] and hypervolume(own) == {}
    with refused(RunDirectoryError, "run-without-figures", own.path):
        draw_figures([own.path])


def test_a_run_of_an_earlier_version_is_refused(searched: Run) -> None:
    (searched.path / "manifest.json").write_text(json.dumps({**searched.manifest, "schema": 1}))
    with refused(RunDirectoryError, "old-run-directory", searched.path):
        draw_figures([searched.path])
