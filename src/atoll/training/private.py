"""Training with differential privacy of single rows: DP-SGD (Abadi et al. 2016) on Poisson batches.

In each step every row takes part with the same probability, its gradient is clipped to a length, noise is added to the
sum, and the sum is divided by the expected number of rows. All else (momentum, weight decay, the proximal term, masks)
uses the noisy sum only, so it costs no privacy. Gradients of rows come from torch.func, which was faster than Opacus
for seven of nine networks (benchmarks/privacy.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from atoll.core.messages import Array, Tensors
from atoll.errors import ConfigError
from atoll.privacy.settings import LEAST_CLIP
from atoll.spaces.choice.layers import ParallelBranch, SequentialBranch
from atoll.spaces.choice.space import ChoiceNetwork
from atoll.spaces.darts.cells import FactorisedReduction, GenotypeCell, MixedCell, PathCell
from atoll.spaces.darts.space import DartsNetwork, Supernet
from atoll.spaces.layers import Conv2d, Perceptron, Residual
from atoll.spaces.norm import AffineGroupNorm, BatchNorm, GroupNorm
from atoll.spaces.pruned.network import Network
from atoll.training.augmentation import Augmentation
from atoll.training.batches import Rows
from atoll.training.networks import load, values
from atoll.training.sgd import NO_AUGMENTATION, TrainSettings, clip_norm

CHUNK = 64  # rows whose gradients are in memory at once

# Modules that compute every row by itself. Others are refused: one that mixes rows would break the promise silently.
ROW_BY_ROW = {
    *(nn.Linear, nn.Conv2d, Conv2d, nn.ReLU, nn.Identity, nn.Flatten, nn.MaxPool2d, nn.AdaptiveAvgPool2d, GroupNorm),
    *(nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterDict, Perceptron, Residual),
    *(ChoiceNetwork, SequentialBranch, ParallelBranch),
    *(DartsNetwork, Supernet, MixedCell, PathCell, GenotypeCell, FactorisedReduction, nn.AvgPool2d, AffineGroupNorm),
    *(Network, nn.Module, nn.GroupNorm),  # of `atoll.spaces.pruned`, whose operations keep rows apart
}
ROUNDING = 1e-6  # a clipped gradient is this much shorter, so that rounding does not make it longer than allowed
LEAST_FACTOR = 1e-30  # a gradient that would be shortened by more contributes nothing: float32 is not exact there
LONGEST_INPUT = 1e18  # of a linear layer, for the same reason

ClippedSum = Callable[[Tensor, Tensor], list[Tensor]]


@dataclass(frozen=True)
class PrivateSteps:
    """How a network is trained privately. `noise` is in units of `clip`, the longest gradient of one row."""

    clip: float
    noise: float
    rate: float  # the probability of every row to take part in a step
    steps: int

    def __post_init__(self) -> None:
        if not (LEAST_CLIP <= self.clip < float("inf") and 0 < self.noise < float("inf")):
            raise ValueError(
                f"clip = {self.clip}, noise = {self.noise}: both must be finite, clip {LEAST_CLIP:g} or more and noise "
                "above 0"
            )
        if not (0 < self.rate <= 1 and self.steps >= 1):
            raise ValueError(f"rate = {self.rate}, steps = {self.steps}: a share of the rows, and at least one step")

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> PrivateSteps:
        """From the settings of a task, which may have others beside these."""
        clip, noise, rate = (number(settings[name], name) for name in ("clip", "noise", "rate"))
        if type(settings["steps"]) is not int:
            raise ValueError(f"steps = {str(settings['steps'])[:40]}: not a whole number")
        return cls(clip, noise, rate, settings["steps"])

    @classmethod
    def of_alphas(cls, settings: Mapping[str, Any]) -> PrivateSteps:
        """The steps of architecture parameters that go with those of the weights, one with each."""
        own = settings["alphas"]
        return cls.of({**settings, "noise": own["noise"], "rate": own["rate"]})


def number(value: Any, name: str) -> float:
    """A setting of a task that is a finite number; what is charged and what is drawn must be the same."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"{name} = {str(value)[:40]}: not a finite number")
    return float(value)


def refuse_mixed_rows(module: nn.Module) -> None:
    """Raise a `ConfigError` if a layer of the network lets rows influence each other, or is not known not to."""
    for name, layer in module.named_modules():
        if type(layer) in ROW_BY_ROW:
            continue
        if isinstance(layer, BatchNorm):
            raise ConfigError(
                f"[privacy]: layer {name!r} is a batch norm, which lets rows influence each other; set norm = 'group'",
                code="privacy-batch-norm",
            )
        raise ConfigError(
            f"[privacy]: layer {name!r} is a {type(layer).__name__}, which is not known to compute rows one by one; "
            "use a network without it",
            code="privacy-unknown-layer",
        )


def train(
    module: nn.Module,
    weights: Tensors,
    x: Array,
    y: Array,
    settings: TrainSettings,
    private: PrivateSteps,
    rng: np.random.Generator,
    *,
    key: list[int] | None = None,
    masks: Mapping[str, Array] | None = None,
    augment: Augmentation = NO_AUGMENTATION,
    prox: float = 0.0,
    device: str = "cpu",
) -> Tensors:
    """The weights after `private.steps` noisy steps, under their names. `rng` must be secret: batches and noise are
    drawn from it. With a `key` the module is a master network, of which this path is trained."""
    parameters = load(module, weights)
    named, rows = dict(zip(weights, parameters, strict=True)), Rows(x, y, module, device)
    noisy = NoisyGradients(module, named, rows, private, key=key, augment=augment)
    updated = [parameter.detach() for parameter in parameters]
    start = [value.clone() for value in updated]
    momenta = [torch.zeros_like(value) for value in updated]
    factors = [_mask(name, masks or {}, device) for name in weights]
    for _ in range(private.steps):
        gradients = noisy.draw(rng)
        # From here on nothing looks at the rows.
        for gradient, factor in zip(gradients, factors, strict=True):
            if factor is not None:
                gradient.mul_(factor)
        if settings.clip is not None:
            clip_norm(gradients, settings.clip)
        if prox:
            torch._foreach_add_(gradients, torch._foreach_sub(updated, start), alpha=prox)
        if settings.weight_decay:
            torch._foreach_add_(gradients, updated, alpha=settings.weight_decay)
        torch._foreach_mul_(momenta, settings.momentum)
        torch._foreach_add_(momenta, gradients)
        torch._foreach_add_(updated, momenta, alpha=-settings.lr)
    return values(weights, parameters)


def gradient(
    module: nn.Module,
    weights: Tensors,
    x: Array,
    y: Array,
    private: PrivateSteps,
    rng: np.random.Generator,
    device: str = "cpu",
) -> Tensors:
    """The noisy gradient of one Poisson batch, under the names of the weights."""
    parameters = load(module, weights)
    named, rows = dict(zip(weights, parameters, strict=True)), Rows(x, y, module, device)
    noisy = NoisyGradients(module, named, rows, private)
    found = {name: own.cpu().numpy() for name, own in zip(weights, noisy.draw(rng), strict=True)}
    return Tensors(found)


class NoisyGradients:
    """The gradients of some of a network's parameters on Poisson batches of these rows: that of each row is clipped,
    and their sum has noise. It is divided by the number of rows that are expected in a batch."""

    def __init__(
        self,
        module: nn.Module,
        parameters: Mapping[str, nn.Parameter],
        rows: Rows,
        private: PrivateSteps,
        *,
        key: list[int] | None = None,
        augment: Augmentation = NO_AUGMENTATION,
    ) -> None:
        """`key`: of a master network the path whose parameters these are."""
        refuse_mixed_rows(module)
        self._parameters, self._rows, self._private, self._augment = parameters, rows, private, augment
        names, own = list(parameters), list(parameters.values())
        whole = len(own) == sum(1 for _ in module.parameters())
        self._clipped: ClippedSum
        if isinstance(module, Perceptron) and whole and key is None:
            self._clipped = _PerceptronSum(module, {id(one): place for place, one in enumerate(own)}, private.clip)
        else:
            self._clipped = _AnySum(module, names, own, private.clip, key)

    def draw(self, rng: np.random.Generator) -> list[Tensor]:
        """Those of the next step, in the order of the parameters. `rng` must be secret."""
        private, rows = self._private, self._rows
        taken = np.flatnonzero(rng.random(len(rows)) < private.rate)
        gradients = [torch.zeros_like(parameter.detach()) for parameter in self._parameters.values()]
        for first in range(0, len(taken), CHUNK):
            index = torch.from_numpy(taken[first : first + CHUNK]).to(rows.x.device)
            inputs, labels = rows.take(index)
            torch._foreach_add_(gradients, self._clipped(self._augment(inputs, rng), labels))
        for _, own in sorted(zip(self._parameters, gradients, strict=True), key=lambda item: item[0]):
            noise = rng.standard_normal(tuple(own.shape), dtype=np.float32)
            own.add_(torch.from_numpy(noise).to(own.device), alpha=private.noise * private.clip)
            own.div_(private.rate * len(rows))
        return gradients


def _mask(name: str, masks: Mapping[str, Array], device: str) -> Tensor | None:
    return torch.tensor(masks[name], dtype=torch.float32, device=device) if name in masks else None


class _AnySum:
    """The sum of the rows' clipped gradients, for any network of known layers."""

    def __init__(
        self, module: nn.Module, names: list[str], parameters: list[nn.Parameter], clip: float, key: list[int] | None
    ) -> None:
        self.names, self.parameters, self.clip = names, parameters, clip
        arguments = () if key is None else (key,)

        def loss(own: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return functional.cross_entropy(functional_call(module, own, (x[None], *arguments)), y[None])

        self.gradients = vmap(grad(loss), (None, 0, 0), randomness="error")

    def __call__(self, x: Tensor, y: Tensor) -> list[Tensor]:
        own = {name: value.detach() for name, value in zip(self.names, self.parameters, strict=True)}
        with torch.no_grad():  # of the module's other parameters no gradient is wanted
            found = self.gradients(own, x, y)
        each = [found[name].flatten(1) for name in self.names]
        factors = clipping(torch.stack([lengths(one) for one in each]), self.clip)
        finite = factors > 0
        if not bool(finite.all()):  # a gradient that is not finite contributes nothing
            each = [torch.where(finite[:, None], one, 0.0) for one in each]
        return [(factors @ one).reshape(value.shape) for one, value in zip(each, self.parameters, strict=True)]


class _PerceptronSum:
    """The same for linear layers with ReLU between them, without a gradient per row: its length follows from the
    layer's input and the error that is propagated back (Goodfellow 2015)."""

    def __init__(self, module: Perceptron, order: Mapping[int, int], clip: float) -> None:
        self.layers: list[tuple[Tensor, Tensor]] = [(layer.weight, layer.bias) for layer in module.layers]  # type: ignore[misc]
        self.order, self.clip = order, clip

    def __call__(self, x: Tensor, y: Tensor) -> list[Tensor]:
        inputs = [x.flatten(1)]
        with torch.no_grad():
            for number, (weight, bias) in enumerate(self.layers):
                output = torch.addmm(bias, inputs[-1], weight.t())
                inputs.append(output.relu_() if number < len(self.layers) - 1 else output)
            deltas = [torch.softmax(inputs.pop(), 1)]
            deltas[0][torch.arange(len(y)), y] -= 1
            for number in range(len(self.layers) - 1, 0, -1):
                delta = deltas[0] @ self.layers[number][0]
                deltas.insert(0, delta.mul_(inputs[number] > 0))
            each = []
            for delta, own in zip(deltas, inputs, strict=True):
                long = lengths(own)
                long = torch.where(long < LONGEST_INPUT, long, torch.inf)
                each.append(lengths(delta) * (1 + long.square()).sqrt())
            factors = clipping(torch.stack(each), self.clip)
            finite = (factors > 0)[:, None]
            if not bool(finite.all()):
                deltas = [torch.where(finite, delta, 0.0) for delta in deltas]
                inputs = [torch.where(finite, own, 0.0) for own in inputs]
            found: dict[int, Tensor] = {}
            for (weight, bias), delta, own in zip(self.layers, deltas, inputs, strict=True):
                limited = delta * factors[:, None]
                found[self.order[id(weight)]] = limited.t() @ own
                found[self.order[id(bias)]] = limited.sum(0)
        return [found[place] for place in range(len(found))]


def lengths(rows: Tensor) -> Tensor:
    """The L2 norm of each row, in float64: there no square of a float32 is 0 or infinite."""
    found: Tensor = torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
    return found


def clipping(lengths_of_parts: Tensor, clip: float) -> Tensor:
    """The factor of each row's gradient from the lengths of its parts, so that it is at most `clip` long; 0 if the
    length is not a number, or out of all proportion."""
    norms = torch.linalg.vector_norm(lengths_of_parts, dim=0)
    factors = clip * (1 - ROUNDING) / torch.clamp(norms, min=clip)
    return torch.where(torch.isfinite(norms) & (factors >= LEAST_FACTOR), factors, 0.0).float()


def noisy_counts(counts: Array, deviation: float, most: int, rng: np.random.Generator) -> Array:
    """Counts with Gaussian noise, as whole numbers from 0 to `most`: rounding and limiting see noisy values only."""
    noisy = counts + deviation * rng.standard_normal(counts.shape)
    return np.clip(np.rint(noisy), 0, most).astype(np.int64)
