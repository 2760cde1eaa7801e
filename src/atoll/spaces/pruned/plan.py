"""Validate a description: all fields, references between values, and shapes.

Descriptions from outside pass through `read`. A description that it accepts can be built and run; any other raises an
`ArchitectureError` with a one-line message.
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
        """Every call of a layer in program order: name, layer, input shape, output shape."""
        return [
            (node.name, self.layers[node.name], self.shapes[node.of[0]], self.shapes[number])
            for number, node in enumerate(self.program, start=1)
            if isinstance(node, LayerCall)
        ]


_reader = TypeAdapter(NetworkDescription)


def read(arch: Mapping[str, Any]) -> NetworkPlan:
    """The plan of a description. Raises an `ArchitectureError` with reason and location if it is invalid."""
    try:
        described = _reader.validate_python(dict(arch))
    except ValidationError as problem:
        raise ArchitectureError(
            f"network of space 'widths' cannot be read: {first_fault(problem)}", code="unreadable-architecture"
        ) from None
    layers = _in_use(described)
    _check_names(layers)
    parameters = sum(layer.parameters() for layer in layers.values())
    if parameters > MOST_PARAMETERS:
        raise ArchitectureError(
            f"network of {parameters:,} parameters: at most {MOST_PARAMETERS:,} are allowed",
            code="network-too-large",
        )
    shapes = _shapes(described, layers)
    if shapes[-1] != (described.classes,):
        raise ArchitectureError(
            f"the network returns {list(shapes[-1])} per sample, but there are {described.classes} classes: "
            f"its last value must have shape [{described.classes}]",
            code="output-shape-mismatch",
        )
    return NetworkPlan(described.input, described.classes, layers, described.program, shapes)


def place(number: int, node: LayerCall | Operation) -> str:
    """A node as text, for messages."""
    return f"node {number} ({'layer ' + repr(node.name) if isinstance(node, LayerCall) else node.op})"


def _in_use(described: NetworkDescription) -> dict[str, LayerDescription]:
    """Layers in the order of their first use, independent of the order of JSON keys."""
    layers: dict[str, LayerDescription] = {}
    read_by: set[int] = set()
    for number, node in enumerate(described.program, start=1):
        for value in node.of:
            if value >= number:
                raise ArchitectureError(
                    f"{place(number, node)} reads value {value}, which is not computed yet", code="value-not-computed"
                )
            read_by.add(value)
        if isinstance(node, LayerCall):
            if node.name not in described.layers:
                raise ArchitectureError(f"{place(number, node)}: no layer has this name", code="unknown-layer")
            layers.setdefault(node.name, described.layers[node.name])
    for number, node in enumerate(described.program[:-1], start=1):
        if number not in read_by:
            raise ArchitectureError(
                f"the value of {place(number, node)} is never used: remove the node", code="unused-value"
            )
    for name in described.layers:
        if name not in layers:
            raise ArchitectureError(f"layer {name!r} is never used: remove it", code="unused-layer")
    return layers


def _check_names(layers: Mapping[str, LayerDescription]) -> None:
    """Names become module paths: no empty parts, and no layer inside a layer."""
    inner = set()
    for name in layers:
        parts = name.split(".")
        if not all(parts) or len(name) > 1000:
            raise ArchitectureError(
                f"layer {name[:60]!r}: not a module path such as 'features.0.conv'", code="invalid-layer-name"
            )
        inner |= {".".join(parts[:depth]) for depth in range(1, len(parts))}
    for name in layers:
        if name in inner:
            raise ArchitectureError(
                f"layer {name!r} contains another layer: give each a separate path", code="nested-layers"
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
                f"a sample has {total:,} values up to {place(number, node)}: at most {MOST_VALUES:,} are allowed",
                code="sample-too-large",
            )
    return shapes
