"""Convert the calls of a `torch.fx` graph into the nodes of a description.

Besides values, a traced pass contains integers: `x.size(0)`, `x.shape[2]` and arithmetic on them. Heights and widths of
images are constants. The numbers of rows and channels are not part of a description, so such a number (`VariableSize`)
may only be used to reshape.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import fx, nn

from atoll.errors import ArchitectureError
from atoll.spaces.pruned.fields import Shape, first_fault
from atoll.spaces.pruned.layers import LayerDescription, described, is_layer
from atoll.spaces.pruned.operations import LayerCall, Node, Operation
from atoll.spaces.pruned.torch_calls import FUNCTIONS, MODULES, NodeData

ROWS = 1_000_003  # placeholder for the number of rows: a prime that no other size equals
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
}
PAIRS = {"add": "add", "sub": "subtract", "mul": "multiply"}
NUMBERS = {"add": "add_number", "mul": "multiply_number", "div": "divide_number"}
SYNONYMS = {"truediv": "div", "subtract": "sub", "multiply": "mul", "divide": "div", "iadd": "add", "isub": "sub"}
RESHAPING = ("view", "reshape", "flatten", "squeeze")
TORCH = str(Path(torch.__file__).parent)
TORCH_MODULES = ("torch", "torch.nn.functional", "torch._C._nn", "_operator", "builtins")

_node: TypeAdapter[LayerCall | Operation] = TypeAdapter(Node)


class Value(int):
    """The index of a value in the program."""


class VariableSize(int):
    """A number that depends on the batch size or on a width."""


class ProgramBuilder:
    """Builds `layers` and `program` of a module, call by call."""

    def __init__(self, module: nn.Module, shape: Shape) -> None:
        self.module = module
        self.layers: dict[str, LayerDescription] = {}
        self.program: list[dict[str, Any]] = []
        self.shapes: list[Shape] = [shape]
        self.seen: dict[fx.Node, Any] = {}

    def read(self, graph: fx.Graph) -> None:
        """Process all calls in order; errors name the call."""
        for node in graph.nodes:
            try:
                self.seen[node] = self._result(node)
            except ArchitectureError as problem:
                problem.args = (f"{problem} ({where(node)})",)
                raise  # with its code
            except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as problem:
                # arguments that the supported form of a call does not have
                line = (str(problem) or type(problem).__name__).splitlines()[0]
                raise ArchitectureError(
                    f"{name_of(node)} has unsupported arguments: {line} ({where(node)})", code="unsupported-arguments"
                ) from None

    def _result(self, node: fx.Node) -> Any:
        if node.op == "placeholder":
            return self._argument(node)
        if node.op == "get_attr":
            raise ArchitectureError(
                f"{node.target!r} is used outside a layer: parameters and constants must belong to a layer such as "
                "nn.Conv2d or nn.Linear",
                code="parameter-outside-layer",
            )
        arguments = fx.node.map_arg(node.args, self.seen.__getitem__)
        settings = fx.node.map_arg(node.kwargs, self.seen.__getitem__)
        if node.op == "output":
            return self._output(arguments[0])
        if node.op == "call_module":
            return self._module(str(node.target), *arguments, *settings.values())
        known = node.op == "call_method" or getattr(node.target, "__module__", None) in TORCH_MODULES
        return self._function(name_of(node) if known else "", node, arguments, settings)

    def _argument(self, node: fx.Node) -> Any:
        if not any(isinstance(value, Value) for value in self.seen.values()):
            return Value(0)
        if node.users:
            raise ArchitectureError(
                f"forward takes a second argument, {node.target!r}: only the batch is supported",
                code="second-forward-argument",
            )
        return None

    def _output(self, output: Any) -> Value:
        if not isinstance(output, Value):
            raise ArchitectureError(
                "forward does not return a single tensor: it must return the class scores only",
                code="not-a-single-tensor",
            )
        return output

    def _module(self, name: str, value: Any) -> Value:
        module = self.module.get_submodule(name)
        if module._forward_hooks or module._forward_pre_hooks:
            raise ArchitectureError(
                f"layer {name!r} has hooks, which a description cannot represent: remove them", code="layer-with-hooks"
            )
        if is_layer(module):
            self.layers[name] = described(module)
            return self._append({"op": "layer", "of": [value], "name": name})
        if type(module) not in MODULES:
            raise unknown(f"layer {name!r} of class {type(module).__name__}")
        function, attributes = MODULES[type(module)]
        settings = {attribute: getattr(module, attribute) for attribute in attributes}
        if function in RESHAPING:
            return self._reshaped(function, [value], settings)
        result = self._call(function, [value], settings)
        return self._replace_value(value, result) if settings.get("inplace") else result

    def _function(self, name: str, node: fx.Node, arguments: Any, settings: Any) -> Any:
        """A value, an integer or a tuple of sizes."""
        first = arguments[0] if arguments else None
        if name in ("size", "getattr", "getitem", "dim"):
            return self._size(name, [*arguments, *settings.values()])
        if name in ARITHMETIC and all(
            isinstance(number, int) and not isinstance(number, Value) for number in arguments
        ):
            result = ARITHMETIC[name](*arguments)
            return VariableSize(result) if any(isinstance(number, VariableSize) for number in arguments) else result
        if name in RESHAPING:
            return self._reshaped(name, arguments, settings)
        if any(isinstance(number, VariableSize) for number in (*arguments, *settings.values())):
            raise ArchitectureError(
                f"{name} depends on the number of rows or channels, which can change: use a constant",
                code="shape-dependent-argument",
            )
        in_place = name.endswith("_") or settings.get("inplace") is True
        name = name.rstrip("_")
        name = SYNONYMS.get(name, name)
        if name in PAIRS or name in NUMBERS or name == "neg":
            result = self._combined(name, arguments, settings)
        elif name in FUNCTIONS:
            result = self._call(name, arguments, settings)
        else:
            raise unknown(name_of(node))
        return self._replace_value(first, result) if in_place else result

    def _replace_value(self, old: Any, new: Value) -> Value:
        """After an in-place change, later readers of the old value read the new one."""
        self.seen |= {node: new for node, value in self.seen.items() if isinstance(value, Value) and value == old}
        return new

    def _call(self, name: str, arguments: Any, settings: Any) -> Value:
        return self._append(FUNCTIONS[name](*arguments, **settings))

    def _combined(self, name: str, arguments: Any, settings: Any) -> Value:
        arguments = [*arguments, *(settings[key] for key in ("input", "other") if key in settings)]
        if set(settings) - {"input", "other"}:
            raise ArchitectureError(
                f"{name} with {', '.join(settings)}: these arguments are not supported", code="unsupported-arguments"
            )
        if name == "neg":
            return self._append({"op": "multiply_number", "of": [arguments[0]], "number": -1.0})
        first, second = arguments
        if isinstance(first, Value) and isinstance(second, Value):
            if name not in PAIRS:
                raise unknown(f"{name} of two values")
            return self._append({"op": PAIRS[name], "of": [first, second]})
        if isinstance(second, Value):  # the number is the first operand
            if name == "sub":
                second, name = self._combined("neg", [second], {}), "add"
            if name not in PAIRS:
                raise unknown(f"{name} of a number by a value")
            first, second = second, first
        if name == "sub":
            name, second = "add", -second
        if name == "add" and second == 0:
            return Value(first)
        return self._append({"op": NUMBERS[name], "of": [first], "number": float(second)})

    def _size(self, name: str, arguments: Any) -> Any:
        owner, *rest = arguments
        if isinstance(owner, Value) and name != "getitem":
            sizes = (VariableSize(ROWS), VariableSize(self.shapes[owner][0]), *self.shapes[owner][1:])
            if name == "dim":
                return len(sizes)
            if name == "getattr" and rest[0] != "shape":
                raise unknown(f"attribute {rest[0]!r} of a value")
            return sizes if name == "getattr" or not rest else sizes[rest[0]]
        if name == "getitem" and isinstance(owner, tuple):
            return owner[rest[0]]
        raise ArchitectureError(
            "indexing a value, x[...], is not supported: use whole values",
            code="unsupported-indexing",
        )

    def _reshaped(self, name: str, arguments: Any, settings: Any) -> Value:
        """Supported reshapes flatten each sample or change nothing."""
        value, *rest = arguments
        before = (ROWS, *self.shapes[value])
        plain = [tuple(map(int, size)) if isinstance(size, (tuple, list)) else int(size) for size in rest]
        after = tuple(getattr(torch.empty(before, device="meta"), name)(*plain, **settings).shape)
        if after == before:
            return Value(value)
        if after == (ROWS, prod(before[1:])):
            return self._append({"op": "flatten", "of": [value]})
        names = ["rows" if size == ROWS else size for size in after]
        raise ArchitectureError(
            f"{name} to {names}: only x.flatten(1), one row per sample, is supported", code="unsupported-reshape"
        )

    def _append(self, data: NodeData) -> Value:
        """Validate and append a node; returns its value."""
        if "op" not in data:
            return Value(data["of"][0])
        try:
            node = _node.validate_python(data)
        except ValidationError as problem:
            raise ArchitectureError(f"{data['op']}: {first_fault(problem)}", code="unsupported-arguments") from None
        before = [self.shapes[value] for value in node.of]
        layer = self.layers[node.name] if isinstance(node, LayerCall) else None
        self.shapes.append(layer.shape(before[0]) if layer else node.shape(before))  # type: ignore[union-attr]
        self.program.append(node.plain())
        return Value(len(self.program))


def unknown(what: str) -> ArchitectureError:
    return ArchitectureError(
        f"{what} is not supported by pruning: use convolution, linear, batch and group norm, the usual activations and "
        "pools, flatten, mean over the image, add, multiply, cat",
        code="unsupported-operation",
    )


def name_of(node: fx.Node) -> str:
    return str(node.target) if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))


def where(node: fx.Node) -> str:
    """The module whose `forward` makes this call and, if known, the line."""
    stack = list((node.meta.get("nn_module_stack") or {}).items())
    owner = f"in {stack[-1][0]!r}" if stack and stack[-1][0] else "in the outermost forward"
    lines = [line.strip() for line in (node.stack_trace or "").splitlines() if line.strip().startswith("File ")]
    lines = [line for line in lines if TORCH not in line]
    if not lines:
        return owner
    path, line, *_ = lines[-1].removeprefix("File ").split(", ")
    return f"{owner}, {Path(path.strip(chr(34))).name}, {line}"
