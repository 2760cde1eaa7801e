"""A site's side of a real federation, independent of the transport: hello, preparation, tasks.

A site is one client. It reads its own files, does the server's tasks on them, and replies; its rows and its memory stay
on its disk. Every task is checked against the site's own limits first. What a `SiteNode` holds in memory saves time
only: all state is in the site's folder, and another process may go on from there.
"""

from __future__ import annotations

import errno
import json
import logging
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from atoll.core import wire
from atoll.core.messages import LONGEST, Payload, TaskSize, one_line
from atoll.deploy.agreed_data import describe_rows, load_prepared, preparation_name, prepare_rows
from atoll.deploy.bundle import installed
from atoll.deploy.node_store import MemoryFolder, MemoryLost, TensorFolder, changed_since, run_folder, sweep_runs
from atoll.deploy.private import SitePrivacy, announce, announced, secret_digest, split_name, work_of
from atoll.errors import AtollError, ConfigError, DataError, SiteError, WireError
from atoll.extras import require
from atoll.federation.executor import perform, stream_name, words

if TYPE_CHECKING:
    from atoll.data import ClientData, DataSettings
    from atoll.deploy.limits import Limits


Result = TypeVar("Result")


class TookTooLong(Exception):
    """The work did not end within its time limit."""


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """What `work` returns or raises; `TookTooLong` after the time limit. A thread cannot be stopped, so `work`
    then continues until the process ends, which the caller must see to."""
    results: list[Result] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as problem:  # raised again below, in the caller's thread
            problems.append(problem)

    worker = threading.Thread(target=run, name="task", daemon=True)  # a daemon: the process does not wait for it
    worker.start()
    worker.join(seconds)
    if problems:
        raise problems[0]
    if not results:
        raise TookTooLong
    return results[0]


WORKING_MEMORY = 1_000_000_000  # bytes besides limits.memory, for activations, batches and the reply


@contextmanager
def memory_ceiling(extra: int) -> Iterator[None]:
    """In this block the process can take this many bytes more than it has now; the kernel refuses more."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[5]) * resource.getpagesize()
    ceiling = taken + extra
    for limit in before:
        ceiling = ceiling if limit == resource.RLIM_INFINITY else min(ceiling, limit)
    resource.setrlimit(resource.RLIMIT_DATA, (ceiling, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def lacks_memory(problem: BaseException) -> bool:
    """Whether an allocation was refused: torch raises a RuntimeError of its own."""
    return isinstance(problem, MemoryError) or (
        isinstance(problem, RuntimeError) and "can't allocate memory" in str(problem)
    )


log = logging.getLogger("atoll")
DATA_CHANGED = "the data is not that of the last run, of {}; restore it if that was not intended"
LOG_BYTES = 10_000_000  # after which a new log of tasks begins; the one before it is kept


@dataclass(frozen=True)
class Site:
    """A site's name, its folders and what it allows."""

    name: str
    data: Path
    folder: Path  # the node's own, for its state
    share_labels: bool = False
    limits: Limits | None = None  # None: only in tests
    pinned: DataSettings | None = None  # how its files are read, where the site has decided it


Loader = Callable[[Site, Path, Payload], "ClientData"]  # site, the run's folder, the preparation -> the client's data


class SiteNode:
    """Answers messages. A failure is an answer, too: nothing raises."""

    def __init__(self, site: Site, load: Loader | None = None) -> None:
        self.site = site
        self.spent = False  # a task did not end in time and still runs: this process should end
        self._load = load if load is not None else load_prepared
        self._tensors: TensorFolder | None = None  # of the last run
        self._data: tuple[tuple[Path, str], ClientData] | None = None  # of the last run, and of which preparation
        self._private: SitePrivacy | None = None
        self._asked: dict[str, Any] = {}  # of the message that is being answered, for the log
        self._kinds: dict[str, Callable[[bytes], Payload]] = {
            "hello": self._hello,
            "prepare": self._prepare,
            "notice": self._notice,
            "task": self._task,
        }

    def answer(self, kind: str, frame: bytes) -> bytes:
        """The answer to a message, as a frame. What was asked and what leaves is in the site's own log."""
        self._asked = {}
        begin = time.monotonic()
        found, answer = self._answer(kind, frame)
        self._asked["milliseconds"] = round(1000 * (time.monotonic() - begin))
        self._record(kind, len(frame), found, len(answer))
        return answer

    def _record(self, kind: str, received: int, found: Payload, sent: int) -> None:
        """One line of `tasks.jsonl`: no values, only what kind of values left and how many bytes."""
        error, payload = found.get("error"), found.get("payload", {})
        entry = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),  # when it was answered
            "message": kind,
            **{key: value if type(value) is int else str(value)[:200] for key, value in self._asked.items()},
            "received_bytes": received,
            "sent_bytes": sent,
            "left": sorted(payload) if isinstance(payload, dict) else [],
            "error": error[:LONGEST] if isinstance(error, str) else None,
        }
        try:
            self.site.folder.mkdir(parents=True, exist_ok=True)
            path = self.site.folder / "tasks.jsonl"
            if path.exists() and path.stat().st_size > LOG_BYTES:
                path.replace(path.with_name("tasks.old.jsonl"))
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(entry, separators=(",", ":")) + "\n")
        except OSError as problem:
            log.warning("atoll: %s cannot be written (%s)", self.site.folder / "tasks.jsonl", problem)

    def _answer(self, kind: str, frame: bytes) -> tuple[Payload, bytes]:
        try:
            answer = self._kinds[kind](frame)
            return answer, wire.encode(answer, digests=False)
        except (AtollError, OSError) as problem:
            text = self._disk_full() if is_disk_full(problem) else " ".join(str(problem).split())
            log.warning("atoll: %s", text)
            answer = {"error": text}
        except (Exception, SystemExit) as problem:  # every failure is reported to the server
            log.warning("atoll: %s", words(problem), exc_info=True)
            answer = {"error": words(problem)}
        return answer, wire.encode(answer, digests=False)

    # -- before the first round ------------------------------------------------------------------------------------

    def _hello(self, frame: bytes) -> Payload:
        """The site's name, its versions and the form of its data."""
        message = wire.decode(frame)
        sweep_runs(self.site.folder)
        answer: Payload = {"name": self.site.name, "versions": installed(), "error": None}
        if message["data"] is None:
            return answer
        private, limits = message.get("private") is True, self.site.limits
        refusal = None if limits is None else limits.check_method(message["method"]) or limits.check_privacy(private)
        if refusal is not None:
            return answer | {"error": self._refused(refusal)}
        if private:
            require("privacy")
            answer["private"] = True
        try:
            with _reason_stays(private):
                return answer | {"description": describe_rows(self.site, message["data"])}
        except DataError as problem:
            log.warning("atoll: %s", problem)
            return answer | {"error": str(problem)}

    def _prepare(self, frame: bytes) -> Payload:
        """Sizes, moments for the scaling, and label counts if the site shares them, with noise under `[privacy]`."""
        from atoll.data.files.site import files_digest

        message = wire.decode(frame)
        limits, own = self.site.limits, message.get("privacy")
        refusal = None if limits is None else limits.check_privacy(own is not None)
        if refusal is not None:
            raise SiteError(self._refused(refusal), code="limit-of-site")
        if message.get("run"):
            with run_folder(self.site.folder, message["run"]) as folder:
                announce(folder, own is not None)
        with _reason_stays(own is not None):
            prepared = prepare_rows(self.site, message, own is not None)
        federated = prepared.federated
        digest, shared = federated.digest(), self.site.share_labels and message["share_labels"]
        labels = list(federated.labels(self.site.name)) if shared else None
        if own is None:
            found = prepared.moments()
        else:
            digest = secret_digest(self.site.folder, digest)
            account, split = self._privacy(), split_name(message, digest)
            labels = None if labels is None else account.labels(labels, own["label_noise"], split)
            found = account.moments(prepared, own["bounds"], own["moment_noise"], split)
        changed = changed_since(self.site.folder, files_digest(self.site.data))
        if changed is not None:
            log.warning("atoll: '%s': %s", self.site.data, DATA_CHANGED.format(changed))
        moments = None if found is None else {"count": found.count, "mean": found.mean, "squares": found.squares}
        return {
            "error": None,
            "digest": digest,
            "changed": changed,
            "sizes": dict(federated.sizes(self.site.name)),
            "labels": labels,
            "moments": moments,
            "fill": prepared.fill(),
        }

    def _privacy(self) -> SitePrivacy:
        """The site's own account, under the limits of its file, which may have changed."""
        if self._private is None or self._private.limits != self.site.limits:
            if self._private is not None:
                self._private.close()
            self._private = SitePrivacy(self.site.folder, self.site.limits)
        return self._private

    def _notice(self, frame: bytes) -> Payload:
        """A text from the server, such as why this site is left out of a run."""
        message = wire.decode(frame)
        text = one_line(str(message["text"]))
        log.warning("atoll: message from the server: %s", text)
        self.site.folder.mkdir(parents=True, exist_ok=True)
        (self.site.folder / "notice.txt").write_text(text + "\n", encoding="utf-8")
        return {"error": None}

    # -- in the rounds ---------------------------------------------------------------------------------------------

    def _task(self, frame: bytes) -> Payload:
        outer = wire.decode(frame)
        self._asked |= {"run": outer["run"], "order": outer["order"]}
        with run_folder(self.site.folder, outer["run"]) as folder:
            tensors = self._tensors_in(folder / "tensors")
            try:
                message = wire.decode(outer["message"].tobytes(), tensors)
            except WireError:
                if not tensors.missed:
                    raise
                return {"order": outer["order"], "lacking": True, "error": None}
            try:
                tensors.keep(message["payload"], message["keep"])
                return {"order": outer["order"], **self._work(message, outer, folder)}
            except MemoryLost as problem:
                return {"order": outer["order"], "lost": True, "error": str(problem)}
            except (Exception, SystemExit) as problem:  # every failure of a client is data
                text = self._disk_full() if is_disk_full(problem) else words(problem)
                log.warning("atoll: %s", text)
                return {"order": outer["order"], "error": text}

    def _tensors_in(self, folder: Path) -> TensorFolder:
        """The tensors of a run, in memory if it is the run of the last task."""
        if self._tensors is None or self._tensors.folder != folder:
            self._tensors = TensorFolder(folder)
        self._tensors.missed = set()
        return self._tensors

    def _data_in(self, folder: Path, preparation: Payload) -> ClientData:
        """The site's data for a run, in memory if it is the run of the last task."""
        name = folder, preparation_name(preparation)
        if self._data is None or self._data[0] != name:
            self._data = name, self._load(self.site, folder, preparation)
        return self._data[1]

    def _work(self, message: Payload, outer: Payload, folder: Path) -> Payload:
        if message["client"] != self.site.name:
            raise SiteError(
                f"a task for site '{message['client']}' came to site '{self.site.name}'", code="wrong-site-task"
            )
        about = ("method", "job", "round", "number", "size")
        self._asked |= {key: message[key] for key in about} | {"tensors_bytes": _tensor_bytes(message["payload"])}
        limits, order, private = self.site.limits, outer["order"], work_of(outer, message)
        refusal = self._not_private(folder, message["method"]) if private is None else None
        if refusal is not None:
            return {"error": self._refused(refusal)}
        if private is not None:
            announce(folder, True)
        # Whether rows are private here is this site's finding, not the server's.
        preparation = {**message["preparation"], "private": private is not None}
        with _reason_stays(private is not None):
            data = self._data_in(folder, preparation)
        kept = MemoryFolder(folder / "memory")
        before = None if private is None else self._privacy().stored(private, folder)
        if before is not None:
            return {"error": self._refused(before)} if isinstance(before, str) else before

        def work() -> tuple[Payload, Payload] | str:
            """The reply and the new memory, or why the site refuses the task."""
            job, payload, size = message["job"], message["payload"], TaskSize(**message["size"])
            if limits is not None:
                refusal = limits.check(message["method"], job, payload, size, data.sizes["train"])
                if refusal is not None:
                    return refusal
            if private is not None:
                refusal = self._privacy().charge(private, job, payload, preparation)
                if refusal is not None:
                    return refusal
            name = stream_name(message["seed"], message["round"], message["client"], message["number"])
            return perform(job, payload, kept.read(message["memory"]), data, name, message["device"], size)

        # The check is under the limits too: an architecture may be made to be slow or large to build.
        try:
            done = work() if limits is None else limited(limits, work)
        except TookTooLong:
            assert limits is not None
            self.spent = True
            done = f"the task took longer than limits.minutes = {limits.minutes:g} allows"
        except (MemoryError, RuntimeError) as problem:
            if limits is None or not lacks_memory(problem):
                raise
            done = (
                f"the task needs more than limits.memory = {limits.memory:,} bytes and the "
                f"{WORKING_MEMORY:,} bytes for its work"
            )
        if isinstance(done, str):
            return {"error": self._refused(done)}
        payload, memory = done
        if memory:
            kept.write(order, memory)
        kept.forget_before(message["floor"])
        answer: Payload = {"payload": payload, "remembers": bool(memory), "error": None}
        if private is not None:
            self._privacy().store(private, folder, answer, message.get("since"))
        return answer

    def _not_private(self, folder: Path, method: str) -> str | None:
        """Why a task without `[privacy]` is refused before the site's rows are looked at, or None."""
        limits = self.site.limits
        refusal = None if limits is None else limits.check_method(method) or limits.check_privacy(False)
        if refusal is None and announced(folder):
            return "this run was announced with [privacy], and the task has none"
        return refusal

    def _disk_full(self) -> str:
        return f"site '{self.site.name}': no space is left on the disk of {self.site.folder}; free some there"

    def _refused(self, reason: str) -> str:
        text = f"site '{self.site.name}' refuses: {reason}"
        log.warning("atoll: %s", text)
        return text


@contextmanager
def _reason_stays(private: bool) -> Iterator[None]:
    """Under `[privacy]` the server learns that a site's data cannot be used, but not why: the text may quote a cell."""
    try:
        yield
    except (SiteError, ConfigError, OSError):  # they speak of settings and files, not of rows
        raise
    except Exception as problem:
        if not private:
            raise
        log.warning("atoll: %s", words(problem))
        code = problem.code if isinstance(problem, DataError) else "site-data-unusable"
        raise DataError(
            f"its data cannot be used ({code}); under [privacy] the reason is in the log of the site only", code=code
        ) from None


def limited(limits: Limits, work: Callable[[], Result]) -> Result:
    """What `work` returns or raises, within the site's limits of time and memory."""
    with memory_ceiling(limits.memory + WORKING_MEMORY):
        return within(60 * limits.minutes, work)


def is_disk_full(problem: BaseException) -> bool:
    return isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT)


def _tensor_bytes(payload: Payload) -> int:
    return sum(owner[name].nbytes for owner, name in wire.take_apart(payload).tensors)


@contextmanager
def logging_to_stderr() -> Iterator[None]:
    """The node's own log lines, which begin with `atoll:`, on stderr."""
    handler = logging.StreamHandler()
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
