"""The example package runs on every engine like a built-in, and keeps the contract of methods."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atoll
from atoll import spaces
from atoll.clients import Client
from atoll.clients.jobs import TRAIN
from atoll.deploy.flower.engine import on_grid
from atoll.errors import Paused, SiteError
from atoll.federation.executor import find_job
from atoll.registry import names
from atoll.rng import stream
from atoll.run import launch
from atoll.run.reader import Run
from atoll.spaces import fixed
from atoll.testing import MethodContract, made_table
from deploy.flower.three_sites import ThreeSites
from outcomes import outcome

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "own_method"
SHORT: dict[str, dict[str, Any]] = {
    "fedprox": {"rounds": 2, "hidden": [8], "mu": 0.5},
    "random_search": {"rounds": 3, "rounds_each": 1},
}
MODULES = {"fedprox": "own_method.fedprox", "random_search": "own_method.random_search"}


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package, built and installed into a folder of its own, which is on the path for this file only."""
    folder = tmp_path_factory.mktemp("plugin")
    shutil.copytree(EXAMPLE, folder / "source")  # a build writes into its source
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", folder / "site", folder / "source"]
    subprocess.run(command, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder / "site"))
        yield


class TestFedProx(MethodContract):
    method = "fedprox"


class TestRandomSearch(MethodContract):
    method = "random_search"


def searched(method: str, out: Path, **options: Any) -> Run:
    return atoll.search(method, made_table(), out=out, **SHORT[method], **options)


@pytest.mark.parametrize("method", SHORT)
@pytest.mark.soak
def test_local_workers_and_the_virtual_network_give_the_same(tmp_path: Path, method: str) -> None:
    assert method in names("methods")
    here = searched(method, tmp_path / "here", workers=0)
    workers = searched(method, tmp_path / "workers", workers=2)
    virtual = searched(method, tmp_path / "virtual", workers=0, settings={"simulation": {"bandwidth": 1e6}})
    assert outcome(here) == outcome(workers)
    assert here.result["candidates"] == virtual.result["candidates"]


def test_the_proximal_term_keeps_a_client_near_the_start() -> None:
    data = made_table()
    architecture = fixed.architecture_for("auto", data.schema, [8], None)
    start = spaces.initial(architecture, stream(1, "start"))
    training = {"epochs": 3, "batch": 10, "lr": 0.1, "mu": 0.0}

    def distance(job: str, mu: float) -> float:
        payload = {"architecture": architecture, "weights": start, **training, "mu": mu}
        client = Client(data.client(data.names[0]), {}, stream(1, "client"), "cpu")
        new = find_job(job)(payload, client)["weights"]
        return float(np.sqrt(sum(np.sum((new[name] - start[name]) ** 2) for name in start)))

    free, held = distance("own_method.fedprox:train", 0.0), distance("own_method.fedprox:train", 5.0)
    assert np.isclose(free, distance(TRAIN, 0.0), rtol=1e-4)  # without the term it is federated averaging
    assert held < 0.5 * free


def allow(sites: ThreeSites, module: str) -> None:
    for name in sites.names:
        file = sites.root / "apart" / name / "site.toml"
        file.write_text(file.read_text().replace("[limits]\n", f'[limits]\njobs = ["{module}"]\n'))


@pytest.mark.parametrize("method", SHORT)
def test_a_site_that_allows_its_jobs(tmp_path: Path, method: str) -> None:
    sites = ThreeSites(tmp_path / "sites")
    allow(sites, MODULES[method])
    here = launch.start(sites.experiment(method, "local", **SHORT[method]), tmp_path / "here")
    there = launch.start(
        sites.experiment(method, "flower", **SHORT[method]), tmp_path / "there", open_engine=on_grid(sites.grid())
    )
    assert outcome(there) == outcome(here)


def test_a_site_that_does_not_allow_its_jobs_says_so(tmp_path: Path) -> None:
    sites = ThreeSites(tmp_path / "sites")
    experiment = sites.experiment("fedprox", "flower", **SHORT["fedprox"])
    with pytest.raises((Paused, SiteError)) as caught:
        launch.start(experiment, tmp_path / "there", open_engine=on_grid(sites.grid()))
    assert "own_method.fedprox:train" in str(caught.value) and "limits.jobs" in str(caught.value)
