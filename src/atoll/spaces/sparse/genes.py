"""The chromosome of a sparse network (Zhu & Jin, Fig. 3 and 4, Table II): integers as bits, and real numbers.

    mlp   hidden layers 2 bits, neurons 4 x 8, epsilon 7: 41 bits
    cnn   convolutions 2 bits, channels 3 x 6, kernel 1, hidden layers 2, neurons 3 x 8, epsilon 7: 54 bits
    both  two reals: lr 0.01 to 0.3, xi 0.01 to 0.55

A gene of b bits encodes 1 to 2^b: decoding adds one. A layer count above its maximum (4 of 3) is clamped. Genes of
unused layers are retained, because a descendant may use them. The kernel's bit means 3 or 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from atoll.errors import ArchitectureError, nearest

Bits = npt.NDArray[np.bool_]

LOW, HIGH = (0.01, 0.01), (0.3, 0.55)  # lr, xi
REALS = ("lr", "xi")
KERNELS = (3, 5)


@dataclass(frozen=True)
class Gene:
    """One integer, most significant bit first."""

    name: str
    bits: int
    most: int

    def read(self, bits: Bits) -> int:
        value = 1 + int("".join("1" if bit else "0" for bit in bits), 2)
        return min(value, self.most)

    def write(self, value: int) -> list[bool]:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= self.most:
            raise ArchitectureError(
                f"{self.name} = {value!r}: a chromosome can hold whole numbers from 1 to {self.most}",
                code="value-not-encodable",
            )
        return [sign == "1" for sign in format(value - 1, f"0{self.bits}b")]


@dataclass(frozen=True)
class Chromosome:
    """The genes of one individual, which are crossed and mutated."""

    bits: Bits
    reals: tuple[float, ...]


@dataclass(frozen=True)
class ChromosomeLayout:
    """The genes of one kind of network, in order."""

    layers: Mapping[str, tuple[int, int, int]]  # setting -> maximum layers, bits per layer, maximum size of a layer
    kernel: bool

    def genes(self) -> list[Gene]:
        found = []
        for name, (layers, bits, most) in self.layers.items():
            found.append(Gene(f"number of {name} layers", 2, layers))
            found += [Gene(f"{name} layer {number + 1}", bits, most) for number in range(layers)]
            if self.kernel and name == "filters":
                found.append(Gene("kernel", 1, 2))
        return [*found, Gene("epsilon", 7, 128)]


LAYOUTS = {
    "mlp": ChromosomeLayout({"hidden": (4, 8, 256)}, kernel=False),
    "cnn": ChromosomeLayout({"filters": (3, 6, 64), "hidden": (3, 8, 256)}, kernel=True),
}


def length(model: str) -> int:
    """The number of bits in a chromosome of this kind of network."""
    return sum(gene.bits for gene in _layout(model).genes())


def random_chromosome(model: str, rng: np.random.Generator) -> Chromosome:
    """A chromosome with every bit and every real number drawn uniformly."""
    bits = rng.random(length(model)) < 0.5
    reals = rng.uniform(LOW, HIGH)
    return repair(model, Chromosome(bits, tuple(float(value) for value in reals)))


def smallest(model: str) -> Chromosome:
    """The smallest network: if it does not fit the data, no network does."""
    return Chromosome(np.zeros(length(model), np.bool_), LOW)


def decode(model: str, chromosome: Chromosome) -> dict[str, Any]:
    """The settings that a chromosome encodes: hidden, epsilon, lr, xi and, for a CNN, filters and kernel."""
    chromosome = repair(model, chromosome)
    layout, start, values = _layout(model), 0, []
    for gene in layout.genes():
        values.append(gene.read(chromosome.bits[start : start + gene.bits]))
        start += gene.bits
    rest = iter(values)
    found: dict[str, Any] = {}
    for name, (layers, _, _) in layout.layers.items():
        count = next(rest)
        found[name] = [next(rest) for _ in range(layers)][:count]
        if layout.kernel and name == "filters":
            found["kernel"] = KERNELS[next(rest) - 1]
    found["epsilon"] = next(rest)
    return found | dict(zip(REALS, chromosome.reals, strict=True))


def encode(model: str, settings: Mapping[str, Any]) -> Chromosome:
    """The chromosome of these settings, which must be within Table II's ranges. Genes of unused layers are zero."""
    layout = _layout(model)
    bits: list[bool] = []
    for name, (layers, width, most) in layout.layers.items():
        sizes = settings[name]
        if not isinstance(sizes, Sequence) or not 1 <= len(sizes) <= layers:
            raise ArchitectureError(
                f"{name} = {sizes!r}: a chromosome can hold 1 to {layers} layers", code="value-not-encodable"
            )
        bits += Gene(f"number of {name} layers", 2, layers).write(len(sizes))
        for number in range(layers):
            size = sizes[number] if number < len(sizes) else 1
            bits += Gene(f"{name} layer {number + 1}", width, most).write(size)
        if layout.kernel and name == "filters":
            if settings["kernel"] not in KERNELS:
                raise ArchitectureError(
                    f"kernel = {settings['kernel']!r}: a chromosome can hold 3 or 5", code="value-not-encodable"
                )
            bits.append(settings["kernel"] == KERNELS[1])
    bits += Gene("epsilon", 7, 128).write(settings["epsilon"])
    for name, low, high in zip(REALS, LOW, HIGH, strict=True):
        if not low <= settings[name] <= high:
            raise ArchitectureError(
                f"{name} = {settings[name]!r}: a chromosome can hold {low} to {high}", code="value-not-encodable"
            )
    return Chromosome(np.array(bits), tuple(float(settings[name]) for name in REALS))


def repair(model: str, chromosome: Chromosome) -> Chromosome:
    """The chromosome with every gene clamped to its range. Raises an `ArchitectureError` for a wrong length."""
    genes, bits, reals = _layout(model).genes(), chromosome.bits, chromosome.reals
    wanted = sum(gene.bits for gene in genes)
    if bits.dtype != np.bool_ or bits.shape != (wanted,) or len(reals) != len(REALS):
        raise ArchitectureError(
            f"a chromosome of {bits.size} bits and {len(reals)} reals: a {model} needs {wanted} and {len(REALS)}",
            code="chromosome-size-mismatch",
        )
    if not all(math.isfinite(value) for value in reals):
        raise ArchitectureError(
            f"a chromosome with reals {list(reals)}: all reals must be finite", code="non-finite-values"
        )
    fixed, start = [], 0
    for gene in genes:
        fixed += gene.write(gene.read(bits[start : start + gene.bits]))
        start += gene.bits
    within = tuple(float(min(max(v, low), high)) for v, low, high in zip(reals, LOW, HIGH, strict=True))
    return Chromosome(np.array(fixed), within)


def _layout(model: str) -> ChromosomeLayout:
    if model not in LAYOUTS:
        raise ArchitectureError(
            f"chromosome: unknown model {model!r}; {nearest(str(model), LAYOUTS)}", code="unknown-model"
        )
    return LAYOUTS[model]
