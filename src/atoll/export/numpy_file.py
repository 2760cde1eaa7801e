"""An evolved network as one Python file that needs only numpy, with the preparation of raw rows in it."""

from __future__ import annotations

from atoll.algorithms.neat.expression import ExpressedNode, nodes_in_order
from atoll.algorithms.neat.population import OUTPUTS_FROM, is_hidden, is_input
from atoll.preparation.value import Preparation
from atoll.store.models import Model

HEAD = '''"""A network found by Atoll. Needs numpy only. `predict(rows)` gives the class of each row.

Rows are numbers in the order of COLUMNS, in the units of the data. {notes}
"""

import numpy as np

COLUMNS = {columns}
WORDS = {words}
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


def prepared(rows):
    x = np.asarray(rows, np.float32).astype(np.float64)
{arithmetic}
    return x.astype(np.float32).astype(np.float64)

'''


def numpy_file(model: Model) -> str:
    """The text of the file. External names appear only as quoted strings."""
    from atoll.spaces.genome import genome_of

    arch, preparation = model.architecture, model.preparation
    recurrent, edges = bool(arch["recurrent"]), list(arch["edges"])
    nodes = nodes_in_order(genome_of(arch, model.weights), recurrent)
    hidden = [node.name for node in nodes if is_hidden(node.name)]
    symbol = {name: f"hidden_{number}" for number, name in enumerate(hidden, start=1)}
    outputs = sorted(node.name for node in nodes if not is_hidden(node.name))
    symbol |= {name: f"output_{name - OUTPUTS_FROM}" for name in outputs}
    words = {column.name: column.words for column in preparation.columns if column.kind == "category"}
    text = HEAD.format(
        notes=_notes(preparation),
        columns=repr(preparation.values),
        words=repr(words),
        classes=repr(preparation.classes),
        arithmetic="\n".join(f"    {line}" for line in _arithmetic(preparation)),
    )
    steps, passes = int(arch["steps"]), int(arch["passes"])
    body = _recurrent(nodes, symbol, steps, passes) if recurrent else _feed_forward(nodes, symbol)
    text += "\n".join(["", "def outputs(rows):", *(f"    {line}" for line in body), ""])
    values = f"np.stack([{', '.join(symbol[name] for name in outputs)}], axis=1)"
    if edges:  # as scores: the distance to the nearest end of each class's range, negative outside of it
        text += f"    value, edges = {values}, np.array({edges!r})\n"
        text += "    low, high = np.concatenate([[-np.inf], edges]), np.concatenate([edges, [np.inf]])\n"
        text += "    return np.minimum(value - low, high - value)\n"
    else:
        text += f"    return {values}\n"
    return text + "\n\ndef predict(rows):\n    return [CLASSES[place] for place in outputs(rows).argmax(axis=1)]\n"


def _notes(preparation: Preparation) -> str:
    notes = []
    if preparation.statistics is not None and preparation.statistics.fill is not None:
        notes.append("NaN is a missing value.")
    if any(column.kind == "category" for column in preparation.columns):
        notes.append("A category is the place of its word in WORDS.")
    return " ".join(notes)


def _arithmetic(preparation: Preparation) -> list[str]:
    """Lines that turn raw numbers into the network's inputs, in the order of `atoll.preparation.value`."""
    known, lines = preparation.statistics, []
    assert known is not None
    if any(column.coding == "onehot" for column in preparation.columns):
        blocks, place = [], 0
        for column in preparation.columns:
            many = len(column.words) if column.coding == "onehot" else 0
            for _ in column.values:
                block = f"x[:, [{place}]]"
                blocks.append(f"{block} == np.arange({many})" if many else block)
                place += 1
        lines.append(f"x = np.concatenate([{', '.join(blocks)}], axis=1).astype(np.float64)")
    if known.fill is not None:
        lines.append(f"x = np.where(np.isnan(x), np.array({known.fill!r}), x)")
    if preparation.image is not None and preparation.image.largest != 1:
        lines.append(f"x = x.reshape(len(x), -1) / {preparation.image.largest!r}")
    if preparation.logarithm:
        lines.append("x = np.copysign(np.log1p(np.abs(x)), x)")
    if known.mean and preparation.image is None:
        lines.append(f"x = (x - np.array({known.mean!r})) / np.array({known.deviation!r})")
    elif known.mean:
        shape = "(1, -1, 1, 1)"
        lines.append(f"x = x - np.array({known.mean!r}).reshape{shape}")
        lines.append(f"x = x / np.array({known.deviation!r}).reshape{shape}")
    return lines


def _feed_forward(nodes: list[ExpressedNode], symbol: dict[int, str]) -> list[str]:
    lines = ["x = prepared(rows)", "x = x.reshape(len(x), -1)"]
    for node in nodes:
        lines.append(f"{symbol[node.name]} = {_value(node, symbol)}")
    return lines


def _recurrent(nodes: list[ExpressedNode], symbol: dict[int, str], steps: int, passes: int) -> list[str]:
    entered = [node for node in nodes if node.connections]
    lines = ["x = prepared(rows)", f"series = x.reshape(len(x), {steps}, -1)"]
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
