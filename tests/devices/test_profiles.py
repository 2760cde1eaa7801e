from pathlib import Path

import pytest

from atoll.devices import SHIPPED, DeviceProfile, device_profile
from atoll.errors import ConfigError
from refusals import refused

PLAIN = "macs_per_second = 100.0\nuplink = 10.0\ndownlink = 20.0\njoules_per_mac = 2.0\njoules_per_byte = 3.0\n"


def test_seconds_and_joules_by_hand(tmp_path: Path) -> None:
    """200 MACs at 100 a second, 30 bytes up at 10, 40 bytes down at 20: 2 + 3 + 2 seconds."""
    path = tmp_path / "mine.toml"
    path.write_text(PLAIN)
    profile = device_profile(str(path))
    assert profile.seconds(200, 30, 40) == 7.0
    assert profile.joules(200, 30, 40) == 400 + 210


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_profiles_load(name: str) -> None:
    assert isinstance(device_profile(name), DeviceProfile)
    assert device_profile("board").macs_per_second < device_profile("phone").macs_per_second


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("uplink = 3.0", "invalid-device-profile", "macs_per_second"),
        ("uplink = ", "not-toml", "mine.toml"),
        (PLAIN.replace("100.0", "0.0"), "invalid-device-profile", "macs_per_second = 0.0"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, code: str, named: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with refused(ConfigError, code, path, named):
        device_profile(str(path))


def test_an_unknown_name_names_the_nearest() -> None:
    with refused(ConfigError, "unknown-device", "'phon'", "'phone'"):
        device_profile("phon")
    with refused(ConfigError, "file-unreadable", "nowhere.toml"):
        device_profile("nowhere.toml")
