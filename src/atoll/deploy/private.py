"""A site under `[privacy]`: its own account and limit, its own noise, and no reply twice.

The site does not rely on the server. What a task releases is computed from the task, written to the site's account
before it is done, and compared with the limit of the site's file. A run that was announced as private remains so. Noise
comes from the system's randomness. A reply is stored before it leaves: asked again, the site sends the same bits,
because a second one would be a second release.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from atoll.core import wire
from atoll.core.messages import Payload
from atoll.errors import SiteError, WireError
from atoll.federation.transport import work_digest
from atoll.privacy.settings import MOST_ROWS
from atoll.privacy.site_account import SiteAccount, Work
from atoll.rng import secret_stream
from atoll.store.files import replace_file

if TYPE_CHECKING:
    from atoll.data.files.site import Prepared
    from atoll.data.preprocess import Moments
    from atoll.deploy.limits import Limits

REPLIES = "replies"  # in a run's folder: the private replies that the server may ask for again
REPLY_BYTES = 2**30  # of the replies of a run; beyond that the oldest are deleted, but never the last one
ANNOUNCED = "private.json"  # in a run's folder: whether it is private
SECRET = "secret"  # in the site's folder


def work_of(outer: Payload, message: Payload) -> Work | None:
    """The private task of a message; None if it is not private."""
    if "privacy" not in message["payload"]:
        return None
    return Work(outer["run"], outer["order"], work_digest(message["job"], message["payload"]))


def announce(folder: Path, private: bool) -> None:
    """Remember whether the run of this folder is private. One that is private remains so."""
    if not announced(folder):
        replace_file(folder / ANNOUNCED, json.dumps(private).encode())


def announced(folder: Path) -> bool | None:
    """Whether the run of this folder is private; None: it is not known. What cannot be read means yes."""
    try:
        return json.loads((folder / ANNOUNCED).read_bytes()) is not False
    except FileNotFoundError:
        return None
    except ValueError:
        return True


def split_name(preparation: Payload, digest: str) -> str:
    """Equal for runs in which every row of the site is in the same part."""
    decides = {key: preparation.get(key) for key in ("data", "agreement", "seed")}
    return hashlib.sha256(wire.encode({**decides, "digest": digest})).hexdigest()[:16]


def secret_digest(folder: Path, digest: str) -> str:
    """A keyed digest of rows: only the site of this folder can compute it again."""
    path = folder / SECRET
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, secrets.token_bytes(32))
        path.chmod(0o600)
    return hmac.new(path.read_bytes(), digest.encode(), hashlib.sha256).hexdigest()


class SitePrivacy:
    """For one site, as long as its limits do not change."""

    def __init__(self, folder: Path, limits: Limits | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.limits = limits
        limit = (None, 1e-5) if limits is None else (limits.epsilon, limits.delta)
        self._account = SiteAccount(folder, *limit)

    def close(self) -> None:
        self._account.close()

    def charge(self, work: Work, job: str, payload: Payload, preparation: Payload) -> str | None:
        """Write that this task will be done; instead the reason why not."""
        from atoll.clients.coverage import releases_of

        split = split_name(preparation, str(preparation.get("digest")))
        return self._account.charge(work, split, releases_of(job, payload))

    def stored(self, work: Work, folder: Path) -> Payload | str | None:
        """The reply to this task, if it has left already, or why there is none; None: the task is to be done."""
        if work not in self._account.answered:
            return None
        try:
            found = wire.decode(_reply(folder, work.order).read_bytes())
            if Work(*found["work"]) == work:
                answer: Payload = found["answer"]
                return answer
        except (OSError, WireError, KeyError, TypeError):
            pass
        return (
            f"task {work.order} was answered before and its reply is no longer stored; a second one would spend the "
            "privacy budget twice"
        )

    def store(self, work: Work, folder: Path, answer: Payload, floor: int | None) -> None:
        """When this returns, the reply is on the disk and may leave. The server will not ask again for replies to tasks
        below the floor."""
        path = _reply(folder, work.order)
        path.parent.mkdir(exist_ok=True)
        replace_file(path, wire.encode({"work": list(work), "answer": answer}, digests=False))
        self._account.answer(work)
        total = 0
        for number, one in enumerate(sorted(path.parent.glob("*.frame"), reverse=True)):
            total += one.stat().st_size
            if one != path and ((floor is not None and int(one.stem) < floor) or (number and total > REPLY_BYTES)):
                one.unlink()

    def labels(self, labels: Sequence[int], noise: float, split: str) -> list[int]:
        """Rows per class with noise. One row changes one of the numbers by 1."""
        from atoll.training.private import noisy_counts

        def draw() -> list[float]:
            return [int(count) for count in noisy_counts(np.array(labels), noise, MOST_ROWS, secret_stream())]

        return [int(count) for count in self._once("labels", split, noise, draw)]

    def moments(
        self, prepared: Prepared, bounds: Mapping[str, Sequence[float]], noise: float, split: str
    ) -> Moments | None:
        """The sums for a federated scaling with noise, see `atoll.data.private`; None for other scalings."""
        from atoll.data.preprocess import Moments
        from atoll.data.private import PrivateRows

        if prepared.rules.scale != "federated":
            return None
        private, rows = PrivateRows(bounds, noise), prepared.federated.client_rows.rows_of(0, "train")

        def draw() -> list[float]:
            found = prepared.moments(private)
            assert found is not None
            return [*found.mean.tolist(), *found.squares.tolist()]

        about = hashlib.sha256(wire.encode({"bounds": {name: list(own) for name, own in bounds.items()}})).hexdigest()
        mean, squares = np.array(self._once(f"moments {about[:16]}", split, noise, draw)).reshape(2, -1)
        return Moments(len(rows), mean, squares)

    def _once(self, what: str, split: str, noise: float, draw: Callable[[], list[float]]) -> list[float]:
        found = self._account.once(what, split, noise, draw)
        if isinstance(found, str):
            raise SiteError(f"{what.partition(' ')[0]}: {found}", code="limit-of-site")
        return found


def _reply(folder: Path, order: int) -> Path:
    return folder / REPLIES / f"{order:010d}.frame"
