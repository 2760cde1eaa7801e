"""The cells of DARTS networks as torch modules: with all operations mixed, or with one for each edge that is there."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from atoll.spaces.darts.layers import ENDS, INPUTS, NODES, NONE, OPERATIONS, CellLayer, Part, edges_into, operation
from atoll.spaces.darts.plan import CellPlan
from atoll.spaces.layers import Conv2d
from atoll.spaces.norm import AffineBatchNorm, BatchNorm


class FactorisedReduction(nn.Module):
    """Factorised reduction: every second pixel from the first one on, and every second one from the next.

    An image with an odd side gets a border of zeros, so that both halves are of one size.
    """

    def __init__(self, layer: CellLayer) -> None:
        super().__init__()
        first, second = (outputs for outputs, *_ in layer.shapes.values())
        self.even = Conv2d(layer.inputs, first, 1, stride=2, bias=False)
        self.odd = Conv2d(layer.inputs, second, 1, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        shifted = functional.pad(x, (0, width % 2, 0, height % 2)) if height % 2 or width % 2 else x
        return torch.cat([self.even(x), self.odd(shifted[:, :, 1:, 1:])], dim=1)


def make_part(part: Part) -> nn.Module:
    """The layers one after the other; a part without layers hands its input on."""
    return nn.Sequential(*(make_layer(layer) for layer in part)) if part else nn.Identity()


def make_layer(layer: CellLayer) -> nn.Module:
    """The padding keeps the size; a stride of 2 halves it and rounds up. No bias before a norm."""
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


NUMBERS = {word: number for number, word in enumerate(OPERATIONS)}


class Cell(nn.Module):
    """Two inputs, four nodes, each the sum of its edges; the output is all nodes one behind the other.

    What an edge does is told by the classes that derive from this.
    """

    def __init__(self, plan: CellPlan, inputs: nn.ModuleList | None = None) -> None:
        super().__init__()
        self.kind = plan.kind
        self.inputs = inputs if inputs is not None else nn.ModuleList(make_part(part) for part, _ in plan.preprocessing)

    def preprocessed(self, earlier: Tensor, previous: Tensor) -> list[Tensor]:
        return [preprocess(x) for preprocess, x in zip(self.inputs, (earlier, previous), strict=True)]

    def zeros(self, states: Sequence[Tensor]) -> Tensor:
        """What a node is that no edge leads to."""
        first = states[0]
        return torch.zeros_like(first[:, :, ::2, ::2] if self.kind == "reduce" else first)


class MixedCell(Cell):
    """Every operation on every edge, each times its share."""

    def __init__(self, plan: CellPlan) -> None:
        super().__init__(plan)
        self.edges = nn.ModuleList(nn.ModuleDict(_operations(plan, source)) for _, source in ENDS)

    def forward(self, earlier: Tensor, previous: Tensor, shares: Tensor) -> Tensor:
        """`shares` (14, 8); that of `none` adds nothing."""
        states = self.preprocessed(earlier, previous)
        rows = shares.unbind(0)
        for node in range(NODES):
            total: Tensor | None = None
            for edge in edges_into(node):
                each = rows[edge].unbind(0)
                for word, module in self.edges[edge].items():  # type: ignore[operator]
                    term = each[NUMBERS[word]] * module(states[ENDS[edge][1]])
                    total = term if total is None else total + term
            assert total is not None  # every node has edges, and every edge operations
            states.append(total)
        return torch.cat(states[INPUTS:], dim=1)


class SingleCell(Cell):
    """One operation on each edge that is there. `steps` holds for every node its (source, operation) pairs."""

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
    """The cell of a sub-model: the operations that a key names, made anew or taken from a supernet's cell."""

    def __init__(self, plan: CellPlan, operations: Sequence[int], within: MixedCell | None = None) -> None:
        super().__init__(plan, None if within is None else within.inputs)
        self.edges = nn.ModuleDict()
        self.steps = [[] for _ in range(NODES)]
        for edge, (number, (node, source)) in enumerate(zip(operations, ENDS, strict=True)):
            if number == NONE:
                continue
            word = OPERATIONS[number]
            if within is None:
                module = make_part(operation(word, plan.channels, plan.stride(source), retrained=False))
            else:
                module = within.edges[edge][word]  # type: ignore[index]
            self.edges[str(edge)] = nn.ModuleDict({word: module})
            self.steps[node].append((source, module))


class GenotypeCell(SingleCell):
    """The cell of a genotype: two edges for every node."""

    def __init__(self, plan: CellPlan, pairs: Sequence[tuple[str, int]]) -> None:
        super().__init__(plan)
        self.edges = nn.ModuleList(
            make_part(operation(word, plan.channels, plan.stride(source), retrained=True)) for word, source in pairs
        )
        taken = [(source, module) for (_, source), module in zip(pairs, self.edges, strict=True)]
        self.steps = [taken[place : place + 2] for place in range(0, len(taken), 2)]


def _operations(plan: CellPlan, source: int) -> dict[str, nn.Module]:
    return {
        word: make_part(operation(word, plan.channels, plan.stride(source), retrained=False))
        for number, word in enumerate(OPERATIONS)
        if number != NONE
    }
