"""A site under `[privacy]`: its own account and limit, its own noise, and no reply twice.

The site does not rely on the server. What a task releases is computed from the task, written to the site's account
before it is done, and compared with the limit of the site's file. Noise comes from the system's randomness. A reply is
stored before it leaves: asked again, the site sends the same bits, because a second one would be a second release.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from atoll.core import wire
from atoll.core.messages import Payload
from atoll.errors import SiteError, WireError
from atoll.federation.transport import work_digest
from atoll.privacy.site_account import SiteAccount, Work
from atoll.rng import secret_stream
from atoll.store.files import replace_file

if TYPE_CHECKING:
    from atoll.deploy.limits import Limits

REPLY = "reply.frame"  # in a run's folder: the last private reply
SECRET = "secret"  # in the site's folder
MANY = 2**40  # rows


def work_of(outer: Payload, message: Payload) -> Work | None:
    """The private task of a message; None if it is not private."""
    if "privacy" not in message["payload"]:
        return None
    return Work(outer["run"], outer["order"], work_digest(message["job"], message["payload"]))


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
            found = wire.decode((folder / REPLY).read_bytes())
            if Work(*found["work"]) == work:
                answer: Payload = found["answer"]
                return answer
        except (OSError, WireError, KeyError, TypeError):
            pass
        return (
            f"task {work.order} was answered before and only the last reply is stored; a second one would spend the "
            "privacy budget twice"
        )

    def store(self, work: Work, folder: Path, answer: Payload) -> None:
        """When this returns, the reply is on the disk and may leave."""
        replace_file(folder / REPLY, wire.encode({"work": list(work), "answer": answer}, digests=False))
        self._account.answer(work)

    def labels(self, labels: Sequence[int], noise: float, split: str) -> list[int]:
        """Rows per class with noise. One row changes one of the numbers by 1."""
        from atoll.training.private import noisy_counts

        def draw() -> list[int]:
            return [int(count) for count in noisy_counts(np.array(labels), noise, MANY, secret_stream())]

        found = self._account.labels(split, noise, draw)
        if isinstance(found, str):
            raise SiteError(f"rows per class: {found}", code="limit-of-site")
        return found
