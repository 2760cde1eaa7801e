"""The torch module of a description, which interprets its program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from atoll.errors import ArchitectureError
from atoll.spaces.pruned.operations import Function, LayerCall
from atoll.spaces.pruned.plan import NetworkPlan

Step = tuple[Function | nn.Module, tuple[int, ...], int]  # callable, slots it reads, slot it writes


class Network(nn.Module):
    """Executes the nodes of a plan in order."""

    def __init__(self, plan: NetworkPlan) -> None:
        super().__init__()
        for name, layer in plan.layers.items():
            _attach(self, name, layer.module())
        # Two underscores, to avoid clashes with the layer names of the traced module.
        self.__steps, self.__slots = _steps(plan, self)

    def forward(self, x: Tensor) -> Tensor:
        slots: list[Any] = [None] * self.__slots
        slots[0] = x
        target = 0
        for call, sources, target in self.__steps:
            slots[target] = call(*[slots[source] for source in sources])
        output: Tensor = slots[target]
        return output


def _attach(root: nn.Module, name: str, layer: nn.Module) -> None:
    *parents, last = name.split(".")
    owner = root
    for parent in parents:
        if parent not in owner._modules:
            _add(owner, parent, nn.Module(), name)
        owner = owner.get_submodule(parent)
    _add(owner, last, layer, name)


def _add(owner: nn.Module, name: str, module: nn.Module, path: str) -> None:
    try:
        owner.add_module(name, module)
    except KeyError:
        raise ArchitectureError(
            f"layer {path!r}: {name!r} is reserved by torch; rename the layer", code="reserved-layer-name"
        ) from None


def _steps(plan: NetworkPlan, network: nn.Module) -> tuple[Sequence[Step], int]:
    """The calls and the number of slots. A slot is free after the last use of its value, to save memory."""
    last_use = {value: number for number, node in enumerate(plan.program, start=1) for value in node.of}
    slot_of = {0: 0}
    free: list[int] = []
    slots = 1
    steps: list[Step] = []
    for number, node in enumerate(plan.program, start=1):
        call = network.get_submodule(node.name) if isinstance(node, LayerCall) else node.function()
        sources = tuple(slot_of[value] for value in node.of)
        free += sorted({slot_of[value] for value in node.of if last_use[value] == number})
        if not free:
            free.append(slots)
            slots += 1
        slot_of[number] = free.pop()
        steps.append((call, sources, slot_of[number]))
    return steps, slots
