"""The papers' fixed networks: {"space": "fixed", "model": NAME, "input": [C, H, W] or [F], "classes": N, ...}.

| model       | settings besides input and classes (defaults)                                                    |
|-------------|--------------------------------------------------------------------------------------------------|
| `mlp`       | `hidden` ([200, 200]); takes tables, and images as rows of pixels                                 |
| `cnn`       | `filters` ([32, 64]), `kernel` (3), `hidden` ([128]): the sparse-evolution paper's network         |
| `resnet18`  | `widths` ([64, 128, 256, 512])                                                                    |
| `mobilenet` | `widths` (14: the stem's and the 13 separable blocks'): MobileNet v1                              |
| `convnet`   | `widths` (6): the pruning paper's simplified AlexNet                                              |

`width` (a factor, 1.0) scales the default `widths` where there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from atoll.errors import ArchitectureError, nearest
from atoll.spaces.fixed_checks import input_shape, positive, require_image, sizes, widths
from atoll.spaces.layers import Conv2d, Perceptron, convolution, residual, separable

RESNET18 = (64, 128, 256, 512)
MOBILENET = (32, 64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
MOBILENET_HALVING = frozenset({2, 4, 6, 12})  # blocks counted from 1
CONVNET = (32, 32, 64, 64, 128, 128)


def build(arch: Mapping[str, Any]) -> nn.Module:
    """The network, or an `ArchitectureError` that names what fits."""
    name = arch.get("model")
    if name not in MODELS:
        raise ArchitectureError(f"unknown model {name!r}; {nearest(str(name), MODELS)}", code="unknown-model")
    maker, own = MODELS[name]
    known = {"space", "model", "input", "classes", *own}
    for key in arch:
        if key not in known:
            raise ArchitectureError(f"unknown setting {key!r} of {name}; {nearest(key, known)}", code="unknown-setting")
    return maker(arch)


def mlp(arch: Mapping[str, Any]) -> nn.Module:
    features = 1
    for size in input_shape(arch):
        features *= size
    return Perceptron([features, *sizes(arch, "hidden", (200, 200)), positive(arch, "classes")])


def cnn(arch: Mapping[str, Any]) -> nn.Module:
    """Convolutions with 'same' padding, one 2x2 max-pool after the last, then fully connected layers."""
    channels, height, width = require_image(arch, halvings=1)
    kernel = positive(arch, "kernel", 3)
    if kernel % 2 == 0:
        raise ArchitectureError(
            f"kernel = {kernel} of cnn: 'same' padding needs an odd size, such as {kernel + 1}", code="even-kernel"
        )
    layers: list[nn.Module] = []
    for filters in sizes(arch, "filters", (32, 64)):
        layers += [Conv2d(channels, filters, kernel, padding=kernel // 2), nn.ReLU()]
        channels = filters
    features = channels * (height // 2) * (width // 2)
    head = Perceptron([features, *sizes(arch, "hidden", (128,)), positive(arch, "classes")])
    return nn.Sequential(*layers, nn.MaxPool2d(2), head)


def resnet18(arch: Mapping[str, Any]) -> nn.Module:
    """The form for 32x32: a 3x3 stem, four stages of two residual blocks, the last three halving the image."""
    channels, _, _ = require_image(arch, halvings=3)
    stages = widths(arch, RESNET18)
    layers: list[nn.Module] = [convolution(channels, stages[0])]
    before = stages[0]
    for number, after in enumerate(stages):
        layers += [residual(before, after, stride=2 if number else 1), residual(after, after)]
        before = after
    return nn.Sequential(*layers, *_classifier(before, arch))


def mobilenet(arch: Mapping[str, Any]) -> nn.Module:
    """The stem halves images of 64 pixels and more only, so that 32x32 ends at 2x2 and 224x224 at the paper's 7x7."""
    channels, height, width = require_image(arch, halvings=len(MOBILENET_HALVING))
    stem, *blocks = widths(arch, MOBILENET)
    layers: list[nn.Module] = [convolution(channels, stem, stride=2 if min(height, width) >= 64 else 1)]
    before = stem
    for number, after in enumerate(blocks, start=1):
        layers.append(separable(before, after, stride=2 if number in MOBILENET_HALVING else 1))
        before = after
    return nn.Sequential(*layers, *_classifier(before, arch))


def convnet(arch: Mapping[str, Any]) -> nn.Module:
    """Six 3x3 convolutions, a 2x2 max-pool after every second one, one linear layer over what is left."""
    channels, height, width = require_image(arch, halvings=3)
    layers: list[nn.Module] = []
    for number, after in enumerate(widths(arch, CONVNET), start=1):
        layers.append(convolution(channels, after))
        if number % 2 == 0:
            layers.append(nn.MaxPool2d(2))
        channels = after
    features = channels * (height // 8) * (width // 8)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, positive(arch, "classes")))


def _classifier(channels: int, arch: Mapping[str, Any]) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, positive(arch, "classes"))]


Maker = Callable[[Mapping[str, Any]], nn.Module]
MODELS: dict[str, tuple[Maker, frozenset[str]]] = {
    "mlp": (mlp, frozenset({"hidden"})),
    "cnn": (cnn, frozenset({"filters", "kernel", "hidden"})),
    "resnet18": (resnet18, frozenset({"widths", "width"})),
    "mobilenet": (mobilenet, frozenset({"widths", "width"})),
    "convnet": (convnet, frozenset({"widths", "width"})),
}
