"""A site's node under `[privacy]`, by itself: no reply twice, noise of its own, and nothing that is not covered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll import spaces
from atoll.clients import jobs
from atoll.core import wire
from atoll.core.messages import Payload
from atoll.deploy.limits import Limits
from atoll.deploy.site import Site, SiteNode
from atoll.privacy.site_account import SiteAccount
from atoll.rng import stream
from atoll.testing import made_table
from site_tasks import task_frame

DATA = made_table(clients=2, scale="none", split=(0.7, 0.3, 0.0))
NAME = DATA.names[0]
ARCH: dict[str, Any] = {"space": "fixed", "model": "mlp", "input": [6], "classes": 3, "hidden": [4]}
TRAIN: Payload = {
    "architecture": ARCH,
    "weights": spaces.initial(ARCH, stream(1, "start")),
    "epochs": 1,
    "batch": 10,
    "privacy": {"clip": 1.0, "noise": 2.0, "rate": 0.5, "steps": 2},
}


def ask(
    folder: Path, order: int, payload: Payload, job: str = jobs.TRAIN, since: int | None = None, **limits: Any
) -> Payload:
    """The answer of a new process."""
    site = Site(NAME, folder / "data", folder, limits=Limits(**limits))
    node = SiteNode(site, lambda site, _, __: DATA.client(site.name))
    return wire.decode(node.answer("task", task_frame("ab" * 16, order, NAME, job, payload, {"digest": "d"}, since)))


def digest(answer: Payload) -> str:
    assert answer["error"] is None, answer["error"]
    found: str = answer["payload"]["weights"].whole_digest()
    return found


def test_a_task_that_is_asked_again_gets_the_reply_that_has_left(tmp_path: Path) -> None:
    first = digest(ask(tmp_path, 0, TRAIN))
    assert digest(ask(tmp_path, 0, TRAIN)) == first
    assert digest(ask(tmp_path, 1, TRAIN)) != first  # other noise, and charged again
    assert len(SiteAccount(tmp_path).charged) == 2
    assert digest(ask(tmp_path, 0, TRAIN)) == first  # whatever came later
    assert len(SiteAccount(tmp_path).charged) == 2
    other = {**TRAIN, "epochs": 2}  # other work under the same number
    digest(ask(tmp_path, 0, other))
    assert len(SiteAccount(tmp_path).charged) == 3


def stored(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("runs/*/replies/*.frame"))


def test_replies_below_the_floor_are_deleted(tmp_path: Path) -> None:
    for order in range(3):
        ask(tmp_path, order, TRAIN)
    first = digest(ask(tmp_path, 3, TRAIN, since=2))
    assert stored(tmp_path) == [2, 3]
    assert "was answered before" in ask(tmp_path, 1, TRAIN)["error"]
    assert digest(ask(tmp_path, 3, TRAIN)) == first
    digest(ask(tmp_path, 4, TRAIN, since=99))  # never the one that is about to leave
    assert stored(tmp_path) == [4]


def test_replies_take_limited_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest(ask(tmp_path, 0, TRAIN))
    (path,) = tmp_path.glob("runs/*/replies/*.frame")
    monkeypatch.setattr("atoll.deploy.private.REPLY_BYTES", 2 * path.stat().st_size + 10)
    for order in range(1, 4):
        ask(tmp_path, order, TRAIN)
    assert stored(tmp_path) == [2, 3]
    monkeypatch.setattr("atoll.deploy.private.REPLY_BYTES", 10)
    ask(tmp_path, 4, TRAIN)
    assert stored(tmp_path) == [4]


def test_a_task_of_which_nothing_has_left_is_done_and_charged_once(tmp_path: Path, monkeypatch: Any) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("atoll.deploy.private.replace_file", lambda *_: (_ for _ in ()).throw(OSError("killed")))
        assert "killed" in ask(tmp_path, 0, TRAIN)["error"]
    digest(ask(tmp_path, 0, TRAIN))
    assert len(SiteAccount(tmp_path).charged) == 1


def test_the_server_cannot_have_more_than_the_site_allows(tmp_path: Path) -> None:
    plain = {key: value for key, value in TRAIN.items() if key != "privacy"}
    assert "limits.epsilon = 1" in ask(tmp_path, 0, plain, epsilon=1.0)["error"]
    assert "limits.epsilon = 1" in ask(tmp_path, 1, TRAIN, epsilon=1.0)["error"]
    other = ask(tmp_path, 2, TRAIN, jobs.CALIBRATE, epsilon=1.0)["error"]
    assert "'calibrate' sends is not covered" in other
    silent = {**TRAIN, "privacy": {**TRAIN["privacy"], "noise": 1e-6}}
    assert "noise below" in ask(tmp_path, 3, silent)["error"]
    endless = {**TRAIN, "privacy": {**TRAIN["privacy"], "steps": 10**9}}
    assert "limits.steps allows 1,000,000" in ask(tmp_path, 4, endless)["error"]
    assert not SiteAccount(tmp_path).charged


def test_what_is_wrong_with_a_site_s_rows_stays_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The text of a problem may quote a cell."""
    (tmp_path / "rows.csv").write_text("age,label\n" + "61,ill\n62,well\n" * 5 + "Doe,ill\n")
    node = SiteNode(Site(NAME, tmp_path / "rows.csv", tmp_path / "work"), lambda *_: DATA.client(NAME))

    def answered(private: bool) -> str:
        asked = {"data": {"name": "sites"}, "method": "fedavg", "private": private}
        error: str = wire.decode(node.answer("hello", wire.encode(asked)))["error"]
        return error

    assert "Doe" in answered(False)
    caplog.clear()
    assert "Doe" not in answered(True) and "in the log of the site only" in answered(True)
    assert "Doe" in caplog.text
