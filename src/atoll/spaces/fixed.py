"""The papers' fixed networks: {"space": "fixed", "model": NAME, "input": [C, H, W] or [F], "classes": N, ...}.

| model       | settings besides input and classes (defaults)                                                    |
|-------------|--------------------------------------------------------------------------------------------------|
| `mlp`       | `hidden` ([200, 200]; []: logistic regression); takes tables, and images as rows of pixels        |
| `cnn`       | `filters` ([32, 64]), `kernel` (3), `hidden` ([128]): the sparse-evolution paper's network         |
| `resnet18`  | `widths` ([64, 128, 256, 512])                                                                    |
| `mobilenet` | `widths` (14: the stem's and the 13 separable blocks'): MobileNet v1                              |
| `convnet`   | `widths` (6): the pruning paper's simplified AlexNet                                              |

`width` (a factor, 1.0) scales the default `widths` where there are any. `norm` ("batch") is "group" for networks whose
rows do not influence each other; `mlp` and `cnn` have no norm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from atoll.core.messages import Schema
from atoll.errors import ArchitectureError, ConfigError, nearest
from atoll.spaces import skeleton
from atoll.spaces.layers import Conv2d, Perceptron, convolution, residual, separable
from atoll.spaces.norm import Norm, norm_of


def positive(arch: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A setting that must be a whole number of at least 1."""
    value: Any = arch.get(key, default)
    if not _counts(value):
        raise ArchitectureError(
            f"{arch['model']}: {key} = {value!r}: give a whole number of at least 1", code="invalid-setting"
        )
    return int(value)


def sizes(arch: Mapping[str, Any], key: str, default: Sequence[int], least: int = 1) -> list[int]:
    """A setting that must be a list of layer sizes, `least` of them or more."""
    value = arch.get(key, default)
    if not isinstance(value, (list, tuple)) or len(value) < least or not all(map(_counts, value)):
        raise ArchitectureError(
            f"{arch['model']}: {key} = {value!r}: give {'one or more ' if least else ''}whole numbers of at least 1, "
            f"for instance {list(default)}",
            code="invalid-setting",
        )
    return list(value)


def widths(arch: Mapping[str, Any], default: Sequence[int]) -> list[int]:
    """The channels of every stage: `widths`, or the default ones times `width`."""
    if "widths" in arch:
        if "width" in arch:
            raise ArchitectureError(
                f"{arch['model']} takes width or widths, not both: leave one out", code="conflicting-settings"
            )
        value = sizes(arch, "widths", default)
        if len(value) != len(default):
            raise ArchitectureError(
                f"{arch['model']}: widths has {len(value)} numbers, expected {len(default)}, "
                f"for instance {list(default)}",
                code="width-count-mismatch",
            )
        return value
    factor = arch.get("width", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor <= 16:
        raise ArchitectureError(
            f"{arch['model']}: width = {factor!r}: give a factor above 0 and at most 16, for instance 0.25",
            code="invalid-setting",
        )
    return [max(1, round(size * factor)) for size in default]


def input_shape(arch: Mapping[str, Any]) -> tuple[int, ...]:
    """(features,) or (channels, height, width)."""
    shape = arch.get("input")
    if not isinstance(shape, (list, tuple)) or len(shape) not in (1, 3) or not all(map(_counts, shape)):
        raise ArchitectureError(
            f"{arch['model']}: input = {shape!r}: give [features] for a table or [channels, height, width] for images",
            code="invalid-input-shape",
        )
    return tuple(shape)


def require_image(arch: Mapping[str, Any], halvings: int) -> tuple[int, int, int]:
    """The input shape, which must be an image that can be halved this many times."""
    shape = input_shape(arch)
    if len(shape) != 3:
        raise ArchitectureError(
            f"{arch['model']} needs images, but the input is a table of {shape[0]} features: use model 'mlp'",
            code="images-required",
        )
    channels, height, width = shape
    smallest = 2**halvings
    if min(height, width) < smallest:
        others = "'mlp'" if min(height, width) < 2 else "'mlp' or 'cnn'"
        raise ArchitectureError(
            f"an image of {height}x{width} is too small for {arch['model']}, which halves it {halvings} times and "
            f"needs at least {smallest}x{smallest}: use model {others}",
            code="image-too-small",
        )
    return channels, height, width


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


RESNET18 = (64, 128, 256, 512)
MOBILENET = (32, 64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
MOBILENET_HALVING = frozenset({2, 4, 6, 12})  # blocks counted from 1
CONVNET = (32, 32, 64, 64, 128, 128)


def build(arch: Mapping[str, Any]) -> nn.Module:
    """The network. Raises an `ArchitectureError` with the valid values if the architecture is invalid."""
    name = arch.get("model")
    if name not in MODELS:
        raise ArchitectureError(f"unknown model {name!r}; {nearest(str(name), MODELS)}", code="unknown-model")
    maker, own = MODELS[name]
    known = {"space", "model", "input", "classes", *own}
    for key in arch:
        if key not in known:
            raise ArchitectureError(f"{name}: unknown setting {key!r}; {nearest(key, known)}", code="unknown-setting")
    return maker(arch)


def mlp(arch: Mapping[str, Any]) -> nn.Module:
    features = 1
    for size in input_shape(arch):
        features *= size
    hidden = sizes(arch, "hidden", (200, 200), least=0)  # none: logistic regression
    return Perceptron([features, *hidden, positive(arch, "classes")])


def cnn(arch: Mapping[str, Any]) -> nn.Module:
    """Convolutions with 'same' padding, one 2x2 max-pool after the last, then fully connected layers."""
    channels, height, width = require_image(arch, halvings=1)
    kernel = positive(arch, "kernel", 3)
    if kernel % 2 == 0:
        raise ArchitectureError(
            f"cnn: kernel = {kernel}: 'same' padding needs an odd size, such as {kernel + 1}", code="even-kernel"
        )
    layers: list[nn.Module] = []
    for filters in sizes(arch, "filters", (32, 64)):
        layers += [Conv2d(channels, filters, kernel, padding=kernel // 2), nn.ReLU()]
        channels = filters
    features = channels * (height // 2) * (width // 2)
    head = Perceptron([features, *sizes(arch, "hidden", (128,)), positive(arch, "classes")])
    return nn.Sequential(*layers, nn.MaxPool2d(2), head)


def resnet18(arch: Mapping[str, Any]) -> nn.Module:
    """The variant for 32x32: a 3x3 stem and four stages of two residual blocks; the last three halve the image."""
    channels, _, _ = require_image(arch, halvings=3)
    stages = widths(arch, RESNET18)
    kind = norm_of(arch)
    layers: list[nn.Module] = [convolution(channels, stages[0], norm=kind)]
    before = stages[0]
    for number, after in enumerate(stages):
        layers += [residual(before, after, 2 if number else 1, kind), residual(after, after, norm=kind)]
        before = after
    return nn.Sequential(*layers, *_classifier(before, arch))


def mobilenet(arch: Mapping[str, Any]) -> nn.Module:
    """The stem halves only images of 64 pixels and more, so that 32x32 ends at 2x2 and 224x224 at the paper's 7x7."""
    channels, height, width = require_image(arch, halvings=len(MOBILENET_HALVING))
    stem, *blocks = widths(arch, MOBILENET)
    kind = norm_of(arch)
    layers: list[nn.Module] = [convolution(channels, stem, 2 if min(height, width) >= 64 else 1, kind)]
    before = stem
    for number, after in enumerate(blocks, start=1):
        layers.append(separable(before, after, 2 if number in MOBILENET_HALVING else 1, kind))
        before = after
    return nn.Sequential(*layers, *_classifier(before, arch))


def convnet(arch: Mapping[str, Any]) -> nn.Module:
    """Six 3x3 convolutions with a 2x2 max-pool after every second one, then one linear layer."""
    channels, height, width = require_image(arch, halvings=3)
    layers: list[nn.Module] = []
    for number, after in enumerate(widths(arch, CONVNET), start=1):
        layers.append(convolution(channels, after, norm=norm_of(arch)))
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
    "resnet18": (resnet18, frozenset({"widths", "width", "norm"})),
    "mobilenet": (mobilenet, frozenset({"widths", "width", "norm"})),
    "convnet": (convnet, frozenset({"widths", "width", "norm"})),
}


SMALLEST_FOR_CONVNET = 16  # below, an MLP is as accurate and ten times faster
USUAL_HIDDEN = {"mlp": (200, 200), "cnn": (128,)}
USUAL_WIDTHS = {"resnet18": RESNET18, "mobilenet": MOBILENET, "convnet": CONVNET}


def architecture_for(
    model: str,
    schema: Schema,
    hidden: Sequence[int] | None = None,
    widths: Sequence[int] | None = None,
    norm: Norm = "batch",
) -> dict[str, Any]:
    """The complete architecture of this model for this data; `auto` chooses a small model that suits the data."""
    if model == "auto":
        model, hidden, widths = _automatic(schema, hidden, widths)
    arch: dict[str, Any] = {
        "space": "fixed",
        "model": model,
        "input": list(schema.shape),
        "classes": schema.outputs,
    }
    if model in MODELS:  # an unknown model is reported below
        for key, value, usual in (("hidden", hidden, USUAL_HIDDEN), ("widths", widths, USUAL_WIDTHS)):
            if value is not None and model not in usual:
                raise ConfigError(
                    f"{key} = {list(value)}: model {model!r} has no such setting; leave it out",
                    code="inapplicable-setting",
                )
            if model in usual:
                arch[key] = list(value if value is not None else usual[model])
        if norm != "batch":  # left out otherwise: architectures without it are as they always were
            if "norm" not in MODELS[model][1]:
                raise ConfigError(
                    f"norm = {norm!r}: model {model!r} has no norm; leave it out", code="inapplicable-setting"
                )
            arch["norm"] = norm
    skeleton(arch)  # reports what does not fit before a run starts
    return arch


def _automatic(
    schema: Schema,
    hidden: Sequence[int] | None,
    widths: Sequence[int] | None,
) -> tuple[str, Sequence[int] | None, Sequence[int] | None]:
    tiny = schema.kind == "table" or min(schema.shape[1:]) < SMALLEST_FOR_CONVNET
    if hidden is not None or (tiny and widths is None):
        return "mlp", (64, 32) if hidden is None else hidden, widths
    return "convnet", hidden, widths or (16, 16, 32, 32, 64, 64)
