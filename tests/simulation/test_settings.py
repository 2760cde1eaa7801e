"""The `[simulation]` table: what it refuses, and who gets which link."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll.config import dump, read_file, resolve
from atoll.errors import AtollError, ConfigError, DataError
from atoll.simulation.links import Link, Links, links_for
from atoll.simulation.settings import SimulationSettings
from atoll.simulation.traces import Trace
from refusals import refused

NAMES = [f"client-{number}" for number in range(10)]
LOG = "bandwidth_kbps,duration_ms,latency_ms\n80,1000,20\n8,1000,20\n"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "lte_4g_logs"
    folder.mkdir(parents=True)
    for name in ("bus_0001", "bus_0002", "car_0001", "train_0001"):
        (folder / f"report_{name}.csv").write_text(LOG, encoding="utf-8")
    return folder


def table(**network: Any) -> dict[str, Any]:
    return {"method": "fedavg", "data": {"name": "digits"}, "simulation": network}


def test_absent_is_no_network_and_a_complete_table_comes_back_from_toml(tmp_path: Path) -> None:
    assert resolve({"method": "fedavg", "data": {"name": "digits"}}).simulation is None
    network = {
        "traces": "lte",
        "transport": {"bus": 3, "car": 7},
        "speed": [1e6, 1e9],
        "staleness": [3, 1],
        "dropout": 0.5,
    }
    experiment = resolve(table(**network))
    (tmp_path / "again.toml").write_text(dump(experiment), encoding="utf-8")
    assert resolve(read_file(tmp_path / "again.toml"), complete=True) == experiment
    assert resolve(table()).simulation == SimulationSettings()
    assert resolve(table(traces="lte", transport="bus")).simulation == SimulationSettings(
        traces="lte", transport=["bus"]
    )


FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"trace": "lte"}, "unknown-setting", "simulation.trace"),
    ({"traces": "lte", "bandwidth": 5.0}, "invalid-setting", "simulation.bandwidth"),
    ({"speed": 5.0, "device": "phone"}, "invalid-setting", "simulation.device"),
    ({"transport": ["bus"]}, "invalid-setting", "simulation.transport"),
    ({"traces": "lte", "transport": []}, "invalid-setting", "simulation.transport = []"),
    ({"traces": "lte", "transport": 5}, "invalid-setting", "simulation.transport = 5"),
    ({"traces": "lte", "transport": {"bus": 0}}, "invalid-setting", "simulation.transport = {'bus': 0}"),
    ({"traces": "lte", "transport": {"bus": True}}, "invalid-setting", "simulation.transport = {'bus': True}"),
    ({"bandwidth": 0}, "invalid-setting", "simulation.bandwidth = 0"),
    ({"bandwidth": "fast"}, "invalid-setting", "simulation.bandwidth = 'fast'"),
    ({"speed": [5.0]}, "invalid-setting", "simulation.speed = [5.0]"),
    ({"speed": [5.0, 1.0]}, "invalid-setting", "simulation.speed = [5.0, 1.0]"),
    ({"speed": 0.0}, "invalid-setting", "simulation.speed = 0.0"),
    ({"speed": "fast"}, "invalid-setting", "simulation.speed = 'fast'"),
    ({"speed": [0.0, 1.0]}, "invalid-setting", "simulation.speed = [0.0, 1.0]"),
    ({"speed": True}, "invalid-setting", "simulation.speed = True"),
    ({"speed": 10**400}, "invalid-setting", "simulation.speed = 1000"),
    ({"speed": 1e-320}, "invalid-setting", "simulation.speed = 1e-320"),
    ({"dropout": 1.5}, "invalid-setting", "simulation.dropout = 1.5"),
    ({"staleness": "hevy"}, "invalid-setting", "simulation.staleness = 'hevy'"),
    ({"staleness": [0.0, 0.0]}, "invalid-setting", "simulation.staleness = [0.0, 0.0]"),
    ({"staleness": []}, "invalid-setting", "simulation.staleness = []"),
    ({"staleness": [1.0, -1.0]}, "invalid-setting", "simulation.staleness = [1.0, -1.0]"),
    ({"staleness": ["a"]}, "invalid-setting", "simulation.staleness = ['a']"),
    ({"staleness": [1e308, 1e308]}, "invalid-setting", "simulation.staleness = [1e+308, 1e+308]"),
    ({"bandwidth": 1e-320}, "invalid-setting", "simulation.bandwidth = 1e-320"),
    ({"bandwidth": 1.0, "latency": 1.7e308}, "invalid-setting", "simulation.latency = 1.7e+308"),
    ({"deadline": 5}, "unknown-setting", "simulation.deadline"),
]


@pytest.mark.parametrize(("network", "code", "named"), FAULTS)
def test_faults_are_one_line(network: dict[str, Any], code: str, named: str) -> None:
    with refused(ConfigError, code, named) as caught:
        resolve(table(**network))
    assert "\n" not in str(caught.value)


def test_mixes() -> None:
    assert SimulationSettings(staleness="heavy").shares() == pytest.approx([0.3, 0.4, 0.2, 0.1])
    assert SimulationSettings(staleness="light").shares() == pytest.approx([0.9, 0.09, 0.009, 0.001])
    assert SimulationSettings(staleness=[1, 3]).shares() == [0.25, 0.75]
    assert SimulationSettings().shares() is None


def links(settings: dict[str, Any], data_dir: Path | None = None, seed: int = 1) -> Links:
    return links_for(SimulationSettings(**settings), seed, NAMES, data_dir)


def means(found: Links) -> Counter[str]:
    return Counter(link.means for link in found.of.values())


def test_who_travels_by_what(logs: Path) -> None:
    data = logs.parent
    assert means(links({"traces": "lte"}, data)) == {"bus": 4, "car": 3, "train": 3}
    assert means(links({"traces": "lte", "transport": ["car", "bus"]}, data)) == {"bus": 5, "car": 5}
    assert means(links({"traces": str(logs), "transport": {"car": 9, "bus": 1}})) == {"car": 9, "bus": 1}
    assert means(links({"traces": str(logs / "report_car_0001.csv")})) == {"car": 10}


def test_links_are_drawn_by_the_seed(logs: Path) -> None:
    settings = {"traces": str(logs), "speed": [1e6, 1e8]}
    one, again, other = links(settings), links(settings), links(settings, seed=2)
    places = [[(link.means, link.offset, link.speed) for link in found.of.values()] for found in (one, again, other)]
    assert places[0] == places[1] != places[2]
    assert len({offset for _, offset, _ in places[0]}) == 10
    assert all(0 <= offset < 2 and speed is not None and 1e6 <= speed <= 1e8 for _, offset, speed in places[0])


def test_files_that_are_no_logs_are_left_out_and_named(logs: Path) -> None:
    before = links({"traces": str(logs)})
    (logs / "README.txt").write_text("Logs of our drives.\n", encoding="utf-8")
    found = links({"traces": str(logs)})
    assert found.digest == before.digest and not before.notes
    assert len(found.notes) == 1 and "left out: README.txt" in found.notes[0]


def test_speeds_are_log_uniform() -> None:
    many = links_for(SimulationSettings(speed=[1.0, 1e4]), 1, [str(number) for number in range(2000)])
    below = sum(link.speed is not None and link.speed < 100.0 for link in many.of.values()) / 2000
    assert abs(below - 0.5) < 4 * math.sqrt(0.25 / 2000)


def test_a_journey_by_hand() -> None:
    """1000 B down at 500 B/s, 300 MACs at 100/s, 250 B up, 0.1 s on top each way."""
    link = links({"bandwidth": 500.0, "latency": 0.1, "speed": 100.0}).of["client-0"]
    journey = link.journey(10.0, 1000, 300, 250)
    times = [journey.downloaded, journey.computed, journey.arrived]
    assert times == pytest.approx([12.1, 15.1, 15.7]) and link.rate(5.0) == 500.0


def test_a_client_that_begins_in_the_middle_of_a_log() -> None:
    """100 B/s for 2 s, then 10 B/s for 8 s, from 1 s into it on: the first 100 B take a second, the next 50 B five."""
    line = Trace(np.array([2.0, 8.0]), np.array([100.0, 10.0]), np.array([0.0, 0.5]))
    link = Link(line, line, offset=1.0)
    assert [link.rate(at) for at in (0, 0.9, 1.1, 8.9, 9.1)] == [100, 100, 10, 10, 100]
    assert link.download(0.0, 150) == pytest.approx(6.0)
    assert link.download(2.0, 10) == pytest.approx(3.5)  # half a second of latency there
    journey = link.journey(0.0, 100, 0, 20)
    assert (journey.downloaded, journey.arrived) == (pytest.approx(1.0), pytest.approx(3.5))


def test_devices(tmp_path: Path) -> None:
    phone = links({"device": "phone"}).of["client-3"]
    journey = phone.journey(0.0, 10_000_000, 5_000_000_000, 2_500_000)
    assert [journey.downloaded, journey.computed, journey.arrived] == pytest.approx([1, 2, 3])
    own = tmp_path / "own.toml"
    own.write_text("macs_per_second = 10.0\nuplink = 1.0\ndownlink = 2.0\n", encoding="utf-8")
    journey = links({"device": str(own)}).of["client-0"].journey(0.0, 4, 10, 1)
    assert [journey.downloaded, journey.computed, journey.arrived] == pytest.approx([2, 3, 4])
    assert links({"device": "phone", "bandwidth": 7.0}).of["client-0"].rate(0) == 7.0


def test_nothing_set_takes_no_time() -> None:
    link = links({}).of["client-0"]
    assert link.journey(3.0, 10**9, 10**9, 10**9).arrived == 3.0 and link.rate(0) is None and link.speed is None


def test_links_that_cannot_be(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATOLL_DATA", raising=False)
    cases: list[tuple[dict[str, Any], Path | None, type[AtollError], str, list[object]]] = [
        ({"traces": "lte"}, None, DataError, "no-data-folder", ["'lte'"]),
        ({"traces": "lte"}, logs, DataError, "lte-folder-missing", [logs, "lte_4g_logs"]),
        ({"traces": str(logs), "transport": ["tram"]}, None, ConfigError, "unknown-transport", ["'tram'", "'train'"]),
        ({"traces": str(logs), "transport": {"bus": 3}}, None, ConfigError, "transport-count-differs", [3, 10]),
        ({"latency": 1.0}, None, ConfigError, "latency-without-link", ["simulation.latency"]),
    ]
    for settings, data_dir, error, code, named in cases:
        with refused(error, code, *named):
            links(settings, data_dir)
    with pytest.raises(ConfigError, match="phome"):
        links({"device": "phome"})


def test_the_data_folder_may_come_from_the_environment(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOLL_DATA", str(logs.parent))
    assert links({"traces": "lte"}).digest == links({"traces": str(logs)}).digest
