"""A site's side of a real federation, whatever carries its letters: hello, preparation, tasks.

A site is one client. It reads its own files, does the server's tasks on them, and answers; its rows and its memory stay
on its disk. What the server asks is checked against the site's own limits first. Each letter may be handled by a new
process: all that is remembered is in the site's folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from atoll.core import wire
from atoll.core.messages import Payload, TaskSize
from atoll.deploy.bundle import installed
from atoll.deploy.site_store import MemoryFolder, MemoryLost, TensorFolder, run_folder, sweep_runs
from atoll.errors import AtollError, DataError, SiteError, WireError
from atoll.federation.executor import perform, stream_name, words

if TYPE_CHECKING:
    from atoll.data import ClientData, DataSettings
    from atoll.data.files.site import Prepared
    from atoll.deploy.limits import Limits


Result = TypeVar("Result")


class TookTooLong(Exception):
    """The work had not ended when its time was over."""


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """What `work` returns or raises. When time is over it is left to itself, for a thread cannot be stopped: the
    process should end soon, as a node's does after each task."""
    results: list[Result] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as problem:  # raised again below, where somebody can hear it
            problems.append(problem)

    worker = threading.Thread(target=run, name="task", daemon=True)  # a daemon: no process waits for it at its end
    worker.start()
    worker.join(seconds)
    if problems:
        raise problems[0]
    if not results:
        raise TookTooLong
    return results[0]


log = logging.getLogger("atoll")


@dataclass(frozen=True)
class Site:
    """Who this site is and what it allows."""

    name: str
    data: Path
    folder: Path  # the node's own, for what it keeps
    share_labels: bool = False
    limits: Limits | None = None  # None: only in tests


Loader = Callable[[Site, Path, Payload], "ClientData"]  # site, the run's folder, the preparation -> the client's data


class SiteNode:
    """Answers letters. A failure is an answer too: nothing raises."""

    def __init__(self, site: Site, load: Loader | None = None) -> None:
        self.site = site
        self._load = load if load is not None else load_prepared
        self._kinds: dict[str, Callable[[bytes], Payload]] = {
            "hello": self._hello,
            "prepare": self._prepare,
            "notice": self._notice,
            "task": self._task,
        }

    def answer(self, kind: str, frame: bytes) -> bytes:
        """The answer to a letter, as a frame."""
        try:
            return wire.encode(self._kinds[kind](frame), digests=False)
        except (AtollError, OSError) as problem:
            log.warning("atoll: %s", problem)
            return wire.encode({"error": " ".join(str(problem).split())}, digests=False)
        except (Exception, SystemExit) as problem:  # whatever it is, the server shall know
            log.warning("atoll: %s", words(problem), exc_info=True)
            return wire.encode({"error": words(problem)}, digests=False)

    # -- before the first round ------------------------------------------------------------------------------------

    def _hello(self, frame: bytes) -> Payload:
        """Who is there, and of what form its data is."""
        letter = wire.decode(frame)
        sweep_runs(self.site.folder)
        answer: Payload = {"name": self.site.name, "versions": installed(), "error": None}
        if letter["data"] is None:
            return answer
        refusal = None if self.site.limits is None else self.site.limits.check_method(letter["method"])
        if refusal is not None:
            return answer | {"error": self._refused(refusal)}
        try:
            return answer | {"told": _describe(self.site, letter["data"])}
        except DataError as problem:
            log.warning("atoll: %s", problem)
            return answer | {"error": str(problem)}

    def _prepare(self, frame: bytes) -> Payload:
        """Sizes, moments for the scaling, and label counts where the site allows them."""
        letter = wire.decode(frame)
        prepared = _prepare_data(self.site, letter)
        found = prepared.moments()
        moments = None if found is None else {"count": found.count, "mean": found.mean, "squares": found.squares}
        federated = prepared.federated
        shared = self.site.share_labels and letter["share_labels"]
        return {
            "error": None,
            "digest": federated.digest(),
            "sizes": dict(federated.sizes(self.site.name)),
            "labels": list(federated.labels(self.site.name)) if shared else None,
            "shape": list(federated.schema.shape),
            "features": list(federated.schema.features),
            "moments": moments,
        }

    def _notice(self, frame: bytes) -> Payload:
        """The server has something to say, such as why this site is left out of a run."""
        letter = wire.decode(frame)
        text = " ".join(str(letter["text"]).split())[:500]
        log.warning("atoll: the server says: %s", text)
        self.site.folder.mkdir(parents=True, exist_ok=True)
        (self.site.folder / "notice.txt").write_text(text + "\n", encoding="utf-8")
        return {"error": None}

    # -- in the rounds ---------------------------------------------------------------------------------------------

    def _task(self, frame: bytes) -> Payload:
        outer = wire.decode(frame)
        with run_folder(self.site.folder, outer["run"]) as folder:
            tensors = TensorFolder(folder / "tensors")
            try:
                letter = wire.decode(outer["letter"].tobytes(), tensors)
            except WireError:
                if not tensors.missed:
                    raise
                return {"order": outer["order"], "lacking": True, "error": None}
            tensors.keep(letter["payload"], letter["keep"])
            try:
                return {"order": outer["order"], **self._work(letter, outer["order"], folder)}
            except MemoryLost as problem:
                return {"order": outer["order"], "lost": True, "error": str(problem)}
            except (Exception, SystemExit) as problem:  # a client's failure is data, whatever it is
                log.warning("atoll: %s", words(problem))
                return {"order": outer["order"], "error": words(problem)}

    def _work(self, letter: Payload, order: int, folder: Path) -> Payload:
        if letter["client"] != self.site.name:
            raise SiteError(
                f"a task for site '{letter['client']}' came to site '{self.site.name}'", code="wrong-site-task"
            )
        data = self._load(self.site, folder, letter["preparation"])
        kept = MemoryFolder(folder / "memory")
        limits = self.site.limits

        def work() -> tuple[Payload, Payload] | str:
            """The reply and the new memory, or why the site refuses the task."""
            job, payload, size = letter["job"], letter["payload"], TaskSize(**letter["size"])
            if limits is not None:
                refusal = limits.check(letter["method"], job, payload, size, data.sizes["train"])
                if refusal is not None:
                    return refusal
            name = stream_name(letter["seed"], letter["round"], letter["client"], letter["number"])
            return perform(job, payload, kept.read(letter["memory"]), data, name, letter["device"], size)

        # The check is under the time limit too: an architecture may be made to be slow to build.
        try:
            done = work() if limits is None else within(60 * limits.minutes, work)
        except TookTooLong:
            assert limits is not None
            done = f"the task took longer than limits.minutes = {limits.minutes:g} allows"
        if isinstance(done, str):
            return {"error": self._refused(done)}
        payload, memory = done
        if memory:
            kept.write(order, memory)
        kept.forget_before(letter["floor"])
        return {"payload": payload, "remembers": bool(memory), "error": None}

    def _refused(self, reason: str) -> str:
        text = f"site '{self.site.name}' refuses: {reason}"
        log.warning("atoll: %s", text)
        return text


def load_prepared(site: Site, folder: Path, preparation: Payload) -> ClientData:
    """The site's data as agreed upon: prepared once a run, then mapped from the run's folder.

    The copy is bound to what was agreed; where there is none, the site's files are read again and must be the same.
    """
    from atoll.data import Federated

    place = folder / "data"
    name = hashlib.sha256(wire.encode(preparation)).hexdigest()
    bound = place / "agreed.json"
    try:
        if json.loads(bound.read_bytes()) == name:
            attached: ClientData = Federated.attach(place).client(site.name)
            return attached
    except (OSError, ValueError, DataError):
        pass
    prepared = _prepare_data(site, preparation)
    if prepared.federated.digest() != preparation["digest"]:
        raise DataError(
            f"'{site.data}': the data is not what it was when the run began; put it back, or begin a new run",
            code="data-changed",
        )
    federated = prepared.scaled(preparation["mean"], preparation["deviation"])
    bound.unlink(missing_ok=True)
    federated.save(place)
    bound.write_text(json.dumps(name), encoding="utf-8")
    return federated.client(site.name)


def _describe(site: Site, table: Payload) -> Payload:
    from atoll.data.files.site import describe

    return describe(site.data, _settings(table))


def _prepare_data(site: Site, letter: Payload) -> Prepared:
    from atoll.data.files.site import prepare

    return prepare(site.data, letter["form"], _settings(letter["data"]), site.name, letter["seed"])


def _settings(table: Payload) -> DataSettings:
    from atoll.data.settings import DataSettings

    return DataSettings.model_validate(table)


@contextmanager
def logging_to_stderr() -> Iterator[None]:
    """The node's own lines, which begin with `atoll:`, on the error stream."""
    handler = logging.StreamHandler()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
