"""Titles of figures, and runs that cannot share an axis: panels of their own, never left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from atoll.report.figures.catalogue import draw_figures, named_runs
from atoll.report.figures.front import draw_front
from atoll.report.figures.policy import draw_policy
from atoll.report.figures.rounds import draw_hypervolume, draw_rounds
from atoll.report.figures.titles import about, apart, data_of, repetitions
from atoll.run.reader import Run
from page_runs import CHOICE, candidate, event, metrics_of, searched, simulated_tasks, write_run


def words(path: Path) -> list[str]:
    """The texts of a drawing, from the comments that matplotlib writes."""
    return re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8"), flags=re.DOTALL)


def panels(path: Path) -> int:
    return len(re.findall(r'<g id="axes_\d+">', path.read_text(encoding="utf-8")))


def sparse(folder: Path) -> Run:
    """A search with another cost than MACs."""
    front = [["a", 0.2, 300.0], ["b", 0.4, 3.0]]
    metrics = {"error": 0.2, "hypervolume": 0.5, "objectives": ["error", "connections"], "front": front}
    return write_run(folder, "moefl", events=[event(number, metrics) for number in (1, 2)])


def test_a_title_names_method_data_seed_and_rounds(tmp_path: Path) -> None:
    one = searched(tmp_path / "one")
    assert about([one]) == "realtime on made, seed 1, 6 rounds"
    other = write_run(tmp_path / "other", "fedavg", 3, manifest={"seed": 7, "source": "digits"})
    assert about([one, other]) == "realtime, fedavg on made, digits, 2 seeds, 3 to 6 rounds"


@pytest.mark.parametrize("method", ["realtime", "fedavg", "fedrl", "decnas", "retrain"])
def test_every_figure_has_such_a_title(tmp_path: Path, method: str) -> None:
    arch = {**CHOICE, "key": [3, 0]}
    entries = [candidate("30", arch, ["high"]), candidate("21", arch, ["knee"])] if method == "realtime" else None
    events = simulated_tasks(3) if method == "fedavg" else None
    run = write_run(tmp_path / "run", method, candidates=entries, events=events)
    for path in draw_figures([run.path], file_format="svg"):
        if path.suffix == ".svg":
            assert any(f"{method} on made, seed 1" in text for text in words(path)), path.name


def test_fronts_of_other_costs_have_panels_of_their_own(tmp_path: Path) -> None:
    runs = named_runs([searched(tmp_path / "blocks").path, sparse(tmp_path / "sparse").path])
    path = draw_front(runs, tmp_path / "front.svg")
    assert panels(path) == 2
    text = words(path)
    assert any("multiply-accumulates" in one for one in text) and any("weights of one upload" in one for one in text)
    assert "blocks" in text and "sparse" in text, "each is in the legend of its panel"
    assert panels(draw_hypervolume(runs, tmp_path / "hypervolume.svg")) == 2
    alone = draw_front(dict(list(runs.items())[:1]), tmp_path / "alone.svg")
    assert panels(alone) == 1


def test_marks_of_a_logarithmic_front_are_few_and_written_out(tmp_path: Path) -> None:
    run = sparse(tmp_path / "sparse")
    text = words(draw_front({"sparse": run}, tmp_path / "front.svg"))
    marks = [word for word in text if re.fullmatch(r"\d+", word)]
    assert {"3", "10", "30", "100", "300"} <= set(marks) and "200" not in marks
    assert not any("10^" in word for word in text)


def test_runs_on_other_data_have_panels_of_their_own(tmp_path: Path) -> None:
    runs = {
        "a": write_run(tmp_path / "a", "fedavg"),
        "b": write_run(tmp_path / "b", "fedavg", manifest={"source": "digits"}),
    }
    path = draw_rounds(runs, tmp_path / "rounds.svg")
    assert panels(path) == 2 and {"on made", "on digits"} <= set(words(path))
    assert list(apart(runs, data_of)) == ["made", "digits"]
    same = {"a": runs["a"], "c": write_run(tmp_path / "c", "fedavg")}
    assert panels(draw_rounds(same, tmp_path / "same.svg")) == 1


def test_runs_that_differ_in_their_seed_only_are_one_line_with_a_band(tmp_path: Path) -> None:
    def made(name: str, seed: int, lift: float, channels: int = 4) -> Run:
        events = [event(number, metrics_of("policy", number)) for number in range(1, 5)]
        for one in events:
            one["metrics"]["moving_accuracy"] += lift
        config = '[data]\nname = "made"\n'
        settings: Any = f"channels = {channels}"
        return write_run(
            tmp_path / name, "fedrl", events=events, config=config, settings=settings, manifest={"seed": seed}
        )

    runs = {"fedrl/seed-1": made("a", 1, 0.0), "fedrl/seed-2": made("b", 2, 0.1), "wide": made("c", 1, 0.0, 8)}
    groups = repetitions(runs)
    assert {name: len(own) for name, own in groups.items()} == {"fedrl (2 seeds)": 2, "wide": 1}
    path = draw_policy(runs, tmp_path / "policy.svg")
    assert any("bands: deviation over seeds" in text for text in words(path))
    assert path.read_text().count("FillBetweenPolyCollection") >= 1
