"""Resources of small networks, computed by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from atoll.devices import DeviceProfile, LayerRow, LayerTable, device_profile
from atoll.devices.resources import DEVICE_RESOURCES, RESOURCES, measure, trace
from atoll.errors import ConfigError
from atoll.spaces import cost
from refusals import refused

MLP = {"space": "fixed", "model": "mlp", "input": [4], "hidden": [3], "classes": 2}
GENOME = {
    "space": "genome",
    "input": [3],
    "classes": 1,
    "nodes": [["o0", "sigmoid", "sum"]],
    "connections": [["i0", "o0"], ["i2", "o0"]],
}
SPARSE = {
    "space": "sparse",
    "model": "mlp",
    "input": [64],
    "classes": 4,
    "hidden": [16],
    "epsilon": 2,
    "graph": 1,
}
DEVICE = DeviceProfile(macs_per_second=10.0, uplink=1.0, downlink=1.0, joules_per_mac=3.0, seconds_per_layer=0.5)


def test_a_perceptron_by_hand() -> None:
    """4-3-2: 12 + 6 MACs, 15 + 8 parameters. The first layer reads 4 numbers and writes 3: 7 x 4 bytes live."""
    assert measure(MLP, "macs") == 18
    assert measure(MLP, "params") == 23
    assert measure(MLP, "upload_bytes") == 92
    assert measure(MLP, "memory") == 92 + 28
    assert measure(MLP, "latency", DEVICE) == pytest.approx((0.5 + 1.2) + (0.5 + 0.6))
    assert measure(MLP, "energy", DEVICE) == pytest.approx(54)


def test_a_residual_block_keeps_its_shortcut_alive() -> None:
    """64 channels of 32x32 are 262,144 bytes; in a basic block's second convolution input, output and shortcut live."""
    arch = {"space": "fixed", "model": "resnet18", "input": [3, 32, 32], "classes": 10}
    assert measure(arch, "memory") == cost(arch).bytes + 3 * 262_144


def test_what_pooling_and_norms_keep_aside_is_not_counted() -> None:
    """A 2x2 pool over 3x4x4 reads 48 numbers and writes 12; the indices of the maxima are never read."""

    class Pooled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.max_pool2d(nn.functional.batch_norm(x, None, None, training=True), 2)

    assert trace(Pooled(), (3, 4, 4)).activations == 4 * max(48 + 48, 48 + 12)


def test_views_share_memory_and_a_tensor_read_late_lives_long() -> None:
    """x is read again at the end: 6 numbers of x, 6 of 2x, 6 of 2x + 1; flattening adds nothing."""

    class Late(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = x.flatten(1) * 2 + 1
            return y - x.flatten(1)

    assert trace(Late(), (2, 3)).activations == 4 * 18


def test_layers_of_a_separable_block_are_distinguished() -> None:
    with torch.device("meta"):
        block = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 5, 1)
        )
    stem, depthwise, pointwise = trace(block, (3, 8, 8)).layers
    assert stem.shape == ("convolution", 3, 8, 3, 2, 4, 4)
    assert depthwise.shape == ("depthwise", 8, 8, 3, 1, 4, 4)
    assert pointwise.shape == ("pointwise", 8, 5, 1, 1, 4, 4)
    assert [layer.macs for layer in (stem, depthwise, pointwise)] == [16 * 216, 16 * 72, 16 * 40]


@pytest.mark.parametrize("model", ["mlp", "cnn", "resnet18", "mobilenet", "convnet"])
def test_layers_hold_all_macs(model: str) -> None:
    arch = {"space": "fixed", "model": model, "input": [3, 32, 32], "classes": 10}
    plain = DeviceProfile(macs_per_second=1.0, uplink=1.0, downlink=1.0, joules_per_mac=1.0)
    assert measure(arch, "latency", plain) == measure(arch, "energy", plain) == cost(arch).macs


@pytest.mark.parametrize("arch", [GENOME, SPARSE])
@pytest.mark.parametrize("kind", RESOURCES)
def test_every_space_has_every_resource(arch: dict[str, object], kind: str) -> None:
    assert measure(arch, kind, device_profile("phone")) > 0


def test_links_of_an_evolved_network_go_at_the_plain_rate() -> None:
    assert measure(GENOME, "latency", DEVICE) == pytest.approx(2 / 10)


def test_a_row_of_the_same_shape_decides() -> None:
    row = LayerRow(kind="linear", inputs=4, outputs=3, seconds=7.0, joules=9.0)
    other = LayerRow(kind="linear", inputs=3, outputs=2, seconds=2.0)
    device = DEVICE.model_copy(update={"layers": LayerTable((row, other))})
    assert measure(MLP, "latency", device) == 9.0
    # The second layer's row has no joules: 6 MACs on the line from 0 at zero to 9 at 12.
    assert measure(MLP, "energy", device) == 9.0 + 4.5


def test_bad_kinds_are_one_line() -> None:
    with refused(ConfigError, "unknown-resource", "'latncy'", "'latency'"):
        measure(MLP, "latncy")
    for kind in sorted(DEVICE_RESOURCES):
        with refused(ConfigError, "device-not-named", kind):
            measure(MLP, kind)
