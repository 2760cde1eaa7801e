"""The Flower engine: clients are sites that keep their data; the server learns schema and sizes from them.

It is opened inside of Flower's ServerApp, which has the Grid; `superlink.py` is the user's side. What the sites
reported at the start is kept in the run directory, so that a resumed run does not ask them again: a site that is away
then fails until it returns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from flwr.serverapp import Grid

from atoll.core import wire
from atoll.core.messages import ClientInfo, Payload
from atoll.data.private import SPLITS
from atoll.data.settings import DataSettings
from atoll.deploy.control import read_hello
from atoll.deploy.flower.nodes import Nodes
from atoll.deploy.flower.opening import Opened, Opening, Record, decided_rules
from atoll.deploy.flower.superlink import refuse_unsuited
from atoll.deploy.flower.transport import FlowerTransport, RunContext
from atoll.deploy.layout import Layout
from atoll.errors import ConfigError, DataError, Paused, RunDamaged, SiteError, WireError
from atoll.federation.engines import Engine, Request
from atoll.preparation.value import parse
from atoll.store.files import replace_file

FILE = "sites.frame"
SILENCE = 7200.0  # seconds; twice what a site's own limit allows a task, so a site that hangs can say so itself first


def on_grid(grid: Grid) -> Callable[[Request], Engine]:
    """A function that opens the engine of the sites on this Grid."""

    def open_sites(request: Request) -> Engine:
        refuse_unsuited(request)
        request = with_private_split(request)
        before = kept(request.resumed)
        expected, record = _expected(request)
        opened, nodes = (before, Nodes(grid)) if before is not None else _open(request, grid, expected, record)
        traffic: dict[str, list[int]] = {}

        def worked(site: str, down: int, up: int) -> None:
            """What `atoll federation status` shows of the present run."""
            own = traffic.setdefault(site, [0, 0, 0])
            own[:] = own[0] + 1, own[1] + down, own[2] + up
            last = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            record(site, {"work": {"last_task": last, "tasks": own[0], "bytes_down": own[1], "bytes_up": own[2]}})

        def transport(run: str, directory: Path) -> FlowerTransport:
            if not (directory / FILE).exists():
                replace_file(directory / FILE, wire.encode(_plain(opened)))
            for info in opened.infos:
                record(info.name, {"run": str(directory.resolve())})
            context = RunContext(run, request.method, request.seed, request.engine.device, opened.preparations)
            settings = request.engine
            patient = settings.quorum == 1.0  # else a round goes on without a site whose node dies
            return FlowerTransport(nodes, context, settings.wait, settings.workers or None, worked, patient)

        return Engine(
            preparation=opened.preparation,
            clients=opened.infos,
            data=decided(request.data, opened),
            about={"digest": opened.digest(), "clients": len(opened.infos), "rows": opened.rows()},
            transport=transport,
            deadline=SILENCE,
            journal=True,
            real=True,
            notes=opened.notes,
        )

    return open_sites


def with_private_split(request: Request) -> Request:
    """Under `[privacy]` the default is a split that looks at no class."""
    if request.privacy is None or request.data.blocks is not None:
        return request
    return replace(request, data=request.data.model_copy(update={"blocks": SPLITS["random"]}))


def from_last_run(request: Request) -> Engine:
    """The sites as they were in the federation's last run with them, for an estimate: no site is asked."""
    refuse_unsuited(request)
    request = with_private_split(request)
    expected, _ = _expected(request)
    layout = Layout.open(Path(str(request.engine.federation)))
    hellos = [hello for hello in (read_hello(layout, site) for site in expected) if "run" in hello]
    runs = {str(hello["run"]): str(hello["at"]) for hello in sorted(hellos, key=lambda one: str(one["at"]))}
    for run in reversed(runs):
        opened = kept(Path(run))
        if opened is not None and {info.name for info in opened.infos} >= set(expected):
            about = {"digest": opened.digest(), "clients": len(opened.infos), "rows": opened.rows()}
            infos = [info for info in opened.infos if info.name in expected]
            return Engine(opened.preparation, infos, decided(request.data, opened), about, _unused, real=True)
    raise ConfigError(
        f"--estimate: the rows of {', '.join(expected)} are not known: there was no run with all of them, or its "
        "directory was moved; give data of the same form with --data in place of --federation",
        code="estimate-on-sites",
    )


def _unused(run: str, directory: Path) -> FlowerTransport:
    raise NotImplementedError("sites as they were in an earlier run do no tasks")


def decided(settings: DataSettings, opened: Opened) -> DataSettings:
    """The data table with everything decided, as where all data is in one place."""
    rules = decided_rules(settings, opened.schema.kind)
    return settings.model_copy(update={"partition": "natural", **asdict(rules)})


def _open(request: Request, grid: Grid, expected: list[str], record: Record) -> tuple[Opened, Nodes]:
    opening = Opening(request, grid, record)
    try:
        return opening.run(expected), opening.nodes
    except Paused as problem:  # before there is a run that could be resumed
        raise SiteError(
            f"{problem}; see the federation's logs, and start the run again", code="link-failed-at-start"
        ) from problem


def _expected(request: Request) -> tuple[list[str], Record]:
    """The sites that should participate, and where to record what they report."""
    only = list(request.data.only or ())
    if request.engine.federation is None:
        return only, lambda site, reported: None
    layout = Layout.open(Path(request.engine.federation))
    unknown = [site for site in only if site not in layout.sites]
    if unknown:
        raise ConfigError(
            f"data.only: the federation has no site '{unknown[0]}'; it has {', '.join(layout.sites)}",
            code="only-unknown-site",
        )
    folder = layout.state / "hello"
    folder.mkdir(parents=True, exist_ok=True)

    def record(site: str, reported: Payload) -> None:
        path = folder / f"{site}.json"
        before = json.loads(path.read_bytes()) if path.exists() else {}
        at = datetime.now(UTC).isoformat(timespec="seconds")
        replace_file(path, json.dumps({**before, **reported, "at": at}).encode())

    return only or layout.sites, record


def _plain(opened: Opened) -> Payload:
    infos = [
        {"name": info.name, "sizes": dict(info.sizes), "labels": None if info.labels is None else list(info.labels)}
        for info in opened.infos
    ]
    common = {"preparation": opened.preparation.plain(), "preparations": opened.preparations}
    return {**common, "infos": infos, "refused": opened.refused}


def kept(directory: Path | None) -> Opened | None:
    """What the sites reported when a run began."""
    if directory is None or not (directory / FILE).exists():
        return None
    try:
        plain = wire.decode((directory / FILE).read_bytes())
        preparation = parse(plain["preparation"], str(directory / FILE))
        schema = preparation.row_schema
        infos = [
            ClientInfo(row["name"], row["sizes"], schema, None if row["labels"] is None else tuple(row["labels"]))
            for row in plain["infos"]
        ]
    except (WireError, DataError, KeyError, TypeError) as problem:
        raise RunDamaged(
            f"{directory / FILE}: cannot be read ({problem}); start the run again from scratch",
            code="sites-record-unreadable",
        ) from problem
    return Opened(preparation, infos, plain["preparations"], plain["refused"])
