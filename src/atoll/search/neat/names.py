"""Names of nodes that mean the same on every island.

Inputs and outputs are numbered. A hidden node is named by what it was made from: the connection that was split, and
which of that connection's splits in its genome it is. So the same split on two clients gives the same name, with no
counter to agree on, and two nodes of one name come from the same place in every genome. A connection is named by the
names of its two ends.
"""

from __future__ import annotations

import hashlib
import struct

OUTPUTS_FROM = 1 << 32  # inputs are named 0, 1, ... and outputs from here on
HIDDEN_FROM = 1 << 63  # hidden nodes have the highest bit set


def output_name(number: int) -> int:
    return OUTPUTS_FROM + number


def split_name(source: int, target: int, occurrence: int) -> int:
    """The node of a connection's first (1), second (2), ... split: 63 bits of a hash, so equal names by chance can be
    left out of account."""
    digest = hashlib.blake2b(struct.pack("<QQQ", source, target, occurrence), digest_size=8).digest()
    return int.from_bytes(digest, "little") | HIDDEN_FROM


def is_hidden(name: int) -> bool:
    return name >= HIDDEN_FROM


def is_input(name: int) -> bool:
    return name < OUTPUTS_FROM
