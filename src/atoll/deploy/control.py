"""None"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from atoll.deploy.authority import public_point
from atoll.deploy.layout import Layout
from atoll.errors import SiteError
from atoll.store.files import replace_file


@dataclass(frozen=True)
class Node:
    """A registered site as the link sees it."""

    id: int
    name: str
    status: str  # registered (never came), online, offline, unregistered
    public_key: bytes
    last_seen: datetime | None


@dataclass(frozen=True)
class RunInfo:
    """A run as the link sees it."""

    id: int
    status: str
    detail: str
    started: str


class Control:
    """The link of one federation. Raises `SiteError` when it does not answer."""

    def __init__(self, layout: Layout, timeout: float = 30.0) -> None:
        import ssl

        from flwr.supercore.control import ControlHttpClient

        context = ssl.create_default_context(cafile=str(layout.ca))
        self._layout = layout
        self._client = ControlHttpClient(f"https://{layout.link_address}", verify=context, timeout=timeout)

    def nodes(self) -> list[Node]:
        """Everybody who is or was registered."""
        from flwr.proto.control_pb2 import ListNodesRequest

        found = self._ask("ListNodes", ListNodesRequest())
        return [
            Node(info.node_id, info.name, info.status, info.public_key, _last_seen(info)) for info in found.nodes_info
        ]

    def register(self, name: str, public_key: bytes) -> int:
        """Let a site in; its number."""
        from flwr.proto.control_pb2 import RegisterNodeRequest

        return int(self._ask("RegisterNode", RegisterNodeRequest(public_key=public_key, name=name)).node_id)

    def unregister(self, node: int) -> None:
        """Shut a site out."""
        from flwr.proto.control_pb2 import UnregisterNodeRequest

        self._ask("UnregisterNode", UnregisterNodeRequest(node_id=node))

    def runs(self) -> list[RunInfo]:
        """All runs, in the order of their start."""
        from flwr.proto.control_pb2 import ListRunsRequest

        found = self._ask("ListRuns", ListRunsRequest()).run_dict
        runs = [
            RunInfo(number, run.status.sub_status or run.status.status, run.status.details, run.pending_at)
            for number, run in found.items()
        ]
        return sorted(runs, key=lambda run: run.started)

    def stop_run(self, number: int) -> None:
        """End a run that is under way."""
        from flwr.proto.control_pb2 import StopRunRequest

        self._ask("StopRun", StopRunRequest(run_id=number))

    def close(self) -> None:
        self._client.close()

    def _ask(self, call: str, request: Any) -> Any:
        import httpx

        try:
            return getattr(self._client, call)(request)
        except (httpx.HTTPError, RuntimeError, OSError) as problem:
            raise SiteError(
                f"the link at {self._layout.link_address} does not answer ({type(problem).__name__}: {problem}); "
                f"start it with: atoll federation server {self._layout.folder}",
                code="link-not-answering",
            ) from None


def _last_seen(info: Any) -> datetime | None:
    """When a node last gave a sign of life: a heartbeat lets it count as online for two intervals."""
    if info.status == "registered" or not info.online_until:
        return None
    patience = 2 * info.heartbeat_interval if info.status == "online" else 0.0
    return datetime.fromtimestamp(info.online_until - patience, UTC)


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
