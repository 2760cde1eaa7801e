"""The example package runs on every engine like a built-in, and keeps the contract of methods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atoll
from atoll.errors import Paused, SiteError
from atoll.registry import names
from atoll.run import launch
from atoll.run.reader import Run
from atoll.testing import MethodContract, made_table
from deploy.flower.three_sites import ThreeSites
from outcomes import outcome

SHORT: dict[str, dict[str, Any]] = {
    "fedprox": {"rounds": 2, "hidden": [8], "mu": 0.5},
    "random_search": {"rounds": 3, "rounds_each": 1},
}
MODULES = {"fedprox": "own_method.fedprox", "random_search": "own_method.random_search"}


class TestFedProx(MethodContract):
    method = "fedprox"


class TestRandomSearch(MethodContract):
    method = "random_search"


def searched(method: str, out: Path, **options: Any) -> Run:
    return atoll.search(method, made_table(), out=out, **SHORT[method], **options)


@pytest.mark.parametrize("method", SHORT)
def test_local_workers_and_the_virtual_network_give_the_same(tmp_path: Path, method: str) -> None:
    assert method in names("methods")
    here = searched(method, tmp_path / "here", workers=0)
    workers = searched(method, tmp_path / "workers", workers=2)
    virtual = searched(method, tmp_path / "virtual", workers=0, settings={"network": {"bandwidth": 1e6}})
    assert outcome(here) == outcome(workers)
    assert here.result["candidates"] == virtual.result["candidates"]


def test_the_proximal_term_keeps_clients_near_the_start(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rounds": 1, "hidden": [8], "epochs": 3, "batch": 10, "lr": 0.1, "momentum": 0.0}

    def biases(method: str, **more: float) -> np.ndarray:
        run = atoll.search(method, made_table(), out=tmp_path / f"{method}{more}", workers=0, **settings, **more)
        return np.concatenate(
            [value for name, value in sorted(run.load_model().weights.items()) if name.endswith("bias")]
        )

    free, held, plain = biases("fedprox", mu=0.0), biases("fedprox", mu=5.0), biases("fedavg")
    np.testing.assert_allclose(free, plain, rtol=1e-4, atol=1e-6)  # without the term it is federated averaging
    assert np.linalg.norm(held) < 0.8 * np.linalg.norm(free)  # biases start at zero


def allow(sites: ThreeSites, module: str) -> None:
    for name in sites.names:
        file = sites.root / "apart" / name / "site.toml"
        file.write_text(file.read_text().replace("[limits]\n", f'[limits]\njobs = ["{module}"]\n'))


@pytest.mark.parametrize("method", SHORT)
def test_a_site_that_allows_its_jobs(tmp_path: Path, method: str) -> None:
    sites = ThreeSites(tmp_path / "sites")
    allow(sites, MODULES[method])
    here = launch.start(sites.experiment(method, "local", **SHORT[method]), tmp_path / "here")
    there = launch.start(sites.experiment(method, "flower", **SHORT[method]), tmp_path / "there", grid=sites.grid())
    assert outcome(there) == outcome(here)


def test_a_site_that_does_not_allow_its_jobs_says_so(tmp_path: Path) -> None:
    sites = ThreeSites(tmp_path / "sites")
    experiment = sites.experiment("fedprox", "flower", **SHORT["fedprox"])
    with pytest.raises((Paused, SiteError)) as caught:
        launch.start(experiment, tmp_path / "there", grid=sites.grid())
    assert "own_method.fedprox:train" in str(caught.value) and "limits.jobs" in str(caught.value)
