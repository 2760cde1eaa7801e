"""Fixed networks: sizes that can be counted by hand, and descriptions that cannot be built."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from atoll.errors import ArchitectureError
from atoll.spaces import build, cost, skeleton
from atoll.spaces.fixed import MODELS
from atoll.spaces.layers import Conv2d
from atoll.spaces.norm import batch_norms
from refusals import refused


def fixed(model: str, shape: list[int], classes: int = 10, **rest: Any) -> dict[str, Any]:
    return {"space": "fixed", "model": model, "input": shape, "classes": classes, **rest}


def test_mlp_has_the_papers_parameters() -> None:
    arch = fixed("mlp", [784])
    assert cost(arch).params == 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10 == 199_210
    assert cost(arch).macs == 784 * 200 + 200 * 200 + 200 * 10
    assert cost(arch).bytes == 4 * 199_210


def test_mlp_takes_tables_images_and_any_depth() -> None:
    assert cost(fixed("mlp", [1, 28, 28])).params == 199_210
    assert cost(fixed("mlp", [30], 2, hidden=[16])).params == 30 * 16 + 16 + 16 * 2 + 2


def test_cnn_has_the_papers_parameters() -> None:
    arch = fixed("cnn", [1, 28, 28])
    convolutions = 9 * 32 + 32 + 9 * 32 * 64 + 64
    dense = 12544 * 128 + 128 + 128 * 10 + 10
    assert cost(arch).params == convolutions + dense == 1_625_866
    assert cost(arch).macs == 784 * 9 * (32 + 32 * 64) + 12544 * 128 + 128 * 10


def test_resnet18_macs_match_a_sum_by_hand() -> None:
    widths, side, total = [64, 128, 256, 512], 32, 32 * 32 * 9 * 3 * 64
    before = 64
    for after in widths:
        if after != before:
            side //= 2
            total += side * side * before * after  # the shortcut
        total += side * side * 9 * (before * after + 3 * after * after)  # two blocks of two convolutions
        before = after
    total += 512 * 10
    assert cost(fixed("resnet18", [3, 32, 32])).macs == total == 555_422_720


def test_resnet18_has_no_parameters_in_its_norms() -> None:
    module = skeleton(fixed("resnet18", [3, 32, 32]))
    assert len(batch_norms(module)) == 20
    assert [name for name, _ in module.named_parameters() if name.endswith("bias")] == ["11.bias"]
    assert cost(fixed("resnet18", [3, 32, 32])).params == 11_164_362


def test_mobilenet_is_the_papers_on_its_own_images() -> None:
    # the paper: 569 million multiply-adds and 4.2 million parameters
    assert cost(fixed("mobilenet", [3, 224, 224], 1000)).macs == 568_740_352
    assert cost(fixed("mobilenet", [3, 224, 224], 1000)).params == 4_210_088


def test_mobilenet_on_small_images_matches_a_sum_by_hand() -> None:
    widths = [32, 64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024]
    side, total = 32, 32 * 32 * 27 * 32
    for number in range(1, 14):
        side //= 2 if number in (2, 4, 6, 12) else 1
        total += side * side * (9 * widths[number - 1] + widths[number - 1] * widths[number])
    assert side == 2
    assert cost(fixed("mobilenet", [3, 32, 32])).macs == total + 1024 * 10


def test_convnet_has_six_convolutions_and_one_linear_layer() -> None:
    module = skeleton(fixed("convnet", [3, 32, 32]))
    shapes = [tuple(parameter.shape) for parameter in module.parameters()]
    assert [len(shape) for shape in shapes] == [4, 4, 4, 4, 4, 4, 2, 1]
    assert shapes[6] == (10, 128 * 4 * 4)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("cnn", [1, 9, 7]),
        ("resnet18", [1, 8, 8]),
        ("mobilenet", [3, 17, 30]),
        ("mobilenet", [3, 64, 64]),
        ("convnet", [2, 13, 9]),
        ("mlp", [2, 3, 4]),
    ],
)
def test_networks_take_any_image_that_is_large_enough(model: str, shape: list[int]) -> None:
    thin = {"width": 0.125} if "width" in MODELS[model][1] else {}
    module = build(fixed(model, shape, 3, **thin))
    assert module(torch.ones(4, *shape)).shape == (4, 3)


def test_widths_thin_a_network() -> None:
    by_factor = cost(fixed("resnet18", [3, 32, 32], width=0.25))
    assert by_factor == cost(fixed("resnet18", [3, 32, 32], widths=[16, 32, 64, 128]))
    assert by_factor.macs < 555_422_720 / 15


@pytest.mark.parametrize(
    ("arch", "code", "named"),
    [
        (fixed("resnet", [3, 32, 32]), "unknown-model", ["'resnet'", "'resnet18'"]),
        (fixed("mlp", [784], hidden=[0]), "invalid-setting", ["hidden = [0]"]),
        (fixed("mlp", [784], hidden=[200, 0]), "invalid-setting", ["hidden = [200, 0]"]),
        (fixed("mlp", [784], hidden=200), "invalid-setting", ["hidden = 200", "[200, 200]"]),
        (fixed("mlp", [784], hidden=[True]), "invalid-setting", ["hidden = [True]"]),
        (fixed("mlp", [784], classes=0), "invalid-setting", ["classes = 0"]),
        (fixed("mlp", [28, 28]), "invalid-input-shape", ["input = [28, 28]"]),
        (fixed("mlp", [784], widths=[3]), "unknown-setting", ["'widths'", "hidden"]),
        (fixed("cnn", [30]), "images-required", ["30 features", "'mlp'"]),
        (fixed("cnn", [1, 28, 28], kernel=4), "even-kernel", ["kernel = 4", "5"]),
        (fixed("cnn", [1, 1, 28]), "image-too-small", ["1x28", "2x2", "'mlp'"]),
        (fixed("mobilenet", [1, 8, 8]), "image-too-small", ["8x8", "16x16", "'cnn'"]),
        (fixed("resnet18", [1, 7, 32]), "image-too-small", ["7x32", "8x8"]),
        (fixed("resnet18", [3, 32, 32], widths=[8, 8]), "width-count-mismatch", ["widths", "2", "4"]),
        (fixed("resnet18", [3, 32, 32], width=0), "invalid-setting", ["width = 0", "0.25"]),
        (fixed("resnet18", [3, 32, 32], width=1, widths=[1, 1, 1, 1]), "conflicting-settings", ["width", "widths"]),
        ({"space": "fixd", "model": "mlp"}, "unknown-space", ["'fixd'", "'fixed'"]),
        ({"model": "mlp"}, "unknown-space", ["None"]),
    ],
)
def test_what_cannot_be_built_is_one_line_that_names_what_fits(
    arch: dict[str, Any], code: str, named: list[str]
) -> None:
    with refused(ArchitectureError, code, *named) as caught:
        build(arch)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("inputs", "outputs"), [(6, 4), (4, 2), (8, 8), (3, 5)])
def test_a_pointwise_convolution_with_a_stride_is_exact(inputs: int, outputs: int) -> None:
    """torch's own kernel is wrong here on processors without AVX-512: gradients of images in channels-last order."""
    rng = np.random.default_rng(0)
    layer = Conv2d(inputs, outputs, 1, stride=2, bias=False)
    layer.weight.data = torch.tensor(rng.normal(size=(outputs, inputs, 1, 1)), dtype=torch.float32)
    x = torch.tensor(rng.normal(size=(16, inputs, 8, 8)), dtype=torch.float32).to(memory_format=torch.channels_last)
    x.requires_grad_()
    y = layer(x)
    by_weight, by_image = torch.autograd.grad(y.sin().sum(), [layer.weight, x])
    weight, image = layer.weight.double().detach().requires_grad_(), x.double().detach().requires_grad_()
    wanted = torch.einsum("oi,nihw->nohw", weight[:, :, 0, 0], image[:, :, ::2, ::2])
    exact = torch.autograd.grad(wanted.sin().sum(), [weight, image])
    assert torch.allclose(y.double(), wanted, atol=1e-5)
    assert torch.allclose(by_weight.double(), exact[0], atol=1e-4)
    assert torch.allclose(by_image.double(), exact[1], atol=1e-4)


class Convolutions(TorchDispatchMode):
    """Strides and dilations of the convolutions that torch computes, with their backward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[Any, ...]] = set()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if operation.overloadpacket is torch.ops.aten.convolution:
            self.seen.add((tuple(args[3]), tuple(args[5])))
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize(("kernel", "size"), [(3, 8), (5, 8), (3, 7), (5, 9)])
def test_a_convolution_dilated_by_its_stride_reads_a_subsampled_image(kernel: int, size: int) -> None:
    """Exact, with a gradient in the order of the image, and without torch's slow backward pass."""
    rng = np.random.default_rng(0)
    layer = Conv2d(6, 6, kernel, stride=2, padding=kernel - 1, dilation=2, groups=6, bias=False)
    x = torch.tensor(rng.normal(size=(4, 6, size, size)), dtype=torch.float32).to(memory_format=torch.channels_last)
    x.requires_grad_()
    with Convolutions() as convolutions:
        y = layer(x)
    assert convolutions.seen == {((1, 1), (1, 1))}
    by_weight, by_image = torch.autograd.grad(y.sin().sum(), [layer.weight, x])
    assert by_image.is_contiguous(memory_format=torch.channels_last)
    weight, image = layer.weight.double().detach().requires_grad_(), x.double().detach().requires_grad_()
    wanted = torch.nn.functional.conv2d(image, weight, stride=2, padding=kernel - 1, dilation=2, groups=6)
    exact = torch.autograd.grad(wanted.sin().sum(), [weight, image])
    assert y.shape == wanted.shape and torch.allclose(y.double(), wanted, atol=1e-5)
    assert torch.allclose(by_weight.double(), exact[0], atol=1e-4)
    assert torch.allclose(by_image.double(), exact[1], atol=1e-4)


@pytest.mark.parametrize("window", [{"padding": 1, "dilation": 2}, {"padding": 2, "dilation": 1}, {"padding": 1}])
def test_other_strided_convolutions_are_torch_s_own(window: dict[str, int]) -> None:
    layer = Conv2d(2, 3, 3, stride=2, **window)
    x = torch.tensor(np.random.default_rng(0).normal(size=(2, 2, 9, 8)), dtype=torch.float32)
    assert torch.equal(layer(x), torch.nn.functional.conv2d(x, layer.weight, layer.bias, stride=2, **window))
