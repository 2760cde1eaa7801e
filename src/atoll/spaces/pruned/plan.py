"""Reading a description: every field checked, every value traced to the one before it, every shape known.

This is the gate for descriptions from outside. What passes it can be built and run; what does not is an
`ArchitectureError` of one line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from atoll.errors import ArchitectureError
from atoll.spaces.pruned.fields import (
    MOST_NODES,
    MOST_PARAMETERS,
    MOST_VALUES,
    Channels,
    DescriptionPart,
    Shape,
    first_fault,
)
from atoll.spaces.pruned.layers import Layer, LayerDescription
from atoll.spaces.pruned.operations import LayerCall, Node, Operation


class NetworkDescription(DescriptionPart):
    """The fields of a description."""

    space: Literal["widths"]
    input: Annotated[tuple[Channels, ...], Field(min_length=1, max_length=3)]
    classes: Channels
    layers: Annotated[dict[str, Layer], Field(max_length=MOST_NODES)]
    program: Annotated[tuple[Node, ...], Field(min_length=1, max_length=MOST_NODES)]


@dataclass(frozen=True)
class NetworkPlan:
    """A checked description. `shapes[n]` is the shape of one sample of value n; value 0 is the input."""

    input: Shape
    classes: int
    layers: Mapping[str, LayerDescription]  # in the order of their first use
    program: Sequence[LayerCall | Operation]
    shapes: Sequence[Shape]

    def uses(self) -> list[tuple[str, LayerDescription, Shape, Shape]]:
        """Every use of a layer in the program's order: name, layer, shape before and after."""
        return [
            (node.name, self.layers[node.name], self.shapes[node.of[0]], self.shapes[number])
            for number, node in enumerate(self.program, start=1)
            if isinstance(node, LayerCall)
        ]


_reader = TypeAdapter(NetworkDescription)


def read(arch: Mapping[str, Any]) -> NetworkPlan:
    """The plan of a description, or an `ArchitectureError` that says what is wrong and where."""
    try:
        described = _reader.validate_python(dict(arch))
    except ValidationError as problem:
        raise ArchitectureError(
            f"a network of space 'widths' cannot be read: {first_fault(problem)}", code="unreadable-architecture"
        ) from None
    layers = _in_use(described)
    _check_names(layers)
    parameters = sum(layer.parameters() for layer in layers.values())
    if parameters > MOST_PARAMETERS:
        raise ArchitectureError(
            f"a network of {parameters:,} parameters: at most {MOST_PARAMETERS:,} can be built",
            code="network-too-large",
        )
    shapes = _shapes(described, layers)
    if shapes[-1] != (described.classes,):
        raise ArchitectureError(
            f"the network gives {list(shapes[-1])} values a sample and there are {described.classes} classes: "
            f"its last value must have the shape [{described.classes}]",
            code="output-shape-mismatch",
        )
    return NetworkPlan(described.input, described.classes, layers, described.program, shapes)


def place(number: int, node: LayerCall | Operation) -> str:
    """A node in words."""
    return f"node {number} ({'layer ' + repr(node.name) if isinstance(node, LayerCall) else node.op})"


def _in_use(described: NetworkDescription) -> dict[str, LayerDescription]:
    """Layers in the order of their first use, which no spelling of the description can change."""
    layers: dict[str, LayerDescription] = {}
    read_by: set[int] = set()
    for number, node in enumerate(described.program, start=1):
        for value in node.of:
            if value >= number:
                raise ArchitectureError(
                    f"{place(number, node)} reads value {value}, which is not there yet", code="value-not-computed"
                )
            read_by.add(value)
        if isinstance(node, LayerCall):
            if node.name not in described.layers:
                raise ArchitectureError(f"{place(number, node)}: there is no layer of this name", code="unknown-layer")
            layers.setdefault(node.name, described.layers[node.name])
    for number, node in enumerate(described.program[:-1], start=1):
        if number not in read_by:
            raise ArchitectureError(
                f"the value of {place(number, node)} is used by no other node: leave the node out", code="unused-value"
            )
    for name in described.layers:
        if name not in layers:
            raise ArchitectureError(f"layer {name!r} is used by no node: leave it out", code="unused-layer")
    return layers


def _check_names(layers: Mapping[str, LayerDescription]) -> None:
    """Names become paths of modules: no empty parts, and no layer within a layer."""
    inner = set()
    for name in layers:
        parts = name.split(".")
        if not all(parts) or len(name) > 1000:
            raise ArchitectureError(
                f"layer {name[:60]!r} is no path of a module, such as 'features.0.conv'", code="invalid-layer-name"
            )
        inner |= {".".join(parts[:depth]) for depth in range(1, len(parts))}
    for name in layers:
        if name in inner:
            raise ArchitectureError(
                f"layer {name!r} has another layer below it: give each a path of its own", code="nested-layers"
            )


def _shapes(described: NetworkDescription, layers: Mapping[str, LayerDescription]) -> list[Shape]:
    if len(described.input) == 2:
        raise ArchitectureError(
            f"input = {list(described.input)}: give [features] for a table or [channels, height, width] for images",
            code="invalid-input-shape",
        )
    shapes: list[Shape] = [described.input]
    total = prod(described.input)
    for number, node in enumerate(described.program, start=1):
        before = [shapes[value] for value in node.of]
        try:
            shapes.append(layers[node.name].shape(before[0]) if isinstance(node, LayerCall) else node.shape(before))
        except ArchitectureError as problem:
            problem.args = (f"{place(number, node)}: {problem}",)
            raise  # with its code
        total += prod(shapes[-1])
        if total > MOST_VALUES:
            raise ArchitectureError(
                f"a sample takes {total:,} values as far as {place(number, node)}: at most {MOST_VALUES:,} are allowed",
                code="sample-too-large",
            )
    return shapes
