"""Comparing runs: numbers that can be checked by hand, and the commands from end to end."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from atoll.cli.app import app
from atoll.errors import ConfigError, RunDirectoryError
from atoll.report.comparison.boxes import draw_boxes
from atoll.report.comparison.csv_file import comparison_csv
from atoll.report.comparison.output import plain_comparison
from atoll.report.comparison.rows import compare_runs
from atoll.report.comparison.tables import markdown, sections, spread
from atoll.report.comparison.volumes import common_volumes, own_volumes
from atoll.report.figures.canvas import short
from atoll.run.sweep import seeds_from
from refusals import refused

Candidate = dict[str, Any]


def candidate(name: str, error: float, f1: dict[str, float], picks: list[str], **more: Any) -> Candidate:
    measured = {key: {"test_f1": value, "test_error": 1 - value, "test_rows": 10} for key, value in f1.items()}
    own = {"id": name, "picks": picks, "architecture": {"name": name}, "objectives": {"params": 10, "macs": 2000}}
    return own | {"test": {"test_error": error, "test_rows": 100}, "clients": measured} | more


def write_run(
    folder: Path, method: str, seed: int, *candidates: Candidate, source: str = "made", hypervolume: float | None = None
) -> None:
    """A finished run as far as a comparison looks at it."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("")
    manifest = {"method": method, "seed": seed, "recommended": "high", "source": source, "centralised": False}
    (folder / "manifest.json").write_text(json.dumps(manifest | {"data": {"clients": 2, "rows": 100}}))
    (folder / "preparation.json").write_text(json.dumps({"classes": ["yes", "no"]}))
    ledger = {"bytes_up": 1000, "bytes_down": 3000, "client_macs": 5_000_000}
    result = {"candidates": list(candidates), "ledger": ledger, "rounds": 10, "hypervolume": hypervolume}
    (folder / "result.json").write_text(json.dumps(result))


def write_clients(folder: Path, accounts: dict[str, Any]) -> None:
    path = folder / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"clients": accounts}))


def two_sweeps(folder: Path, seeds: tuple[int, ...] = (1, 2, 10)) -> list[Path]:
    """A search with two picks, and a rival whose error is two points higher at every seed."""
    for place, seed in enumerate(seeds):
        error = 0.10 + 0.01 * place
        f1 = {"a": 0.7 + 0.1 * place, "b": 0.5}
        high = candidate("best", error, f1, ["high", "final"])
        small = candidate("small", error + 0.05, {"a": 0.4, "b": 0.4}, ["knee"])
        write_run(folder / "found" / f"seed-{seed}", "realtime", seed, high, small)
        rival = candidate("rival", error + 0.02, {"a": 0.6, "b": 0.6}, ["high"])
        write_run(folder / "rivals" / "standard" / f"seed-{seed}", "retrain", seed, rival)
        write_run(folder / "rivals" / "tuning" / "standard" / "lr-1" / "seed-1" / str(seed), "retrain", seed, rival)
    return [folder / "found", folder / "rivals"]


def test_means_and_deviations() -> None:
    assert spread([0.5, 0.7]) == "0.6000 ± 0.1414"
    assert spread([0.5]) == "0.5000" and spread([]) == ""


def test_a_row_for_each_pick_and_each_rival(tmp_path: Path) -> None:
    found = compare_runs(two_sweeps(tmp_path))
    assert [row.name for row in found.rows] == ["found high", "found knee", "standard"], "trials of rates are no rivals"
    text = markdown(found)
    assert "| found high | 3 | 11.00 ± 1.00 % | 0.6500 ± 0.0500 | 2 k | 10 |" in text
    assert "| standard | 10 | 5 M | 1.0 kB | 3.0 kB |" in text
    assert "| found knee | 3 | +5.00 | +5.00 to +5.00 |  | too few seeds (8 needed) |" in text
    assert "| a | 0.8000 ± 0.1000 | 0.4000 ± 0.0000 | 0.6000 ± 0.0000 |" in text
    assert "| clients won | 1 | 0 | 1 |" in text


def test_of_several_names_of_a_network_knee_is_the_one_that_is_shown(tmp_path: Path) -> None:
    """As moefl names two networks after its closing phase."""
    high = candidate("best", 0.1, {}, ["high", "high1"])
    small = candidate("small", 0.2, {}, ["high2", "knee", "knee1", "knee2"])
    write_run(tmp_path / "found" / "seed-1", "moefl", 1, high, small)
    assert [row.name for row in compare_runs([tmp_path / "found"]).rows] == ["found high", "found knee"]


def test_what_sparse_networks_execute_stands_beside_their_connections(tmp_path: Path) -> None:
    sparse, dense = (candidate(name, 0.1, {}, ["high"]) for name in ("sparse", "dense"))
    macs = dense["objectives"]["macs"]
    sparse["objectives"]["executed_macs"] = 8 * macs
    write_run(tmp_path / "sparse", "moefl", 1, sparse)
    write_run(tmp_path / "dense", "fedavg", 1, dense)
    networks = sections(compare_runs([tmp_path / "sparse", tmp_path / "dense"]))[0]
    place = networks.columns.index("executed")
    assert [row[place] for row in networks.rows] == [short(8 * macs), short(macs)]
    assert "executed" not in sections(compare_runs([tmp_path / "dense"]))[0].columns


def test_differences_are_tested_seed_by_seed_from_eight_seeds_on(tmp_path: Path) -> None:
    found = compare_runs(two_sweeps(tmp_path, tuple(range(1, 9))))
    knee, standard = found.differences
    assert standard.interval.mean == pytest.approx(0.02) and standard.interval.low == pytest.approx(0.02)
    assert (knee.p, standard.p) == (pytest.approx(4 / 256), pytest.approx(4 / 256)), "2 / 256, corrected for two rows"
    assert "| standard | 8 | +2.00 | +2.00 to +2.00 | 0.0156 | higher |" in markdown(found)
    # The same p-values for programs and on the page, which shows only one network of each group.
    assert [one["p"] for one in plain_comparison(found)["differences"]] == [knee.p, standard.p]
    page = replace(found, rows=[found.rows[0], found.rows[2]], every=found.rows)
    assert [(one.row.name, one.p) for one in page.differences] == [("standard", standard.p)] and page.tests == 2
    by_f1 = compare_runs([tmp_path / "found", tmp_path / "rivals"], "f1")
    assert "weighted F1" in markdown(by_f1) and by_f1.differences[0].interval.mean == pytest.approx(-0.375)


def test_hypervolumes_are_compared_seed_by_seed(tmp_path: Path) -> None:
    """By their own only searches of one method; on the common scale all."""
    for seed in (1, 2, 3):
        one = candidate("x", 0.1 * seed, {}, ["high"])
        write_run(tmp_path / "bred" / f"seed-{seed}", "moefl", seed, one, hypervolume=0.5 + 0.1 * seed)
        write_run(tmp_path / "drawn" / f"seed-{seed}", "moefl", seed, one, hypervolume=0.4 + 0.1 * seed)
        write_run(tmp_path / "other" / f"seed-{seed}", "realtime", seed, one, hypervolume=0.9)
        write_run(tmp_path / "plain" / f"seed-{seed}", "fedavg", seed, one)
    found = compare_runs([tmp_path / name for name in ("bred", "drawn", "other", "plain")])
    bred, drawn, other = own_volumes(found)
    assert bred.by_seed == pytest.approx({1: 0.6, 2: 0.7, 3: 0.8}) and bred.against == ""
    assert (drawn.against, drawn.seeds) == ("bred", [1, 2, 3])
    assert tuple(drawn.difference) == pytest.approx((-0.1, -0.1, -0.1)) and math.isnan(drawn.p)
    assert other.against == "" and [one.group for one in common_volumes(found)] == ["bred", "drawn", "other", "plain"]
    text = markdown(found)
    assert "| bred | 3 | 0.7000 ± 0.1000 | 1: 0.6000; 2: 0.7000; 3: 0.8000 |" in text
    assert "| drawn | 3 | 0.6000 ± 0.1000 | 1: 0.5000; 2: 0.6000; 3: 0.7000 | -0.1000 | -0.1000 to -0.1000 |" in text
    plain = json.loads(json.dumps(plain_comparison(found), allow_nan=False))
    assert plain["hypervolume"][1]["by_seed"] == pytest.approx({"1": 0.5, "2": 0.6, "3": 0.7})
    assert plain["hypervolume"][1]["mean"] == pytest.approx(-0.1) and plain["common_hypervolume"][0]["group"] == "bred"
    (first, *_) = plain["rows"]
    assert (first["client_macs"], first["bytes_up"], first["bytes_down"]) == ([5_000_000] * 3, [1000] * 3, [3000] * 3)
    assert first["executed_macs"] is None and plain["differences"][0]["verdict"].startswith("too few seeds")
    head, line, *_ = csv.reader(comparison_csv(found).splitlines())
    row = dict(zip(head, line, strict=True))
    assert float(row["hypervolume"]) == pytest.approx(0.6) and 0 < float(row["common_hypervolume"]) <= 1


def test_what_the_choice_of_learning_rates_cost_is_listed(tmp_path: Path) -> None:
    """Of two rates the one of lower validation error was chosen."""
    folders = two_sweeps(tmp_path)
    for rate, error in ((0.03, 0.3), (0.1, 0.2)):
        entry = candidate("x", 0.5, {}, ["high"])
        entry["objectives"]["error"] = error
        place = tmp_path / "rivals" / "tuning" / "standard" / f"lr-{rate:g}" / "seed-1"
        write_run(place, "retrain", 1, entry)
        manifest = json.loads((place / "manifest.json").read_text())
        (place / "manifest.json").write_text(json.dumps(manifest | {"clients": {"a": {"validation": 5}}}))
    found = compare_runs(folders)
    assert [tuple(one) for one in found.tuning] == [("standard", [0.1, 0.03], 10_000_000, 2000)]
    assert "| standard | 0.1 | 0.03, 0.1 | 10 M | 2.0 kB |" in markdown(found)
    assert plain_comparison(found)["tuning"][0]["macs"] == 10_000_000


def test_the_best_round_and_the_last_one_are_rows(tmp_path: Path) -> None:
    """The best round by validation error is the last one in seed 2."""
    for method, kind, last, best in (("fedavg", "model", "final", "best"), ("retrain", "networks", "net", "net-best")):
        ends = [candidate(last, error, {}, [last]) for error in (0.30, 0.20)]
        ends[1]["picks"] = ["high", *ends[1]["picks"]]
        earlier = candidate(best, 0.25, {}, ["high", best])
        folder = tmp_path / ("net" if method == "retrain" else "averaged")
        write_run(folder / "seed-1", method, 1, ends[0], earlier)
        write_run(folder / "seed-2", method, 2, ends[1])
        for run in folder.glob("*"):
            manifest = json.loads((run / "manifest.json").read_text())
            (run / "manifest.json").write_text(json.dumps(manifest | {"metrics_kind": kind}))
        high, final = compare_runs([folder]).rows
        assert (high.name, high.values("error")) == (f"{folder.name} high", [0.25, 0.20])
        assert (final.name, final.values("error")) == (f"{folder.name}, last round", [0.30, 0.20])


def test_personal_networks_are_one_row(tmp_path: Path) -> None:
    own = [
        candidate(f"personal-{name}", 0.5, {name: value}, [f"personal-{name}"], owner=name)
        for name, value in (("a", 0.9), ("b", 0.7))
    ]
    untrained = candidate("shared", 0.5, {"a": 0.5, "b": 0.5}, ["high"], about={"trained_rounds": 0})
    write_run(tmp_path / "alone", "personal", 1, untrained, *own)
    (row,) = compare_runs([tmp_path / "alone"]).rows
    assert row.name == "personal" and row.found[0].error == pytest.approx(0.2)
    assert row.found[0].f1 == pytest.approx(0.8) and row.found[0].clients == {"a": 0.9, "b": 0.7}


def test_a_client_without_a_network_of_its_own_uses_the_one_for_all(tmp_path: Path) -> None:
    measured = {"test": {"test_error": 0.55, "test_rows": 20}}
    shared = candidate("global", 0.55, {"a": 0.5, "b": 0.4}, ["high"]) | measured
    own = candidate("personal-a", 0.1, {"a": 0.9}, ["personal-a"], owner="a")
    write_run(tmp_path / "found", "nevofed", 1, shared, own)
    _, row = compare_runs([tmp_path / "found"]).rows
    assert row.name == "nevofed personal" and row.found[0].clients == {"a": 0.9, "b": 0.4}
    assert row.found[0].error == pytest.approx((0.1 + 0.6) / 2) and row.found[0].test_rows == 20


def test_single_runs_give_no_nan_and_no_markdown(tmp_path: Path) -> None:
    write_run(tmp_path / "one", "fedavg", 1, candidate("x", 0.4, {"a": 0.5, "b": 0.7}, ["high"]))
    write_run(tmp_path / "other", "nevofed", 1, candidate("y", 0.3, {"a": 0.6}, ["high"]))
    write_clients(tmp_path / "other", {"a": {"asked": 3, "used": 0, "failed": {"no reply": 3}, "idle": 0}})
    folders = [str(tmp_path / "one"), str(tmp_path / "other")]
    shown, page = (CliRunner().invoke(app, ["compare", *folders, *more]).output for more in ((), ("--markdown",)))
    assert "nan" not in shown + page and "| " not in shown and "±" not in shown + page
    assert "| fedavg | 1 | 40.00 % | 0.6000 |" in page and "40.00 %" in shown
    for text in (shown, page):
        assert "client 'a' never took part in 1 of 1 runs of 'nevofed'" in text and "too few seeds" in text


def test_runs_of_one_method_and_seed_have_the_names_of_their_folders(tmp_path: Path) -> None:
    for name in ("short", "long"):
        write_run(tmp_path / name, "fedavg", 1, candidate("x", 0.4, {}, ["high"]))
    found = compare_runs([tmp_path / "short", tmp_path / "long"])
    assert [row.name for row in found.rows] == ["short", "long"]


def test_box_plots_are_drawn(tmp_path: Path) -> None:
    draw_boxes(compare_runs(two_sweeps(tmp_path)), tmp_path / "boxes.png")
    assert (tmp_path / "boxes.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    with refused(RunDirectoryError, "no-runs-found", tmp_path):
        compare_runs([tmp_path])
    with refused(ConfigError, "invalid-setting", "speed"):
        compare_runs([tmp_path], "speed")
    entry = candidate("x", 0.4, {}, ["high"])
    write_run(tmp_path / "plain", "fedavg", 1, entry)
    write_run(tmp_path / "elsewhere", "central", 1, entry, source="other")
    with refused(RunDirectoryError, "not-comparable", "elsewhere", "'other'", "'made'"):
        compare_runs([tmp_path / "plain", tmp_path / "elsewhere"])
    with refused(RunDirectoryError, "no-test-rows", "f1"):
        compare_runs([tmp_path / "plain"], "f1")
    write_run(tmp_path / "bare", "fedavg", 1, {key: value for key, value in entry.items() if key != "test"})
    with refused(RunDirectoryError, "no-test-rows", "fedavg"):
        compare_runs([tmp_path / "bare"])
    write_run(tmp_path / "sweep" / "one", "fedavg", 1, entry)
    write_run(tmp_path / "sweep" / "two", "fedavg", 1, entry)
    with refused(RunDirectoryError, "seed-occurs-twice", "sweep"):
        compare_runs([tmp_path / "sweep"])


def test_seeds_are_a_number_a_range_or_a_list() -> None:
    assert seeds_from("3", 5) == [5, 6, 7]
    assert seeds_from("2-4", 1) == [2, 3, 4]
    assert seeds_from("1,9", 1) == [1, 9]
    for wrong in ("x", "0", "3-1", "1,1", "-2"):
        with pytest.raises(ConfigError, match="--seeds"):
            seeds_from(wrong, 1)


def test_sweep_and_compare_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "wine.toml"
    table = 'name = "wine"\nclients = 2\npartition = "iid"\n'
    file.write_text(f'method = "nevofed"\n[data]\n{table}[nevofed]\nrounds = 2\npopulation = 10\n')
    words = ["sweep", str(file), "--seeds", "2", "--workers", "0", "--quiet", "--out", str(tmp_path / "wine")]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    results = {path: path.read_bytes() for path in sorted((tmp_path / "wine").glob("*/result.json"))}
    assert len(results) == 2 and len(set(results.values())) == 2
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 0 and {path: path.read_bytes() for path in results} == results, "finished runs are kept"
    other = CliRunner().invoke(app, [*words, "--set", "nevofed.population=12"])
    assert isinstance(other.exception, RunDirectoryError) and "population = 10" in str(other.exception)
    compared = CliRunner().invoke(app, ["compare", str(tmp_path / "wine"), "--out", str(tmp_path / "boxes.svg")])
    assert compared.exit_code == 0 and "| wine |" not in compared.output and (tmp_path / "boxes.svg").exists()
    assert "client-001" in compared.output
    explained = CliRunner().invoke(app, ["explain", str(tmp_path / "wine")])
    assert explained.exit_code == 0 and "of 13 features are used" in explained.output
    lines = (tmp_path / "wine" / "explained" / "features.csv").read_text().splitlines()
    assert lines[0] == "feature,name,runs_using,runs,mean_importance,deviation" and len(lines) == 14
