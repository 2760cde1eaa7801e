"""Which rivals a search has, and the experiments that they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from atoll import spaces
from atoll.clients import round_macs
from atoll.config import Experiment, Raw, merge, read_file, resolve, settings_table
from atoll.data import DataSettings, load
from atoll.errors import ConfigError, RunDirectoryError, nearest
from atoll.methods.base import TrainingConfig
from atoll.run.carried import carried_privacy
from atoll.run.reader import Run

# What a rival takes over of the search's training: all but the learning rate, which is chosen, and its schedule.
TRAINING = (
    *("fraction", "epochs", "batch", "momentum", "server_momentum"),
    *(name for name in TrainingConfig.model_fields if name != "rounds"),
)
# Tables of the search that a rival takes over. `[stop]` is not among them: a rival's budget is that of the search.
CARRIED = ("seed", "patience", "data", "engine", "simulation", "robust", "faults")
CHOICES = ("confirm", "guests")  # settings of `[robust]` about choices between networks, which only a search makes
PAPER_RATE = 0.1  # of the standard network in the paper of moefl
LAST_ALONE = 0.2  # of the rounds of `fine-tuned`
MORE = 4  # times the rounds of the search that `random` may take, should what it draws be cheap


class NoSuchRival(ConfigError):
    """A rival that a search cannot have."""


@dataclass(frozen=True)
class Rival:
    """An experiment that competes with a search, without its learning rate."""

    name: str
    raw: Raw
    rate: float | None = None  # a learning rate that is not chosen
    problem: str = ""  # why there can be no such rival; then there is no experiment

    @property
    def table(self) -> str:
        return settings_table(self.raw["method"])

    def experiment(self, rate: float | None = None, share: float = 1.0) -> Experiment:
        """With this learning rate (None: its own), for this share of its rounds."""
        whole = resolve(self.raw)
        own: dict[str, Any] = {} if rate is None else {"lr": rate}
        if rate is not None and "lr" not in type(whole.settings).model_fields:
            raise ConfigError(f"method {whole.method} has no learning rate to choose", code="no-learning-rate")
        raw = merge(self.raw, {self.table: own})
        return resolve(raw) if share == 1 else _shortened(raw, whole, share)


def _shortened(raw: Raw, whole: Experiment, share: float) -> Experiment:
    """With this share of the rounds, of those of each phase, and of what `[stop]` allows of rounds and MACs. It takes
    as many rounds more as it needs to leave one for every phase."""
    settings, table = whole.settings, settings_table(whole.method)
    rounds = max(1, round(share * settings.rounds))
    limits = {name: limit for name in ("rounds", "macs") if (limit := getattr(whole.stop, name)) is not None}
    while True:
        own = {name: value for name in settings.round_parts if (value := getattr(settings, name))}
        own = {name: max(1, round(value * rounds / settings.rounds)) for name, value in own.items()}
        stop = {name: max(1, round(share * limit)) for name, limit in limits.items()}
        stop |= {"rounds": min(rounds, stop["rounds"])} if "rounds" in stop else {}
        try:
            return resolve(merge(raw, {table: own | {"rounds": rounds}, "stop": stop}))
        except ConfigError:
            if rounds >= settings.rounds:
                raise
            rounds += 1


def rivals_of(run: Run, data_dir: Path | None = None, wanted: Sequence[str] | None = None) -> list[Rival]:
    """The rivals of a finished search, each with the rounds that the search's client MACs pay for.

    A rival that cannot exist is an error if it is `wanted`, else it has a `problem`.
    """
    before = read_file(run.path / "config.toml")
    method = run.manifest["method"]
    if before["data"].get("name") in ("sites", "in-memory"):
        raise RunDirectoryError(
            f"{run.path}: rivals are trained on data that can be read here, not on that of "
            f"'{before['data']['name']}'; run the search on a data set or a folder",
            code="data-not-readable",
        )
    if method not in ("realtime", "offline", "moefl", "nevofed"):
        raise RunDirectoryError(
            f"{run.path}: method {method} has no rivals of this kind; `atoll retrain` trains networks beside its own",
            code="no-rivals",
        )
    make = _Rivals(run, before, data_dir)
    known: dict[str, Callable[[], Rival | None]] = {
        "standard": lambda: make.averaged("standard", make.standard),
        "paper": make.paper,
        "like-high": lambda: make.like("like-high", "high"),
        "like-knee": lambda: make.like("like-knee", "knee"),
        "logistic": make.logistic,
        "random": make.random,
        "alone": lambda: make.personal("alone", shared=False),
        "fine-tuned": lambda: make.personal("fine-tuned", shared=True),
    }
    for name in wanted or ():
        if name not in known:
            raise ConfigError(f"--rivals {name}: unknown; {nearest(name, known)}", code="unknown-rival")
    found = []
    for name in wanted or known:
        try:
            found.append(known[name]())
        except ConfigError as problem:
            if wanted or not isinstance(problem, NoSuchRival):
                problem.args = (f"{run.path}: {name}: {problem}",)
                raise  # with its code
            found.append(Rival(name, {}, problem=str(problem)))
    return [rival for rival in found if rival is not None]


class _Rivals:
    """What the rivals of one search have in common."""

    def __init__(self, run: Run, before: Mapping[str, Any], data_dir: Path | None) -> None:
        self.run, self.before = run, before
        self.own = before.get(settings_table(before["method"]), {})
        federated = load(DataSettings.model_validate(before["data"]), before["seed"], data_dir)
        self.schema = federated.schema
        self.clients = [federated.info(name) for name in federated.names]
        self.budget = int(run.result["ledger"]["client_macs"])
        self.standard = self._standard()

    def averaged(self, name: str, architecture: dict[str, Any]) -> Rival:
        """Federated averaging of one network, from scratch."""
        settings: Raw = {**self._training(), "schedule": "cosine", "networks": {name: architecture}}
        rounds = self._rounds("retrain", settings, architecture)
        settings |= {"rounds": rounds, "test_every": max(1, rounds // 10)}
        return Rival(name, self._raw("retrain", settings))

    def paper(self) -> Rival | None:
        if self.run.manifest["method"] != "moefl":
            return None
        rival = self.averaged("paper", self.standard)
        return replace(rival, raw=merge(rival.raw, {"retrain": {"schedule": "decay"}}), rate=PAPER_RATE)

    def like(self, name: str, pick: str) -> Rival | None:
        """The standard network at the largest width that needs no more MACs than a pick of the search."""
        found = next((c for c in self.run.result["candidates"] if pick in c["picks"]), None)
        if found is None or self.run.manifest["method"] == "nevofed":
            return None
        return self.averaged(name, scaled(self.standard, found["objectives"]["macs"]))

    def logistic(self) -> Rival | None:
        if self.schema.kind != "table":
            return None
        sparse = self.run.manifest["method"] == "moefl"  # then it starts by the same rule as sparse networks
        data = self.schema.shape, self.schema.outputs
        network = standard_architecture("moefl" if sparse else "nevofed", {"network": "mlp"}, *data)
        return self.averaged("logistic", network | {"hidden": []})

    def random(self) -> Rival | None:
        """The same phases, with as many rounds of the search as the budget allows."""
        if "search" not in self.own:
            return None
        settings: Any = resolve(dict(self.before), complete=True).settings
        closing = settings.closing
        searching, generation = settings.rounds - closing, getattr(settings, "fitness_rounds", 1)
        per_round = [int(row["client_macs"]) for row in self.run.result["ledger"]["per_round"]]
        rounds, spent = self.run.result["rounds"], per_round[:generation]
        if rounds < generation or sum(spent) > self.budget:
            raise NoSuchRival(
                f"the search took {self.budget:,} client MACs, and a generation of it {sum(spent):,} in {generation} "
                "rounds; compare a longer search",
                code="budget-too-small",
            )
        searching *= 1 if "privacy" in self.before else MORE  # a privacy budget is for all rounds that are planned
        own = {**self.own, "search": "random", "rounds": searching + closing}
        if self.before["method"] == "offline":
            own["generations"] = searching
        elif closing:
            own["finish"] = closing / own["rounds"]
        limit = self.budget - sum(per_round[rounds:])  # its networks are measured at its end, too
        return Rival("random", self._raw(self.before["method"], own) | {"stop": {"macs": limit}})

    def personal(self, name: str, shared: bool) -> Rival | None:
        if not any(c.get("owner") for c in self.run.result["candidates"]):
            return None
        settings: Raw = {**self._training(), "fraction": 1.0, "model": "mlp", "hidden": self.standard["hidden"]}
        settings["schedule"] = "cosine"
        rounds = self._rounds("personal", settings, self.standard, least=2 if shared else 1)
        settings["rounds"] = rounds
        if shared:
            settings["shared"] = rounds - max(1, round(LAST_ALONE * rounds))
        return Rival(name, self._raw("personal", settings))

    def _standard(self) -> dict[str, Any]:
        return standard_architecture(self.run.manifest["method"], self.own, self.schema.shape, self.schema.outputs)

    def _training(self) -> Raw:
        return {name: self.own[name] for name in TRAINING if self.own.get(name) is not None}

    def _rounds(self, method: str, settings: Raw, architecture: Mapping[str, Any], least: int = 1) -> int:
        """Rounds of training and validation by this method that cost no more client MACs than the search."""
        own: Any = resolve(self._raw(method, {**settings, "rounds": 1})).settings
        each = round_macs([spaces.cost(architecture)], self.clients, own.fraction, own.epochs)
        rounds = math.floor(self.budget / each)
        if rounds < least:
            raise NoSuchRival(
                f"the search took {self.budget:,} client MACs, {least} rounds of this rival need {least * each:,.0f}; "
                "compare a longer search",
                code="budget-too-small",
            )
        return rounds

    def _raw(self, method: str, settings: Raw) -> Raw:
        shared = {key: self.before[key] for key in CARRIED if key in self.before}
        if method != self.before["method"]:
            robust = shared.get("robust", {})
            shared["robust"] = {key: value for key, value in robust.items() if key not in CHOICES}
        return {"method": method, **shared, **carried_privacy([self.run]), method: settings}


def standard_architecture(method: str, own: Mapping[str, Any], shape: Sequence[int], classes: int) -> dict[str, Any]:
    """The hand-made network of a search's kind: a ResNet18 of the same widths for images, an MLP for tables, the
    paper's network for sparse ones. `own` are the settings of the method."""
    data = {"input": list(shape), "classes": classes}
    if method == "moefl":
        from atoll.spaces.sparse import space as sparse

        return sparse.standard({"model": own["network"], **data})
    if method == "nevofed":
        return {"space": "fixed", "model": "mlp", "hidden": [32, 16], **data}
    if len(shape) == 1:
        return {"space": "fixed", "model": "mlp", "hidden": list(own.get("widths", (200, 200))), **data}
    widths = {"widths": stages(own["channels"])} if isinstance(own.get("channels"), list) else {}
    norm = {"norm": own["norm"]} if own.get("norm", "batch") != "batch" else {}
    return {"space": "fixed", "model": "resnet18", **widths, **norm, **data}


def stages(channels: Sequence[int]) -> list[int]:
    """The four widths of a ResNet18 from the channels of choice blocks: the different ones, the last repeated."""
    different = list(dict.fromkeys(channels))[:4]
    return different + different[-1:] * (4 - len(different))


def scaled(architecture: dict[str, Any], macs: float) -> dict[str, Any]:
    """The architecture with all widths multiplied by the largest factor that needs no more than these MACs."""
    keys = [key for key in ("widths", "filters", "hidden") if key in architecture]

    def at(factor: float) -> dict[str, Any]:
        return architecture | {key: [max(1, round(width * factor)) for width in architecture[key]] for key in keys}

    low, high = 0.0, 4.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if spaces.cost(at(middle)).macs <= macs else (low, middle)
    found = at(low)
    if spaces.cost(found).macs > macs:
        raise NoSuchRival(
            f"no {architecture['model']} is as small as {macs:,.0f} MACs: the smallest has "
            f"{spaces.cost(found).macs:,}; leave this rival out with --rivals",
            code="no-rival-small-enough",
        )
    return found
