"""An evolved network as formulas over its raw columns, like the paper's Eq. 3.

The scaling of the inputs is folded into weights and biases, and nodes without a varying input into constants, so that
the formulas take numbers in the units of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from atoll.algorithms.neat.expression import ExpressedNode, nodes_in_order
from atoll.algorithms.neat.functions import ACTIVATIONS, IN_PLACE
from atoll.algorithms.neat.population import OUTPUTS_FROM, Population, is_hidden, is_input
from atoll.core.messages import Schema
from atoll.preparation.value import Preparation

MEANING = {
    "sigmoid": "sigmoid(z) = 1 / (1 + exp(-5 z))",
    "tanh": "tanh here is the hyperbolic tangent of 2.5 z",
    "relu": "relu(z) = max(z, 0)",
    "sin": "sin here is the sine of 5 z",
    "softplus": "softplus(z) = 0.2 ln(1 + exp(5 z))",
    "slog": "slog(x) = ln(1 + |x|) with the sign of x",
}
RISING = ("sigmoid", "tanh", "softplus")  # a larger argument always gives a larger value


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
    count = prod(schema.shape)
    known = list(schema.features) if len(schema.features) == count else [f"x{place}" for place in range(count)]
    return known[: count // steps]


@dataclass(frozen=True)
class Sum:
    """`bias` plus the sum, or times the product, of terms: a node's argument in raw units.

    A term of a product is (raw value - shift); of a sum it is the raw value alone, all shifts being in the bias.
    """

    bias: float
    factor: float  # of a product
    terms: list[tuple[float, str, float]]  # weight, name, shift
    product: bool

    def text(self) -> str:
        if self.product:
            names = [_shifted(name, shift) for _, name, shift in self.terms]
            return " * ".join([number(self.factor), *names]) + (_signed(self.bias) if self.bias else "")
        text = ""
        for weight, name, _ in self.terms:
            text += f"{_signed(weight)} * {name}" if text else f"{number(weight)} * {name}"
        return text + (_signed(self.bias) if self.bias else "") if text else number(self.bias)


class Formulas:
    """The formulas of one network."""

    def __init__(
        self, network: Population, preparation: Preparation, recurrent: bool = False, steps: int = 1, bins: bool = False
    ) -> None:
        self.nodes = nodes_in_order(network, recurrent)
        self.recurrent, self.bins = recurrent, bins
        self.classes = preparation.classes
        self._words = NodeNames.of(self.nodes, preparation.row_schema, steps, bins)
        known = preparation.statistics
        # With several time steps each has a mean and deviation of its own, which one formula for all cannot hold.
        self.raw = known is not None and (steps == 1 or not known.mean) and preparation.image is None
        self._mean = known.mean if self.raw and known is not None else []
        self._deviation = known.deviation if self.raw and known is not None else []
        self._logarithm = self.raw and preparation.logarithm
        self._constant: dict[int, float] = {}
        self.arguments: dict[int, Sum] = {}
        for node in self.nodes:
            self.arguments[node.name] = self._argument(node)
            if not recurrent and not self.arguments[node.name].terms:
                self._constant[node.name] = activated(node.activation, self._constant_argument(node.name))

    def text(self) -> str:
        """The decision in words, one line per node in order of evaluation, then the definitions of the functions."""
        shown = [node for node in self.nodes if node.name not in self._constant or not is_hidden(node.name)]
        ordered = shown if self.recurrent else sorted(shown, key=lambda node: not is_hidden(node.name))
        lines = [f"{self._words[node.name]} = {self._value(node)}" for node in ordered]
        used = {node.activation for node in shown if node.name not in self._constant}
        used |= {"slog"} if self._logarithm and any(self._reads_input(node) for node in shown) else set()
        notes = ["", "where", *(f"  {MEANING[name]}" for name in sorted(used))] if used else [""]
        if self.recurrent:
            notes.append("  [t-1] is the value one step earlier, 0 before the first")
        if not self.raw:
            notes.append("Inputs are as the network receives them: scaled by the statistics of a client or time step.")
        return "\n".join([*self.decision(), "", *lines, *notes]) + "\n"

    def decision(self) -> list[str]:
        """How the class follows from the outputs."""
        if self.bins:
            return ["The class is the range that the value lies in."]
        if len(self.classes) != 2 or self.recurrent:
            return ["The answer is the class with the largest value."]
        one, other = (next(node for node in self.nodes if node.name == OUTPUTS_FROM + place) for place in (0, 1))
        first, second = self.classes
        a, b = self.arguments[one.name], self.arguments[other.name]
        simple = one.activation == other.activation and one.activation in RISING and not (a.product or b.product)
        if not simple:
            return [f"The answer is '{second}' where {second} > {first}, else '{first}'."]
        weights: dict[str, float] = {}
        for sign, part in ((1.0, b), (-1.0, a)):
            for weight, name, _ in part.terms:
                weights[name] = weights.get(name, 0.0) + sign * weight
        difference = Sum(0.0, 1.0, [(weight, name, 0.0) for name, weight in weights.items() if weight], False)
        limit = a.bias - b.bias
        if not difference.terms:
            return [f"The answer is always '{second if limit < 0 else first}'."]
        return [f"The answer is '{second}' where {difference.text()} > {number(limit)}, else '{first}'."]

    def _value(self, node: ExpressedNode) -> str:
        if node.name in self._constant:
            return f"{number(self._constant[node.name])} (always)"
        if self.recurrent and not node.connections:
            return "0"
        return f"{node.activation}({self.arguments[node.name].text()})"

    def _argument(self, node: ExpressedNode) -> Sum:
        terms, bias, factor = [], node.bias, node.response
        product = node.aggregation == "product"
        for source, weight in node.connections:
            if source in self._constant:
                bias += 0.0 if product else node.response * weight * self._constant[source]
                factor *= weight * self._constant[source] if product else 1.0
                continue
            scale, shift, name = self._symbol(source)
            if product:
                factor *= weight * scale
                terms.append((1.0, name, shift))
            else:
                terms.append((node.response * weight * scale, name, 0.0))
                bias -= node.response * weight * scale * shift
        if product and factor == 0:
            terms = []
        return Sum(bias, factor, terms, product and bool(node.connections))

    def _constant_argument(self, name: int) -> float:
        argument = self.arguments[name]
        return argument.bias + (argument.factor if argument.product else 0.0)

    def _symbol(self, source: int) -> tuple[float, float, str]:
        """A source as scale * (name - shift)."""
        name = self._words[source] + ("[t-1]" if self.recurrent and not is_input(source) else "")
        if not is_input(source):
            return 1.0, 0.0, name
        name = f"slog({name})" if self._logarithm else name
        if not self._mean:
            return 1.0, 0.0, name
        return 1.0 / self._deviation[source], self._mean[source], name

    def _reads_input(self, node: ExpressedNode) -> bool:
        return any(is_input(source) for source, _ in node.connections)


def activated(name: str, argument: float) -> float:
    values = np.array([argument])
    IN_PLACE[ACTIVATIONS.index(name)](values)
    return float(values[0])


def number(value: float) -> str:
    """Short, for reading; the exported file has all digits."""
    return f"{value:.4g}"


def _shifted(name: str, shift: float) -> str:
    return f"({name}{_signed(-shift)})" if shift else name


def _signed(value: float) -> str:
    return f" {'-' if value < 0 else '+'} {number(abs(value))}"
