"""Before the first round: which sites are connected, whether their data has one form, and the scaling they share.

    hello      each site sends its name, its versions and the form of its data
    agreement  the form of the data; sites that differ are left out, and informed why
    prepare    each site splits its rows and sends sizes and, for the scaling, moments
    scaling    computed from the moments, in the order of the sites' names

No row leaves a site. What a site reports is not trusted and is checked. A site that cannot participate gets a line of
text on both sides; whether the run begins without it is the user's decision (`engine.sites`).
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import version

import numpy as np
from flwr.serverapp import Grid

from atoll.core import wire
from atoll.core.messages import PARTS, ClientInfo, Payload, Schema, one_line
from atoll.data.files.agreement import Agreement, DataDescription, agree, differences, parse_description
from atoll.data.preprocess import Moments, Scaling, combined, scaling_of
from atoll.data.rows import PreparationRules, common_statistics, completed, pooled_fill
from atoll.data.settings import DataSettings
from atoll.deploy.flower.messages import ANSWER, HELLO, NOTICE, PREPARE
from atoll.deploy.flower.nodes import Greeting, Nodes
from atoll.deploy.site import DATA_CHANGED
from atoll.errors import DataError, SiteError, WireError
from atoll.federation.engines import Request
from atoll.preparation.value import Preparation
from atoll.privacy.settings import MOST_ROWS

PATIENCE = 1800.0  # seconds for reading a site's data; a node that dies is noticed long before
NOTICE_PATIENCE = 60.0
PAUSE = 0.1
PACKAGES, WORD = 40, 40  # versions that a site may report, and characters of a name or version

Record = Callable[[str, Payload], None]  # called for every site with its name and what it reported


@dataclass(frozen=True)
class Opened:
    """The sites that participate, in the order of their names."""

    preparation: Preparation  # of raw rows, for models that serve all sites
    infos: list[ClientInfo]
    preparations: dict[str, Payload]  # site -> what each of its tasks carries, so that its data can be prepared again
    refused: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # for the user, before the first round

    @property
    def schema(self) -> Schema:
        return self.preparation.row_schema

    def digest(self) -> str:
        """One digest for the data of all sites, from their own."""
        digest = hashlib.sha256()
        for info in self.infos:
            own = self.preparations[info.name]
            digest.update(f"{info.name}={own['digest']};".encode())
            digest.update(own["mean"].tobytes() + own["deviation"].tobytes())
        return digest.hexdigest()

    def rows(self) -> int:
        return sum(sum(info.sizes.values()) for info in self.infos)


class Opening:
    """The exchange of messages before a run."""

    def __init__(self, request: Request, grid: Grid, record: Record = lambda site, reported: None) -> None:
        self._request, self._record = request, record
        self._data = request.data.model_dump(mode="json", exclude_none=True)
        self._private = request.privacy is not None
        self._hello_frame = wire.encode({"data": self._data, "method": request.method, "private": self._private})
        self.nodes = Nodes(grid, greeting=self._hello_frame)
        self.refused: dict[str, str] = {}
        self._changed: dict[str, str] = {}  # site -> what to say of its data, which is not that of its last run

    def run(self, expected: Sequence[str]) -> Opened:
        """Ask the expected sites; without any, all that are connected. Too few of them are a `SiteError`."""
        present = self._gather(expected)
        try:
            reported = self._hello(present)
            while True:
                left = {site: reported[site] for site in reported if site not in self.refused}
                different = differences(left, self._request.data.classes)
                self._refuse({site: problem.text for site, problem in different.items()})
                left = {site: left[site] for site in left if site not in different}
                if not left:
                    self._check_enough(0, expected)
                form = agree(left, self._request.data)
                before = len(self.refused)
                answers = self._prepare({site: present[site] for site in left}, form)
                if len(self.refused) == before:
                    return self._conclude(form, answers, expected)
        finally:
            self._notify_the_refused(present)

    def _gather(self, expected: Sequence[str]) -> dict[str, int]:
        """The nodes of the sites, once all are connected or the wait is over."""
        end = time.monotonic() + self._request.engine.wait
        while True:
            self._receive()
            found = self.nodes.connected()
            there = {site: nodes for site, nodes in found.items() if not expected or site in expected}
            if (expected and set(there) == set(expected)) or time.monotonic() > end:
                break
            time.sleep(PAUSE)
        self._refuse({site: "it is not connected" for site in expected if site not in there})
        twice = {
            site: "two nodes have joined under this name; stop one of them" for site in there if len(there[site]) > 1
        }
        self._refuse(twice)
        for site in twice:
            for node in there[site]:
                self.nodes.messages.send(node, NOTICE, _notice(twice[site]), (NOTICE, ""), ttl=NOTICE_PATIENCE)
        return {site: nodes[0] for site, nodes in there.items() if len(nodes) == 1}

    def _hello(self, present: Mapping[str, int]) -> dict[str, DataDescription]:
        answers = {site: self.nodes.reported[node] for site, node in present.items() if node in self.nodes.reported}
        silent = {site: (node, self._hello_frame) for site, node in present.items() if site not in answers}
        reported = {}
        for site, answer in sorted({**answers, **self._ask(HELLO, silent)}.items()):
            try:
                reported[site] = _checked_hello(site, answer, self._private)
            except DataError as problem:
                self._refuse({site: str(problem)})
            self._record(site, {"versions": _versions(answer), "refused": self.refused.get(site)})
        return reported

    def _prepare(self, agreed: Mapping[str, int], form: Agreement) -> dict[str, Payload]:
        common = {"data": self._data, "agreement": form.model_dump(mode="json"), "seed": self._request.seed}
        asked = {"share_labels": self._request.data.share_labels, "run": self._request.run}
        if self._request.privacy is not None:
            asked["privacy"] = self._request.privacy.model_dump(include={"label_noise", "moment_noise", "bounds"})
        frame = wire.encode({**common, **asked})
        answers: dict[str, Payload] = {}
        for site, answer in sorted(self._ask(PREPARE, {site: (node, frame) for site, node in agreed.items()}).items()):
            try:
                first = next(iter(answers.values()), None)
                answers[site] = _checked_preparation(answer, form, first, self._private)
                if answer["changed"] is not None:
                    self._changed[site] = DATA_CHANGED.format(answer["changed"])
            except DataError as problem:
                self._refuse({site: str(problem)})
        return answers

    def _check_enough(self, found: int, expected: Sequence[str]) -> None:
        needed = self._request.engine.sites or max(len(expected), 1)
        if found < needed:
            why = "; ".join(f"site '{site}': {reason}" for site, reason in sorted(self.refused.items()))
            fewer = f"begin without them: --set engine.sites={found}" if found else "start the sites"
            raise SiteError(
                f"{found} of {needed} sites can participate ({why}); fix that, or {fewer}", code="too-few-sites"
            )

    def _conclude(self, form: Agreement, answers: Mapping[str, Payload], expected: Sequence[str]) -> Opened:
        self._check_enough(len(answers), expected)
        preparation, scaling = _shared(self._request.data, form, answers)
        schema = preparation.row_schema
        common = {
            "data": self._data,
            "agreement": form.model_dump(mode="json"),
            "seed": self._request.seed,
            "mean": scaling.mean,
            "deviation": scaling.deviation,
        }
        infos, preparations = [], {}
        for site, answer in answers.items():
            labels = None if answer["labels"] is None else tuple(answer["labels"])
            infos.append(ClientInfo(site, {part: answer["sizes"][part] for part in PARTS}, schema, labels))
            preparations[site] = {**common, "digest": answer["digest"]}
            self._record(site, {"sizes": answer["sizes"], "changed": self._changed.get(site), "refused": None})
        notes = [f"WARNING: site {site}: {text}" for site, text in self._changed.items() if site in answers]
        withheld = [info.name for info in infos if info.labels is None]
        if self._request.data.share_labels and withheld:
            notes.append(
                f"{', '.join(withheld)}: rows per class stay at the site (share.labels), so the run goes on without "
                "them; its result is another one than that of the same files in one place"
            )
        return Opened(preparation, infos, preparations, dict(self.refused), notes)

    # -- messages ------------------------------------------------------------------------------------------------------

    def _ask(
        self, kind: str, frames: Mapping[str, tuple[int, bytes]], patience: float = PATIENCE
    ) -> dict[str, Payload]:
        """The answer of each site; a failure is an answer with an error."""
        answers: dict[str, Payload] = {}
        for site, (node, frame) in frames.items():
            if not self.nodes.messages.send(node, kind, frame, (kind, site), ttl=patience):
                answers[site] = {"error": "the SuperLink did not accept the message"}
        end = time.monotonic() + patience
        while len(answers) < len(frames) and time.monotonic() < end:
            for site, answer in self._receive(kind).items():
                answers[site] = answer
            time.sleep(PAUSE)
        return {site: answers.get(site, {"error": f"no answer within {patience:g} s"}) for site in frames}

    def _receive(self, kind: str = "") -> dict[str, Payload]:
        answers: dict[str, Payload] = {}
        for arrived in self.nodes.messages.collect():
            if isinstance(arrived.about, Greeting):
                self.nodes.greeted(arrived)
            elif arrived.about[0] == kind:
                try:
                    answer = wire.decode(arrived.frame, digests=False, limits=ANSWER) if arrived.error is None else {}
                except WireError as problem:
                    answer = {"error": str(problem)}
                answers[arrived.about[1]] = {**answer, **({"error": arrived.error} if arrived.error else {})}
        return answers

    def _notify_the_refused(self, present: Mapping[str, int]) -> None:
        """Why each is left out, in its own log. Their answers are waited for: a node drops messages of a run that is
        over, and without enough sites this one ends at once."""
        frames = {site: (present[site], _notice(why)) for site, why in self.refused.items() if site in present}
        self._ask(NOTICE, frames, NOTICE_PATIENCE)

    def _refuse(self, reasons: Mapping[str, str]) -> None:
        for site, reason in reasons.items():
            self.refused.setdefault(site, one_line(reason))
            self._record(site, {"refused": self.refused[site]})


def _notice(reason: str) -> bytes:
    return wire.encode({"text": f"left out of the run: {reason}"})


def _versions(answer: Payload) -> dict[str, str]:
    """The versions that a site reports: names and versions of packages, as far as they are text."""
    found = answer.get("versions")
    texts = [pair for pair in found.items() if isinstance(pair[1], str)] if isinstance(found, dict) else []
    return {one_line(name)[:WORD]: one_line(version)[:WORD] for name, version in texts[:PACKAGES]}


def _checked_hello(site: str, answer: Payload, private: bool) -> DataDescription:
    if isinstance(answer.get("error"), str):
        raise DataError(answer["error"], code="site-reported-error")
    if answer.get("name") != site:
        raise DataError(
            f"its node says that it is '{str(answer.get('name'))[:WORD]}'; join with the bundle of '{site}'",
            code="wrong-site-name",
        )
    theirs, ours = _versions(answer).get("atoll"), version("atoll")
    if theirs != ours:
        raise DataError(
            f"it has Atoll {theirs}, the server {ours}; install the same version on both", code="version-differs"
        )
    if private and answer.get("private") is not True:
        raise DataError(
            "its Atoll cannot keep [privacy]; install the server's version there, with: pip install 'atoll[privacy]'",
            code="site-not-private",
        )
    return parse_description(answer.get("description"))


def _checked_preparation(answer: Payload, form: Agreement, first: Payload | None, private: bool) -> Payload:
    """What a site reports of its prepared data; anything that could break the server or another site is refused."""
    if isinstance(answer.get("error"), str):
        raise DataError(answer["error"], code="site-reported-error")
    try:
        sizes = {part: answer["sizes"][part] for part in PARTS}
        ok = all(type(size) is int and 0 <= size < MOST_ROWS for size in sizes.values()) and sizes["train"] >= 2
        labels, inputs = answer["labels"], form.preparation.row_schema.shape[0]
        ok = ok and isinstance(answer["digest"], str)
        ok = ok and (answer["changed"] is None or bool(date.fromisoformat(answer["changed"])))
        if labels is not None:
            ok = ok and len(labels) == len(form.classes) and all(type(count) is int for count in labels)
            ok = ok and min(labels) >= 0 and (private or sum(labels) == sizes["train"]) and max(labels) <= MOST_ROWS
        found, fill = answer["moments"], answer["fill"]
        if fill is not None:
            ok = ok and fill.dtype == np.float32 and fill.shape == (inputs,)
            ok = ok and bool(np.isfinite(fill).all())
        if found is not None:
            arrays = (found["mean"], found["squares"])
            # Images count each pixel of a channel.
            values = sizes["train"] * math.prod(form.preparation.row_schema.shape[1:])
            ok = ok and type(found["count"]) is int and found["count"] == values
            ok = ok and all(one.dtype == np.float64 and one.shape == (inputs,) for one in arrays)
            ok = ok and all(bool(np.isfinite(one).all()) for one in arrays) and bool((arrays[1] >= 0).all())
            ok = ok and bool((np.abs(arrays[0]) < 1e30).all() and (arrays[1] / found["count"] < 1e60).all())
    except (KeyError, TypeError, AttributeError, ValueError, IndexError):
        ok = False
    if not ok:
        raise DataError(
            "what it reports of its prepared data is not possible; does it have the server's version of Atoll?",
            code="preparation-invalid",
        )
    if first is not None and [found is None, fill is None] != [first[key] is None for key in ("moments", "fill")]:
        raise DataError("it scales its data in another way than the other sites", code="scaling-differs")
    return answer


def _shared(settings: DataSettings, form: Agreement, answers: Mapping[str, Payload]) -> tuple[Preparation, Scaling]:
    """What all sites have in common: the preparation of raw rows for a global model, and its scaling (empty where the
    sites need none from the server)."""
    every = list(answers.values())
    rules = decided_rules(settings, form.preparation.kind)
    nothing = np.zeros((0, 0), dtype=np.float32)
    scaling = Scaling(rules.logarithm, nothing, nothing)
    if every[0]["moments"] is not None:
        each = [Moments(one["moments"]["count"], one["moments"]["mean"], one["moments"]["squares"]) for one in every]
        scaling = scaling_of([combined(each)], rules.logarithm)
    fill = None
    if rules.missing == "zero":
        fill = np.zeros(len(form.preparation.inputs), np.float32)
    elif every[0]["fill"] is not None:
        fill = pooled_fill(np.stack([one["fill"] for one in every]), np.array([one["sizes"]["train"] for one in every]))
    return completed(form.preparation, rules, common_statistics(rules, fill, scaling)), scaling


def decided_rules(settings: DataSettings, kind: str) -> PreparationRules:
    """The rules by which every site prepares its rows: the settings, with the defaults for own data."""
    return PreparationRules(
        split=settings.split or (0.6, 0.2, 0.2),
        blocks=settings.blocks or "random",
        scale=settings.scale or ("federated" if kind == "table" else "none"),
        logarithm=bool(settings.logarithm),
        missing=settings.missing or "refuse",
    )
