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
from atoll.deploy.flower.messages import HELLO, PREPARE, TASK
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

    def __init__(
        self, root: Path, kind: str, change: Change, liar: str = "west", least: int = 3, images: bool = False
    ) -> None:
        self.sites, self.grid, self.least = ThreeSites(root / "sites", images=images), ThreadGrid(), least
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


def moments(answer: Payload, **changed: Any) -> Payload:
    return answer | {"moments": answer["moments"] | changed}


def sizes(answer: Payload, **changed: Any) -> Payload:
    return answer | {"sizes": answer["sizes"] | changed}


IMPOSSIBLE: list[Change] = [
    lambda answer: moments(answer, count=10**400),
    lambda answer: moments(answer, count=2 * answer["moments"]["count"]),
    lambda answer: moments(answer, count=answer["moments"]["count"] << 40),
    lambda answer: moments(answer, mean=np.full_like(answer["moments"]["mean"], 1e300)),
    lambda answer: moments(answer, squares=-answer["moments"]["squares"]),
    lambda answer: moments(answer, squares=answer["moments"]["squares"][:-1]),
    lambda answer: answer | {"moments": [1]},
    lambda answer: sizes(answer, train=10**400),
    lambda answer: sizes(answer, train=2 * answer["sizes"]["train"]),
    lambda answer: answer | {"labels": [10**6] * 3},
]


def test_numbers_that_no_rows_can_give_leave_a_site_out(tmp_path: Path) -> None:
    """A site cannot claim more values than its rows have, to own the scaling of all."""
    changes = iter(IMPOSSIBLE)
    found = OneLies(tmp_path, PREPARE, lambda answer: next(changes)(answer))
    for number in range(len(IMPOSSIBLE)):
        with refused(SiteError, "too-few-sites", "2 of 3", "site 'west': what it reports of its prepared data"):
            launch.start(found.experiment(), tmp_path / str(number), open_engine=on_grid(found.grid))
    assert list(changes) == []


def test_images_are_scaled_by_as_many_values_as_they_have_pixels(tmp_path: Path) -> None:
    """The check of the numbers lets honest sites with images begin."""
    seen: list[int] = []

    def noted(answer: Payload) -> Payload:
        seen.append(answer["moments"]["count"] // answer["sizes"]["train"])
        return answer

    found = OneLies(tmp_path, PREPARE, noted, images=True)
    experiment = found.experiment(data={"scale": "federated"})
    assert launch.start(experiment, tmp_path / "run", open_engine=on_grid(found.grid)).finished and seen == [64]
