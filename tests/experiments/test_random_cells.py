"""The comparison with random cells: what is trained beside the found network, and how its lead is counted."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import atoll
from atoll.config import read_file, resolve
from atoll.errors import ConfigError
from atoll.spaces import cost
from atoll.spaces.darts import space as darts
from atoll.testing import made_images
from scripts import script

random_cells = script("experiments/fedrl/random_cells.py")


def test_random_cells_have_about_the_same_number_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    supernet = darts.supernet((1, 8, 8), 10, 4, 3)
    found = darts.from_genotype(supernet, darts.random_genotype(rng))
    drawn = [random_cells.random_like(found, 0.1, rng) for _ in range(5)]
    size = darts.weight_count(found)
    assert all(abs(darts.weight_count(one) - size) <= 0.1 * size for one in drawn)
    assert len({json.dumps(one["genotype"]) for one in drawn}) == 5
    monkeypatch.setattr(random_cells, "TRIES", 3)
    with pytest.raises(ConfigError, match="--nearness -1: none of 3 "):
        random_cells.random_like(found, -1, rng)


def test_the_written_file_trains_all_of_them_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own: dict[str, Any] = {"warmup": 1, "retrain": 1, "channels": 4, "cells": 3, "batch": 8}
    data = made_images(clients=3, rows=20, side=8)
    atoll.search("fedrl", data, out=tmp_path / "run", rounds=3, workers=0, settings={"fedrl": own})
    given = ["random_cells", str(tmp_path / "run"), "--count", "2", "--rounds", "1", "--nearness", "0.5"]
    monkeypatch.setattr("sys.argv", [*given, "--out", str(tmp_path / "against.toml")])
    random_cells.main()
    networks = resolve(read_file(tmp_path / "against.toml")).settings.networks
    assert set(networks) == {"best", "same-1", "same-2", "any-1", "any-2", "resnet18"}
    assert cost(networks["resnet18"]).macs <= cost(networks["best"]).macs
    assert len(capsys.readouterr().out.splitlines()) == 6


def test_the_lead_is_in_standard_errors_of_the_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = {"best": 0.20, "same-1": 0.25, "same-2": 0.27, "any-1": 0.18, "any-2": 0.22, "resnet18": 0.15}

    candidates = [{"id": name, "objectives": {"test_error": one}} for name, one in errors.items()]
    monkeypatch.setattr(random_cells, "load", lambda place: SimpleNamespace(result={"candidates": candidates}))
    random_cells.result(tmp_path)
    same, other, resnet = capsys.readouterr().out.splitlines()
    # The two of the same size differ by 2 points: their standard error is 1 point, and 26 % is 6 of them above 20 %.
    assert "26.00%" in same and "of 1.00%" in same and "+6.0" in same and same.endswith("better than 2")
    assert "+0.0" in other and other.endswith("better than 1") and "15.00%" in resnet
