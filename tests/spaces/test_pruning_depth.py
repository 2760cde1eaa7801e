"""Blocks that can be left out: which there are, and what is left without one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from atoll import spaces
from atoll.core.messages import Schema, Tensors
from atoll.rng import stream
from atoll.spaces.pruned import pruning
from atoll.spaces.pruned.depth import blocks, names_without, without
from atoll.spaces.pruned.space import describe
from atoll.spaces.pruned.start import start_architecture

IMAGES = Schema("image", (1, 28, 28), tuple("0123456789"))


@pytest.mark.parametrize(
    ("model", "starts"),
    [
        ("convnet", ["1.0", "4.0", "7.0"]),  # the second of each pair of equal convolutions
        ("mobilenet", ["3.0", "5.0", "7.0", "8.0", "9.0", "10.0", "11.0", "13.0"]),  # stride 1, as many out as in
        ("resnet18", [f"{number}.branch.0.0" for number in (1, 2, 4, 6, 8)]),  # blocks without a projection
    ],
)
def test_blocks_of_the_usual_networks(model: str, starts: list[str]) -> None:
    arch = start_architecture(model, IMAGES, None, None, None)
    found = blocks(arch)
    assert [block.layers[0] for block in found] == starts
    weights = spaces.initial(arch, stream(1))
    for block in found:
        shorter = without(arch, block)
        kept = names_without(weights, block)
        assert set(kept) == {name for name, _ in spaces.skeleton(shorter).named_parameters()}
        assert spaces.cost(shorter).macs < spaces.cost(arch).macs
        assert pruning.units(shorter), "and it can be pruned further"


class Small(nn.Module):
    """A stem, a residual block and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.first, self.second = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = torch.relu(x + self.second(torch.relu(self.first(x))))
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


def test_without_a_residual_block_its_input_goes_on() -> None:
    """As if its branch were zero: the input is an output of ReLU, which a further ReLU leaves as it is."""
    torch.manual_seed(1)
    module = Small()
    arch = describe(module, (1, 6, 6), 2)
    (block,) = blocks(arch)
    assert (
        block.layers == ("first", "second")
        and pruning.label(arch, f"without {block.name}") == "without first to second"
    )
    weights = Tensors({name: value.detach().numpy() for name, value in module.named_parameters()})
    shorter = spaces.build(without(arch, block))
    kept = {name: torch.from_numpy(weights[name].copy()) for name in names_without(weights, block)}
    shorter.load_state_dict(kept)
    with torch.no_grad():
        for layer in (module.second,):
            layer.weight.zero_()
            layer.bias.zero_()  # type: ignore[union-attr]
        x = torch.randn(3, 1, 6, 6)
        np.testing.assert_allclose(shorter(x).numpy(), module(x).numpy(), atol=1e-6)


def test_a_layer_that_is_used_twice_stays() -> None:
    class Twice(Small):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.stem(x))
            x = torch.relu(self.first(x))
            x = torch.relu(self.first(x))
            return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]

    module = Twice()
    del module.second
    found = blocks(describe(module, (1, 6, 6), 2))
    assert [block.layers for block in found] == [("first",)] and found[0].end - found[0].start == 4


def test_labels_are_kinds_and_numbers_where_names_have_no_words() -> None:
    arch = start_architecture("mobilenet", IMAGES, None, None, None)
    assert pruning.label(arch, "0.0") == "conv 1" and pruning.label(arch, "7.3") == "pointwise 7"
    assert pruning.label(arch, "0.0+7.3") == "conv 1 + pointwise 7"
    assert pruning.label(arch, "without 7.0 to 7.4") == "without pointwise 7"
