"""The rounds of federated NetAdapt played through the ledger without training, and the law of its savings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll import search, spaces
from atoll.core.messages import Schema
from atoll.methods.decnas.search import Decnas
from atoll.methods.decnas.settings import DecnasConfig
from atoll.report.figures.cost import run_cost
from atoll.spaces.pruned.pruning import narrowed
from scripts import script

projection = script("benchmarks/netadapt_projection.py")
Setting, law, project, savings, total = (
    getattr(projection, name) for name in ("Setting", "law", "project", "savings", "total")
)

SCHEMA = Schema("image", (3, 32, 32), tuple("abcdefgh"))


def setting(**changes: object) -> Any:
    """Six candidates; eight clients in four groups, two rounds, at most five; a third is dropped each round."""
    options = {"model": "convnet", "rounds": 100, "groups": 4, "alpha": 1 / 3, "tune_rounds": [2, 5], **changes}
    return Setting(8, 6, 2, SCHEMA, DecnasConfig.model_validate(options).fitted(SCHEMA, 8))


def test_one_iteration_by_hand() -> None:
    """Round 1: 6 candidates x 2 clients train, 4 x 2 upload; round 2: 4 x 2 train, 1 x 2 upload."""
    (found,) = project(setting(), 1, in_models=True)
    assert (found.client_macs, found.bytes_down) == (12 + 8, 12 + 8)
    assert found.bytes_up == 8 + 2
    (naive,) = project(setting().naive, 1, in_models=True)
    assert naive.client_macs == naive.bytes_up == 6 * 8 * 5
    assert naive.tasks == 6 * 8 * 5  # nobody is dropped: changes come with the accuracy
    ((uplink, training),) = savings([found], [naive])
    assert (uplink, training) == law(6, 4, 2, 5, 1 / 3) == (24.0, 12.0)


def test_the_papers_settings_by_the_law() -> None:
    """ImageNet 231 and 131; CelebA 120 in training, and 200 or 240 in uplink: its last round keeps two, or one."""
    assert [round(value) for value in law(14, 14, 5, 20, 1 / 3)] == [231, 131]
    assert law(6, 20, 2, 10, 1 / 3) == (240, 120)
    assert law(6, 20, 2, 10, 1 / 3, last_keeps_one=False) == (200, 120)


@pytest.mark.parametrize(("alpha", "uploads"), [(1 / 3, 15), (1 / 2, 12.5), (1.0, 10)])
def test_table_3_of_the_paper(alpha: float, uploads: float) -> None:
    """Seven candidates, ten rounds: 15/70 and 10/70 of the uploads. Half of seven is 4 for us, 3.5 for Table 3."""
    saved, _ = law(7, 1, 10, 10, alpha)
    assert 70 / saved == pytest.approx(uploads, abs=0.5)


def test_more_candidates_than_groups_wait_and_cost_the_same() -> None:
    (two,) = project(setting(groups=2), 1, in_models=True)
    (eight,) = project(setting(groups=8), 1, in_models=True)
    assert (two.client_macs, two.bytes_up) == (10 * 4, 5 * 4)
    assert (eight.client_macs, eight.bytes_up) == (10 * 1, 5 * 1)


def test_groups_of_unequal_size_hold_all_clients() -> None:
    """Three groups of 3, 3 and 2 clients: all six candidates are trained by two of them each."""
    (found,) = project(setting(groups=3, alpha=1.0, tune_rounds=[1]), 1, in_models=True)
    assert found.client_macs == 2 * 8


def test_iterations_go_on_to_the_final_budget() -> None:
    accounts = project(setting(resources={"macs": 0.8}, step_decay=1.0), 100, in_models=True)
    assert len(accounts) == 4  # 5 % each
    # Iterations 6 and later have five rounds: 4 + 2 + 1 + 1 + 1 uploads of two clients.
    later = project(setting(resources={"macs": 0.65}, step_decay=1.0), 100, in_models=True)
    assert [account.bytes_up for account in later] == [10] * 5 + [18] * 2


def test_switching_off_one_optimisation() -> None:
    whole = setting()
    (dynamic,) = project(whole.without("dynamic_rounds"), 1, in_models=True)
    (dropping,) = project(whole.without("dropping"), 1, in_models=True)
    (grouping,) = project(whole.without("grouping"), 1, in_models=True)
    assert dynamic.bytes_up == 18 and dropping.bytes_up == 24 and grouping.bytes_up == 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("projected")


@pytest.mark.parametrize(("naive", "within"), [(True, 0.02), (False, 0.1)])
def test_a_real_run_costs_what_was_projected(folder: Path, naive: bool, within: float) -> None:
    """One iteration of six candidates on digits. Naive, all candidates are tuned to the end, and changes that are zero
    (they travel in fewer bytes) are the difference; else the survivors are others than projected, of other sizes."""
    off = {"grouping": False, "dropping": False, "dynamic_rounds": False} if naive else {}
    settings = {
        "model": "convnet",
        "widths": [4, 4, 8, 8, 8, 8],
        "groups": 8,
        "alpha": 1 / 3,
        "tune_rounds": [2, 3],
        "resources": {"macs": 0.95},
        "step_decay": 1.0,
        "epochs": 1,
        "snapshots": False,
        "test_every": 0,
        "start_rounds": 0,
        **off,
    }
    data = {"name": "digits", "clients": 8, "rows": 160, "split": (0.5, 0.5, 0.0)}
    run = search("decnas", data, out=folder / str(naive), rounds=3, workers=0, **settings)
    schema = Schema("image", (1, 8, 8), tuple("0123456789"))
    config = DecnasConfig.model_validate({**settings, "rounds": 3}).fitted(schema, 8)
    (expected,) = project(Setting(8, 10, 10, schema, config), 5)
    found = run_cost("run", run, search_only=True).account
    assert found.tasks == expected.tasks
    for mine, theirs in (
        (found.client_macs, expected.client_macs),
        (found.bytes_up, expected.bytes_up),
        (found.bytes_down, expected.bytes_down),
    ):
        assert mine == pytest.approx(theirs, rel=within)


def test_sizes_are_those_of_the_pruned_networks() -> None:
    """With one candidate that is never dropped, the uplink is its weights, its accuracy and a few bytes of frame."""
    whole = setting(tune_rounds=[1], alpha=1.0, groups=8, resources={"macs": 0.95})
    (found,) = project(whole, 1)
    method = Decnas(whole.config, SCHEMA)
    smallest = min(
        spaces.cost(narrowed(method.architecture, unit.name, keep)).bytes
        for unit, keep in method.prunings(method.architecture, 1)
    )
    largest = spaces.cost(method.architecture).bytes
    assert smallest < found.bytes_up < 1.02 * largest  # one client a group: one upload
    assert total([found, found]).bytes_up == 2 * found.bytes_up
