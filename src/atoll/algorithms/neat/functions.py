"""Activations and aggregations of nodes, on whole arrays.

Steepness and limits are neat-python's, so that equal genomes give equal outputs in both. Two limits are additions that
keep every output finite: relu is capped at 1e30, and NaN (infinity times zero in a product) counts as the upper limit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Function = Callable[[Values], None]  # modifies its argument in place

ACTIVATIONS = ("sigmoid", "tanh", "relu", "sin", "softplus")
AGGREGATIONS = ("sum", "product")
STEEP = {"sigmoid": 5.0, "tanh": 2.5, "sin": 5.0, "softplus": 5.0}
CLAMP = 60.0
RELU_LIMIT = 1e30


def _clamped(values: Values, steep: float) -> None:
    np.multiply(values, steep, out=values)
    np.fmin(values, CLAMP, out=values)  # fmin and fmax ignore NaN
    np.fmax(values, -CLAMP, out=values)


def sigmoid(values: Values) -> None:
    _clamped(values, -STEEP["sigmoid"])
    np.exp(values, out=values)
    np.add(values, 1.0, out=values)
    np.divide(1.0, values, out=values)


def tanh(values: Values) -> None:
    _clamped(values, STEEP["tanh"])
    np.tanh(values, out=values)


def relu(values: Values) -> None:
    np.fmax(values, 0.0, out=values)
    np.fmin(values, RELU_LIMIT, out=values)


def sin(values: Values) -> None:
    _clamped(values, STEEP["sin"])
    np.sin(values, out=values)


def softplus(values: Values) -> None:
    _clamped(values, STEEP["softplus"])
    np.exp(values, out=values)
    np.log1p(values, out=values)
    np.multiply(values, 0.2, out=values)


IN_PLACE: tuple[Function, ...] = (sigmoid, tanh, relu, sin, softplus)  # in the order of ACTIVATIONS
