"""Described networks: equal to what they were traced from, and buildable from text alone."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from atoll.core.messages import Tensors
from atoll.errors import ArchitectureError
from atoll.spaces import build, canonical, cost, initial, skeleton
from atoll.spaces.cost import measured_cost
from atoll.spaces.norm import batch_norms
from atoll.spaces.pruned.plan import read
from atoll.spaces.pruned.space import describe, from_fixed
from atoll.training.calibration import calibrate, fixed_module, statistics_form
from atoll.training.networks import load, network
from atoll.training.sgd import TrainSettings, train
from made_modules import CLASSES, SHAPE, Grouped, GroupNormed, Joined, Repeated, batch, weighted
from refusals import refused

FIXED = [
    ("mlp", [1, 6, 6], {"hidden": [7, 5]}),
    ("mlp", [9], {"hidden": [4]}),
    ("cnn", [1, 8, 8], {"filters": [3, 4], "hidden": [6]}),
    ("convnet", [3, 16, 16], {"width": 0.125}),
    ("mobilenet", [3, 16, 16], {"width": 0.0625}),
    ("resnet18", [3, 16, 16], {"width": 0.0625}),
]
OWN = [Joined, Grouped, GroupNormed, Repeated]


def fixed(model: str, shape: list[int], settings: dict[str, Any]) -> dict[str, Any]:
    return {"space": "fixed", "model": model, "input": shape, "classes": 10, **settings}


def weights_of(module: nn.Module) -> Tensors:
    return Tensors({name: parameter.detach().numpy().copy() for name, parameter in module.named_parameters()})


@pytest.mark.parametrize(("model", "shape", "settings"), FIXED)
def test_atolls_own_networks_keep_names_weights_outputs_and_costs(
    model: str, shape: list[int], settings: dict[str, Any]
) -> None:
    origin = fixed(model, shape, settings)
    arch = from_fixed(origin)
    weights = initial(origin, np.random.default_rng(1))
    same = initial(arch, np.random.default_rng(1))
    assert list(weights) == list(same)
    assert all(np.array_equal(weights[name], same[name]) for name in weights)
    x = batch(5, tuple(shape))
    outputs = []
    for one in (origin, arch):
        module = build(one)
        load(module, weights)
        outputs.append(module(x))
    assert torch.equal(*outputs)
    assert cost(arch) == cost(origin) == measured_cost(skeleton(arch), tuple(shape))


@pytest.mark.parametrize("kind", OWN)
def test_a_users_module_is_rebuilt_from_text_and_weights(kind: type[nn.Module]) -> None:
    module = weighted(kind())
    text = json.dumps(describe(module, SHAPE, CLASSES))
    arch = json.loads(text)
    client = network(arch)  # as a client does: from the description, as canonical JSON
    assert {name for name, _ in client.named_parameters()} == {name for name, _ in module.named_parameters()}
    load(client, weights_of(module))
    x = batch()
    torch.testing.assert_close(client(x), module.train()(x), rtol=1e-5, atol=1e-6)
    assert cost(arch) == measured_cost(skeleton(arch), SHAPE)


@pytest.mark.parametrize("kind", OWN)
def test_describing_leaves_the_module_and_the_random_state_alone(kind: type[nn.Module]) -> None:
    module = weighted(kind()).eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    state = torch.get_rng_state()
    first = describe(module, SHAPE, CLASSES)
    assert torch.equal(torch.get_rng_state(), state)
    assert not module.training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert describe(build(first), SHAPE, CLASSES) == first  # and what was built can be described again


def test_running_averages_are_not_used_and_affine_parameters_are() -> None:
    module = weighted(Joined())
    client = build(describe(module, SHAPE, CLASSES))
    load(client, weights_of(module))
    assert {name for name, _ in client.named_parameters() if "norm" in name} == {
        f"{layer}_norm.{kind}" for layer in ("inner", "outer") for kind in ("weight", "bias")
    }
    assert not list(client.buffers())
    with torch.no_grad():
        assert not torch.allclose(client.eval()(batch()), module.eval()(batch()), atol=1e-3)
        assert torch.equal(client.eval()(batch()), client.train()(batch()))


def test_calibration_fixes_the_statistics_of_a_described_network() -> None:
    module = weighted(Joined())
    arch = describe(module, SHAPE, CLASSES)
    x = batch(40).numpy()
    sums = calibrate(network(arch), weights_of(module), x, batch=40)
    assert {name: array.shape for name, array in sums.items()} == {
        name: array.shape for name, array in statistics_form(arch).items()
    }
    ready = fixed_module(arch, weights_of(module), sums)
    assert len(batch_norms(ready)) == 3
    together = ready(torch.tensor(x))
    torch.testing.assert_close(together, module.train()(torch.tensor(x)), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ready(torch.tensor(x[:1])), together[:1], rtol=1e-4, atol=1e-5)


def test_a_described_network_learns_as_the_fixed_one_does() -> None:
    origin = fixed("convnet", [1, 8, 8], {"widths": [2, 3, 4, 5, 6, 7]})
    weights = initial(origin, np.random.default_rng(0))
    x, y = batch(30, (1, 8, 8)).numpy(), np.arange(30) % 10
    settings = TrainSettings(epochs=2, batch=10, lr=0.05, momentum=0.5)
    one, other = (
        train(network(arch), weights, x, y, settings, np.random.default_rng(5)).weights
        for arch in (origin, from_fixed(origin))
    )
    assert all(np.array_equal(one[name], other[name]) for name in weights)
    assert any(not np.array_equal(one[name], weights[name]) for name in weights)


def test_the_description_of_a_small_network_by_hand() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Dropout(0.0), nn.Linear(3, 2, bias=False))
    arch = describe(module, [4], 2)
    assert arch == {
        "space": "widths",
        "input": [4],
        "classes": 2,
        "layers": {
            "0": {"kind": "linear", "inputs": 4, "outputs": 3},
            "3": {"kind": "linear", "inputs": 3, "outputs": 2, "bias": False},
        },
        "program": [
            {"op": "layer", "of": [0], "name": "0"},
            {"op": "relu", "of": [1]},
            {"op": "layer", "of": [2], "name": "3"},
        ],
    }
    assert cost(arch).macs == 4 * 3 + 3 * 2
    assert cost(arch).params == 4 * 3 + 3 + 3 * 2
    assert [shape for *_, shape in read(arch).uses()] == [(3,), (2,)]


def test_unused_layers_and_calls_are_left_out() -> None:
    class Wasteful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle, self.never = nn.Linear(4, 2), nn.Linear(4, 3), nn.Linear(1, 1)

        def forward(self, x: Tensor) -> Tensor:
            torch.relu(self.idle(x))
            return self.used(x)

    arch = describe(Wasteful(), [4], 2)
    assert list(arch["layers"]) == ["used"]
    assert len(arch["program"]) == 1


def test_order_of_layers_in_the_text_changes_nothing() -> None:
    arch = from_fixed(fixed("mobilenet", [3, 16, 16], {"width": 0.0625}))
    sorted_arch = json.loads(canonical(arch))
    assert list(sorted_arch["layers"]) != list(arch["layers"])
    names = [name for name, _ in skeleton(arch).named_parameters()]
    assert [name for name, _ in skeleton(sorted_arch).named_parameters()] == names


class Spellings(nn.Module):
    """Many forms of the same few operations."""

    def __init__(self) -> None:
        super().__init__()
        self.type_a = nn.Conv2d(3, 4, 3, padding="same", dilation=2)
        self.type_b = nn.Conv2d(4, 4, (1, 3), padding="valid")
        self.pools = nn.Sequential(
            nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.AvgPool2d(2, 1, 1, count_include_pad=False), nn.ReLU6()
        )
        self.answer = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor, unused: Tensor | None = None) -> Tensor:
        x = self.type_b(self.type_a(input=x)).relu_()
        y = x.add(1).mul(0.5) - 3
        y = 1 - y / 4 + (-x) + sum([x, y])
        y = torch.sub(functional.elu(y, 0.5), functional.softplus(y)).sigmoid() * functional.mish(x)
        y = functional.hardtanh(self.pools(functional.gelu(y, approximate="tanh")), 0.0, 6.0)
        y = functional.avg_pool2d(y, (y.size(dim=2), y.shape[-1])).squeeze()
        return functional.log_softmax(self.answer(y.contiguous()), dim=-1)


def test_functions_methods_and_operators_say_the_same() -> None:
    module = weighted(Spellings())
    client = build(describe(module, SHAPE, CLASSES))
    load(client, weights_of(module))
    torch.testing.assert_close(client(batch()), module(batch()), rtol=1e-5, atol=1e-6)


def test_a_value_changed_in_place_is_read_changed() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.act, self.answer = nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            y = self.act(x)
            return self.answer(x + y)  # twice the rectified value

    module = weighted(Early())
    client = build(describe(module, [4], 2))
    load(client, weights_of(module))
    assert torch.equal(client(batch(6, (4,))), module(batch(6, (4,))))


class Refused(nn.Module):
    """A network that does one thing more than it may."""

    def __init__(self, what: Any, *layers: nn.Module) -> None:
        super().__init__()
        self.what = what
        self.layers = nn.ModuleList(layers)
        self.scale = nn.Parameter(torch.ones(1))
        self.answer = nn.Linear(192, CLASSES)

    def forward(self, x: Tensor) -> Any:
        return self.what(self, x)


def branching(self: Refused, x: Tensor) -> Tensor:
    return self.answer(x.flatten(1)) if x.sum() > 0 else self.answer(-x.flatten(1))


def through(self: Refused, x: Tensor) -> Tensor:
    return self.answer(self.layers[0](x).flatten(1))


def behind_the_back(self: Refused, x: Tensor) -> Tensor:
    y = self.layers[0](x)
    z = y
    z += 1.0
    return self.answer((y * z).flatten(1))


REFUSED: list[tuple[Any, list[nn.Module], str, list[str]]] = [
    (branching, [], "untraceable-forward", ["test_widths.py, line"]),
    (lambda self, x: self.answer(torch.sort(x)[0].flatten(1)), [], "unsupported-operation", ["sort", "test_widths.py"]),
    (through, [nn.Dropout(0.5)], "active-dropout", ["p = 0.5"]),
    (lambda self, x: self.answer((x * self.scale).flatten(1)), [], "parameter-outside-layer", ["'scale'"]),
    (lambda self, x: self.answer(x[:, :, ::2].flatten(1)), [], "unsupported-indexing", ["x[...]"]),
    (lambda self, x: self.answer(x.reshape(x.size(0), 6, 4, 8).flatten(1)), [], "unsupported-reshape", ["6, 4, 8"]),
    (lambda self, x: self.layers[0](x)[0], [nn.LSTM(8, 5)], "unsupported-operation", ["'layers.0'", "LSTM"]),
    (lambda self, x: (self.answer(x.flatten(1)), x), [], "not-a-single-tensor", []),
    (lambda self, x: self.answer(torch.cat([x, x], 2).flatten(1)), [], "unsupported-arguments", ["cat", "axis 2"]),
    (lambda self, x: self.answer(x.mean(1)), [], "unsupported-arguments", ["mean", "axes 1"]),
    (through, [nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")], "unsupported-arguments", ["'reflect'"]),
    (through, [nn.Conv2d(3, 4, 3, padding=1)], "shape-mismatch", ["192 features", "256"]),
    (through, [nn.Conv2d(4, 3, 1)], "shape-mismatch", ["4 channels", "3"]),
    (lambda self, x: self.answer(x), [], "flat-rows-required", ["[3, 8, 8]"]),
    (lambda self, x: functional.avg_pool2d(x, x.size(1)), [], "shape-dependent-argument", ["avg_pool2d"]),
    (behind_the_back, [nn.ReLU()], "description-disagrees", []),
    (lambda self, x: torch.nn.functional.relu(x).nonsense(), [], "unsupported-operation", ["nonsense"]),
    (lambda self, x: self.answer(x.view(x.size(7), -1)), [], "unsupported-arguments", ["size"]),
    (lambda self, x: functional.relu(x, slope=1), [], "untraceable-forward", ["relu", "slope"]),
]  # fmt: skip


@pytest.mark.parametrize(("what", "layers", "code", "named"), REFUSED)
def test_what_cannot_be_followed_is_named_in_one_line(
    what: Any, layers: list[nn.Module], code: str, named: list[str]
) -> None:
    with refused(ArchitectureError, code, "Refused", *named) as caught:
        describe(Refused(what, *layers), SHAPE, CLASSES)
    assert "\n" not in str(caught.value)


def test_shared_parameters_hooks_and_other_classes_counts_are_refused() -> None:
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    with refused(ArchitectureError, "shared-parameter", "'0'", "'1'"):
        describe(tied, [4], 4)
    hooked = nn.Sequential(nn.Linear(4, 4))
    hooked[0].register_forward_hook(lambda *_: None)
    with refused(ArchitectureError, "layer-with-hooks", "'0'"):
        describe(hooked, [4], 4)
    with refused(ArchitectureError, "output-shape-mismatch", "[4]", "3 classes"):
        describe(nn.Sequential(nn.Linear(4, 4)), [4], 3)
    with refused(ArchitectureError, "empty-network"):
        describe(nn.Identity(), [4], 4)
