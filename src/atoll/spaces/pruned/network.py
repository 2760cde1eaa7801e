"""The network of a description: its nodes, run one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from atoll.errors import ArchitectureError
from atoll.spaces.pruned.operations import Function, LayerCall
from atoll.spaces.pruned.plan import NetworkPlan

Step = tuple[Function | nn.Module, tuple[int, ...], int]  # what is called, the slots it reads, the slot it writes


class Network(nn.Module):
    """Runs the nodes of a plan in their order."""

    def __init__(self, plan: NetworkPlan) -> None:
        super().__init__()
        for name, layer in plan.layers.items():
            _attach(self, name, layer.module())
        # Two underscores, because the traced module's own names live beside this one.
        self.__steps, self.__slots = _steps(plan, self)

    def forward(self, x: Tensor) -> Tensor:
        slots: list[Any] = [None] * self.__slots
        slots[0] = x
        target = 0
        for call, sources, target in self.__steps:
            slots[target] = call(*[slots[source] for source in sources])
        answer: Tensor = slots[target]
        return answer


def _attach(root: nn.Module, name: str, layer: nn.Module) -> None:
    *folders, last = name.split(".")
    owner = root
    for folder in folders:
        if folder not in owner._modules:
            _add(owner, folder, nn.Module(), name)
        owner = owner.get_submodule(folder)
    _add(owner, last, layer, name)


def _add(owner: nn.Module, name: str, module: nn.Module, path: str) -> None:
    try:
        owner.add_module(name, module)
    except KeyError:
        raise ArchitectureError(
            f"layer {path!r}: torch uses the name {name!r} itself; give the layer another", code="reserved-layer-name"
        ) from None


def _steps(plan: NetworkPlan, network: nn.Module) -> tuple[Sequence[Step], int]:
    """Values get slots, and a slot is free again after its value's last use: no activation is held too long."""
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
