"""Settings of real-time and offline search: what the data decides, and what does not fit is said in one line."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.config import resolve
from atoll.core.messages import Schema
from atoll.errors import ArchitectureError, ConfigError, UserError
from atoll.methods import find_method
from atoll.methods.offline import OfflineConfig
from atoll.methods.realtime_config import RealtimeConfig
from atoll.rng import stream
from atoll.spaces.choice import space as choice
from methods.two_blocks import Script, client, realtime
from refusals import refused

IMAGES = Schema("image", (1, 8, 8), ("a", "b", "c"))
TABLE = Schema("table", (5,), ("a", "b"), tuple("vwxyz"))


def _fitted(method: str, schema: Schema, clients: int, **settings: Any) -> Any:
    """As a run begins: checked, fitted to the data, and the method made."""
    experiment = resolve({"method": method, "data": {"name": "digits"}, method: settings})
    fitted = experiment.settings.fitted(schema, clients)
    find_method(method)(fitted, schema)
    return fitted


def test_the_data_decides_what_is_left_open() -> None:
    images, table = _fitted("realtime", IMAGES, 4), _fitted("realtime", TABLE, 30)
    assert (images.population, images.channels, images.stem) == (4, [16, 16, 32, 32, 64, 64], 16)
    assert (table.population, table.widths, table.channels) == (10, [64, 64, 32, 32], None)
    # Offline every client trains every individual, so a population needs no number of clients.
    assert _fitted("offline", TABLE, 2).population == 10


def test_what_was_set_stays() -> None:
    settings = {"population": 3, "channels": [4, 8], "stem": 4}
    fitted = _fitted("realtime", IMAGES, 4, **settings)
    assert {name: getattr(fitted, name) for name in settings} == settings


@pytest.mark.parametrize(
    ("settings", "clients", "code", "named"),
    [
        ({"population": 5}, 4, "too-few-clients", ["population = 5", "4 clients"]),
        ({"population": 5, "fraction": 0.5}, 8, "too-few-clients", ["population = 5", "4 clients"]),
        ({}, 1, "too-few-clients", ["clients = 1"]),
        ({"channels": [8, 8, 6]}, 4, "falling-channels", ["8 to 6", "block 3"]),
        ({"channels": [8, 9]}, 4, "odd-channels", ["9 channels", "block 2"]),
        ({"channels": [2, 4, 8, 16, 32]}, 4, "image-too-small", ["8x8"]),
        ({"channels": []}, 4, "invalid-setting", ["'channels'", "[]"]),
        ({"widths": [8, 8]}, 4, "inapplicable-setting", ["widths = [8, 8]"]),
        ({"objectives": ["error", "speed"]}, 4, "unknown-objective", ["'speed'", "latency", "macs"]),
        ({"objectives": ["macs", "error"]}, 4, "invalid-setting", ["objectives = ['macs', 'error']"]),
        ({"objectives": ["error", "macs", "macs"]}, 4, "invalid-setting", ["objectives = ['error', 'macs', 'macs']"]),
    ],
)
def test_what_does_not_fit_is_a_clear_error(
    settings: dict[str, Any], clients: int, code: str, named: list[str]
) -> None:
    with refused(UserError, code, *named) as problem:
        _fitted("realtime", IMAGES, clients, **settings)
    assert "\n" not in str(problem.value)


def test_wrong_words_and_unknown_settings_are_named() -> None:
    for settings, named in (({"average": "some"}, r"realtime\.average"), ({"poplation": 4}, "'population'")):
        with pytest.raises(ConfigError, match=named):
            _fitted("realtime", IMAGES, 4, **settings)


def test_offline_rounds_are_generations_and_final_training() -> None:
    assert _fitted("offline", TABLE, 4, rounds=20).generations == 5
    assert _fitted("offline", TABLE, 4, rounds=2).generations == 1
    assert _fitted("offline", TABLE, 4, rounds=20, generations=19).generations == 19
    with refused(ConfigError, "phase-exceeds-rounds", "generations = 20", "21 rounds"):
        _fitted("offline", TABLE, 4, rounds=20, generations=20)
    with pytest.raises(ConfigError, match=r"offline\.rounds = 1"):
        _fitted("offline", TABLE, 4, rounds=1)


def test_paper_presets_are_the_papers() -> None:
    searching = resolve({"method": "realtime", "preset": "paper", "data": {"name": "cifar10"}}).settings
    assert isinstance(searching, RealtimeConfig)
    assert (searching.rounds, searching.population, searching.channels) == (500, 10, list(choice.PAPER_CHANNELS))
    offline = resolve({"method": "offline", "preset": "paper", "data": {"name": "cifar10"}})
    assert isinstance(offline.settings, OfflineConfig)
    assert (offline.data.clients, offline.data.partition) == (20, "classes:5")
    assert (offline.settings.generations, offline.settings.rounds) == (50, 550)
    own = {
        "rounds",
        "generations",
        "average",
        "paths",
        "snapshots",
        "snapshot_every",
        "finish",
        "finish_networks",
        "finish_lr",
    }
    own |= {"server_momentum", "schedule"}
    assert offline.settings.model_dump(exclude=own) == searching.model_dump(exclude=own)


@pytest.mark.parametrize("key", [[0], [0, 1, 2], [0, 4], [0, -1], [0, 1.0], "01"])
def test_an_odd_key_is_a_clear_error(key: Any) -> None:
    with pytest.raises(ArchitectureError):
        realtime().cost(key)


def test_data_without_validation_rows_is_refused_at_the_start() -> None:
    federation = Script([client("one", validation=0), client("two", validation=0)])
    with refused(ConfigError, "no-validation-rows", "data.split"):
        realtime().init(federation, stream(1, "init"))
