"""The cells of DARTS networks as torch modules: with all operations mixed, or with one operation per edge."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from atoll.spaces.darts.layers import ENDS, INPUTS, NODES, NONE, OPERATIONS, CellLayer, Part, edges_into, operation
from atoll.spaces.darts.plan import CellPlan
from atoll.spaces.layers import Conv2d, pixels
from atoll.spaces.norm import AffineBatchNorm, BatchNorm


class FactorisedReduction(nn.Module):
    """Two pointwise convolutions of stride 2, one over even and one over odd pixels, concatenated.

    An image with an odd side is padded with zeros, so that both halves have the same size.
    """

    def __init__(self, layer: CellLayer) -> None:
        super().__init__()
        first, second = (outputs for outputs, *_ in layer.shapes.values())
        self.even = Conv2d(layer.inputs, first, 1, stride=2, bias=False)
        self.odd = Conv2d(layer.inputs, second, 1, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        shifted = functional.pad(x, (0, width % 2, 0, height % 2)) if height % 2 or width % 2 else x
        return torch.cat([self.even(x), self.odd(pixels(shifted, slice(1, None), slice(1, None)))], dim=1)


def make_part(part: Part) -> nn.Module:
    """The layers in sequence; a part without layers is the identity."""
    return nn.Sequential(*(make_layer(layer) for layer in part)) if part else nn.Identity()


def make_layer(layer: CellLayer) -> nn.Module:
    """The module of one layer. Padding preserves the size; stride 2 halves it, rounding up. No bias before a norm."""
    if layer.kind == "relu":
        return nn.ReLU()
    if layer.kind == "norm":
        return AffineBatchNorm(layer.outputs) if layer.affine else BatchNorm(layer.outputs)
    if layer.kind == "max":
        return nn.MaxPool2d(3, stride=layer.stride, padding=1)
    if layer.kind == "average":
        return nn.AvgPool2d(3, stride=layer.stride, padding=1, count_include_pad=False)
    if layer.kind == "halve":
        return FactorisedReduction(layer)
    if layer.kind == "linear":
        return nn.Linear(layer.inputs, layer.outputs)
    return Conv2d(
        layer.inputs,
        layer.outputs,
        layer.kernel,
        stride=layer.stride,
        padding=layer.dilation * (layer.kernel // 2),
        dilation=layer.dilation,
        groups=layer.groups,
        bias=False,
    )


NUMBERS = {name: number for number, name in enumerate(OPERATIONS)}


class Cell(nn.Module):
    """Two inputs and four nodes, each the sum of its edges; the output concatenates all nodes.

    Subclasses define the operations on the edges.
    """

    def __init__(self, plan: CellPlan, inputs: nn.ModuleList | None = None) -> None:
        super().__init__()
        self.kind = plan.kind
        self.inputs = inputs if inputs is not None else nn.ModuleList(make_part(part) for part, _ in plan.preprocessing)

    def preprocessed(self, earlier: Tensor, previous: Tensor) -> list[Tensor]:
        return [preprocess(x) for preprocess, x in zip(self.inputs, (earlier, previous), strict=True)]

    def zeros(self, states: Sequence[Tensor]) -> Tensor:
        """The value of a node without incoming edges."""
        first = states[0]
        return torch.zeros_like(first[:, :, ::2, ::2] if self.kind == "reduce" else first)


class MixedCell(Cell):
    """All operations on every edge, each weighted by its share."""

    def __init__(self, plan: CellPlan) -> None:
        super().__init__(plan)
        self.edges = nn.ModuleList(nn.ModuleDict(_operations(plan, source)) for _, source in ENDS)
        self._alone: dict[tuple[int, str], nn.ModuleDict] = {}

    def alone(self, edge: int, name: str) -> nn.ModuleDict:
        """An edge with this operation only, for the cells of sub-models: made once, because every client has another
        sub-model and making its modules took 2 % of a round."""
        if (edge, name) not in self._alone:
            self._alone[edge, name] = nn.ModuleDict({name: self.edges[edge][name]})  # type: ignore[index]
        return self._alone[edge, name]

    def forward(self, earlier: Tensor, previous: Tensor, shares: Tensor) -> Tensor:
        """`shares` has shape (14, 8); the share of `none` contributes nothing."""
        states = self.preprocessed(earlier, previous)
        rows = shares.unbind(0)
        for node in range(NODES):
            total: Tensor | None = None
            for edge in edges_into(node):
                each = rows[edge].unbind(0)
                for name, module in self.edges[edge].items():  # type: ignore[operator]
                    term = each[NUMBERS[name]] * module(states[ENDS[edge][1]])
                    total = term if total is None else total + term
            assert total is not None  # every node has edges, and every edge operations
            states.append(total)
        return torch.cat(states[INPUTS:], dim=1)


class SingleCell(Cell):
    """At most one operation per edge. `steps` holds the (source, operation) pairs of every node."""

    steps: list[list[tuple[int, nn.Module]]]

    def forward(self, earlier: Tensor, previous: Tensor) -> Tensor:
        states = self.preprocessed(earlier, previous)
        for pairs in self.steps:
            total: Tensor | None = None
            for source, module in pairs:
                term = module(states[source])
                total = term if total is None else total + term
            states.append(total if total is not None else self.zeros(states))
        return torch.cat(states[INPUTS:], dim=1)


class PathCell(SingleCell):
    """The cell of a sub-model: the operations of a key, newly built or taken from a supernet's cell."""

    def __init__(self, plan: CellPlan, operations: Sequence[int], within: MixedCell | None = None) -> None:
        super().__init__(plan, None if within is None else within.inputs)
        self.edges = nn.ModuleDict()
        self.steps = [[] for _ in range(NODES)]
        for edge, (number, (node, source)) in enumerate(zip(operations, ENDS, strict=True)):
            if number == NONE:
                continue
            name = OPERATIONS[number]
            if within is None:
                module = make_part(operation(name, plan.channels, plan.stride(source), retrained=False))
                alone = nn.ModuleDict({name: module})
            else:
                alone = within.alone(edge, name)
            self.edges[str(edge)] = alone
            self.steps[node].append((source, alone[name]))


class GenotypeCell(SingleCell):
    """The cell of a genotype, with two edges per node."""

    def __init__(self, plan: CellPlan, pairs: Sequence[tuple[str, int]]) -> None:
        super().__init__(plan)
        self.edges = nn.ModuleList(
            make_part(operation(name, plan.channels, plan.stride(source), retrained=True)) for name, source in pairs
        )
        taken = [(source, module) for (_, source), module in zip(pairs, self.edges, strict=True)]
        self.steps = [taken[place : place + 2] for place in range(0, len(taken), 2)]


def _operations(plan: CellPlan, source: int) -> dict[str, nn.Module]:
    return {
        name: make_part(operation(name, plan.channels, plan.stride(source), retrained=False))
        for number, name in enumerate(OPERATIONS)
        if number != NONE
    }
