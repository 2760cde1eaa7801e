"""One federation of three sites for all tests of deployment: starting it takes half a minute."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deployment import Deployment, need_nginx, write_rows

SITES = ("north", "south", "west")


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Link and proxy; no site has joined yet."""
    need_nginx()
    made = Deployment.make(tmp_path_factory.mktemp("deployment"), SITES)
    try:
        made.start_server()
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="session")
def joined(deployment: Deployment) -> Deployment:
    """The same, with all three sites connected."""
    for site in SITES:
        deployment.join(site, write_rows(deployment.folder / "data" / site / "rows.csv"))
    for site in SITES:
        deployment.programs[site].says("connected to", 300)
    return deployment
