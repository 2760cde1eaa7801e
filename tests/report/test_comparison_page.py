"""The comparison page and its numbers: fronts, hypervolumes, cost of an accuracy, worst clients, statistics."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from atoll.cli.app import app
from atoll.errors import ConfigError
from atoll.methods import find_method
from atoll.report.comparison.clients import worst_tenth
from atoll.report.comparison.fronts import (
    CommonScale,
    FoundNetwork,
    common_scale,
    front_of_fronts,
    hypervolumes,
    leading,
    networks,
)
from atoll.report.comparison.reaching import ErrorByCost, cost_to_reach, levels, mean_curve, progress, quantities
from atoll.report.comparison.rows import Comparison, compare_runs
from atoll.report.comparison.tables import SIGNIFICANT
from atoll.report.html.comparison.page import comparison_page
from atoll.report.html.comparison.words import budget_share, budget_words, enough_seeds, in_short
from atoll.report.statistics import holm, sign_flip_p
from atoll.rng import stream
from atoll.run.metrics import measured_on
from atoll.testing import made_table
from page_runs import CHOICE, FIXED, candidate, event, write_run
from refusals import refused


def network(group: str, error: float, cost: float, seed: int = 1) -> FoundNetwork:
    return FoundNetwork(group, seed, f"{group}{cost:g}", (), error, cost)


def test_the_front_of_fronts_is_what_nothing_beats() -> None:
    every = [network("a", 0.5, 10), network("a", 0.2, 100), network("b", 0.3, 50), network("b", 0.3, 60)]
    every += [network("c", 0.2, 200)]
    assert [(one.group, one.cost) for one in front_of_fronts(every)] == [("a", 10), ("b", 50), ("a", 100)]


def test_a_hypervolume_by_hand() -> None:
    scale = CommonScale(0.5, 10, 1000)
    # Costs 10, 100, 1000 are at 0, 1/2, 1; errors 0.25 and 0.5 at heights 1/2 and 1.
    assert scale.hypervolume([(0.25, 10)]) == pytest.approx(0.5)
    assert scale.hypervolume([(0.0, 100)]) == pytest.approx(0.5)
    assert scale.hypervolume([(0.25, 10), (0.0, 100)]) == pytest.approx(0.5 + 0.25)
    assert scale.hypervolume([(0.25, 10), (0.3, 100)]) == pytest.approx(0.5), "a dominated network adds nothing"
    assert scale.hypervolume([(0.5, 10), (0.1, 2000)]) == 0, "no better than a constant answer, or too expensive"


def test_the_worst_tenth() -> None:
    assert worst_tenth([0.9, 0.5, 0.8, 0.7, 0.6]) == 0.5
    assert worst_tenth([number / 20 for number in range(20)]) == pytest.approx((0 + 0.05) / 2)
    assert math.isnan(worst_tenth([0.1, 0.2]))


def test_what_an_accuracy_costs() -> None:
    fast = ErrorByCost(1, {"round": [1, 2, 3]}, [0.5, 0.8, 0.9])
    slow = ErrorByCost(2, {"round": [1, 2, 3]}, [0.5, 0.5, 0.8])
    assert fast.cost_of(0.8, "round") == 2 and slow.cost_of(0.9, "round") is None
    assert fast.at(2.5, "round") == 0.8 and fast.at(0.5, "round") is None
    reached = cost_to_reach([fast, slow], 0.8, "round")
    assert (reached.runs, reached.reached, reached.interval.mean) == (2, 2, 2.5)
    assert cost_to_reach([fast, slow], 0.9, "round").reached == 1
    curve = mean_curve([fast, slow], "round", 3)
    assert curve[0] == (1, (0.5, 0.5, 0.5)) and curve[-1][1].mean == pytest.approx(0.85)
    assert levels({"a": [fast, slow]}) == [0.7, 0.75, 0.8, 0.85, 0.9]


def write_group(
    folder: Path, method: str, errors: Mapping[int, float], stop: str = "", clients: Sequence[str] = tuple("abcdef")
) -> None:
    """Runs of one method: in round r the validation error is (error + 1/r), the test error at the end is given."""
    arch = {**CHOICE, "key": [3, 0]} if method == "realtime" else FIXED
    for seed, error in errors.items():
        entry = candidate("net", arch, ["high"], clients)
        entry["test"] = {**entry["test"], "test_error": error}
        entry["objectives"] = {**entry["objectives"], "macs": 9000 if method == "realtime" else 500}
        for place, own in enumerate(entry["clients"].values()):
            own["test_f1"] = 1 - error - 0.05 * place
        events = [event(number, {"error": min(1.0, error + 0.4 / number)}, clients) for number in range(1, 6)]
        write_run(
            folder / method / f"seed-{seed}",
            method,
            5,
            candidates=[entry],
            clients=clients,
            events=events,
            config=f'[data]\nname = "made"\npartition = "iid"\nsplit = [0.6, 0.2, 0.2]\n[stop]\n{stop}\n',
            manifest={"seed": seed},
        )


def two_methods(folder: Path, seeds: int = 8) -> Comparison:
    """The search is better by two points at every seed."""
    rng = stream(3, "made")
    errors = {seed: 0.2 + 0.01 * float(rng.standard_normal()) for seed in range(1, seeds + 1)}
    write_group(folder, "fedavg", errors, "macs = 200000")
    write_group(folder, "realtime", {seed: error - 0.02 for seed, error in errors.items()}, "macs = 200000")
    return compare_runs([folder])


def test_a_comparison_says_what_is_more_than_chance(tmp_path: Path) -> None:
    found = two_methods(tmp_path)
    words = [text.replace("\u202f", " ") for text in in_short(found, found)]
    assert words[0] == "fedavg and realtime on made: 2 groups of runs with 8 seeds each, 30 test rows."
    assert words[1].startswith("The lowest mean test error has realtime: 18")
    assert (
        words[2] == "Compared with fedavg, seed by seed, more than chance: realtime is lower by 2 points (p = 0.0078)."
    )
    assert enough_seeds(found) == ""


def test_with_few_seeds_nothing_is_claimed(tmp_path: Path) -> None:
    found = two_methods(tmp_path, seeds=3)
    assert "that takes 8 common seeds, there are 3" in in_short(found, found)[2]


def test_the_page_has_all_of_it(tmp_path: Path) -> None:
    found = two_methods(tmp_path)
    text = comparison_page(found, [tmp_path]).replace("\u202f", " ")
    for words in (
        "2 methods on made",
        "The front of fronts",
        "Hypervolume",
        "What an accuracy costs",
        "Worst tenth of the clients",
        "Difference to fedavg, seed by seed",
        "the same for all",
        "200 k MACs of all clients",
        "0.6, 0.2, 0.2",
        "How it was made",
        "125 %",
    ):
        assert words in text, words
    assert text.count("data-view=") == 4, "MACs, bytes, rounds, seconds of the machine"
    assert len(text.encode()) < 1_000_000


def test_the_page_says_which_rows_the_curves_are_about(tmp_path: Path) -> None:
    assert "It is measured on validation rows." in comparison_page(two_methods(tmp_path, seeds=2))
    for path in tmp_path.glob("realtime/*/manifest.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "measured_on": "training rows"}))
    text = comparison_page(compare_runs([tmp_path]))
    assert "Measured on validation rows: fedavg; on training rows: realtime." in text


@pytest.mark.parametrize(
    ("method", "settings", "rows"),
    [
        ("fedavg", {}, "validation rows"),
        ("nevofed", {}, "the clients' own training rows"),
        ("moefl", {"fitness_rounds": 1, "fitness": "test"}, "test rows"),
        ("retrain", {"with_validation": True}, "test rows"),
    ],
)
def test_methods_name_the_rows_of_their_errors(method: str, settings: dict[str, Any], rows: str) -> None:
    found, schema = find_method(method), made_table().schema
    words = found(found.Config(rounds=1, **settings).fitted(schema, 3), schema).measured_on
    clients = {"a": {"train": 6, "validation": 2}}
    assert words == rows == measured_on({"measured_on": words, "clients": clients})
    assert measured_on({"measured_on": "validation rows", "clients": {"a": {"train": 6, "test": 2}}}) == "test rows"


def test_settings_that_differ_are_said(tmp_path: Path) -> None:
    errors = dict.fromkeys(range(1, 4), 0.2)
    write_group(tmp_path, "fedavg", errors, "macs = 200000")
    write_group(tmp_path, "realtime", errors, "upload = 5000")
    text = comparison_page(compare_runs([tmp_path])).replace("\u202f", " ")
    assert "The runs differ in budget" in text and "5 kB sent by all clients" in text


def test_networks_of_both_kinds_are_on_one_scale(tmp_path: Path) -> None:
    found = two_methods(tmp_path, seeds=2)
    every = networks(found)
    assert {(one.group, one.cost) for one in every} == {("fedavg", 500), ("realtime", 9000)}
    scale = common_scale(found, every)
    assert scale is not None and scale.error == 0.66 and scale.cheapest == 500
    volumes = hypervolumes(every, scale)
    assert set(volumes["realtime"]) == {1, 2} and volumes["fedavg"][1] > volumes["realtime"][1]


def test_progress_is_read_from_the_event_logs(tmp_path: Path) -> None:
    groups = progress(two_methods(tmp_path, seeds=2))
    one = groups["fedavg"][0]
    assert list(one.spent["client_macs"]) == [50_000 * number for number in range(1, 6)]
    assert list(one.spent["bytes_up"])[-1] == 5000 and list(one.accuracy) == sorted(one.accuracy)
    assert quantities(groups) == ["client_macs", "bytes_up", "round", "wall_seconds"]


def test_one_row_of_each_group_is_tested(tmp_path: Path) -> None:
    found = two_methods(tmp_path, seeds=2)
    rows = [*found.rows, *(replace(row, pick="knee") for row in found.rows)]
    assert leading(rows) == found.rows


def test_budgets_in_words_and_shares() -> None:
    assert budget_words({"rounds": 3, "macs": None}) == "3 rounds" and budget_words({}) == ""
    result = {"rounds": 3, "ledger": {"client_macs": 50, "bytes_up": 10}}
    assert budget_share({"macs": 100, "upload": 5}, result) == 2.0 and math.isnan(budget_share({}, result))


def test_the_csv_file_has_a_line_for_each_network_of_each_run(tmp_path: Path) -> None:
    found = two_methods(tmp_path, seeds=2)
    done = CliRunner().invoke(app, ["compare", str(tmp_path), "-o", str(tmp_path / "t.csv")])
    assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert [(row["group"], row["seed"]) for row in rows] == [
        ("fedavg", "1"),
        ("fedavg", "2"),
        ("realtime", "1"),
        ("realtime", "2"),
    ]
    assert float(rows[0]["test_error"]) == found.rows[0].found[0].error and rows[0]["client_macs"] == "250000"


def test_the_reference_can_be_chosen_and_must_exist(tmp_path: Path) -> None:
    two_methods(tmp_path, seeds=2)
    assert compare_runs([tmp_path], against="realtime").rows[0].group == "realtime"
    with refused(ConfigError, "unknown-group", "realtim", "realtime"):
        compare_runs([tmp_path], against="realtim")


def test_the_commands(tmp_path: Path) -> None:
    two_methods(tmp_path)
    run = CliRunner().invoke
    done = run(app, ["compare", str(tmp_path), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 0 and (tmp_path / "page.html").stat().st_size > 10_000
    plain: dict[str, Any] = json.loads(run(app, ["compare", str(tmp_path), "--json"]).stdout)
    assert plain["differences"][0]["verdict"] == "lower" and plain["rows"][0]["seeds"] == list(range(1, 9))
    with refused(ConfigError, "unknown-report-format", "page.pdf"):
        run(app, ["compare", str(tmp_path), "-o", str(tmp_path / "page.pdf")], catch_exceptions=False)


# -- the statistics, on made-up comparisons ----------------------------------------------------------------------------


def differences_found(effect: float, comparisons: int = 200, seeds: int = 8) -> int:
    """In how many comparisons of two methods a difference is shown. `effect`: in deviations of the differences."""
    rng = stream(11, "made-up", int(10 * effect))
    shown = 0
    for _ in range(comparisons):
        values = rng.standard_normal(seeds) + effect
        (p,) = holm([sign_flip_p(values.tolist())])
        shown += p < SIGNIFICANT
    return shown


def test_of_200_null_comparisons_few_are_called_different() -> None:
    assert differences_found(0.0) <= 16


def test_of_200_true_differences_of_two_deviations_most_are_found() -> None:
    assert differences_found(2.0) >= 160


def test_several_rows_at_once_are_corrected() -> None:
    rng = stream(12, "made-up")
    false = sum(
        any(p < SIGNIFICANT for p in holm([sign_flip_p(rng.standard_normal(10).tolist()) for _ in range(5)]))
        for _ in range(200)
    )
    assert false <= 16 and np.isfinite(false)
