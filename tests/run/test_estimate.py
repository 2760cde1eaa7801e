"""What `--estimate` says of a run, compared with the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll.config import resolve
from atoll.errors import ConfigError
from atoll.run import launch
from atoll.testing import made_table
from programs import run
from refusals import refused

DATA = made_table()
NETWORK = {"simulation": {"bandwidth": 10_000.0, "speed": 1e6}}


def experiment(method: str, settings: dict[str, Any], **tables: Any) -> Any:
    raw = {"method": method, "data": {"name": launch.IN_MEMORY}, method: settings, "engine": {"workers": 0}, **tables}
    return resolve(raw)


@pytest.mark.parametrize(
    ("method", "settings", "tables"),
    [
        ("fedavg", {"rounds": 3, "fraction": 0.75, "hidden": [8]}, {}),
        ("fedavg", {"rounds": 3, "fraction": 0.75, "hidden": [8]}, NETWORK),
        ("personal", {"rounds": 3, "shared": 2, "hidden": [8]}, {}),
        ("fedavg", {"rounds": 3, "hidden": [8], "clip": 0.01, "schedule": "cosine"}, {}),
    ],
)
def test_what_fixed_networks_send_is_known_before(
    method: str, settings: dict[str, Any], tables: dict[str, Any], tmp_path: Path
) -> None:
    """But for the digits of losses, which travel as text."""
    planned = experiment(method, settings, **tables)
    found, lines = launch.estimate(planned, data=DATA)
    ledger = launch.start(planned, tmp_path / "run", data=DATA).result["ledger"]
    assert (found.total.bytes_down, found.total.client_macs) == (ledger["bytes_down"], ledger["client_macs"])
    assert found.total.bytes_up == pytest.approx(ledger["bytes_up"], rel=0.005)
    assert found.total.simulated_seconds == pytest.approx(ledger["simulated_seconds"], rel=0.005)
    assert (found.total.simulated_seconds > 0) == bool(tables)
    assert sum(own.down for own in found.clients.values()) == found.total.bytes_down
    assert sum(own.up for own in found.clients.values()) == found.total.bytes_up
    assert found.transfer(1000.0) == sum(found.busiest) / 1000 and len(found.busiest) == 4
    assert (found.rounds, lines) == (3, [])


def test_who_holds_official_test_rows_only_is_no_client() -> None:
    data = made_table(test=DATA.client(DATA.names[0]).part("train"))
    assert data.benchmark
    found, _ = launch.estimate(experiment("fedavg", {"rounds": 1, "hidden": [8]}), data=data)
    assert list(found.clients) == list(data.names)


def test_the_command_trains_nothing(tmp_path: Path) -> None:
    words = ("run", "fedavg", "--data", "digits", "--clients", 3, "--rounds", 2, "--out", tmp_path / "run")
    ended = run(*words, "--estimate", "--bandwidth", 8)
    assert ended.code == 0 and not (tmp_path / "run").exists()
    first, second, third = ended.out.splitlines()
    assert first.startswith("2 rounds") and "of 3 clients" in second and third.startswith("at 8 Mbit/s")
    assert run(*words, "--bandwidth", 8).err.count("[inapplicable-setting]") == 1


def test_what_cannot_be_known_is_refused() -> None:
    with refused(ConfigError, "estimate-not-possible", "nevofed"):
        launch.estimate(experiment("nevofed", {"rounds": 2, "population": 4}), data=DATA)
    sites = {"engine": {"name": "flower", "federation": "somewhere"}}
    with refused(ConfigError, "estimate-on-sites", "'flower'", "--data"):
        launch.estimate(resolve({"method": "fedavg", "data": {"name": "digits"}, **sites}))
