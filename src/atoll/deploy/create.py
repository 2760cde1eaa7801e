"""Create a federation, add and remove sites, renew keys. Nothing incomplete is left behind."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

from atoll.config import to_toml
from atoll.deploy import certificates
from atoll.deploy.bundle import write_bundle
from atoll.deploy.layout import Layout, check_host, check_names, check_port, is_local, join_address
from atoll.deploy.proxy import configuration
from atoll.errors import SiteError, nearest
from atoll.store.files import replace_file

README = """\
# The federation at {address}

- `atoll federation server {folder}` (or `./start-server.sh`) starts Flower's SuperLink and the proxy.
  `atoll federation status {folder}` lists the sites; `atoll doctor --federation {folder}` finds problems.
- `bundles/NAME` is for the site NAME. Transfer it securely (`scp -rp`, an encrypted stick), then delete it here.
- `server/` holds the private keys of the server and of the certificate authority. Back it up where only you can
  read it.
- `atoll federation add {folder} NAME` makes a bundle for a new site. `atoll federation remove {folder} NAME` removes a
  site permanently. `atoll federation rotate {folder} NAME` gives it a new key. All work while the server runs.
"""

START = """\
#!/bin/sh
# Starts the SuperLink and the proxy of this federation; stop them with Ctrl-C or SIGTERM.
exec atoll federation server "$(dirname "$0")"
"""


def create_federation(
    folder: Path, sites: Sequence[str], host: str, port: int, superlink_port: int | None = None, proxy: bool = True
) -> Layout:
    """Create a federation's directory: certificates, keys, the proxy's configuration, one bundle per site.

    Without a proxy the SuperLink itself listens on `port`.
    """
    check_names(sites)
    check_host(host)
    if not proxy and superlink_port is not None:
        raise SiteError(
            f"--superlink-port {superlink_port}: without a proxy the SuperLink listens on --port; leave it out",
            code="superlink-port-unused",
        )
    inner = port if not proxy else port + 1 if superlink_port is None else superlink_port
    for number in (port, inner):
        check_port(number)
    if proxy and port == inner:
        raise SiteError(f"--superlink-port {inner}: the same as --port; choose another port", code="ports-equal")
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise SiteError(f"{folder}: already exists and is not overwritten; choose another folder", code="folder-exists")
    layout = Layout(folder.resolve(), host, port, inner, proxy)
    folder.resolve().parent.mkdir(parents=True, exist_ok=True)
    with _temporary(folder.resolve()) as temporary:
        _fill(replace(layout, folder=temporary), sites, layout.folder)
    return layout


def ports_note(layout: Layout) -> str:
    """Who may reach which port."""
    if layout.proxy:
        return (
            f"- Port {layout.port} must be reachable from outside. Port {layout.superlink_port} must not be: "
            "anyone who reaches it can\n  run code on all sites.\n"
        )
    return (
        f"- There is no proxy: anyone who reaches port {layout.port} can run code on all sites. Keep this federation "
        "in a network\n  whose every user you trust.\n"
    )


def add_site(layout: Layout, name: str) -> Path:
    """Add a site: its key pair and its bundle. A running server registers it when it finds the key."""
    check_names([*layout.sites, name])
    bundle = layout.bundles / name
    if bundle.exists():
        raise SiteError(f"{bundle}: the bundle of a former site is there; move it away first", code="bundle-exists")
    _enrol(layout, name)
    return bundle


def remove_site(layout: Layout, name: str) -> Path | None:
    """Remove a site: its key is no longer valid. The name may be used again, with a new key.

    A bundle in which a node has worked holds the site's memory and what it has spent of its privacy budget: it is moved
    aside, and its new place is returned.
    """
    _refuse_unknown(layout, name)
    layout.public_key(name).unlink()
    bundle = layout.bundles / name
    if not (bundle / "work").exists():
        shutil.rmtree(bundle, ignore_errors=True)
        return None
    aside = next(path for number in count(1) if not (path := layout.bundles / f"{name}.removed-{number}").exists())
    bundle.rename(aside)
    return aside


def rotate_site(layout: Layout, name: str) -> Path:
    """A new key for a site; the old one is no longer valid. A bundle that is here gets the key and stays as it is
    otherwise, because a node may work in it. Other sites are not touched.

    A kill before the end leaves the old key valid: the new one is accepted with the last write.
    """
    _refuse_unknown(layout, name)
    bundle = layout.bundles / name
    if not bundle.exists():
        _enrol(layout, name)
        return bundle
    key, fresh = certificates.make_key(), bundle / ".site.key.new"
    fresh.unlink(missing_ok=True)
    certificates.write_site_key(fresh, key)
    os.replace(fresh, bundle / "site.key")
    replace_file(layout.public_key(name), certificates.public_line(key))
    return bundle


def _refuse_unknown(layout: Layout, name: str) -> None:
    if name not in layout.sites:
        raise SiteError(
            f"there is no site {name[:60]!r} in {layout.folder}; {nearest(name, layout.sites)}", code="unknown-site"
        )


def renew(layout: Layout) -> None:
    """A new certificate for the server from the same authority: bundles stay valid."""
    key = certificates.read_private_key(layout.server / "server.key")
    authority_key = certificates.read_private_key(layout.server / "ca.key")
    certificate = certificates.make_server_certificate(
        certificates.read_certificate(layout.ca), authority_key, key, layout.host
    )
    replace_file(layout.server / "server.crt", certificates.certificate_bytes(certificate))


def _fill(layout: Layout, sites: Sequence[str], final: Path) -> None:
    """Write everything into a temporary folder that will be moved to `final`."""
    for folder in (layout.server, layout.state, layout.bundles):
        folder.mkdir(mode=0o700)
    for folder in (layout.keys, layout.logs):
        folder.mkdir()
    authority_key, server_key = certificates.make_key(), certificates.make_key()
    root = certificates.make_authority(authority_key, layout.host)
    certificate = certificates.make_server_certificate(root, authority_key, server_key, layout.host)
    certificates.write_server_key(layout.server / "ca.key", authority_key)
    certificates.write_server_key(layout.server / "server.key", server_key)
    layout.ca.write_bytes(certificates.certificate_bytes(root))
    (layout.server / "server.crt").write_bytes(certificates.certificate_bytes(certificate))
    certificates.write_secret(layout.server / "superexec.secret", secrets.token_bytes(32))
    if layout.proxy:
        proxy = configuration(layout.port, layout.superlink_port, everywhere=not is_local(layout.host))
        (layout.server / "nginx.conf").write_text(proxy, encoding="utf-8")
    for name in sites:
        _enrol(layout, name)
    ports = {"port": layout.port, "superlink_port": layout.superlink_port}
    readme = README.format(address=layout.public_address, folder=final) + ports_note(layout)
    (layout.folder / "README.md").write_text(readme, encoding="utf-8")
    script = layout.folder / "start-server.sh"
    script.write_text(START, encoding="utf-8")
    os.chmod(script, 0o755)
    (layout.folder / "federation.toml").write_text(
        to_toml({"host": layout.host, **ports, "proxy": layout.proxy}), encoding="utf-8"
    )


def _enrol(layout: Layout, name: str) -> None:
    """A key pair and a bundle. The public key is written last, because it makes the site a member."""
    key = certificates.make_key()
    server = join_address(layout.host, layout.port)
    with _temporary(layout.bundles / name) as temporary:
        write_bundle(temporary, name, server, layout.ca.read_bytes(), key)
    replace_file(layout.public_key(name), certificates.public_line(key))


@contextmanager
def _temporary(final: Path) -> Iterator[Path]:
    """A folder that becomes `final` on success and is deleted on failure."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=final.parent))
    try:
        yield temporary
        temporary.rename(final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
