"""Names and addresses: what may be one, and what is said of what may not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from atoll.deploy.layout import Layout, check_host, check_names, check_port, join_address, split_address
from atoll.errors import SiteError
from refusals import refused


@pytest.mark.parametrize(
    "name",
    [
        "",
        "../../x",
        "/etc",
        "a/b",
        "a\0b",
        "a" * 41,
        "-a",
        "_a",
        "ä",
        "a b",
        "a;b",
        '"',
        "a\n",
        ".",
        "..",
        "a.b",
        "$HOME",
    ],
)
def test_names_that_are_refused(name: str) -> None:
    with refused(SiteError, "bad-site-name") as caught:
        check_names(["good", name])
    assert "\n" not in str(caught.value) and "\0" not in str(caught.value) and len(str(caught.value)) < 250


@pytest.mark.parametrize("names", [["a", "a"], ["a", "b", "A"]])
def test_two_sites_of_one_name(names: list[str]) -> None:
    with refused(SiteError, "site-name-twice", f"'{names[-1]}'"):
        check_names(names)


def test_no_name_at_all() -> None:
    with refused(SiteError, "no-sites-named", "--sites"):
        check_names([])


@given(some.text(max_size=60))
def test_a_name_that_is_let_through_stays_in_its_folder(name: str) -> None:
    try:
        check_names([name])
    except SiteError:
        return
    folder = Path("/federation/bundles")
    assert (folder / name).resolve().parent == folder and len(name) <= 40 and name.isascii()


@pytest.mark.parametrize("host", ["localhost", "atoll.example.org", "10.0.0.1", "::1", "a-b.c"])
def test_hosts(host: str) -> None:
    check_host(host)
    assert split_address(join_address(host, 8443)) == (host, 8443)


@pytest.mark.parametrize("host", ["", "a b", "a/b", "-a", "a" * 64, "http://a", "a:80", "a\0", "a..b"])
def test_what_is_no_host(host: str) -> None:
    with refused(SiteError, "bad-host", repr(host[:60])):
        check_host(host)


@pytest.mark.parametrize("port", [0, -1, 65536, "80", 1.5, True, None])
def test_what_is_no_port(port: object) -> None:
    with refused(SiteError, "bad-port", repr(port)):
        check_port(port)


@pytest.mark.parametrize("address", ["", "host", "host:", ":80", "host:x", "host:123456"])
def test_what_is_no_address(address: str) -> None:
    with refused(SiteError, "bad-server-address", repr(address)):
        split_address(address)


def test_an_address_with_a_port_that_is_too_large() -> None:
    with refused(SiteError, "bad-port", 99999):
        split_address("host:99999")


def test_a_folder_that_is_no_federation(tmp_path: Path) -> None:
    with refused(SiteError, "no-federation-here", tmp_path):
        Layout.open(tmp_path)
    (tmp_path / "federation.toml").write_text("host = 1")
    with refused(SiteError, "federation-file-unreadable", tmp_path / "federation.toml"):
        Layout.open(tmp_path)
