"""`atoll federation`: making and running the server's side of a real federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from atoll.commands.console import out_console, tell
from atoll.commands.foreground import foreground
from atoll.errors import SiteError
from atoll.report.terminal import cell
from atoll.sites.layout import PORT

app = typer.Typer(help="A real federation's server: make it, run it, see who is there.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The federation's directory on the server.")]
Examined = Annotated[
    Path | None,
    typer.Option("--federation", help="A federation's directory or a site's bundle: what is wrong with it."),
]
SiteName = Annotated[str, typer.Argument(metavar="NAME", help="A site's name.")]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The new directory.")],
    sites: Annotated[str, typer.Option(help="The sites' names, separated by commas: north,south,west")],
    host: Annotated[str, typer.Option(help="The name or IP address by which sites reach this machine.")],
    port: Annotated[int, typer.Option(help="The one port that sites must be able to reach.")] = PORT,
    link_port: Annotated[int | None, typer.Option(help="A port for this machine's own use; default: PORT + 1.")] = None,
) -> None:
    """Make a federation: authority, certificates, keys, the proxy's configuration and a bundle for every site."""
    from atoll.sites.founding import found

    names = [name.strip() for name in sites.split(",")]
    layout = found(folder, names, host, port, link_port)
    tell(f"made {folder} for {len(names)} sites that reach {layout.public_address}")
    tell(f"hand each site its folder on a safe way: {', '.join(str(folder / 'bundles' / name) for name in names)}")
    tell(f"start the server with: atoll federation server {folder}")


@app.command()
def server(
    folder: Folder,
    proxy: Annotated[bool, typer.Option(help="Also start nginx; without it, run nginx yourself.")] = True,
) -> None:
    """Run link and proxy in the foreground; stops everything on Ctrl-C or SIGTERM."""
    from atoll.sites.layout import Layout
    from atoll.sites.server import serve

    layout = Layout.open(folder)
    with foreground() as stop:
        serve(layout, tell, stop, proxy)


@app.command()
def status(
    folder: Folder,
    wait: Annotated[float, typer.Option(help="Wait up to so many seconds until all sites are connected.")] = 0.0,
) -> None:
    """Which sites belong, who is connected and since when not, their versions, and the runs."""
    from atoll.sites.layout import Layout
    from atoll.sites.status import wait_for_sites

    now = wait_for_sites(Layout.open(folder), wait)
    if now.note:
        tell(now.note)
    table = Table("site", "state", "last seen", "rows", "versions")
    for site in now.sites:
        seen = "" if site.last_seen is None else f"{site.last_seen:%Y-%m-%d %H:%M:%S} UTC"
        rows = str(sum(site.hello.get("sizes", {}).values()) or "")
        versions = ", ".join(f"{name} {text}" for name, text in site.hello.get("versions", {}).items())
        table.add_row(cell(site.name), site.state, seen, rows, cell(versions))
    out_console.print(table)
    for run in now.runs:
        tell(f"run {run.id} of {run.started[:19]}: {run.status} {run.detail}".rstrip())
    absent = [site.name for site in now.sites if site.state != "online"]
    if wait and absent:
        raise SiteError(
            f"after {wait:g} s not connected: {', '.join(absent)}; see: atoll doctor --federation {folder}",
            code="sites-not-connected",
        )


@app.command()
def add(folder: Folder, name: SiteName) -> None:
    """One more site: makes its key and bundle. A running server lets it in within seconds."""
    from atoll.sites.founding import add_site
    from atoll.sites.layout import Layout

    tell(f"made {add_site(Layout.open(folder), name)}; hand it to the site on a safe way")


@app.command()
def remove(folder: Folder, name: SiteName) -> None:
    """Shut a site out for ever. A running server drops it within seconds."""
    from atoll.sites.founding import remove_site
    from atoll.sites.layout import Layout

    remove_site(Layout.open(folder), name)
    tell(f"site {name} belongs to the federation no more; its key is refused from now on")


@app.command()
def renew(folder: Folder) -> None:
    """A new certificate for the server, two years long, under the same authority: sites keep their bundles."""
    from atoll.sites.founding import renew as renew_certificate
    from atoll.sites.layout import Layout

    renew_certificate(Layout.open(folder))
    tell(f"renewed; restart the server: atoll federation server {folder}")


def examine(place: Path, data: Path | None) -> int:
    """`atoll doctor --federation`: prints every finding; the exit code is 2 if something is wrong."""
    from atoll.sites.doctor import examine as findings

    found = findings(place, data)
    for finding in found:
        out_console.print("ok    " if finding.ok else "WRONG ", style="green" if finding.ok else "red", end="")
        tell(finding.text)
    return 0 if all(finding.ok for finding in found) else 2
