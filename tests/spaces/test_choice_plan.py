"""What an architecture of the choice space may say."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.errors import ArchitectureError
from atoll.spaces.choice.plan import PAPER_CHANNELS, key_of, plan
from refusals import refused

IMAGE = {"space": "choice", "input": [3, 32, 32], "classes": 10, "channels": list(PAPER_CHANNELS)}
TABLE = {"space": "choice", "input": [30], "classes": 2, "widths": [64, 64, 32]}


def test_reduction_blocks_are_those_whose_channels_change() -> None:
    blocks = plan(IMAGE).blocks
    reductions = [number for number, block in enumerate(blocks, start=1) if block[0].layers]
    assert reductions == [4, 7, 10]
    assert all(branch.shortcut == (number not in reductions) for number, b in enumerate(blocks, 1) for branch in b[1:])


def test_a_normal_identity_has_no_parameters_and_a_reducing_one_two_halves() -> None:
    blocks = plan(IMAGE).blocks
    assert blocks[0][0].layers == ()
    assert [layer.shape for layer in blocks[3][0].layers] == [(64, 64, 1, 1), (64, 64, 1, 1)]
    assert all(layer.stride == 2 for layer in blocks[3][0].layers)


def test_expansion_is_that_of_the_input_channels() -> None:
    expand = plan({**IMAGE, "expansion": 3}).blocks[3][2].layers[0]
    assert expand.shape == (192, 64, 1, 1)
    assert plan(IMAGE).blocks[0][2].layers[0].shape == (384, 64, 1, 1)


def test_odd_sizes_are_rounded_up() -> None:
    arch = {**IMAGE, "input": [1, 28, 28], "channels": [4, 8, 16, 32]}
    assert [block[1].layers[-1].positions for block in plan(arch).blocks] == [28**2, 14**2, 7**2, 4**2]


def test_the_stem_may_differ_from_the_first_block() -> None:
    assert plan({**IMAGE, "stem": 32}).blocks[0][0].layers[0].shape == (32, 32, 1, 1)
    assert plan(IMAGE).stem.layers[0].shape == (64, 3, 3, 3)


def test_how_every_branch_of_a_table_changes_the_width() -> None:
    identity, dense, residual, bottleneck = plan(TABLE).blocks[2]
    assert [layer.shape for layer in identity.layers] == [(32, 64)]
    assert not identity.layers[0].norm
    assert [layer.shape for layer in dense.layers] == [(32, 64)]
    assert [layer.shape for layer in residual.layers] == [(32, 64), (32, 32)]
    assert [layer.shape for layer in bottleneck.layers] == [(8, 64), (32, 8)]
    assert not residual.shortcut
    assert not bottleneck.shortcut
    assert plan(TABLE).blocks[1][0].layers == ()
    assert plan(TABLE).blocks[1][2].shortcut


def test_key_of_master_and_sub_model() -> None:
    assert key_of(IMAGE) is None
    assert key_of({**TABLE, "key": [0, 3, 1]}) == (0, 3, 1)
    assert plan({**TABLE, "key": [0, 3, 1]}) is plan(TABLE)


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        ({"channels": [64, 32]}, "falling-channels", ["64 to 32", "block 2", "128"]),
        ({"channels": [8, 15]}, "odd-channels", ["15", "block 2", "16"]),
        ({"channels": []}, "invalid-setting", ["'channels'", "[]"]),
        ({"channels": [8, 0]}, "invalid-setting", ["'channels'", "[8, 0]"]),
        ({"channels": 64}, "invalid-setting", ["'channels'", "64"]),
        ({"channels": [8, 16.0]}, "invalid-setting", ["'channels'", "16.0"]),
        (
            {"input": [3, 4, 4]},
            "image-too-small",
            ["4x4", "1x1", "block 10", "256"],
        ),
        ({"input": [3, 32, 1], "channels": [8, 16]}, "image-too-small", ["32x1"]),
        ({"input": [3, 32]}, "invalid-input-shape", ["[3, 32]"]),
        ({"classes": 0}, "invalid-setting", ["'classes'", "0"]),
        ({"expansion": 0}, "invalid-setting", ["'expansion'", "0"]),
        ({"stem": True}, "invalid-setting", ["'stem'", "True"]),
        ({"chanels": [8]}, "unknown-setting", ["'chanels'", "'channels'"]),
        ({"widths": [8]}, "unknown-setting", ["'widths'"]),
        ({"key": [0, 1]}, "key-length-mismatch", ["2", "12"]),
    ],
)
def test_what_does_not_fit_is_a_clear_error(change: dict[str, Any], code: str, named: list[str]) -> None:
    with refused(ArchitectureError, code, *named):
        key_of({**IMAGE, **change}) or plan({**IMAGE, **change})


def test_an_image_that_is_just_large_enough() -> None:
    assert len(plan({**IMAGE, "input": [1, 8, 8]}).blocks) == 12
    assert len(plan({**IMAGE, "input": [1, 5, 5]}).blocks) == 12  # 5, 3, 2, 1
