"""The Flower engine: clients are sites that keep their data; the server learns schema and sizes from them.

Runs inside of Flower's ServerApp, which has the Grid. What the sites told at the start is kept in the run directory, so
that a resumed run needs nobody's hello: a site that is away then is a site that fails until it returns.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from atoll.core import wire
from atoll.core.messages import ClientInfo, Payload, Schema
from atoll.data.settings import DataSettings
from atoll.deploy.flower.nodes import Nodes
from atoll.deploy.flower.opening import Opened, Opening
from atoll.deploy.flower.transport import WINDOW, FlowerFederation, FlowerTransport, RunContext
from atoll.errors import ConfigError, Paused, RunDamaged, SiteError, WireError
from atoll.federation.base import Federation
from atoll.federation.engines import Engine, Request
from atoll.federation.journal import Journal
from atoll.store.files import replace_file

FILE = "sites.frame"
SILENCE = 7200.0  # seconds; twice what a site's own limit allows a task, so a site that hangs can say so itself first
NOT_HERE = ("clients", "rows", "test_rows", "client_column")  # settings that deal data out, which sites have already


class FlowerEngine:
    """The sites of a federation."""

    def __init__(self, request: Request) -> None:
        self._request = request
        before = kept(request.resumed)
        self._opened, self._nodes = (before, Nodes(request.grid)) if before is not None else _open(request)
        self.schema = self._opened.schema
        self.clients = len(self._opened.infos)
        self.data = decided(request.data, self._opened)

    def about(self) -> dict[str, Any]:
        return {"digest": self._opened.digest(), "clients": self.clients, "rows": self._opened.rows()}

    def federation(self, run: str, directory: Path) -> Federation:
        if not (directory / FILE).exists():
            replace_file(directory / FILE, wire.encode(_plain(self._opened)))
        request, engine = self._request, self._request.engine
        context = RunContext(run, request.method, request.seed, engine.device, self._opened.preparations)
        window = engine.workers or WINDOW
        transport = FlowerTransport(self._nodes, context, engine.wait, window)
        deadline = SILENCE if engine.deadline is None else engine.deadline
        return FlowerFederation(transport, self._opened.infos, deadline, Journal(directory / "journal"))


def open_engine(request: Request) -> Engine:
    if request.grid is None:
        raise ConfigError(
            "engine.name = 'flower': a run needs its federation; start it with: atoll run FILE --federation DIR",
            code="federation-not-named",
        )
    if request.centralised:
        raise ConfigError(
            f"method = {request.method!r}: needs all data in one place, and sites keep theirs; use another",
            code="centralised-data-needed",
        )
    settings = request.data
    for name in NOT_HERE:
        if getattr(settings, name) is not None:
            raise ConfigError(
                f"data.{name}: sites have their own data, which is not dealt out; leave it out",
                code="data-held-by-sites",
            )
    if settings.partition not in (None, "natural"):
        raise ConfigError(
            f"data.partition = {settings.partition!r}: every site holds its own data; leave it out",
            code="data-held-by-sites",
        )
    return FlowerEngine(request)


def decided(settings: DataSettings, opened: Opened) -> DataSettings:
    """The data table with everything decided, as where all data is in one place."""
    table = len(opened.schema.shape) == 1
    usual = {
        "partition": "natural",
        "split": settings.split or (0.6, 0.2, 0.2),
        "blocks": settings.blocks or "random",
        "scale": settings.scale or ("federated" if table else "none"),
        "logarithm": bool(settings.logarithm),
        "missing": settings.missing or "refuse",
    }
    return settings.model_copy(update=usual)


def _open(request: Request) -> tuple[Opened, Nodes]:
    expected, record = _expected(request)
    opening = Opening(request, record)
    try:
        return opening.run(expected), opening.nodes
    except Paused as problem:  # before there is a run that could be gone on with
        raise SiteError(
            f"{problem}; see the federation's logs, and start the run again", code="link-failed-at-start"
        ) from problem


def _expected(request: Request) -> tuple[list[str], Any]:
    """The sites that should take part, and where to write down what they say."""
    only = list(request.data.only or ())
    if request.engine.federation is None:
        return only, lambda site, told: None
    from atoll.deploy.layout import Layout

    layout = Layout.open(Path(request.engine.federation))
    unknown = [site for site in only if site not in layout.sites]
    if unknown:
        raise ConfigError(
            f"data.only: the federation has no site '{unknown[0]}'; it has {', '.join(layout.sites)}",
            code="only-unknown-site",
        )
    folder = layout.state / "hello"
    folder.mkdir(parents=True, exist_ok=True)

    def record(site: str, told: Payload) -> None:
        path = folder / f"{site}.json"
        before = json.loads(path.read_bytes()) if path.exists() else {}
        at = datetime.now(UTC).isoformat(timespec="seconds")
        replace_file(path, json.dumps({**before, **told, "at": at}).encode())

    return only or layout.sites, record


def _plain(opened: Opened) -> Payload:
    infos = [
        {"name": info.name, "sizes": dict(info.sizes), "labels": None if info.labels is None else list(info.labels)}
        for info in opened.infos
    ]
    schema = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(opened.schema).items()}
    return {"schema": schema, "infos": infos, "preparations": opened.preparations, "refused": opened.refused}


def kept(directory: Path | None) -> Opened | None:
    """What the sites told when a run began."""
    if directory is None or not (directory / FILE).exists():
        return None
    try:
        plain = wire.decode((directory / FILE).read_bytes())
        told: dict[str, Any] = plain["schema"]
        schema = Schema(told["kind"], tuple(told["shape"]), tuple(told["classes"]), tuple(told["features"]))
        infos = [
            ClientInfo(row["name"], row["sizes"], schema, None if row["labels"] is None else tuple(row["labels"]))
            for row in plain["infos"]
        ]
    except (WireError, KeyError, TypeError) as problem:
        raise RunDamaged(
            f"{directory / FILE}: cannot be read ({problem}); start the run anew", code="sites-record-unreadable"
        ) from problem
    return Opened(schema, infos, plain["preparations"], plain["refused"])
