"""The DARTS space (Liu et al., 2019): a stem, two kinds of cells, global average pooling and a linear head.

There are three forms of network; the module `plan` documents their format:

    mixed      the supernet: all operations on all edges, mixed by shares. Its parameters `alpha.normal` and
               `alpha.reduce` (14, 8) are the logits of the shares and can be trained by gradient descent; they do not
               count as weights.
    path       a sub-model: one operation per edge. It has the supernet's parameter names, so its weights are a slice
               of the supernet's, and its module can be a view into the supernet's (`view`).
    genotype   a derived network, trained from scratch with its own parameter names: two edges per node, affine norms,
               pools without a norm, as in DARTS' retraining, but without auxiliary head and drop path.

Norms use batch statistics in all forms (`norm.BatchNorm`), with `"norm": "group"` those of the row alone.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from atoll.core.messages import Schema, Tensors
from atoll.errors import ConfigError
from atoll.spaces.darts.cells import GenotypeCell, MixedCell, PathCell, make_part
from atoll.spaces.darts.genotype import (
    Genotype,
    check_genotype,
    genotype,
    path_key,
    random_genotype,
    sampled_genotype,
    skip_share,
)
from atoll.spaces.darts.layers import EDGES, KINDS, OPERATIONS, check_key
from atoll.spaces.darts.plan import DartsPlan, form_of, genotype_of, key_of, plan
from atoll.spaces.darts.table import (
    cost,
    expected_weights,
    names,
    operation_weights,
    shapes,
    shared_weights,
    weight_count,
)
from atoll.spaces.initial import kaiming_uniform
from atoll.spaces.norm import Norm, norm_of, use_group_norm

__all__ = [
    "ALPHAS",
    "EDGES",
    "KINDS",
    "OPERATIONS",
    "Genotype",
    "architecture_for",
    "build",
    "cost",
    "expected_weights",
    "from_genotype",
    "genotype",
    "initial",
    "names",
    "operation_weights",
    "path_key",
    "random_genotype",
    "sampled_genotype",
    "shapes",
    "shared_weights",
    "skip_share",
    "sub_model",
    "supernet",
    "view",
    "weight_count",
    "whole",
]

ALPHAS = tuple(f"alpha.{kind}" for kind in KINDS)  # names of the architecture parameters
ALPHA_SCALE = 1e-3  # standard deviation of their initial values, as in DARTS


class DartsNetwork(nn.Module):
    """Stem, cells and head. The cells define the form of the network."""

    def __init__(self, stem: nn.Module, cells: Sequence[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.stem, self.cells, self.head = stem, nn.ModuleList(cells), head

    def forward(self, x: Tensor) -> Tensor:
        earlier = previous = self.stem(x)
        for cell in self.cells:
            earlier, previous = previous, cell(earlier, previous)
        return self.classify(previous)

    def classify(self, x: Tensor) -> Tensor:
        """Global average pooling, then the linear classifier."""
        y: Tensor = self.head(x.mean(dim=(2, 3)))
        return y


class Supernet(DartsNetwork):
    """All operations on all edges, mixed by shares."""

    def __init__(self, plan: DartsPlan) -> None:
        super().__init__(make_part(plan.stem[0]), [MixedCell(cell) for cell in plan.cells], make_part(plan.head))
        zeros = {kind: nn.Parameter(torch.zeros(EDGES, len(OPERATIONS))) for kind in KINDS}
        self.alpha = nn.ParameterDict(zeros)

    def forward(self, x: Tensor, shares: Mapping[str, Tensor] | None = None) -> Tensor:
        """Outputs with these shares (14, 8) for both kinds of cells; by default the softmax of the alphas."""
        if shares is None:
            shares = {kind: self.alpha[kind].softmax(dim=1) for kind in KINDS}
        earlier = previous = self.stem(x)
        for cell in self.cells:
            earlier, previous = previous, cell(earlier, previous, shares[cell.kind])  # type: ignore[index]
        return self.classify(previous)


def build(arch: Mapping[str, Any]) -> DartsNetwork:
    """The network of this architecture, in its form."""
    network = _with_batch_norm(arch)
    if norm_of(arch) == "group":
        use_group_norm(network)
    return network


def _with_batch_norm(arch: Mapping[str, Any]) -> DartsNetwork:
    form, parts = form_of(arch), plan(arch)
    if form == "mixed":
        return Supernet(parts)
    stem, head = make_part(parts.stem[0]), make_part(parts.head)
    if form == "path":
        key = key_of(arch)
        return DartsNetwork(stem, [PathCell(cell, key[cell.kind]) for cell in parts.cells], head)
    edges = genotype_of(arch)
    return DartsNetwork(stem, [GenotypeCell(cell, [tuple(p) for p in edges[cell.kind]]) for cell in parts.cells], head)


def whole(arch: Mapping[str, Any]) -> dict[str, Any] | None:
    """The supernet that this network is a slice of; None unless it is a sub-model."""
    if form_of(arch) != "path":
        return None
    return {**{name: value for name, value in arch.items() if name != "key"}, "form": "mixed"}


def view(module: nn.Module, arch: Mapping[str, Any]) -> nn.Module:
    """The sub-model as a view into a module of its supernet: parameters are shared and nothing is allocated."""
    if not isinstance(module, Supernet):
        raise TypeError(f"module is a {type(module).__name__}: a sub-model can be a view into a Supernet only")
    key, parts = key_of(arch), plan(arch)
    cells = [
        PathCell(cell, key[cell.kind], within)  # type: ignore[arg-type]
        for cell, within in zip(parts.cells, module.cells, strict=True)
    ]
    return DartsNetwork(module.stem, cells, module.head)


def initial(arch: Mapping[str, Any], rng: np.random.Generator) -> Tensors:
    """Initial weights by the general rule, without building a module. For a supernet the alphas are drawn last."""
    weights = kaiming_uniform(shapes(arch), rng)
    if form_of(arch) != "mixed":
        return weights
    size = (EDGES, len(OPERATIONS))
    alphas = {name: (ALPHA_SCALE * rng.standard_normal(size)).astype(np.float32) for name in ALPHAS}
    return Tensors({**weights, **alphas})


def supernet(
    shape: Sequence[int], classes: int, channels: int = 16, cells: int = 8, norm: Norm = "batch"
) -> dict[str, Any]:
    """The checked architecture of a supernet for images of this shape (channels, height, width)."""
    arch: dict[str, Any] = {"space": "darts", "form": "mixed", "channels": channels, "cells": cells}
    arch |= {"input": list(shape), "classes": classes} | ({} if norm == "batch" else {"norm": norm})
    plan(arch)
    return arch


def architecture_for(schema: Schema, channels: int = 16, cells: int = 8, norm: Norm = "batch") -> dict[str, Any]:
    """The checked architecture of the supernet for this data."""
    if schema.kind != "image":
        raise ConfigError(
            "the DARTS space needs images, but the data is a table; use the method `realtime`",
            code="images-required",
        )
    return supernet(schema.shape, schema.outputs, channels, cells, norm)


def sub_model(arch: Mapping[str, Any], key: Mapping[str, Any]) -> dict[str, Any]:
    """The architecture of the sub-model with this key."""
    taken = {kind: list(operations) for kind, operations in check_key(key).items()}
    return {**_common(arch), "form": "path", "key": taken}


def from_genotype(
    arch: Mapping[str, Any],
    edges: Mapping[str, Any],
    channels: int | None = None,
    cells: int | None = None,
) -> dict[str, Any]:
    """The architecture of a genotype's network for the same data; width and depth default to those of `arch`."""
    sizes = {name: value for name, value in (("channels", channels), ("cells", cells)) if value is not None}
    new = {**_common(arch), **sizes, "form": "genotype", "genotype": check_genotype(edges)}
    plan(new)
    return copy.deepcopy(new)


def _common(arch: Mapping[str, Any]) -> dict[str, Any]:
    return {name: arch[name] for name in ("space", "channels", "cells", "input", "classes", "norm") if name in arch}
