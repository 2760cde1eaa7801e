"""Networks of each client's own: the contract of all methods, and who trains what."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import atoll
from atoll.errors import ConfigError
from atoll.methods.personal import PersonalConfig
from atoll.testing import MethodContract, made_table
from refusals import refused


class TestPersonal(MethodContract):
    method = "personal"
    settings: ClassVar[dict[str, Any]] = {"rounds": 4, "shared": 2, "hidden": [4], "batch": 8}

    def test_every_client_ends_with_a_network_of_its_own(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        run = self.baseline(tmp_path_factory)
        shared, *own = run.result["candidates"]
        assert shared["picks"] == ["high", "shared"] and "owner" not in shared
        assert {one["owner"] for one in own} == set(run.result["clients"])
        assert all(list(one["clients"]) == [one["owner"]] for one in own)
        weights = [run.load_model(one["id"]).weights.whole_digest() for one in own]
        assert len(set(weights)) == len(own)


def test_alone_nothing_is_averaged(tmp_path: Path) -> None:
    """The network of one client does not depend on the rows of another."""
    data = made_table(clients=2)
    x, y = (np.concatenate([data.client(n).part("train")[part] for n in data.names]) for part in (0, 1))
    owners = np.repeat(data.names, [data.client(n).sizes["train"] for n in data.names])
    other = np.where(owners[:, None] == data.names[1], x + 1, x)
    runs = [
        atoll.search(
            "personal",
            atoll.Federated.from_arrays(rows, y, owners, split=(0.6, 0.2, 0.2)),
            out=tmp_path / name,
            rounds=2,
            workers=0,
            hidden=[4],
        )
        for name, rows in (("as it is", x), ("moved", other))
    ]
    first, second = ([run.load_model(f"personal-{n}").weights.whole_digest() for n in data.names] for run in runs)
    assert first[0] == second[0] and first[1] != second[1]


def test_rounds_to_train_alone_must_be_left() -> None:
    with refused(ConfigError, "phase-exceeds-rounds", "shared = 3", "3"):
        PersonalConfig(rounds=3, shared=3)


def test_a_round_reports_validation_rows(tmp_path: Path) -> None:
    """The mean over clients; test rows are for the report, and only in the rounds that have a test."""
    settings: dict[str, Any] = {"rounds": 4, "shared": 1, "hidden": [4], "test_every": 2, "workers": 0}
    run = atoll.search("personal", made_table(), out=tmp_path / "run", **settings)
    found = [event["metrics"] for event in run.rounds]
    assert ["test_error" in metrics for metrics in found] == [False, True, False, True]
    assert all("error" in metrics for metrics in found)
    assert any(metrics["error"] != metrics["test_error"] for metrics in found[1::2])
    sizes = run.manifest["clients"]
    macs = 6 * 4 + 4 * 3
    work = sum(macs * (3 * 2 * own["train"] + own["validation"]) for own in sizes.values())  # two epochs
    assert run.result["ledger"]["per_round"][0]["client_macs"] == work
