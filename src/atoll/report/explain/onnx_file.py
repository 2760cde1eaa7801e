"""An evolved feed-forward network as ONNX, in double precision. Needs the extra `export`."""

from __future__ import annotations

from typing import Any

from atoll.algorithms.neat.expression import ExpressedNode, nodes_in_order
from atoll.algorithms.neat.functions import CLAMP, RELU_LIMIT, STEEP
from atoll.algorithms.neat.population import OUTPUTS_FROM, Population
from atoll.errors import ConfigError

OPERATORS = 17  # the version of ONNX's operators


class _Graph:
    """Collects operators; every value has a name."""

    def __init__(self, helper: Any, kind: int) -> None:
        self.helper, self.kind = helper, kind
        self.nodes: list[Any] = []
        self.constants: dict[float, Any] = {}

    def put(self, operator: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        made = name or f"v{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(operator, list(inputs), [made], **attributes))
        return made

    def number(self, value: float) -> str:
        if value not in self.constants:
            self.constants[value] = self.helper.make_tensor(f"c{len(self.constants)}", self.kind, [], [value])
        return str(self.constants[value].name)


def onnx_bytes(network: Population, inputs: int, outputs: int, edges: tuple[float, ...] = ()) -> bytes:
    """A model with the input `rows` (rows x inputs) and the outputs `values` (rows x outputs) and `classes` (rows)."""
    try:
        import onnx
    except ImportError:
        raise ConfigError(
            "ONNX: the library onnx is missing; install it with: pip install 'atoll[export]'", code="onnx-missing"
        ) from None
    helper, kinds = onnx.helper, onnx.TensorProto
    graph = _Graph(helper, kinds.DOUBLE)
    values = {place: graph.put("Gather", "rows", f"column{place}", axis=1) for place in range(inputs)}
    for node in nodes_in_order(network):
        values[node.name] = _value(graph, node, values)
    answers = [values[OUTPUTS_FROM + place] for place in range(outputs)]
    graph.put("Concat", *answers, name="values", axis=1)
    _classes(graph, edges, answers[0], kinds)
    places = [helper.make_tensor(f"column{place}", kinds.INT64, [1], [place]) for place in range(inputs)]
    places.append(helper.make_tensor("flat", kinds.INT64, [1], [-1]))
    shaped = helper.make_graph(
        graph.nodes,
        "atoll_genome",
        [helper.make_tensor_value_info("rows", kinds.DOUBLE, ["n", inputs])],
        [
            helper.make_tensor_value_info("values", kinds.DOUBLE, ["n", outputs]),
            helper.make_tensor_value_info("classes", kinds.INT64, ["n"]),
        ],
        [*graph.constants.values(), *places],
    )
    model = helper.make_model(shaped, opset_imports=[helper.make_opsetid("", OPERATORS)])
    model.ir_version = 8  # what runtimes of several years read
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _value(graph: _Graph, node: ExpressedNode, values: dict[int, str]) -> str:
    joint, neutral = ("Add", 0.0) if node.aggregation == "sum" else ("Mul", 1.0)
    reached = [graph.put("Mul", values[source], graph.number(weight)) for source, weight in node.connections]
    if not reached:
        # A column of the right length that is the same in every row.
        zero = graph.put("Mul", values[0], graph.number(0.0))
        reached = [graph.put("Add", zero, graph.number(neutral))]
    total = reached[0]
    for term in reached[1:]:
        total = graph.put(joint, total, term)
    total = graph.put("Mul", total, graph.number(node.response))
    return _activated(graph, node.activation, graph.put("Add", total, graph.number(node.bias)))


def _activated(graph: _Graph, name: str, z: str) -> str:
    if name == "relu":
        return graph.put("Min", graph.put("Max", z, graph.number(0.0)), graph.number(RELU_LIMIT))
    scaled = graph.put("Mul", z, graph.number(STEEP[name]))
    clamped = graph.put("Max", graph.put("Min", scaled, graph.number(CLAMP)), graph.number(-CLAMP))
    if name == "tanh":
        return graph.put("Tanh", clamped)
    if name == "sin":
        return graph.put("Sin", clamped)
    if name == "sigmoid":
        raised = graph.put("Add", graph.put("Exp", graph.put("Neg", clamped)), graph.number(1.0))
        return graph.put("Div", graph.number(1.0), raised)
    raised = graph.put("Add", graph.put("Exp", clamped), graph.number(1.0))
    return graph.put("Mul", graph.put("Log", raised), graph.number(0.2))


def _classes(graph: _Graph, edges: tuple[float, ...], value: str, kinds: Any) -> None:
    if not edges:
        graph.put("ArgMax", "values", name="classes", axis=1, keepdims=0)
        return
    above = [graph.put("Cast", graph.put("Greater", value, graph.number(edge)), to=kinds.INT64) for edge in edges]
    total = above[0]
    for one in above[1:]:
        total = graph.put("Add", total, one)
    graph.put("Reshape", total, "flat", name="classes")
