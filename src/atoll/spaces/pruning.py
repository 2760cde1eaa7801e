"""Making described networks narrower: which widths there are, and the network without the weakest filters.

A unit is a width that can shrink by itself: the filters of one layer, or of all layers whose outputs are added up, with
everything that follows them (the depthwise convolution and the norm behind it, the inputs of the next layer). Which
those are is found by torch-pruning 1.6.1 (`pruning_trace`), once for all widths of a network (`pruning_known`); the
cutting is done on descriptions and arrays (`pruning_cut`), without modules. All of this is for the server: a client
builds what comes out, from space `widths`.

Removing filters of a unit gives the network that the whole one is when those filters' channels are zero where the next
layers read them (but for group norm, whose statistics are then those of the channels that are left). Where a
convolution or a norm has groups, one filter of a unit is one channel in every group. The answer's layer is never a
unit, nor is a layer whose outputs are added to the network's input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atoll.errors import ArchitectureError, nearest
from atoll.messages import Array, Tensors
from atoll.spaces.pruning_cut import Prunable

JOINT = "+"  # between the names of units that are pruned as one


@dataclass(frozen=True)
class Unit:
    """A width of a network. `layers` make its channels; what follows them is not named."""

    name: str  # that of its first layer
    width: int
    layers: tuple[str, ...]


def units(arch: Mapping[str, Any]) -> list[Unit]:
    """The prunable widths in the network's order. Names stay the same while widths shrink, down to 1."""
    network = Prunable.of(arch)
    return [Unit(name, network.widths[name], layers) for name, layers in network.found.units.items()]


def merged(units: Sequence[Unit], groups: Sequence[Sequence[str]]) -> list[Unit]:
    """Units with the user's groups as one unit each, in the place of its first.

    A word of a group is a unit's name, a layer's name or the path of a module around layers: it stands for every unit
    with a layer there. The members shrink together, by the same fraction: the width is that of the widest, and where
    it keeps k of W filters, a member of width w keeps w k / W, rounded up.
    """
    group_of: dict[str, int] = {}
    for number, words in enumerate(groups):
        for word in words:
            for unit in _meant(word, units):
                if group_of.setdefault(unit.name, number) != number:
                    raise ArchitectureError(
                        f"unit {unit.name!r} is in two groups, by {word!r} in the second: put the groups together"
                    )
    result, done = [], set()
    for unit in units:
        number = group_of.get(unit.name, -1)
        if number == -1:
            result.append(unit)
        elif number not in done:
            done.add(number)
            members = [member for member in units if group_of.get(member.name) == number]
            result.append(
                Unit(
                    JOINT.join(member.name for member in members),
                    max(member.width for member in members),
                    tuple(layer for member in members for layer in member.layers),
                )
            )
    return result


def least_width(arch: Mapping[str, Any], unit: Unit | str) -> int:
    """The fewest filters a unit may keep: one (in each group, where there are groups)."""
    name = unit.name if isinstance(unit, Unit) else unit
    widths = Prunable.of(arch).widths
    _members(widths, name)
    return 1


def narrowed(arch: Mapping[str, Any], unit_name: str, keep: int) -> dict[str, Any]:
    """The description with `keep` filters in this unit, without weights. Shares what does not change with `arch`."""
    network = Prunable.of(arch)
    return network.described(_targets(network.widths, unit_name, keep))


def prune(arch: Mapping[str, Any], weights: Tensors, unit_name: str, keep: int) -> tuple[dict[str, Any], Tensors]:
    """The description and the weights without the unit's filters of smallest L2 norm; the others stay in order.

    Of filters with equal norms the later ones go.
    """
    network = Prunable.of(arch)
    targets = _targets(network.widths, unit_name, keep)
    strongest = {
        unit: np.argsort(-network.norms(weights, unit), kind="stable")[:width] for unit, width in targets.items()
    }
    chosen = {unit: np.sort(filters) for unit, filters in strongest.items()}
    return network.described(targets), network.cut(weights, chosen)


def filter_norms(arch: Mapping[str, Any], weights: Tensors, unit_name: str) -> Array:
    """The L2 norm of each filter of a unit, over the weights (not biases) of all layers that make its channels.

    Depthwise convolutions and norms follow those layers and have no say.
    """
    network = Prunable.of(arch)
    if len(_members(network.widths, unit_name)) > 1:
        raise ArchitectureError(f"{unit_name!r} is several units: ask for the norms of one of them")
    return network.norms(weights, unit_name)


def _meant(word: str, units: Sequence[Unit]) -> list[Unit]:
    meant = [unit for unit in units if unit.name == word]
    if not meant:
        meant = [unit for unit in units if any(f"{name}.".startswith(f"{word}.") for name in unit.layers)]
    if not meant:
        known = [unit.name for unit in units]
        raise ArchitectureError(f"no prunable layer {word!r} to put in a group; {nearest(word, known)}")
    return meant


def _members(widths: Mapping[str, int], name: str) -> list[str]:
    members = [name] if name in widths else name.split(JOINT)
    for member in members:
        if member not in widths:
            raise ArchitectureError(f"no unit {member!r} to prune; {nearest(member, widths)}")
    return members


def _targets(widths: Mapping[str, int], name: str, keep: int) -> dict[str, int]:
    """What each unit of this name keeps."""
    members = _members(widths, name)
    widest = max(widths[member] for member in members)
    if isinstance(keep, bool) or not 1 <= keep <= widest:
        raise ArchitectureError(f"unit {name!r} cannot keep {keep} filters: it has {widest} and needs at least 1")
    return {member: -(-widths[member] * keep // widest) for member in members}
