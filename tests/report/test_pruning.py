"""Figures of searches by pruning, from run directories written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atoll import spaces
from atoll.core.ledger import FATES
from atoll.core.messages import Schema
from atoll.methods.decnas.settings import DecnasConfig
from atoll.report.figures.catalogue import draw_figures
from atoll.report.figures.pruning import _of_equal_macs, _shown, prunes, sequences
from atoll.run.reader import Run, load
from atoll.spaces.pruned.pruning import narrowed
from made_runs import manifest

SCHEMA = Schema("image", (1, 8, 8), ("a", "b", "c"))
WHOLE = DecnasConfig(model="convnet", widths=[4, 4, 4, 4, 4, 4], rounds=1).fitted(SCHEMA, 4).start(SCHEMA)
HALF = narrowed(narrowed(WHOLE, "0.0", 2), "7.0", 1)


def words(path: Path) -> set[str]:
    return {line.strip()[5:-4].strip() for line in path.read_text().splitlines() if line.strip().startswith("<!-- ")}


def written(folder: Path, method: str, rounds: list[dict[str, Any]], own: str = "", result: Any = None) -> Run:
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f'method = "{method}"\n[{method}]\n{own}\n')
    (folder / "manifest.json").write_text(manifest(method, data={"clients": 4}))
    account = {"tasks": 1, "replies": dict.fromkeys(FATES, 0), "bytes_down": 8, "bytes_up": 4, "client_macs": 10}
    account |= {"simulated_seconds": 0.0}
    events = [{"round": n, "metrics": metrics, "ledger": account} for n, metrics in enumerate(rounds, start=1)]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    if result is not None:
        (folder / "result.json").write_text(json.dumps({"candidates": result, "ledger": account}))
    return load(folder)


def searching(iterations: int) -> list[dict[str, Any]]:
    """Two rounds an iteration; unit 7.0 is chosen after 0.0 has led."""
    found: list[dict[str, Any]] = [{"phase": "start", "iteration": 0, "round_in_iteration": 1, "error": 0.3}]
    for number in range(1, iterations + 1):
        common = {"phase": "search", "iteration": number, "error": 0.4}
        scores = {"0.0": {"accuracy": 0.6}, "7.0": {"accuracy": 0.5}}
        found.append({**common, "round_in_iteration": 1, "candidates": scores})
        end = {"network": f"m{number}", "resources": {"macs": 1000.0 - 100 * number}, "test_error": 0.2 + 0.1 * number}
        left = {"7.0": {"accuracy": 0.7}}
        chosen = {"chosen": "7.0", "layer": "conv 6"}
        found.append({**common, "round_in_iteration": 2, "candidates": left, **chosen, **end})
    return found


def candidates(*networks: tuple[str, dict[str, Any], float]) -> list[dict[str, Any]]:
    return [
        {
            "id": name,
            "picks": [],
            "architecture": arch,
            "objectives": {"error": error + 0.1, "test_error": error, "macs": spaces.cost(arch).macs},
        }
        for name, arch, error in networks
    ]


@pytest.fixture
def finished(tmp_path: Path) -> Run:
    return written(tmp_path / "found", "decnas", searching(1), result=candidates(("m0", WHOLE, 0.1), ("m1", HALF, 0.2)))


@pytest.fixture
def tuned(tmp_path: Path) -> Run:
    """A run of `retrain` with the pruned network, by two names, and a width multiplier beside it."""
    row = {"accuracy": 0.7, "test_accuracy": 0.9, "connections": 100.0}
    rounds = [{"networks": {"m1": row, "final": row, "width:=m1": {**row, "test_accuracy": 0.8}, "standard": row}}]
    networks = {"m1": HALF, "final": HALF, "width:=m1": HALF, "standard": {"space": "fixed", "model": "mlp"}}
    lines = [f"{json.dumps(name)} = {_inline(arch)}" for name, arch in networks.items()]
    return written(tmp_path / "later", "retrain", rounds, "[retrain.networks]\n" + "\n".join(lines))


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    return json.dumps(value)


def test_a_sequence_of_a_finished_run_is_its_networks_on_test_data(finished: Run) -> None:
    (found,) = sequences("found", finished)
    assert found.kind == "pruned" and prunes(finished)
    assert [(member.name, round(member.accuracy, 3), member.tested) for member in found.members] == [
        ("m0", 0.9, True),
        ("m1", 0.8, True),
    ]
    assert found.members[0].macs == spaces.cost(WHOLE).macs > found.members[1].macs


def test_a_sequence_of_a_run_that_goes_on_comes_from_its_rounds(tmp_path: Path) -> None:
    (found,) = sequences("on", written(tmp_path / "on", "decnas", searching(3)))
    assert [(member.name, member.macs) for member in found.members] == [("m1", 900), ("m2", 800), ("m3", 700)]
    assert [round(member.accuracy, 2) for member in found.members] == [0.7, 0.6, 0.5]


def test_tuned_networks_and_width_multipliers_are_two_sequences(tuned: Run) -> None:
    pruned, multipliers = sequences("tuned", tuned)
    assert [member.name for member in pruned.members] == ["m1"] and pruned.kind == "tuned"
    assert [member.name for member in multipliers.members] == ["width:=m1"]
    assert (pruned.members[0].accuracy, multipliers.members[0].accuracy) == (0.9, 0.8)
    assert not prunes(tuned)


def test_networks_are_compared_where_all_sequences_reach(finished: Run, tuned: Run) -> None:
    found = [*sequences("found", finished), *sequences("tuned", tuned)]
    chosen = _of_equal_macs(found)
    assert [member.name for _, member, _ in chosen] == ["m1", "m1", "width:=m1"]
    assert chosen[0][2] == dict.fromkeys(("0.0", "1.0", "3.0", "4.0", "6.0", "7.0"), 4)


def test_at_most_four_iterations_are_shown() -> None:
    assert _shown(dict.fromkeys(range(1, 4))) == [1, 2, 3]
    assert _shown(dict.fromkeys(range(1, 11))) == [1, 4, 7, 10]


def test_all_figures_of_a_search_and_its_tuning(finished: Run, tuned: Run, tmp_path: Path) -> None:
    figures = {
        path.stem: path for path in draw_figures([finished.path, tuned.path], out=tmp_path / "out", file_format="svg")
    }
    assert {"rounds", "retraining", "validation", "sequence", "widths", "candidates"} == set(figures)
    assert {"found", "later, tuned", "later, width multipliers", "accuracy on test data (%)"} <= words(
        figures["sequence"]
    )
    assert {"iteration 1: conv 6", "the chosen candidate"} <= words(figures["candidates"])
    assert {"conv 1", "conv 6"} <= words(figures["widths"]), "layers by their names for people"
    assert any(text.startswith("found: m1, ") for text in words(figures["widths"]))
    assert "remaining width (%)" in words(figures["widths"])


def test_several_searches_are_billed_together(finished: Run, tmp_path: Path) -> None:
    """The second one was stopped in its third iteration: iteration 1 is what both have whole."""
    other = written(tmp_path / "other", "decnas", searching(3)[:-1])
    figures = {
        path.stem: path for path in draw_figures([finished.path, other.path], out=tmp_path / "out", file_format="svg")
    }
    assert {"multiply-accumulates", "1x", "Cost to the clients, iterations 1 to 1 of the search"} <= words(
        figures["cost"]
    )


def test_a_central_search_has_no_client_cost(finished: Run, tmp_path: Path) -> None:
    central = written(tmp_path / "central", "netadapt", searching(2))
    names = {path.stem for path in draw_figures([finished.path, central.path], out=tmp_path / "out")}
    assert "cost" not in names and {"sequence", "candidates"} <= names


def test_a_search_that_has_only_begun_is_drawn_as_far_as_it_goes(tmp_path: Path) -> None:
    begun = written(tmp_path / "begun", "decnas", searching(1)[:2])
    assert {path.stem for path in draw_figures([begun.path], out=tmp_path / "out")} == {"rounds", "candidates"}
