"""Figures of searches by a policy: the right panels, phases and words, and nothing of it where it does not belong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll.errors import ConfigError
from atoll.report.figures.catalogue import draw_figures
from atoll.report.figures.policy import draw_policy, policy_rounds
from atoll.run.reader import Run
from refusals import refused

PNG = b"\x89PNG\r\n\x1a\n"


def searched(made_run: Any, name: str, accuracies: list[float | None]) -> Run:
    """Two rounds of warm-up, then search, then one of training what was found."""
    rounds = []
    for number, accuracy in enumerate(accuracies):
        phase = "warmup" if number < 2 else "search"
        known = {} if accuracy is None else {"accuracy": accuracy, "moving_accuracy": accuracy, "error": 1 - accuracy}
        rounds.append({"phase": phase, "entropy": 2.0, "skip_share": 0.25, "skip_expected": 0.125, **known})
    made: Run = made_run(name, "fedrl", [*rounds, {"phase": "final", "error": 0.4, "test_error": 0.5}])
    return made


def words(path: Path) -> str:
    return path.read_text()


def test_a_search_by_policy_has_its_own_figures(made_run: Any, tmp_path: Path) -> None:
    run = searched(made_run, "one", [0.1, 0.2, None, 0.4])
    assert len(policy_rounds(run)) == 4
    figures = {path.stem: path for path in draw_figures([run.path], out=tmp_path / "out", file_format="svg")}
    assert set(figures) == {"policy", "training"}  # no `rounds`: its errors are of training batches
    text = words(figures["policy"])
    for label in ("training accuracy (%)", "entropy of an edge", "skip connections (%)", "Warm-up and search", "one"):
        assert f"<!-- {label}" in text, label


def test_what_only_some_rounds_hold_has_panels_of_its_own(made_run: Any, tmp_path: Path) -> None:
    """Deviations 0.1 and 0.3 of one phase have a mean of 0.2; another phase begins from scratch."""
    own = {"accuracy": 0.5, "entropy": 2.0, "skip_share": 0.0, "skip_expected": 0.1}
    rounds = [{"phase": "warmup", "accuracy_deviation": deviation, **own} for deviation in (0.1, 0.3)]
    rounds.append({"phase": "search", "accuracy_deviation": 0.5, **own})
    rounds[2] |= {"entropy_without_signal": 2.0, "entropy_without_signal_5": 1.9, "compensation": 0.05}
    run = made_run("one", "fedrl", rounds)
    assert [event["moving_deviation"] for event in policy_rounds(run)] == pytest.approx([0.1, 0.2, 0.5])
    text = words(draw_policy({"one": run}, tmp_path / "policy.svg"))
    for label in ("deviation over", "5th percentile dotted", "of a late gradient"):
        assert f"<!-- {label}" in text or f"\n{label}" in text, label


def test_several_runs_share_a_figure(made_run: Any, tmp_path: Path) -> None:
    runs = {name: searched(made_run, name, [0.1, 0.2, 0.3]) for name in ("compensate", "throw")}
    path = draw_policy(runs, tmp_path / "both.svg")
    assert all(f"<!-- {name} -->" in words(path) for name in runs)
    assert draw_policy(runs, tmp_path / "both.png").read_bytes().startswith(PNG)


def test_beside_a_training_the_search_has_no_curve_of_its_own(made_run: Any, trained: Run, tmp_path: Path) -> None:
    run = searched(made_run, "one", [0.1, 0.2, 0.3])
    figures = {
        path.stem: path for path in draw_figures([run.path, trained.path], out=tmp_path / "out", file_format="svg")
    }
    assert set(figures) == {"rounds", "policy", "training"}
    assert "final training" not in words(figures["rounds"])


def test_runs_without_a_policy_are_refused(trained: Run, tmp_path: Path) -> None:
    with refused(ConfigError, "nothing-to-draw"):
        draw_policy({"trained": trained}, tmp_path / "none.png")
