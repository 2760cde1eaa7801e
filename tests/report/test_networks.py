"""A found network as a row of boxes: checked against the costs of the space itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.errors import ConfigError
from atoll.report.figures.networks import boxes, draw_networks
from atoll.spaces.choice import space as choice
from refusals import refused

IMAGES = {"space": "choice", "input": [1, 28, 28], "classes": 10, "channels": [8, 8, 16], "stem": 8, "expansion": 6}
TABLE = {"space": "choice", "input": [30], "classes": 2, "widths": [64, 32], "stem": 64}


def test_boxes_name_branch_channels_and_size() -> None:
    row = boxes({**IMAGES, "key": [0, 1, 3]})
    assert [(box.word, box.width, box.size) for box in row] == [
        ("stem", "8 channels", "28 x 28"),
        ("identity", "8 channels", "28 x 28"),
        ("residual", "8 channels", "28 x 28"),
        ("separable", "16 channels", "14 x 14"),
        ("head", "10 classes", ""),
    ]
    assert row[0].macs == 9 * 8 * 28 * 28
    assert row[1].macs == 0
    assert row[2].macs == 2 * 9 * 8 * 8 * 28 * 28


@pytest.mark.parametrize("arch", [{**IMAGES, "key": [2, 3, 0]}, {**TABLE, "key": [3, 0]}])
def test_the_boxes_macs_are_the_networks(arch: dict[str, object]) -> None:
    assert sum(box.macs for box in boxes(arch)) == choice.cost(arch).macs


def test_a_table_has_widths_and_no_pixels() -> None:
    row = boxes({**TABLE, "key": [1, 0]})
    assert [(box.word, box.width, box.size) for box in row[1:3]] == [
        ("dense", "64 wide", ""),
        ("identity", "32 wide", ""),
    ]


def test_a_figure_holds_every_networks_heading_and_branches(tmp_path: Path) -> None:
    networks = {"High: 213": {**IMAGES, "key": [2, 1, 3]}, "Knee: 000": {**IMAGES, "key": [0, 0, 0]}}
    text = draw_networks(networks, tmp_path / "networks.svg").read_text()
    for word in ("High: 213", "Knee: 000", "inverted", "residual", "separable", "identity"):
        assert f"<!-- {word} -->" in text


def test_a_master_cannot_be_drawn() -> None:
    with refused(ConfigError, "key-not-given"):
        boxes(IMAGES)
