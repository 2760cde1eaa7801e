"""The link's list of nodes brought into line with the keys in the federation's directory."""

from __future__ import annotations

import json

from atoll.sites.authority import public_point
from atoll.sites.control import Control
from atoll.sites.layout import Layout
from atoll.store.files import replace_file


def synchronise(layout: Layout, control: Control) -> dict[str, bool]:
    """Register whose key lies in the directory, unregister whose key does not; may be done any number of times.

    Which sites belong to the federation, and whether each is online. Their numbers go to `state/nodes.json`.
    """
    wanted = {name: public_point(layout.public_key(name).read_bytes()) for name in layout.sites}
    present = {node.public_key: node for node in control.nodes() if node.status != "unregistered"}
    for key, node in present.items():
        if key not in wanted.values():
            control.unregister(node.id)
    numbers = {name: present[key].id if key in present else control.register(name, key) for name, key in wanted.items()}
    if numbers != layout.nodes():
        replace_file(layout.state / "nodes.json", (json.dumps(numbers, indent=1) + "\n").encode())
    return {name: key in present and present[key].status == "online" for name, key in wanted.items()}
