"""Fair rivals of a search: hand-made networks and random search, on the same data, with the same start rule, the same
tuning and the same client cost.

| rival       | what it is                                                                                       |
|-------------|--------------------------------------------------------------------------------------------------|
| `standard`  | the standard network of the search's kind, by federated averaging                                |
| `paper`     | moefl: the same at the learning rate of its paper, 0.1 in every round, without any choice         |
| `like-high` | the same at the width that needs no more MACs than the search's High; `like-knee` likewise       |
| `logistic`  | tables: logistic regression                                                                      |
| `random`    | the same search with networks that are drawn, not bred, where the method has that                |
| `alone`     | personal networks: the standard network on each client by itself                                 |
| `fine-tuned`| personal networks: federated averaging, then each client goes on alone                           |

A rival gets as many rounds as the client MACs of the search with its seed pay for, where there is one. Only `random`
gets the rounds of the search instead, because the cost of a round depends on the networks that are drawn. What each
rival has cost is listed.

The learning rate of a rival is chosen from a grid by validation error, on the first seed with a third of the rounds;
the cost of the grid is listed, outside the budget. Where clients have no validation rows, the runs of the grid, and
only these, set a fifth of the training rows aside for it: test rows choose nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from atoll import spaces
from atoll.algorithms.sampling import participants
from atoll.config import Experiment, Raw, merge, read_file, resolve, settings_table
from atoll.core.messages import ClientInfo
from atoll.data import DataSettings, load
from atoll.data.loading import settle
from atoll.errors import ConfigError, RunDirectoryError, nearest
from atoll.methods.base import TrainingConfig
from atoll.run.carried import carried_privacy
from atoll.run.reader import Run
from atoll.run.sweep import RunOptions, sweep

RATES = (0.03, 0.1, 0.3)
# What a rival takes over of the search's training: all but the learning rate, which is chosen, and its schedule.
TRAINING = (
    *("fraction", "epochs", "batch", "momentum", "server_momentum"),
    *(name for name in TrainingConfig.model_fields if name != "rounds"),
)
# Tables of the search that a rival takes over. `[stop]` is not among them: the rounds of a rival are its budget.
CARRIED = ("seed", "patience", "data", "engine", "simulation", "robust", "faults")
CHOICES = ("confirm", "guests")  # settings of `[robust]` about choices between networks, which only a search makes
PHASES = ("shared", "generations", "warmup", "retrain", "start_rounds")  # settings that are parts of the rounds
PAPER_RATE = 0.1  # of the standard network in the paper of moefl
LAST_ALONE = 0.2  # of the rounds of `fine-tuned`
SET_ASIDE = 0.2  # of the training rows, for the choice of a learning rate where there are no validation rows
IMPOSSIBLE = ("no-rival-small-enough", "budget-too-small")  # codes of rivals that a search cannot have


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
    """With this share of the rounds, of those of each phase and of `stop.rounds`. It takes as many rounds more as it
    needs to leave one for every phase."""
    settings, table = whole.settings, settings_table(whole.method)
    rounds = max(1, round(share * settings.rounds))
    while True:
        own = {name: value for name in PHASES if (value := getattr(settings, name, None))}
        own = {name: max(1, round(value * rounds / settings.rounds)) for name, value in own.items()}
        stop = {} if whole.stop.rounds is None else {"rounds": min(rounds, max(1, round(share * whole.stop.rounds)))}
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
            if wanted or problem.code not in IMPOSSIBLE:
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
        if "search" not in self.own:
            return None
        raw = self._raw(self.before["method"], {**self.own, "search": "random"})
        if self.run.result["stopped"]:  # before its last round: the same phases, cut there
            raw["stop"] = {"rounds": self.run.result["rounds"]}
        return Rival("random", raw)

    def personal(self, name: str, shared: bool) -> Rival | None:
        if not any(c.get("owner") for c in self.run.result["candidates"]):
            return None
        settings: Raw = {**self._training(), "fraction": 1.0, "model": "mlp", "hidden": self.standard["hidden"]}
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
        cost, share = spaces.cost(architecture), participants(len(self.clients), own.fraction) / len(self.clients)
        each = sum(_round_macs(info, cost, own.epochs) for info in self.clients) * share
        rounds = math.floor(self.budget / each)
        if rounds < least:
            raise ConfigError(
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


def _round_macs(info: ClientInfo, cost: spaces.Cost, epochs: int) -> int:
    return spaces.training_macs(cost, info.sizes["train"], epochs) + cost.macs * info.sizes["validation"]


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
        raise ConfigError(
            f"no {architecture['model']} is as small as {macs:,.0f} MACs: the smallest has "
            f"{spaces.cost(found).macs:,}; leave this rival out with --rivals",
            code="no-rival-small-enough",
        )
    return found


def rates_from(text: str) -> list[float]:
    """`0.03,0.1,0.3` as numbers."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < rate < math.inf for rate in found):
        raise ConfigError(f"--rates {text}: write learning rates above 0: 0.03,0.1,0.3", code="invalid-rates")
    return found


@dataclass(frozen=True)
class Tuned:
    """The learning rate that had the lowest validation error, and what finding it cost the clients."""

    rate: float
    errors: dict[float, float]
    macs: int
    set_aside: bool = False  # the runs had validation rows that the data does not have: a fifth of the training rows


def tune(
    rival: Rival, rates: Sequence[float], out: Path, data_dir: Path | None = None, watch: RunOptions | None = None
) -> Tuned:
    """The best of these learning rates, on the rival's own seed with a third of its rounds.

    The error is that on validation rows: of the best network, or of personal networks the mean over their owners.
    """
    raw, set_aside = with_validation_rows(rival.raw, data_dir)
    rival = replace(rival, raw=raw)
    errors, macs = {}, 0
    for rate in rates:
        experiment = rival.experiment(rate, share=1 / 3)
        (run,) = sweep(
            experiment,
            [experiment.seed],
            out / f"lr-{rate:g}",
            data_dir=data_dir,
            watch=watch or (lambda _: {}),
        )
        errors[rate], macs = _validation_error(run), macs + int(run.result["ledger"]["client_macs"])
    return Tuned(min(errors, key=lambda rate: errors[rate]), errors, macs, set_aside)


def with_validation_rows(raw: Raw, data_dir: Path | None) -> tuple[Raw, bool]:
    """The experiment with validation rows to choose by, and whether they were set aside from the training rows."""
    experiment = resolve(raw)
    table = settings_table(experiment.method)
    if getattr(experiment.settings, "with_validation", False):
        raw = merge(raw, {table: {"with_validation": False}})
    if experiment.engine.name not in ("local", "ray"):  # only sites know their rows; see `_validation_error`
        return raw, False
    federated, decided = settle(experiment.data, experiment.seed, data_dir)
    if any(federated.info(name).sizes["validation"] for name in federated.names) or decided.split is None:
        return raw, False
    if decided.blocks == "official":
        raise ConfigError(
            "data.blocks = 'official': the published parts have no validation rows to choose a learning rate by; give "
            "one rate (--rates 0.1), or other blocks",
            code="no-validation-rows",
        )
    train, _, test = decided.split
    split = [round((1 - SET_ASIDE) * train, 9), round(SET_ASIDE * train, 9), test]
    return merge(raw, {"data": {"split": split}}), True


def _validation_error(run: Run) -> float:
    holders = [name for name, rows in run.manifest["clients"].items() if rows.get("validation")]
    if not holders:
        raise ConfigError(
            f"{run.path}: no client has validation rows to choose a learning rate by; add some, or give one rate",
            code="no-validation-rows",
        )
    candidates = run.result["candidates"]
    own = [c["objectives"]["error"] for c in candidates if c.get("owner") in holders]
    return sum(own) / len(own) if own else float(min(c["objectives"].get("error", 1.0) for c in candidates))


class RivalRuns(NamedTuple):
    """The runs of one rival, or the searches that it cannot be made for, and why."""

    name: str
    tuned: Tuned | None
    runs: list[Run]
    problem: str = ""
    without: tuple[Path, ...] = ()  # these searches

    def cost_share(self, searches: Mapping[int, Run]) -> float:
        """The client MACs of its runs, as a share of those of the searches."""
        spent = sum(int(run.result["ledger"]["client_macs"]) for run in self.runs)
        paid = sum(int(searches[int(run.manifest["seed"])].result["ledger"]["client_macs"]) for run in self.runs)
        return spent / paid


def run_rivals(
    searches: Mapping[int, Run],
    out: Path,
    *,
    rates: Sequence[float] = RATES,
    wanted: Sequence[str] | None = None,
    workers: int | None = None,
    data_dir: Path | None = None,
    watch: RunOptions = lambda folder: {},
) -> Iterator[RivalRuns]:
    """Tune and run the rivals one after the other, in folders of `out`; what is there already is used again.

    `searches` gives each seed the search whose client MACs its rivals get. Learning rates are chosen with the first.
    A rival that cannot exist for some searches, and was not asked for by name, comes first: with a problem instead of
    runs, before anything is trained. The other searches have it.
    """
    engine = {} if workers is None else {"engine": {"workers": workers}}
    made: dict[Path, dict[str, Rival]] = {}
    for search in searches.values():
        if search.path not in made:
            rivals = rivals_of(search, data_dir, wanted)
            made[search.path] = {one.name: replace(one, raw=merge(one.raw, engine)) for one in rivals}
    problems: dict[tuple[str, str], list[Path]] = {}
    for path, own in made.items():
        for one in own.values():
            if one.problem:
                problems.setdefault((one.name, one.problem), []).append(path)
    for (name, problem), paths in problems.items():
        yield RivalRuns(name, None, [], problem, tuple(paths))
    if all(one.problem for own in made.values() for one in own.values()):
        raise ConfigError(
            f"{', '.join(map(str, made))}: no rival is left to train; compare a longer search", code="budget-too-small"
        )
    for name in dict.fromkeys(name for own in made.values() for name in own):
        found = {seed: made[search.path].get(name) for seed, search in searches.items()}
        possible = {seed: one for seed, one in found.items() if one is not None and not one.problem}
        if name == "like-knee" and not wanted and all(_knee_is_high(made[searches[seed].path]) for seed in possible):
            continue  # it would be `like-high` once more
        if possible:
            tuned, rate = _rate(next(iter(possible.values())), rates, out, data_dir, watch)
            runs = [
                run
                for seed, one in possible.items()
                for run in sweep(one.experiment(rate), [seed], out / name, data_dir=data_dir, watch=watch)
            ]
            yield RivalRuns(name, tuned, runs)


def _knee_is_high(rivals: Mapping[str, Rival]) -> bool:
    """Whether `like-knee` is the network of `like-high`."""
    high, knee = (rivals[name].raw["retrain"]["networks"][name] for name in ("like-high", "like-knee"))
    return bool(high == knee)


def _rate(
    rival: Rival, rates: Sequence[float], out: Path, data_dir: Path | None, watch: RunOptions
) -> tuple[Tuned | None, float | None]:
    """The learning rate of a rival, and how it was chosen if it was."""
    if rival.table == "moefl" or rival.rate is not None:  # learning rates are among the genes of moefl
        return None, rival.rate
    if len(rates) <= 1:
        return None, rates[0] if rates else None
    tuned = tune(rival, rates, out / "tuning" / rival.name, data_dir, watch)
    return tuned, tuned.rate
