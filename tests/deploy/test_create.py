"""A federation's directory: complete, private, never overwritten, never half made."""

from __future__ import annotations

import json
import shutil
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from atoll.deploy import bundle, certificates, create, proxy
from atoll.deploy.bundle import Bundle
from atoll.deploy.control import status
from atoll.deploy.layout import Layout
from atoll.errors import SiteError
from refusals import refused


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return create.create_federation(tmp_path / "federation", ["a", "b"], "atoll.example.org", 9443)


def test_what_is_made(layout: Layout) -> None:
    assert Layout.open(layout.folder) == layout
    assert layout.sites == ["a", "b"] and layout.superlink_port == 9444
    assert layout.public_address == "atoll.example.org:9443"
    for name in ("ca.key", "server.key", "superexec.secret"):
        assert mode(layout.server / name) == 0o600
    for folder in (layout.folder, layout.server, layout.bundles, layout.state, layout.bundles / "a"):
        assert mode(folder) == 0o700
    found = Bundle.open(layout.bundles / "a")
    assert (found.site.name, found.site.server) == ("a", "atoll.example.org:9443")
    assert mode(found.key) == 0o600 and not found.site.share_labels
    assert found.ca.read_bytes() == layout.ca.read_bytes()
    assert {path.name for path in found.folder.iterdir()} == {
        *("ca.crt", "site.key", "site.toml", "versions.json", "README.md", "join.sh")
    }
    assert not list(layout.folder.rglob(".*")), "nothing is left of the making"


def test_every_key_is_another_one_on_a_nist_curve(layout: Layout) -> None:
    private = [certificates.read_private_key(layout.bundles / name / "site.key") for name in layout.sites]
    private += [certificates.read_private_key(layout.server / name) for name in ("ca.key", "server.key")]
    assert all(isinstance(key.curve, ec.SECP384R1) for key in private)
    assert len({key.private_numbers().private_value for key in private}) == 4
    lines = [layout.public_key(name).read_bytes() for name in layout.sites]
    assert lines == [certificates.public_line(key) for key in private[:2]]
    assert certificates.public_point(lines[0]).startswith(b"-----BEGIN PUBLIC KEY")
    assert b"OPENSSH" in (layout.bundles / "a" / "site.key").read_bytes()


def test_the_certificate_is_of_the_authority_and_for_these_names(layout: Layout) -> None:
    root = certificates.read_certificate(layout.ca)
    server = certificates.read_certificate(layout.server / "server.crt")
    server.verify_directly_issued_by(root)
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["atoll.example.org", "localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    context = ssl.create_default_context(cafile=str(layout.ca))
    context.load_cert_chain(layout.server / "server.crt", layout.server / "server.key")


def test_a_host_may_be_an_address(tmp_path: Path) -> None:
    made = create.create_federation(tmp_path / "federation", ["a"], "127.0.0.1", 9443, 9999)
    server = certificates.read_certificate(made.server / "server.crt")
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert made.superlink_port == 9999


def test_the_proxy_passes_one_path_on(layout: Layout) -> None:
    text = (layout.server / "nginx.conf").read_text()
    assert text == proxy.configuration(9443, 9444)
    assert text.count("proxy_pass") == 1 and "location /v1/fleet/ {" in text
    assert "proxy_pass https://127.0.0.1:9444;" in text and "location / { return 403; }" in text
    assert "proxy_ssl_verify on;" in text and "listen 9443 ssl;" in text


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_federation_for_trying_out_listens_on_this_machine_only(tmp_path: Path, host: str) -> None:
    text = (create.create_federation(tmp_path / "here", ["a"], host, 9443).server / "nginx.conf").read_text()
    assert [line.strip() for line in text.splitlines() if "listen" in line] == ["listen 127.0.0.1:9443 ssl;"]


def test_without_a_proxy_the_superlink_itself_is_reached(tmp_path: Path) -> None:
    made = create.create_federation(tmp_path / "federation", ["a"], "atoll.example.org", 9443, proxy=False)
    assert Layout.open(made.folder) == made
    assert (made.superlink_host, made.superlink_address, made.public_address) == (
        *("0.0.0.0", "127.0.0.1:9443", "atoll.example.org:9443"),
    )
    assert not (made.server / "nginx.conf").exists()
    assert "anyone who reaches port 9443 can run code" in (made.folder / "README.md").read_text()
    here = create.create_federation(tmp_path / "here", ["a"], "localhost", 9443, proxy=False)
    assert here.superlink_host == "127.0.0.1"
    with refused(SiteError, "superlink-port-unused", 9444):
        create.create_federation(tmp_path / "other", ["a"], "localhost", 9443, 9444, proxy=False)


def test_nothing_is_overwritten(layout: Layout, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in layout.folder.rglob("*") if path.is_file()}
    with refused(SiteError, "folder-exists", layout.folder):
        create.create_federation(layout.folder, ["c"], "localhost", 1234)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with refused(SiteError, "folder-exists", tmp_path / "link"):
        create.create_federation(tmp_path / "link", ["c"], "localhost", 1234)
    assert {path: path.read_bytes() for path in layout.folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("sites", "host", "port", "superlink_port", "code", "named"),
    [
        (["a", "../../x"], "localhost", 9443, None, "bad-site-name", "../../x"),
        (["a", "a"], "localhost", 9443, None, "site-name-twice", "'a'"),
        (["a"], "no host", 9443, None, "bad-host", "no host"),
        (["a"], "localhost", 0, None, "bad-port", "port 0"),
        (["a"], "localhost", 65535, None, "bad-port", "65536"),
        (["a"], "localhost", 9443, 9443, "ports-equal", "9443"),
    ],
)
def test_bad_words_make_nothing(
    tmp_path: Path, sites: list[str], host: str, port: int, superlink_port: int | None, code: str, named: str
) -> None:
    with refused(SiteError, code, named):
        create.create_federation(tmp_path / "deep" / "federation", sites, host, port, superlink_port)
    assert list(tmp_path.rglob("*")) == []


def test_a_failure_in_the_middle_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def full(folder: Path, name: str, *rest: object) -> None:
        written.append(name)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        bundle.write_bundle(folder, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(create, "write_bundle", full)
    with pytest.raises(OSError, match="No space"):
        create.create_federation(tmp_path / "federation", ["a", "b", "c"], "localhost", 9443)
    assert written == ["a", "b"] and list(tmp_path.iterdir()) == []


def test_sites_come_and_go(layout: Layout) -> None:
    before = layout.public_key("b").read_bytes()
    assert create.add_site(layout, "c") == layout.bundles / "c"
    assert layout.sites == ["a", "b", "c"]
    for name, code in (("a", "site-name-twice"), ("A", "site-name-twice"), ("../x", "bad-site-name")):
        with refused(SiteError, code, f"'{name}'"):
            create.add_site(layout, name)
    create.remove_site(layout, "b")
    assert layout.sites == ["a", "c"] and not (layout.bundles / "b").exists()
    with refused(SiteError, "unknown-site", "'b'"):
        create.remove_site(layout, "b")
    create.add_site(layout, "b")
    assert layout.public_key("b").read_bytes() != before, "the old key stays shut out"


def test_one_site_gets_a_new_key_and_the_others_are_not_touched(layout: Layout) -> None:
    def files(name: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (layout.bundles / name).iterdir()}

    a, b, public = files("a"), files("b"), {name: layout.public_key(name).read_bytes() for name in "ab"}
    assert create.rotate_site(layout, "b") == layout.bundles / "b"
    assert files("a") == a and layout.public_key("a").read_bytes() == public["a"]
    assert layout.sites == ["a", "b"] and layout.public_key("b").read_bytes() != public["b"]
    assert [name for name, text in files("b").items() if text != b[name]] == ["site.key"], "it replaces one file only"
    bundle.Bundle.open(layout.bundles / "b")  # its key is readable by its owner only
    with refused(SiteError, "unknown-site", "'c'"):
        create.rotate_site(layout, "c")


def test_what_a_node_has_stored_outlives_a_new_key_and_a_removal(layout: Layout) -> None:
    """A site that runs from the operator's folder, as in the tutorial: its limits, its memory, its privacy account."""

    def stored(place: Path) -> list[str]:
        return [(place / name).read_text() for name in ("site.toml", "work/privacy.jsonl", "work/runs/x.memory")]

    place = layout.bundles / "b"
    (place / "work" / "runs").mkdir(parents=True)
    for name in ("work/privacy.jsonl", "work/runs/x.memory"):
        (place / name).write_text("spent")
    (place / "site.toml").write_text((place / "site.toml").read_text().replace("minutes = 60", "minutes = 5 "))
    before, key = stored(place), (place / "site.key").read_bytes()
    assert create.rotate_site(layout, "b") == place and stored(place) == before
    assert (place / "site.key").read_bytes() != key and mode(place / "site.key") == 0o600
    for number in (1, 2):
        aside = create.remove_site(layout, "b")
        assert aside == layout.bundles / f"b.removed-{number}" and "b" not in layout.sites
        create.add_site(layout, "b")
        assert stored(layout.bundles / "b.removed-1") == before and not (place / "work").exists()
        (place / "work").mkdir()


def test_a_site_whose_bundle_was_handed_over_gets_a_new_one(layout: Layout) -> None:
    before = layout.public_key("b").read_bytes()
    shutil.rmtree(layout.bundles / "b")
    Bundle.open(create.rotate_site(layout, "b"))
    assert layout.public_key("b").read_bytes() != before


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_rotation_that_fails_leaves_the_old_key_valid(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, handed_over: bool
) -> None:
    before = layout.public_key("b").read_bytes()
    key = (layout.bundles / "b" / "site.key").read_bytes()
    if handed_over:
        shutil.rmtree(layout.bundles / "b")
    monkeypatch.setattr(create.certificates, "write_site_key", _full)
    with pytest.raises(OSError, match="No space"):
        create.rotate_site(layout, "b")
    assert layout.public_key("b").read_bytes() == before
    assert handed_over or (layout.bundles / "b" / "site.key").read_bytes() == key


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_renewed_certificate_is_of_the_same_authority(layout: Layout) -> None:
    old, ca = (layout.server / "server.crt").read_bytes(), layout.ca.read_bytes()
    create.renew(layout)
    new = certificates.read_certificate(layout.server / "server.crt")
    assert new.public_bytes(serialization.Encoding.PEM) != old and layout.ca.read_bytes() == ca
    new.verify_directly_issued_by(certificates.read_certificate(layout.ca))


def test_a_key_that_others_may_read_is_refused(layout: Layout) -> None:
    (layout.bundles / "a" / "site.key").chmod(0o644)
    with refused(SiteError, "key-readable-by-others", layout.bundles / "a" / "site.key"):
        Bundle.open(layout.bundles / "a")


@pytest.mark.parametrize(("name", "what"), [("ca.crt", "certificate"), ("site.key", "key"), ("site.toml", "site-file")])
def test_a_bundle_with_a_file_missing_or_broken(layout: Layout, name: str, what: str) -> None:
    path = layout.bundles / "a" / name
    path.write_bytes(b"\xff not this")
    with refused(SiteError, f"{what}-unreadable", path):
        Bundle.open(layout.bundles / "a")
    path.unlink()
    with refused(SiteError, f"{what}-missing", path):
        Bundle.open(layout.bundles / "a")


def test_status_of_a_federation_that_does_not_run(layout: Layout) -> None:
    (layout.state / "hello").mkdir()
    (layout.state / "hello" / "a.json").write_text(json.dumps({"versions": {"atoll": "0.1"}}))
    now = status(layout)
    assert not now.running and "start it with: atoll federation server" in now.note
    assert [(site.name, site.state) for site in now.sites] == [("a", "unknown"), ("b", "unknown")]
    assert now.sites[0].hello == {"versions": {"atoll": "0.1"}} and now.sites[1].hello == {}
