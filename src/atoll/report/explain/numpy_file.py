"""An evolved network as one Python file that needs only numpy."""

from __future__ import annotations

from atoll.algorithms.neat.expression import ExpressedNode, nodes_in_order
from atoll.algorithms.neat.population import OUTPUTS_FROM, Population, is_hidden, is_input
from atoll.core.messages import Schema
from atoll.report.explain.formula import feature_names

HEAD = '''"""A network found by Atoll. Needs numpy only. `predict(x)` gives the class number of each row of `x`.

Rows have the columns of FEATURES, scaled as they were when the network was evolved.
"""

import numpy as np

FEATURES = {features}
CLASSES = {classes}


def clamped(z):
    return np.fmax(np.fmin(z, 60.0), -60.0)


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(clamped(-5.0 * z)))


def tanh(z):
    return np.tanh(clamped(2.5 * z))


def relu(z):
    return np.fmin(np.fmax(z, 0.0), 1e30)


def sin(z):
    return np.sin(clamped(5.0 * z))


def softplus(z):
    return 0.2 * np.log1p(np.exp(clamped(5.0 * z)))

'''


def numpy_file(
    network: Population,
    schema: Schema,
    recurrent: bool = False,
    steps: int = 1,
    passes: int = 1,
    edges: tuple[float, ...] = (),
) -> str:
    """The text of the file. External names appear only as quoted strings."""
    nodes = nodes_in_order(network, recurrent)
    hidden = [node.name for node in nodes if is_hidden(node.name)]
    symbol = {name: f"hidden_{number}" for number, name in enumerate(hidden, start=1)}
    outputs = sorted(node.name for node in nodes if not is_hidden(node.name))
    symbol |= {name: f"output_{name - OUTPUTS_FROM}" for name in outputs}
    names = [str(name) for name in (schema.features or feature_names(schema))]
    text = HEAD.format(features=repr(names), classes=repr([str(name) for name in schema.classes]))
    body = _recurrent(nodes, symbol, steps, passes) if recurrent else _feed_forward(nodes, symbol)
    text += "\n".join(["", "def outputs(x):", *(f"    {line}" for line in body), ""])
    text += f"    return np.stack([{', '.join(symbol[name] for name in outputs)}], axis=1)\n\n\n"
    text += "def predict(x):\n"
    if edges:
        return text + f"    return np.searchsorted({list(edges)!r}, outputs(x)[:, 0], side='left')\n"
    return text + "    return outputs(x).argmax(axis=1)\n"


def _feed_forward(nodes: list[ExpressedNode], symbol: dict[int, str]) -> list[str]:
    lines = ["x = np.asarray(x, np.float64)"]
    for node in nodes:
        lines.append(f"{symbol[node.name]} = {_value(node, symbol)}")
    return lines


def _recurrent(nodes: list[ExpressedNode], symbol: dict[int, str], steps: int, passes: int) -> list[str]:
    entered = [node for node in nodes if node.connections]
    lines = [f"series = np.asarray(x, np.float64).reshape(len(x), {steps}, -1)"]
    lines += [f"{symbol[node.name]} = np.zeros(len(x))" for node in nodes]
    lines += [f"for time in np.repeat(np.arange({steps}), {passes}):", "    x = series[:, time]"]
    for node in entered:
        lines.append(f"    new_{symbol[node.name]} = {_value(node, symbol)}")
    lines += [f"    {symbol[node.name]} = new_{symbol[node.name]}" for node in entered]
    return lines


def _read(name: int, symbol: dict[int, str]) -> str:
    return f"x[:, {name}]" if is_input(name) else symbol[name]


def _value(node: ExpressedNode, symbol: dict[int, str]) -> str:
    if node.connections:
        joint = " + " if node.aggregation == "sum" else " * "
        reached = [f"{_read(source, symbol)} * {weight!r}" for source, weight in node.connections]
        total = joint.join(f"({term})" for term in reached)
    else:
        total = f"np.full(len(x), {0.0 if node.aggregation == 'sum' else 1.0})"
    return f"{node.activation}(({total}) * {node.response!r} + {node.bias!r})"
