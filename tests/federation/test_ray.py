"""The Ray engine keeps the contract of all engines, and gives the bits of the local one."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from atoll.api import search
from atoll.core.messages import Task
from atoll.data import Federated
from atoll.deploy.supervisor import descendants
from atoll.errors import ConfigError
from atoll.federation.base import Federation
from atoll.federation.exchange import ExchangeRules
from atoll.federation.journal import Journal
from atoll.federation.local import clients_of, local_federation
from atoll.federation.ray import QUIET, RayTransport
from atoll.simulation.settings import SimulationSettings
from atoll.testing import EngineContract, JournalContract, made_images, made_table
from paced_clients import clock_of
from refusals import refused

pytestmark = pytest.mark.deploy  # it starts clusters: minutes on a busy machine

RAY = Path(sys.executable).parent / "ray"
SMALL = {
    "fedavg": {"hidden": [8]},
    "realtime": {"population": 3, "channels": [4, 8], "batch": 8},
    "nevofed": {"population": 12},
}


def started(command: Sequence[str | Path], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """A raylet that serves."""
    raylet = subprocess.Popen(
        command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert raylet.stdout is not None
    for line in raylet.stdout:
        if "Ray runtime started" in line:
            return raylet
    pytest.fail(f"ray ended with {raylet.wait(60)} instead of starting")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of one machine, with a password: starting one for each test would take seconds each."""
    os.environ |= {"RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_AUTH_MODE": "token", **QUIET}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    host, port = address.split(":")
    options = ["--head", f"--node-ip-address={host}", f"--port={port}", "--num-cpus=2", "--include-dashboard=false"]
    head = started([RAY, "start", *options, "--disable-usage-stats", "--block"], os.environ)
    yield address
    head.terminate()  # with --block it takes its own processes down
    try:
        head.wait(120)
    except subprocess.TimeoutExpired:
        head.kill()
    finally:
        del os.environ["RAY_AUTH_TOKEN"], os.environ["RAY_AUTH_MODE"]


def on_ray(
    data: Federated, seed: int, workers: int, deadline: float | None = None, address: str | None = None
) -> Federation:
    clients, benchmark, held_out = clients_of(data)
    transport = RayTransport(data, seed, workers, address=address)
    return Federation(transport, clients, benchmark, ExchangeRules(deadline=deadline), held_out=held_out)


@pytest.mark.soak
class TestKillOnRay(JournalContract):
    """Actors, the virtual network and the journal together."""

    virtual = True

    @pytest.fixture(autouse=True)
    def _at(self, cluster: str) -> None:
        self.address = cluster

    def federation(self, data: Federated, seed: int, journal: Journal) -> Federation:
        settings = SimulationSettings(bandwidth=300.0, speed=[1.0, 50.0], dropout=0.2, staleness=[3, 1])
        transport = RayTransport(data, seed, 2, address=self.address)
        clients, benchmark, held_out = clients_of(data)
        clock = clock_of(data, seed, settings)
        return Federation(transport, clients, benchmark, clock=clock, journal=journal, held_out=held_out)


class TestRay(EngineContract):
    interrupts = True
    processes = True

    @pytest.fixture(autouse=True)
    def _at(self, cluster: str) -> None:
        self.address = cluster

    def federation(self, data: Federated, seed: int, deadline: float | None = None) -> Federation:
        return on_ray(data, seed, 2, deadline, self.address)

    # What another test here shows too, or what holds above the transport of every engine. Each starts two actors.

    @pytest.mark.soak
    def test_replies_come_in_task_order(self) -> None:
        super().test_replies_come_in_task_order()

    @pytest.mark.soak
    def test_the_slowest_first_does_not_change_the_order(self) -> None:
        super().test_the_slowest_first_does_not_change_the_order()

    @pytest.mark.soak
    def test_a_quorum_is_of_the_last_send_and_late_replies_come_along(self) -> None:
        super().test_a_quorum_is_of_the_last_send_and_late_replies_come_along()

    @pytest.mark.soak
    def test_what_a_client_holds_is_not_sent_again(self) -> None:
        super().test_what_a_client_holds_is_not_sent_again()

    @pytest.mark.soak
    def test_older_rounds_come_first(self) -> None:
        super().test_older_rounds_come_first()

    @pytest.mark.soak
    def test_a_quorum_that_cannot_be_met_returns_what_there_is(self) -> None:
        super().test_a_quorum_that_cannot_be_met_returns_what_there_is()

    @pytest.mark.soak
    def test_rejected_replies_carry_the_reason(self) -> None:
        super().test_rejected_replies_carry_the_reason()

    @pytest.mark.soak
    def test_streams_are_named_by_seed_round_client_and_number(self) -> None:
        super().test_streams_are_named_by_seed_round_client_and_number()


def test_a_cluster_of_this_machine_alone_draws_the_same_numbers() -> None:
    data = made_table(clients=3)
    tasks = [Task(f"draw:{name}", name, "atoll.testing.jobs:draw", {}) for name in data.names]
    drawn = []
    for federation in (local_federation(data, 5, 0), on_ray(data, 5, 1)):
        with federation:
            federation.begin(1)
            drawn.append([reply.payload["numbers"].tolist() for reply in federation.map(tasks)])
            drawn.append([federation.ledger.total().bytes_down, federation.ledger.total().bytes_up])
    assert drawn[:2] == drawn[2:]


def test_no_cluster_at_the_address_is_one_line() -> None:
    with refused(ConfigError, "ray-not-answering", "127.0.0.1:1"):
        RayTransport(made_table(clients=2), 1, 1, address="127.0.0.1:1")


def test_more_actors_than_processors_are_refused(cluster: str) -> None:
    with refused(ConfigError, "ray-too-few-processors", "engine.workers = 3", "2 processors"):
        RayTransport(made_table(clients=2), 1, 3, address=cluster)


def test_no_actors_is_refused() -> None:
    with refused(ConfigError, "ray-needs-worker", "workers = 0"):
        RayTransport(made_table(clients=2), 1, 0)


@pytest.mark.parametrize("method", [pytest.param("fedavg", marks=pytest.mark.soak), "realtime", "nevofed"])
def test_the_same_result_as_local(method: str, cluster: str, tmp_path: Path) -> None:
    """Candidates, weights, bytes: all but the clock."""
    data = made_table(clients=4) if method == "nevofed" else made_images(clients=4, side=6)
    results = {}
    for engine in ({"name": "local", "workers": 0}, {"name": "ray", "workers": 2, "ray_address": cluster}):
        out = tmp_path / str(engine["name"])
        run = search(method, data, out=out, rounds=2, settings={"engine": engine, method: SMALL[method]})
        results[out.name] = {key: value for key, value in run.result.items() if key != "wall_seconds"}
    assert results["ray"] == results["local"]


class Killer:
    """Kills the second raylet, with the actor on it, after the first round."""

    def __init__(self, raylet: subprocess.Popen[str]) -> None:
        self.raylet = raylet

    def round_done(self, number: int, *_: object) -> None:
        if number == 1:
            for pid in (*descendants(self.raylet.pid), self.raylet.pid):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.soak
def test_a_machine_that_leaves_the_cluster_changes_nothing(tmp_path: Path) -> None:
    """Two raylets on this machine, an actor on each. One is killed; the other does all the work from then on."""
    environment = os.environ | QUIET
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address, place = f"127.0.0.1:{port}", "--node-ip-address=127.0.0.1"
    common = ["--num-cpus=1", "--disable-usage-stats", "--block"]
    head = [RAY, "start", "--head", place, f"--port={port}", "--include-dashboard=false", *common]
    raylets = [started(head, environment), started([RAY, "start", f"--address={address}", place, *common], environment)]
    data = made_images(clients=4, side=6)
    try:
        ended = {}
        for engine in ({"name": "local", "workers": 0}, {"name": "ray", "workers": 2, "ray_address": address}):
            watcher = Killer(raylets[1]) if engine["name"] == "ray" else None
            settings = {"engine": engine, "realtime": SMALL["realtime"]}
            run = search(
                "realtime", data, out=tmp_path / str(engine["name"]), rounds=4, settings=settings, watcher=watcher
            )
            ended[engine["name"]] = {key: value for key, value in run.result.items() if key != "wall_seconds"}
        assert raylets[1].wait(10) == -signal.SIGKILL
        assert ended["ray"] == ended["local"]
    finally:
        for raylet in raylets:
            raylet.terminate()
            raylet.wait(60)
