"""An evolved network as formulas over the names of its features, like the paper's Eq. 3."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.algorithms.neat.expression import ExpressedNode, nodes_in_order
from atoll.algorithms.neat.population import OUTPUTS_FROM, Population, is_hidden, is_input
from atoll.core.messages import Schema

MEANING = {
    "sigmoid": "sigmoid(z) = 1 / (1 + exp(-5 z))",
    "tanh": "tanh here is the hyperbolic tangent of 2.5 z",
    "relu": "relu(z) = max(z, 0)",
    "sin": "sin here is the sine of 5 z",
    "softplus": "softplus(z) = 0.2 ln(1 + exp(5 z))",
}


@dataclass(frozen=True)
class NodeNames:
    """Names of nodes: features and classes have their own, hidden nodes are h1, h2, ... in order of evaluation."""

    names: dict[int, str]

    @classmethod
    def of(cls, nodes: list[ExpressedNode], schema: Schema, steps: int = 1, bins: bool = False) -> NodeNames:
        names = dict(enumerate(feature_names(schema, steps)))
        outputs = ["value"] if bins else list(schema.classes)
        names |= {OUTPUTS_FROM + place: name for place, name in enumerate(outputs)}
        hidden = [node.name for node in nodes if is_hidden(node.name)]
        return cls(names | {name: f"h{number}" for number, name in enumerate(hidden, start=1)})

    def __getitem__(self, name: int) -> str:
        return self.names[name]


def feature_names(schema: Schema, steps: int = 1) -> list[str]:
    """The names of the inputs; with several time steps, those of the first step."""
    count = 1
    for size in schema.shape:
        count *= size
    known = list(schema.features) if len(schema.features) == count else [f"x{place}" for place in range(count)]
    return known[: count // steps]


def formulas(network: Population, schema: Schema, recurrent: bool = False, steps: int = 1, bins: bool = False) -> str:
    """One line per node, in order of evaluation, then the definitions of the functions."""
    nodes = nodes_in_order(network, recurrent)
    words = NodeNames.of(nodes, schema, steps, bins)
    hidden_first = sorted(nodes, key=lambda node: not is_hidden(node.name)) if not recurrent else nodes
    lines = [f"{words[node.name]} = {_formula(node, words, recurrent)}" for node in hidden_first]
    meanings = [MEANING[name] for name in sorted({node.activation for node in nodes})]
    notes = ["", "where", *(f"  {meaning}" for meaning in meanings)]
    if recurrent:
        notes.append("  [t-1] is the value one step earlier, 0 before the first")
    notes.append("Features are as the network receives them: scaled according to the run's settings.")
    return "\n".join(lines + notes) + "\n"


def number(value: float) -> str:
    """Short, for reading; the exported file has all digits."""
    return f"{value:.4g}"


def _formula(node: ExpressedNode, words: NodeNames, recurrent: bool) -> str:
    if recurrent and not node.connections:
        return "0"
    terms = []
    for source, weight in node.connections:
        late = recurrent and not is_input(source)
        terms.append((weight, words[source] + ("[t-1]" if late else "")))
    if node.aggregation == "sum":
        inner = _sum([(weight * node.response, name) for weight, name in terms], node.bias)
    else:
        factor = node.response
        for weight, _ in terms:
            factor *= weight
        inner = " * ".join([number(factor), *(name for _, name in terms)])
        inner += _signed(node.bias) if node.bias else ""
    return f"{node.activation}({inner})"


def _sum(terms: list[tuple[float, str]], bias: float) -> str:
    text = ""
    for weight, name in terms:
        text += f"{_signed(weight)} * {name}" if text else f"{number(weight)} * {name}"
    if not text:
        return number(bias)
    return text + (_signed(bias) if bias else "")


def _signed(value: float) -> str:
    return f" {'-' if value < 0 else '+'} {number(abs(value))}"
