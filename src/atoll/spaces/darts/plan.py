"""From an architecture's plain data to its cells, checked. Nothing is built here.

supernet   {"space": "darts", "form": "mixed", "channels": 16, "cells": 8, "input": [3, 32, 32], "classes": 10}
sub-model  the same with "form": "path" and "key": {"normal": [14 operations], "reduce": [14 operations]}
found      the same with "form": "genotype" and
           "genotype": {"normal": [["sep_conv_3x3", 0], ... 8 pairs], "reduce": [...]}, two edges for every node
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from atoll.errors import ArchitectureError, nearest
from atoll.spaces.cost import canonical
from atoll.spaces.darts.genotype import check_genotype
from atoll.spaces.darts.layers import NODES, Key, Part, check_key, head, preprocess, stem

FORMS = ("mixed", "path", "genotype")
OWN = {"mixed": None, "path": "key", "genotype": "genotype"}  # what a form has that the others have not
STEM_MULTIPLIER = 3
_COMMON = {"space", "form", "channels", "cells", "input", "classes"}


@dataclass(frozen=True)
class CellPlan:
    """One cell: what it takes its two inputs with, its width, and the pixels of its nodes."""

    kind: str  # "normal" or "reduce"
    preprocessing: tuple[tuple[Part, int], ...]  # with the pixels of their output
    channels: int
    pixels: int

    def stride(self, source: int) -> int:
        """Of an edge from this state: a reduction cell halves what comes from its inputs."""
        return 2 if self.kind == "reduce" and source < len(self.preprocessing) else 1


@dataclass(frozen=True)
class DartsPlan:
    """A whole network, but for the operations on its edges."""

    stem: tuple[Part, int]
    cells: tuple[CellPlan, ...]
    head: Part


def form_of(arch: Mapping[str, Any]) -> str:
    form = arch.get("form")
    if form not in FORMS:
        raise ArchitectureError(f"form {form!r}: unknown; {nearest(str(form), FORMS)}", code="unknown-form")
    known = _COMMON | {name for name in (OWN[form],) if name}
    for name in arch:
        if name not in known:
            raise ArchitectureError(
                f"'{name}' is not part of this architecture; {nearest(name, known)}", code="unknown-setting"
            )
    return str(form)


def key_of(arch: Mapping[str, Any]) -> Key:
    """The operations of a sub-model, checked."""
    return check_key(arch.get("key"))


def genotype_of(arch: Mapping[str, Any]) -> dict[str, Any]:
    """The edges of a found network, checked."""
    return check_genotype(arch.get("genotype"))


def plan(arch: Mapping[str, Any]) -> DartsPlan:
    """The cells of this network; all sub-models of a supernet share one cached plan."""
    affine = form_of(arch) == "genotype"
    return _plan(canonical({name: arch.get(name) for name in ("channels", "cells", "input", "classes")}), affine)


def reductions(cells: int) -> set[int]:
    """Which cells shrink the image: those at a third and two thirds of the depth."""
    return {cells // 3, 2 * cells // 3}


@lru_cache(maxsize=64)
def _plan(text: str, affine: bool) -> DartsPlan:
    arch = json.loads(text)
    width, cells, classes = (_whole_number(arch, name) for name in ("channels", "cells", "classes"))
    colours, height, breadth = _image(arch, cells)
    pixels = height * breadth
    earlier = previous = STEM_MULTIPLIER * width
    first, before, found = (stem(colours, previous), pixels), pixels, []
    was_reduced = False
    for number in range(cells):
        reduces = number in reductions(cells)
        if reduces:
            width, height, breadth = 2 * width, (height + 1) // 2, (breadth + 1) // 2
        preprocessing = tuple(
            (preprocess(inputs, width, halve=halve, affine=affine), before)
            for inputs, halve in ((earlier, was_reduced), (previous, False))
        )
        before = height * breadth
        found.append(CellPlan("reduce" if reduces else "normal", preprocessing, width, before))
        earlier, previous, was_reduced = previous, NODES * width, reduces
    return DartsPlan(first, tuple(found), head(previous, classes))


def _image(arch: Mapping[str, Any], cells: int) -> tuple[int, int, int]:
    shape = arch["input"]
    if not isinstance(shape, list) or len(shape) != 3 or not all(_positive(value) for value in shape):
        raise ArchitectureError(
            f"input {shape!r}: the DARTS space takes images; give [channels, height, width]", code="invalid-input-shape"
        )
    smallest = 2 ** (len(reductions(cells)) - 1) + 1
    if min(shape[1:]) < smallest:
        halvings = "twice" if len(reductions(cells)) == 2 else "once"
        fewer = "; a network of 1 cell takes 2x2" if min(shape[1:]) == 2 else ""
        raise ArchitectureError(
            f"an image of {shape[1]}x{shape[2]} is too small: {cells} cells halve it {halvings} and take "
            f"{smallest}x{smallest} or larger{fewer}",
            code="image-too-small",
        )
    return shape[0], shape[1], shape[2]


def _whole_number(arch: Mapping[str, Any], name: str) -> int:
    value = arch[name]
    if not _positive(value):
        raise ArchitectureError(f"'{name}' is {value!r}: give a whole number from 1 on", code="invalid-setting")
    return int(value)


def _positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
