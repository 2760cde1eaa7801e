"""Measuring the present machine: what is timed, and that the file says the same as the profile."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from atoll.cli.app import app
from atoll.devices import LayerRow, LayerTable, LayerWork, device_profile
from atoll.devices.measure import measure_profile, profile_text, variants
from atoll.devices.resources import measure
from atoll.errors import ConfigError

STEM = LayerWork("convolution", 3, 8, 3, 2, 4, 4, 0)
DEPTHWISE = LayerWork("depthwise", 8, 8, 3, 1, 4, 4, 0)
POINTWISE = LayerWork("pointwise", 8, 16, 1, 1, 4, 4, 0)


def test_layers_are_timed_at_all_their_widths() -> None:
    """Four widths each way; an image's three channels stay, a depthwise layer has one width, twins count once."""
    widths = [(layer.kind, layer.inputs, layer.outputs) for layer in variants([STEM, DEPTHWISE, DEPTHWISE, POINTWISE])]
    assert [row for row in widths if row[0] == "convolution"] == [("convolution", 3, n) for n in (2, 4, 6, 8)]
    assert [row for row in widths if row[0] == "depthwise"] == [("depthwise", n, n) for n in (2, 4, 6, 8)]
    pairs = {(i, o) for kind, i, o in widths if kind == "pointwise"}
    assert pairs == {(i, o) for i in (2, 4, 6, 8) for o in (4, 8, 12, 16)}
    assert list(variants([LayerWork("convolution", 4, 4, 0, 1, 2, 2, 0)])) == []  # a kernel that is not square


def test_a_measured_profile_reads_back_the_same(tmp_path: Path) -> None:
    base = device_profile("board")
    profile = measure_profile([STEM, DEPTHWISE], 2, base, 'a "machine"', watts=5.0)
    path = tmp_path / "mine.toml"
    path.write_text(profile_text(profile, "a remark"), encoding="utf-8")
    assert device_profile(str(path)) == profile
    assert (profile.uplink, profile.joules_per_byte) == (base.uplink, base.joules_per_byte)
    rows = profile.layers.root
    assert len(rows) == 8 and all(row.seconds > 0 and row.joules == 5.0 * row.seconds for row in rows)
    assert profile.macs_per_second == sum(row.macs for row in rows) / sum(row.seconds for row in rows)


def test_without_watts_energy_is_the_base_profiles() -> None:
    profile = measure_profile([DEPTHWISE], 1, device_profile("phone"), "")
    assert {row.joules for row in profile.layers.root} == {None}
    assert profile.joules_per_mac == device_profile("phone").joules_per_mac


def test_a_slower_table_gives_a_longer_latency() -> None:
    arch = {"space": "fixed", "model": "convnet", "input": [1, 8, 8], "classes": 3, "widths": [2, 2, 2, 2, 2, 2]}
    row = LayerRow(kind="convolution", inputs=2, outputs=2, kernel=3, height=4, width=4, seconds=1.0)
    slow = device_profile("phone").model_copy(update={"layers": LayerTable((row,))})
    assert measure(arch, "latency", slow) > 2.0 > measure(arch, "latency", device_profile("phone"))


def test_the_commands(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "mine.toml"
    words = ["devices", "measure", "--out", str(out), "--input", "1x8x8", "--classes", "2", "--repeats", "1"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended
    assert "layers timed" in ended.stdout
    listed = CliRunner().invoke(app, ["devices", "--device", str(out)])
    assert listed.exit_code == 0 and "phone" in listed.stdout and "GMAC/s" in listed.stdout


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--out", "mine.txt"], "'mine.txt'"),
        (["--out", "mine.toml", "--input", "3x0x8"], "'3x0x8'"),
        (["--out", "mine.toml", "--watts", "-1"], "--watts -1"),
        (["--out", "mine.toml", "--links", "phne"], "'phne'"),
    ],
)
def test_mistakes_are_one_line(words: list[str], named: str) -> None:
    ended = CliRunner().invoke(app, ["devices", "measure", *words])
    assert isinstance(ended.exception, ConfigError)
    assert named in str(ended.exception) and "\n" not in str(ended.exception)
