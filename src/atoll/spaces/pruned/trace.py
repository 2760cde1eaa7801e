"""From a torch module to its description: `torch.fx` traces one forward pass, and each call becomes a node.

The module's code runs once, on the server; clients receive only the description.
"""

from __future__ import annotations

import copy
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from atoll.errors import ArchitectureError
from atoll.spaces import fixed
from atoll.spaces.pruned.layers import is_layer
from atoll.spaces.pruned.network import Network
from atoll.spaces.pruned.plan import read
from atoll.spaces.pruned.program import ProgramBuilder
from atoll.spaces.pruned.torch_calls import MODULES

CLOSE = 1e-3  # relative tolerance: far above rounding, far below the effect of a wrong description


def describe(module: nn.Module, shape: Sequence[int], classes: int) -> dict[str, Any]:
    """The description of a module that maps batches of `shape` to `classes` scores.

    Raises an `ArchitectureError` if it cannot be described. The module is not modified. If it has weights, its outputs
    are compared once with those of the description.
    """
    builder = ProgramBuilder(module, tuple(shape))
    try:
        builder.read(_traced(module))
        _check_ties(module, builder)
        arch = {
            "space": "widths",
            "input": [int(size) for size in shape],
            "classes": int(classes),
            **_needed(builder),
        }
        with torch.device("meta"):  # constructors would draw weights from the global random state
            network = Network(read(arch))
        _check_agreement(module, network, tuple(shape))
    except ArchitectureError as problem:
        problem.args = (f"{type(module).__name__} cannot be described: {problem}",)
        raise  # with its code
    return arch


def from_fixed(arch: Mapping[str, Any]) -> dict[str, Any]:
    """A built-in network (space `fixed`) as a description, with the same parameter names and outputs."""
    with torch.device("meta"):
        module = fixed.build(arch)
    return describe(module, arch["input"], arch["classes"])


class _Tracer(fx.Tracer):
    """Traces into modules down to those that have a description."""

    record_stack_traces = True

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return type(m) in MODULES or is_layer(m) or super().is_leaf_module(m, module_qualified_name)


def _traced(module: nn.Module) -> fx.Graph:
    try:
        return _Tracer().trace(module)
    except ArchitectureError:
        raise
    except Exception as problem:  # the module's code may raise anything when it is given a proxy
        torch_home = str(Path(torch.__file__).parent)
        own = [
            frame for frame in traceback.extract_tb(problem.__traceback__) if not frame.filename.startswith(torch_home)
        ]
        line = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise ArchitectureError(
            f"torch.fx cannot trace it at {Path(own[-1].filename).name}, line {own[-1].lineno}: {line[:200]}; forward "
            "must not depend on the values of a batch: no if, loop or index over them",
            code="untraceable-forward",
        ) from None


def _needed(builder: ProgramBuilder) -> dict[str, Any]:
    """The layers and nodes that affect the output, with values renumbered."""
    output = next(value for node, value in reversed(builder.seen.items()) if node.op == "output")
    needed, ahead = set(), [int(output)]
    while ahead:
        value = ahead.pop()
        if value and value not in needed:
            needed.add(value)
            ahead += builder.program[value - 1]["of"]
    if not needed:
        raise ArchitectureError("its output is its input: there is nothing to build", code="empty-network")
    number = {0: 0} | {value: place for place, value in enumerate(sorted(needed), start=1)}
    program = [
        {**node, "of": [number[value] for value in node["of"]]}
        for value, node in enumerate(builder.program, start=1)
        if value in needed
    ]
    used = {node["name"] for node in program if "name" in node}
    return {
        "layers": {name: layer.plain() for name, layer in builder.layers.items() if name in used},
        "program": program,
    }


def _check_ties(module: nn.Module, builder: ProgramBuilder) -> None:
    owners: dict[int, str] = {}
    for name in builder.layers:
        for parameter in module.get_submodule(name).parameters():
            owner = owners.setdefault(id(parameter), name)
            if owner != name:
                raise ArchitectureError(
                    f"layers {owner!r} and {name!r} share a parameter, which a description cannot represent: "
                    "use one layer twice, or separate parameters",
                    code="shared-parameter",
                )


def _check_agreement(module: nn.Module, network: nn.Module, shape: tuple[int, ...]) -> None:
    """Compare outputs, because tracing cannot see some in-place changes."""
    weights = {name: parameter.detach() for name, parameter in module.named_parameters()}
    if not weights or any(weight.device.type == "meta" for weight in weights.values()):
        return
    own = copy.deepcopy(module).cpu().float().train()  # training mode: batch norm uses batch statistics
    network.to_empty(device="cpu")
    network.load_state_dict({name: weights[name].cpu().float() for name, _ in network.named_parameters()})
    rows = 4
    x = torch.arange(rows * torch.Size(shape).numel(), dtype=torch.float32).mul(0.7).sin().reshape(rows, *shape)
    with torch.no_grad():
        wanted: Tensor = own(x)
        given: Tensor = network(x)
    scale = wanted.abs().max().clamp(min=1e-6)
    if wanted.shape != given.shape or not bool(((wanted - given).abs().max() / scale) < CLOSE):
        raise ArchitectureError(
            "the description and the module give different outputs: check whether forward changes values in place "
            "(x += y on a value that is read again)",
            code="description-disagrees",
        )
