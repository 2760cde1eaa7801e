"""`atoll federation` and `atoll site`: the server and the sites of a real federation."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from atoll.cli.console import Json, out_console, tell, tell_json
from atoll.deploy.layout import PORT
from atoll.errors import SiteError
from atoll.report.terminal import amount, cell

if TYPE_CHECKING:
    from atoll.dashboard.pages import FederationState
    from atoll.deploy.bundle import Bundle
    from atoll.deploy.control import RunInfo, SiteStatus, Status
    from atoll.deploy.data_check import SiteCheck


@contextmanager
def foreground() -> Iterator[Callable[[], bool]]:
    """Ctrl-C, SIGTERM and a closed terminal only set a flag; the yielded function returns it, for an orderly end."""
    received: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, _frame: received.append(number)) for number in numbers}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


app = typer.Typer(
    help="The server of a real federation: create it, run it, see which sites are connected.", no_args_is_help=True
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The federation's directory on the server.")]
Examined = Annotated[
    Path | None,
    typer.Option("--federation", help="Check a federation's directory or a site's bundle."),
]
COLUMNS = ("site", "state", "last seen", "rows", "last task", "sent", "received", "replies", "versions")
SiteName = Annotated[str, typer.Argument(metavar="NAME", help="A site's name.")]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The new directory.")],
    sites: Annotated[str, typer.Option(help="The sites' names, separated by commas: north,south,west")],
    host: Annotated[str, typer.Option(help="The name or IP address by which sites reach this machine.")],
    port: Annotated[int, typer.Option(help="The one port that sites must be able to reach.")] = PORT,
    superlink_port: Annotated[
        int | None, typer.Option(help="A port for this machine's own use; default: PORT + 1.")
    ] = None,
    proxy: Annotated[
        bool, typer.Option(help="Sites reach a proxy (nginx). Without it everybody in the network must be trusted.")
    ] = True,
) -> None:
    """Make a federation: authority, certificates, keys, the proxy's configuration and a bundle for every site."""
    from atoll.deploy.create import create_federation, ports_note
    from atoll.deploy.proxy import find_nginx

    names = [name.strip() for name in sites.split(",")]
    layout = create_federation(folder, names, host, port, superlink_port, proxy)
    tell(f"made {folder} for {len(names)} sites that reach {layout.public_address}")
    bundles = ", ".join(str(folder / "bundles" / name) for name in names)
    tell(f"give each site its folder over a secure channel: {bundles}")
    if proxy:
        try:
            find_nginx()
        except SiteError as problem:
            tell(
                f"before the server can start: {problem}; or make the federation with --no-proxy for a trusted network"
            )
    else:
        tell(" ".join(ports_note(layout).removeprefix("- ").split()))
    tell(f"start the server with: atoll federation server {folder}")


@app.command()
def server(
    folder: Folder,
    proxy: Annotated[bool, typer.Option(help="Also start nginx; without it, run nginx yourself.")] = True,
) -> None:
    """Run the SuperLink and the proxy in the foreground; stops everything on Ctrl-C or SIGTERM."""
    from atoll.deploy.layout import Layout
    from atoll.deploy.server import serve

    layout = Layout.open(folder)
    with foreground() as stop:
        serve(layout, tell, stop, proxy)


@app.command()
def status(
    folder: Folder,
    wait: Annotated[float, typer.Option(help="Seconds to wait until all sites are connected.")] = 0.0,
    watch: Annotated[
        float, typer.Option(help="Seconds after which it is shown again, until Ctrl-C; with --json, a line each time.")
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Which sites belong, who is connected and since when not, their last task, bytes, versions, and the runs."""
    from atoll.deploy.control import status as ask
    from atoll.deploy.control import wait_for_sites
    from atoll.deploy.layout import Layout

    layout = Layout.open(folder)
    now = wait_for_sites(layout, wait)
    if watch:
        with foreground() as stop:
            while not stop():
                tell(json.dumps(asdict(now), default=str)) if as_json else _show_status(now)
                _pause(watch, stop)
                now = ask(layout)
        return
    tell_json(asdict(now)) if as_json else _show_status(now)
    absent = [site.name for site in now.sites if site.state != "online"]
    if wait and absent:
        raise SiteError(
            f"after {wait:g} s not connected: {', '.join(absent)}; see: atoll doctor --federation {folder}",
            code="sites-not-connected",
        )


def _pause(seconds: float, stop: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not stop():
        time.sleep(0.1)


def _show_status(now: Status) -> None:
    for line in _notes(now):
        tell(line)
    table = Table(*COLUMNS)
    for site in now.sites:
        table.add_row(*map(cell, _site_words(site)))
    out_console.print(table)
    for run in now.runs:
        tell(_run_words(run))


def _notes(now: Status) -> list[str]:
    return [line for line in (now.note, *now.warnings) if line]


def _replies(site: SiteStatus) -> str:
    """What became of a site's replies in the present or last run: 11 of 12 used, 1 failed."""
    own = site.account
    if not own:
        return ""
    bad = {fate: sum(own.get(fate, {}).values()) for fate in ("rejected", "failed")} | {"late": own.get("late", 0)}
    return ", ".join([f"{own['used']} of {own['asked']} used", *(f"{n} {fate}" for fate, n in bad.items() if n)])


def _site_words(site: SiteStatus) -> list[str]:
    """In the order of `COLUMNS`."""
    seen = "" if site.last_seen is None else f"{site.last_seen:%Y-%m-%d %H:%M:%S} UTC"
    rows = str(sum((site.hello.get("sizes") or {}).values()) or "")
    work = site.hello.get("work", {})
    traffic = [amount(work[key]) if key in work else "" for key in ("bytes_up", "bytes_down")]
    versions = ", ".join(f"{name} {text}" for name, text in (site.hello.get("versions") or {}).items())
    return [site.name, site.state, seen, rows, work.get("last_task", ""), *traffic, _replies(site), versions]


def _run_words(run: RunInfo) -> str:
    return f"run {run.id} of {run.started[:19]}: {run.status} {run.detail}".rstrip()


def state_of(folder: str) -> FederationState:
    """The same for the dashboard."""
    from atoll.dashboard.pages import FederationState
    from atoll.deploy.control import status as ask
    from atoll.deploy.layout import Layout

    now = ask(Layout.open(Path(folder)))
    sites = [_site_words(site) for site in now.sites]
    return FederationState(COLUMNS, sites, [_run_words(run) for run in now.runs], _notes(now))


@app.command()
def add(folder: Folder, name: SiteName) -> None:
    """One more site: makes its key and bundle. A running server lets it in within seconds."""
    from atoll.deploy.create import add_site
    from atoll.deploy.layout import Layout

    tell(f"made {add_site(Layout.open(folder), name)}; give it to the site over a secure channel")


@app.command()
def remove(folder: Folder, name: SiteName) -> None:
    """Shut a site out for ever. A running server drops it within seconds."""
    from atoll.deploy.create import remove_site
    from atoll.deploy.layout import Layout

    aside = remove_site(Layout.open(folder), name)
    tell(f"site {name} is no longer part of the federation; its key is rejected from now on")
    if aside is not None:
        tell(f"what its node has stored here is in {aside}; delete it if it is not needed")


@app.command()
def rotate(folder: Folder, name: SiteName) -> None:
    """A new key for one site, in its bundle. A running server refuses the old key within seconds."""
    from atoll.deploy.create import rotate_site
    from atoll.deploy.layout import Layout

    bundle = rotate_site(Layout.open(folder), name)
    tell(f"the old key of site {name} is rejected from now on; the new one is {bundle / 'site.key'}")
    tell("give it to the site over a secure channel: it replaces site.key of its bundle and joins again")


@app.command()
def renew(folder: Folder) -> None:
    """A new certificate for the server, two years long, under the same authority: sites keep their bundles."""
    from atoll.deploy.create import renew as renew_certificate
    from atoll.deploy.layout import Layout

    renew_certificate(Layout.open(folder))
    tell(f"renewed; restart the server: atoll federation server {folder}")


UnitFolder = Annotated[
    Path | None, typer.Option("--out", help="The folder of the unit; default: where systemd looks for this user's.")
]


@app.command()
def install(folder: Folder, out: UnitFolder = None) -> None:
    """Write a systemd unit that runs the server for this user, and say how to start it."""
    from atoll.deploy.layout import Layout
    from atoll.deploy.units import install_server, user_units

    _installed(install_server(Layout.open(folder), out or user_units()))


def _installed(unit: Path) -> None:
    tell(f"wrote {unit}")
    tell(f"start it with: systemctl --user daemon-reload && systemctl --user enable --now {unit.name}")
    tell("to run it without a login: loginctl enable-linger")


def examine(place: Path, data: Path | None) -> int:
    """`atoll doctor --federation`: print every finding; the exit code is 2 if one is not ok."""
    from atoll.deploy.doctor import examine as findings

    found = findings(place, data)
    for finding in found:
        out_console.print("ok    " if finding.ok else "WRONG ", style="green" if finding.ok else "red", end="")
        tell(finding.text)
    return 0 if all(finding.ok for finding in found) else 2


site_app = typer.Typer(help="A site of a real federation: join it with data that stays here.", no_args_is_help=True)

SHARED = """\
what the server will get from this site, when a run asks for it:
  - names of the columns and classes, how many rows there are for training, validation and test
  - the different words of text columns, and the first day of columns of dates, unless the run leaves these columns out
  - the number, mean and variance of each column and its values for gaps, if the run scales all sites alike
    (scale = "federated")
  - updates of models trained here, and how many rows they classify correctly
  - versions of Python and of the packages in use
what stays here: every row. What a run may ask for is limited by {file}"""


@site_app.callback()
def site() -> None:
    """A site of a real federation: join it with data that stays here."""


@site_app.command()
def join(
    folder: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that the operator gave to this site.")],
    data: Annotated[Path, typer.Option(help="This site's data: a folder with one CSV or NPZ file, or images.")],
    label: Annotated[str, typer.Option(help="The column of the class, for the check of the data.")] = "label",
    share_labels: Annotated[
        bool | None, typer.Option(help="May the number of rows per class leave this site? Asked if not given.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Ask no questions; label counts stay here unless allowed before.")
    ] = False,
) -> None:
    """Check the data, show what will be shared, and stay connected until Ctrl-C or SIGTERM."""
    from atoll.deploy.bundle import Bundle
    from atoll.deploy.data_check import look
    from atoll.deploy.node import run_node
    from atoll.deploy.site_file import answer_labels

    bundle = Bundle.open(folder)
    _show_summary(bundle, look(data, label, bundle.site.name))
    allowed = _labels(bundle, share_labels, yes)
    if not yes and not typer.confirm(f"join the federation at {bundle.site.server} as site '{bundle.site.name}'?"):
        raise typer.Exit(0)
    answer_labels(bundle.file, allowed)
    with foreground() as stop:
        run_node(bundle, data.resolve(), tell, stop, label=label)


@site_app.command("install")
def install_unit(
    folder: Annotated[Path, typer.Argument(metavar="BUNDLE", help="The folder that the operator gave to this site.")],
    data: Annotated[Path, typer.Option(help="This site's data: a folder with one CSV or NPZ file, or images.")],
    label: Annotated[str, typer.Option(help="The column of the class, for the check of the data.")] = "label",
    share_labels: Annotated[
        bool | None, typer.Option(help="May the number of rows per class leave this site? As before if not given.")
    ] = None,
    out: UnitFolder = None,
) -> None:
    """Check the data, show what will be shared, and write a systemd unit that stays connected for this user."""
    from atoll.deploy.bundle import Bundle
    from atoll.deploy.data_check import look
    from atoll.deploy.site_file import answer_labels
    from atoll.deploy.units import install_site, user_units

    bundle = Bundle.open(folder)
    _show_summary(bundle, look(data, label, bundle.site.name))
    answer_labels(bundle.file, _labels(bundle, share_labels, yes=True))
    _installed(install_site(bundle, data.resolve(), label, out or user_units()))


def _show_summary(bundle: Bundle, found: SiteCheck) -> None:
    summary = found.summary
    columns = f" ({', '.join(one.name for one in summary.columns[:6])}{', ...' if len(summary.columns) > 6 else ''})"
    tell(f"site '{bundle.site.name}': {summary.rows:,} rows, {summary.form}{columns if summary.columns else ''}")
    tell(f"classes: {', '.join(f'{name}: {count:,}' for name, count in summary.classes.items())}")
    for line in found.lines():
        tell(line)
    for line in SHARED.format(file=bundle.file).splitlines():
        tell(line)


def _labels(bundle: Bundle, given: bool | None, yes: bool) -> bool:
    """Whether label counts may leave the site: the option, else the user's answer, else the earlier answer."""
    before = bundle.site.share_labels
    allowed = before if given is None else given
    if given is None and not yes:
        allowed = typer.confirm("may the number of rows per class leave this site, too?", default=before)
    tell(f"rows per class: {'the server may know them' if allowed else 'stay here'}")
    return allowed
