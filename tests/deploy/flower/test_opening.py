"""Sites that report what is not true: none of them ends a run, or its start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from atoll.config import Experiment
from atoll.core import wire
from atoll.core.messages import Payload
from atoll.deploy.control import status
from atoll.deploy.create import create_federation
from atoll.deploy.flower.engine import on_grid
from atoll.deploy.flower.frames import content, frame_of
from atoll.deploy.flower.messages import HELLO, TASK
from atoll.errors import SiteError
from atoll.run import launch
from deploy.flower.thread_grid import Handler, ThreadGrid
from deploy.flower.three_sites import NAMES, ThreeSites
from refusals import refused

Change = Callable[[Payload], Payload]


def changing(handle: Handler, kind: str, change: Change) -> Handler:
    """A site whose answers to messages of this kind are changed."""

    def answer(message: Message) -> Message:
        found = handle(message)
        if message.metadata.message_type != kind:
            return found
        changed = change(wire.decode(frame_of(found) or b"", digests=False))
        return Message(content(wire.encode(changed, digests=False)), reply_to=message)

    return answer


class OneLies:
    """Three sites, one of which changes its answers; `least` of them must participate."""

    def __init__(self, root: Path, kind: str, change: Change, liar: str = "west", least: int = 3) -> None:
        self.sites, self.grid, self.least = ThreeSites(root / "sites"), ThreadGrid(), least
        self.layout = create_federation(root / "federation", NAMES, "localhost", 9443)
        for name in NAMES:
            handle = self.sites.handler(name)
            self.grid.connect(changing(handle, kind, change) if name == liar else handle)

    def experiment(self, **options: Any) -> Experiment:
        found = self.sites.experiment("fedavg", "flower", rounds=1, hidden=[4], **options)
        changed = {"sites": self.least, "federation": str(self.layout.folder)}
        return found.model_copy(update={"engine": found.engine.model_copy(update=changed)})


def test_text_that_no_file_can_hold_ends_no_run(tmp_path: Path) -> None:
    text = "\ud800\n" + "x" * 9999
    found = OneLies(tmp_path, TASK, lambda answer: {"order": answer["order"], "error": text})
    run = launch.start(found.experiment(), tmp_path / "run", open_engine=on_grid(found.grid))
    (reason,) = run.result["clients"]["west"]["failed"]
    assert run.finished and reason.startswith("\\ud800 xxx") and len(reason) <= 200
    assert len(launch.resume(run.path, rounds=2, open_engine=on_grid(found.grid)).rounds) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"versions": {"atoll": "\ud800" * 99}},
        {"versions": {"atoll": np.zeros(3)}},
        {"error": "\ud800" * 9999},
        {"description": {"kind": "table", "labels": ["well", "\ud800"], "features": ["age", "weight", "dose"]}},
    ],
)
def test_text_that_no_file_can_hold_ends_no_start(tmp_path: Path, change: dict[str, Any]) -> None:
    found = OneLies(tmp_path, HELLO, lambda answer: answer | change)
    with refused(SiteError, "too-few-sites", "site 'west'") as caught:
        launch.start(found.experiment(), tmp_path / "run", open_engine=on_grid(found.grid))
    assert str(caught.value).isprintable() and len(str(caught.value)) < 5000
    assert len(str([site for site in status(found.layout).sites if site.name == "west"])) < 6000
