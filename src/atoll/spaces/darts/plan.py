"""Validate an architecture and derive its cells. No modules are built.

supernet   {"space": "darts", "form": "mixed", "channels": 16, "cells": 8, "input": [3, 32, 32], "classes": 10}
sub-model  the same with "form": "path" and "key": {"normal": [14 operations], "reduce": [14 operations]}
genotype   the same with "form": "genotype" and
           "genotype": {"normal": [["sep_conv_3x3", 0], ... 8 pairs], "reduce": [...]}, two edges per node

With "norm": "group" (left out: "batch") rows do not influence each other.
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
OWN = {"mixed": None, "path": "key", "genotype": "genotype"}  # the setting that only this form has
STEM_MULTIPLIER = 3
_COMMON = {"space", "form", "channels", "cells", "input", "classes", "norm"}


@dataclass(frozen=True)
class CellPlan:
    """One cell: the preprocessing of its two inputs, its width, and the pixels of its nodes."""

    kind: str  # "normal" or "reduce"
    preprocessing: tuple[tuple[Part, int], ...]  # layers and output pixels for each input
    channels: int
    pixels: int

    def stride(self, source: int) -> int:
        """The stride of an edge from this state: a reduction cell halves its inputs."""
        return 2 if self.kind == "reduce" and source < len(self.preprocessing) else 1


@dataclass(frozen=True)
class DartsPlan:
    """A whole network without the operations on its edges."""

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
                f"unknown setting '{name}' of a DARTS architecture; {nearest(name, known)}", code="unknown-setting"
            )
    return str(form)


def key_of(arch: Mapping[str, Any]) -> Key:
    """The checked key of a sub-model."""
    return check_key(arch.get("key"))


def genotype_of(arch: Mapping[str, Any]) -> dict[str, Any]:
    """The checked genotype of a network."""
    return check_genotype(arch.get("genotype"))


def plan(arch: Mapping[str, Any]) -> DartsPlan:
    """The cells of this network; all sub-models of a supernet share one cached plan."""
    affine = form_of(arch) == "genotype"
    return _plan(canonical({name: arch.get(name) for name in ("channels", "cells", "input", "classes")}), affine)


def reductions(cells: int) -> set[int]:
    """The reduction cells, at one third and two thirds of the depth."""
    return {cells // 3, 2 * cells // 3}


@lru_cache(maxsize=64)
def _plan(text: str, affine: bool) -> DartsPlan:
    arch = json.loads(text)
    width, cells, classes = (_whole_number(arch, name) for name in ("channels", "cells", "classes"))
    image_channels, height, image_width = _image(arch, cells)
    pixels = height * image_width
    earlier = previous = STEM_MULTIPLIER * width
    first, before, found = (stem(image_channels, previous), pixels), pixels, []
    was_reduced = False
    for number in range(cells):
        reduces = number in reductions(cells)
        if reduces:
            width, height, image_width = 2 * width, (height + 1) // 2, (image_width + 1) // 2
        preprocessing = tuple(
            (preprocess(inputs, width, halve=halve, affine=affine), before)
            for inputs, halve in ((earlier, was_reduced), (previous, False))
        )
        before = height * image_width
        found.append(CellPlan("reduce" if reduces else "normal", preprocessing, width, before))
        earlier, previous, was_reduced = previous, NODES * width, reduces
    return DartsPlan(first, tuple(found), head(previous, classes))


def _image(arch: Mapping[str, Any], cells: int) -> tuple[int, int, int]:
    shape = arch["input"]
    if not isinstance(shape, list) or len(shape) != 3 or not all(_positive(value) for value in shape):
        raise ArchitectureError(
            f"input = {shape!r}: the DARTS space needs images; give [channels, height, width]",
            code="invalid-input-shape",
        )
    smallest = 2 ** (len(reductions(cells)) - 1) + 1
    if min(shape[1:]) < smallest:
        halvings = "twice" if len(reductions(cells)) == 2 else "once"
        fewer = "; a network of 1 cell accepts 2x2" if min(shape[1:]) == 2 else ""
        raise ArchitectureError(
            f"an image of {shape[1]}x{shape[2]} is too small: {cells} cells halve it {halvings} and need "
            f"{smallest}x{smallest} or larger{fewer}",
            code="image-too-small",
        )
    return shape[0], shape[1], shape[2]


def _whole_number(arch: Mapping[str, Any], name: str) -> int:
    value = arch[name]
    if not _positive(value):
        raise ArchitectureError(f"'{name}' is {value!r}: give a whole number of at least 1", code="invalid-setting")
    return int(value)


def _positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
