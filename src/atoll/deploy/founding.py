"""Making a federation, and changing who belongs to it. Nothing is overwritten, nothing is left half made."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from atoll.config import to_toml
from atoll.deploy import authority
from atoll.deploy.bundle import write_bundle
from atoll.deploy.layout import Layout, check_host, check_names, check_port, is_local, join_address
from atoll.deploy.proxy import configuration
from atoll.errors import SiteError, nearest
from atoll.store.files import replace_file

README = """\
# The federation at {address}

- `atoll federation server {folder}` (or `./start-server.sh`) starts the link and the proxy; `atoll federation status
  {folder}` says who is there; `atoll doctor --federation {folder}` says what is wrong.
- `bundles/NAME` is for the site NAME: hand it over on a safe way (`scp -rp`, an encrypted stick), then delete it here.
- `server/` holds the keys of the server and of the authority: back it up where nobody else can read it.
- `atoll federation add {folder} NAME` makes a bundle for one more site, `atoll federation remove {folder} NAME` shuts
  one out for ever; both work while the server runs.
- Only port {port} may be reachable from outside. Port {link_port} must not: whoever reaches it can run code on all
  sites.
"""

START = """\
#!/bin/sh
# Starts the link and the proxy of this federation; stop them with Ctrl-C or SIGTERM.
exec atoll federation server "$(dirname "$0")"
"""


def found(folder: Path, sites: Sequence[str], host: str, port: int, link_port: int | None = None) -> Layout:
    """Make a federation's directory: authority, certificates, keys, proxy, one bundle a site."""
    check_names(sites)
    check_host(host)
    inner = port + 1 if link_port is None else link_port
    for number in (port, inner):
        check_port(number)
    if port == inner:
        raise SiteError(
            f"--link-port {inner}: the same as --port; the link needs a port of its own", code="ports-equal"
        )
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise SiteError(
            f"{folder}: exists already and nothing is overwritten; choose another folder", code="folder-exists"
        )
    layout = Layout(folder.resolve(), host, port, inner)
    folder.resolve().parent.mkdir(parents=True, exist_ok=True)
    with _aside(folder.resolve()) as aside:
        _furnish(Layout(aside, host, port, inner), sites, layout.folder)
    return layout


def add_site(layout: Layout, name: str) -> Path:
    """One more site: its key pair and its bundle. The server lets it in as soon as it sees the key."""
    check_names([*layout.sites, name])
    bundle = layout.bundles / name
    if bundle.exists():
        raise SiteError(f"{bundle}: a bundle of a former site lies there; move it away first", code="bundle-exists")
    _enrol(layout, name)
    return bundle


def remove_site(layout: Layout, name: str) -> None:
    """Shut a site out for ever: its key counts no more. Its name may be given again, with a new key."""
    if name not in layout.sites:
        raise SiteError(
            f"there is no site {name[:60]!r} in {layout.folder}; {nearest(name, layout.sites)}", code="unknown-site"
        )
    layout.public_key(name).unlink()
    shutil.rmtree(layout.bundles / name, ignore_errors=True)


def renew(layout: Layout) -> None:
    """A new certificate for the server, from the same authority: sites notice nothing."""
    key = authority.read_private_key(layout.server / "server.key")
    authority_key = authority.read_private_key(layout.server / "ca.key")
    certificate = authority.make_server_certificate(
        authority.read_certificate(layout.ca), authority_key, key, layout.host
    )
    replace_file(layout.server / "server.crt", authority.certificate_bytes(certificate))


def _furnish(layout: Layout, sites: Sequence[str], final: Path) -> None:
    """Write everything into a folder that is not yet at its place."""
    for folder in (layout.server, layout.state, layout.bundles):
        folder.mkdir(mode=0o700)
    for folder in (layout.keys, layout.logs):
        folder.mkdir()
    authority_key, server_key = authority.make_key(), authority.make_key()
    root = authority.make_authority(authority_key, layout.host)
    certificate = authority.make_server_certificate(root, authority_key, server_key, layout.host)
    authority.write_server_key(layout.server / "ca.key", authority_key)
    authority.write_server_key(layout.server / "server.key", server_key)
    layout.ca.write_bytes(authority.certificate_bytes(root))
    (layout.server / "server.crt").write_bytes(authority.certificate_bytes(certificate))
    authority.write_secret(layout.server / "superexec.secret", secrets.token_bytes(32))
    proxy = configuration(layout.port, layout.link_port, everywhere=not is_local(layout.host))
    (layout.server / "nginx.conf").write_text(proxy, encoding="utf-8")
    for name in sites:
        _enrol(layout, name)
    words = {"address": layout.public_address, "folder": final, "port": layout.port, "link_port": layout.link_port}
    (layout.folder / "README.md").write_text(README.format(**words), encoding="utf-8")
    script = layout.folder / "start-server.sh"
    script.write_text(START, encoding="utf-8")
    os.chmod(script, 0o755)
    plain = {"host": layout.host, "port": layout.port, "link_port": layout.link_port}
    (layout.folder / "federation.toml").write_text(to_toml(plain), encoding="utf-8")


def _enrol(layout: Layout, name: str) -> None:
    """A key pair and a bundle; the public key comes last, for it is what makes a site a member."""
    key = authority.make_key()
    link = join_address(layout.host, layout.port)
    with _aside(layout.bundles / name) as aside:
        write_bundle(aside, name, link, layout.ca.read_bytes(), key)
    replace_file(layout.public_key(name), authority.public_line(key))


@contextmanager
def _aside(final: Path) -> Iterator[Path]:
    """A folder that becomes `final` when all is well and vanishes when not."""
    aside = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    try:
        yield aside
        aside.rename(final)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
