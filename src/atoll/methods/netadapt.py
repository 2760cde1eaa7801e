"""NetAdapt on centralised data, the comparator of federated NetAdapt: the same search with all rows in one place.

It is `decnas` with a single client that holds everyone's rows: no groups, every candidate tuned to the end and, unless
set otherwise, the same number of rounds in every iteration. A round is `epochs` passes over all rows, or `steps` steps
at most. In the preset `small` rounds and steps are those of a client of `decnas`, so that what differs is the data.
"""

from __future__ import annotations

from typing import ClassVar

from atoll.methods.decnas.search import Decnas
from atoll.methods.decnas.settings import DecnasConfig


class NetAdaptConfig(DecnasConfig):
    """The same settings, the three optimisations off."""

    grouping: bool = False
    dropping: bool = False
    dynamic_rounds: bool = False


class NetAdapt(Decnas):
    name: ClassVar[str] = "netadapt"
    summary: ClassVar[str] = "shrink a network on all data in one place (NetAdapt): what federation costs"
    Config: ClassVar[type[NetAdaptConfig]] = NetAdaptConfig
    centralised: ClassVar[bool] = True
