"""Reading a table of layers, computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.devices import DeviceProfile, device_profile
from atoll.devices.table import LayerRow, LayerTable, LayerWork, curve, interpolate
from atoll.errors import ConfigError
from refusals import refused

PLAIN = "macs_per_second = 100.0\nuplink = 10.0\ndownlink = 20.0\n"
ROW = '[[layers]]\nkind = "pointwise"\ninputs = 2\noutputs = 5\nheight = 4\nwidth = 3\nseconds = 0.25\n'


def linear(inputs: int, outputs: int) -> LayerWork:
    return LayerWork("linear", inputs, outputs, 1, 1, 1, 1, inputs * outputs)


def test_macs_of_rows() -> None:
    assert LayerRow(kind="linear", inputs=3, outputs=2, seconds=1.0).macs == 6
    assert LayerRow(kind="convolution", inputs=3, outputs=2, kernel=3, height=4, width=5, seconds=1.0).macs == 1080
    assert LayerRow(kind="depthwise", inputs=2, outputs=2, kernel=3, height=4, width=5, seconds=1.0).macs == 360


def test_equal_macs_give_their_mean() -> None:
    assert curve([(20, 4.0), (10, 1.0), (20, 6.0)]) == [(10, 1.0), (20, 5.0)]


@pytest.mark.parametrize(("macs", "value"), [(0, 0.5), (5, 0.75), (10, 1.0), (15, 3.0), (20, 5.0), (40, 10.0)])
def test_between_below_and_above_the_rows(macs: int, value: float) -> None:
    assert interpolate([(10, 1.0), (20, 5.0)], macs, floor=0.5) == pytest.approx(value)


def test_exact_row_then_curve_then_plain_rate() -> None:
    rows = (
        LayerRow(kind="linear", inputs=5, outputs=2, seconds=1.0),
        LayerRow(kind="linear", inputs=2, outputs=5, seconds=3.0),
        LayerRow(kind="linear", inputs=4, outputs=5, seconds=8.0, joules=1.0),
        LayerRow(kind="linear", inputs=4, outputs=5, seconds=6.0),
    )
    profile = DeviceProfile(
        macs_per_second=2.0,
        uplink=1.0,
        downlink=1.0,
        joules_per_mac=4.0,
        seconds_per_layer=0.5,
        layers=LayerTable(rows),
    )
    assert profile.layer_seconds(linear(5, 2)) == 1.0
    assert profile.layer_seconds(linear(4, 5)) == 7.0  # two rows of one shape: their mean
    assert profile.layer_seconds(linear(10, 1)) == 2.0  # ten MACs, another shape: the mean of the rows of ten
    assert profile.layer_seconds(linear(5, 3)) == 4.5  # half way from (10, 2) to (20, 7)
    assert profile.layer_joules(linear(5, 2)) == 0.5  # on the line from nothing to (20, 1)
    depthwise = LayerWork("depthwise", 1, 1, 3, 1, 1, 1, 9)
    assert profile.layer_seconds(depthwise) == 0.5 + 9 / 2
    assert profile.layer_joules(depthwise) == 36


def test_a_file_with_a_table(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(PLAIN + ROW)
    profile = device_profile(str(path))
    assert profile.layer_seconds(LayerWork("pointwise", 2, 5, 1, 1, 4, 3, 120)) == 0.25
    assert profile.layers.root[0].macs == 120


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (ROW.replace("pointwise", "pontwise"), "layers.0.kind = 'pontwise'"),
        (ROW.replace("seconds", "second"), "layers.0.seconds"),
        (ROW.replace("inputs = 2", "inputs = 0"), "layers.0.inputs = 0"),
    ],
)
def test_a_wrong_row_is_one_line(tmp_path: Path, row: str, named: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(PLAIN + row)
    with refused(ConfigError, "invalid-device-profile", path, named) as caught:
        device_profile(str(path))
    assert "\n" not in str(caught.value)
