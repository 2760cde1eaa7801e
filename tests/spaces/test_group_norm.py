"""Group norm: every row by itself, the same parameters as with batch norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from atoll import spaces
from atoll.core.messages import Tensors
from atoll.errors import ArchitectureError, ConfigError
from atoll.rng import stream
from atoll.spaces import fixed
from atoll.spaces.darts.space import random_genotype
from atoll.spaces.norm import BatchNorm, GroupNorm, batch_norms
from atoll.spaces.pruned import pruning
from atoll.spaces.pruned.space import from_fixed
from atoll.testing import made_images
from atoll.training.networks import load

IMAGE: dict[str, Any] = {"input": [1, 16, 16], "classes": 3}
MANY = [1, 2, 3, 4, 5, 6, 7] * 2
GENOTYPE = random_genotype(stream(4, "genotype"))
NETWORKS: list[dict[str, Any]] = [
    {"space": "fixed", "model": "convnet", "widths": [4, 4, 8, 8, 8, 8], **IMAGE},
    {"space": "fixed", "model": "resnet18", "widths": [4, 4, 8, 8], **IMAGE},
    {"space": "fixed", "model": "mobilenet", "width": 0.1, **IMAGE},
    {"space": "choice", "channels": [4, 8], "key": [2, 3], **IMAGE},
    {"space": "choice", "channels": [4, 8], "key": [0, 1], **IMAGE},
    {"space": "darts", "form": "path", "channels": 4, "cells": 3, "key": {"normal": MANY, "reduce": MANY}, **IMAGE},
    {"space": "darts", "form": "genotype", "channels": 4, "cells": 3, "genotype": GENOTYPE, **IMAGE},
    {"space": "choice", "input": [5], "classes": 3, "widths": [8, 4], "key": [3, 2]},
]


@pytest.mark.parametrize(
    "arch", NETWORKS, ids=lambda arch: f"{arch['space']}-{arch.get('model', arch.get('form', arch.get('key')))}"
)
def test_a_row_does_not_influence_another(arch: dict[str, Any]) -> None:
    network = spaces.build({**arch, "norm": "group"})
    rng = stream(1, "rows")
    weights = spaces.initial(arch, rng)
    load(network, weights)
    first = torch.tensor(rng.standard_normal((1, *arch["input"])), dtype=torch.float32)
    others = torch.tensor(rng.standard_normal((2, 3, *arch["input"])), dtype=torch.float32)
    one, two = (network(torch.cat([first, rest]))[0].detach().numpy() for rest in others)
    np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)
    assert np.abs(one).max() > 0


@pytest.mark.parametrize(
    "arch", NETWORKS, ids=lambda arch: f"{arch['space']}-{arch.get('model', arch.get('form', arch.get('key')))}"
)
def test_names_shapes_and_cost_are_those_of_batch_norm(arch: dict[str, Any]) -> None:
    def shapes(norm: str) -> dict[str, tuple[int, ...]]:
        own = spaces.skeleton({**arch, "norm": norm})
        return {name: tuple(value.shape) for name, value in own.named_parameters()}

    assert shapes("group") == shapes("batch")
    assert spaces.cost({**arch, "norm": "group"}) == spaces.cost(arch)
    layers = list(spaces.skeleton({**arch, "norm": "group"}).modules())
    assert any(isinstance(layer, GroupNorm) for layer in layers)
    assert not any(isinstance(layer, BatchNorm) for layer in layers)


def test_a_pruned_network_keeps_its_norm_at_every_width() -> None:
    """Its groups fit the width that is left: no filters must go together."""
    arch = from_fixed({**NETWORKS[0], "widths": [16, 4, 8, 8, 8, 8], "norm": "group"})
    plain = from_fixed({**NETWORKS[0], "widths": [16, 4, 8, 8, 8, 8]})
    assert [unit.width for unit in pruning.units(arch)] == [unit.width for unit in pruning.units(plain)]
    assert spaces.cost(arch) == spaces.cost(plain)
    first = pruning.units(arch)[0]
    pruned, weights = pruning.prune(arch, spaces.initial(arch, stream(1, "start")), first.name, 13)
    network = spaces.build(pruned)
    load(network, weights)
    norms = [layer for layer in network.modules() if isinstance(layer, GroupNorm)]
    assert (norms[0].channels, norms[0].groups) == (13, 1) and not batch_norms(network)
    rows = torch.tensor(stream(2, "rows").standard_normal((3, 1, 16, 16)), dtype=torch.float32)
    np.testing.assert_allclose(
        network(rows)[0].detach().numpy(), network(rows[:1])[0].detach().numpy(), rtol=1e-4, atol=1e-6
    )


def test_groups_have_four_channels_or_more() -> None:
    assert [GroupNorm(channels).groups for channels in (1, 3, 4, 16, 24, 96, 512)] == [1, 1, 1, 4, 6, 24, 32]


def test_a_group_of_one_value_is_left_as_it_is() -> None:
    row = torch.tensor([[2.0]])
    assert torch.equal(GroupNorm(1)(row), row)


def test_an_unknown_norm_is_refused() -> None:
    for arch in (NETWORKS[0], NETWORKS[3]):
        with pytest.raises(ArchitectureError, match="norm"):
            spaces.skeleton({**arch, "norm": "layer"})
    schema = made_images(seed=1).schema
    with pytest.raises(ConfigError, match="has no norm; leave it out"):
        fixed.architecture_for("mlp", schema, norm="group")
    assert isinstance(spaces.initial(NETWORKS[0], stream(1, "x")), Tensors)
