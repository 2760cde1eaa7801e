"""Given networks trained by federated averaging, side by side in one run: how chosen ones are validated, and tuned.

The papers validate what a search found by training it from scratch, on data of another partition too, beside a standard
network. `atoll retrain RUN --pick ...` fills in the networks from a run of any method; an experiment file may also
write them down (the sparsity study of the multi-objective paper does). Sparse networks are trained by modified SET, all
others by plain federated averaging; both are in `clients/training_round.py`.

With `--from found` training resumes from the weights that the search left: the FL-tune of federated NetAdapt
(Yuan et al., section 4.4). With `groups` they are trained in parallel, each on a group of clients of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from atoll import spaces
from atoll.algorithms.sampling import choose, partition
from atoll.clients import (
    Counted,
    FederatedModel,
    LocalTraining,
    calibrated_each,
    count_correct,
    count_tests,
    fresh,
    resumed,
    train_models,
)
from atoll.errors import ArchitectureError, ConfigError, nearest
from atoll.methods.base import (
    Candidate,
    ClientInfo,
    Federation,
    Generator,
    Method,
    Metrics,
    Part,
    PrivateWork,
    Schema,
    Tensors,
    TrainingConfig,
)
from atoll.rng import stream
from atoll.spaces.sparse import space as sparse
from atoll.store.weights import found_weights

LARGEST = 10**9  # weights of a network: no machine that trains federations of them has room for more
STANDARD = {"space": "sparse", "model": "mlp", "hidden": [200, 200], "epsilon": 10**9, "graph": 0}  # fully connected


class RetrainConfig(TrainingConfig):
    """The networks, and how they are trained."""

    # Name -> architecture; input and classes are the data's. `atoll retrain` fills them in from a run.
    networks: dict[str, dict[str, Any]] = Field(default={"standard": STANDARD}, min_length=1)
    fraction: float = Field(default=1.0, gt=0, le=1)  # C
    epochs: int = Field(default=1, ge=1)  # E
    batch: int = Field(default=50, ge=2)  # B
    lr: float = Field(default=0.1, gt=0)  # of networks that do not bring their own
    schedule: Literal["decay", "cosine"] = "decay"  # of the learning rate; cosine: from lr to 0 over all rounds
    decay: float = Field(default=1.0, gt=0, le=1)  # of the learning rate, per round, with schedule "decay"
    momentum: float = Field(default=0.0, ge=0, lt=1)
    server_momentum: float = Field(default=0.0, ge=0, lt=1)  # FedAvgM: of the averaged networks' changes
    # Name -> model file of a run, whose weights this network starts from; the others start from scratch.
    start: dict[str, str] = Field(default={})
    groups: int = Field(default=0, ge=0)  # number of client groups, one network on each in turn; 0: all on all
    balance: float = Field(default=1.1, ge=1)  # of the groups' sizes, see algorithms/sampling.py
    with_validation: bool = False  # train on validation rows too; then no round can be chosen by them
    client_accuracy: bool = False  # also the mean accuracy of the clients' own networks on their own training rows
    test_every: int = Field(default=1, ge=0)  # rounds between test evaluations, for the report; 0: only at the end

    @field_validator("networks")
    @classmethod
    def _named(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        if "" in value:
            raise ConfigError("networks: one of them has an empty name; give each a name of its own", code="empty-name")
        return value

    def fitted(self, schema: Schema, clients: int) -> Self:
        if self.groups > clients:
            raise ConfigError(
                f"groups = {self.groups}: there are only {clients} clients; use {clients} or fewer groups",
                code="impossible-group-count",
            )
        self.augmentation.check(schema)
        fitted = self.model_copy(update={"networks": self.for_data(schema)})
        for name, file in self.start.items():
            if name not in fitted.networks:
                raise ConfigError(
                    f"start.{name}: there is no such network; {nearest(name, fitted.networks)}", code="unknown-network"
                )
            found_weights(file, fitted.networks[name])  # a file that does not fit is refused before a run starts
        return fitted

    def for_data(self, schema: Schema) -> dict[str, dict[str, Any]]:
        """The networks with this data's input and classes."""
        data = {"input": list(schema.shape), "classes": schema.outputs}
        networks = {name: {**arch, **data} for name, arch in self.networks.items()}
        for name, arch in networks.items():
            try:
                module = spaces.skeleton(arch)
            except ArchitectureError as problem:
                problem.args = (f"networks.{name}: {problem}",)
                raise  # with its code
            size = sum(weight.numel() for weight in module.parameters())
            if size > LARGEST:
                room = f"a network of {size:,} weights needs {4 * size / 1e9:,.0f} GB"
                raise ArchitectureError(f"networks.{name}: {room}; take a smaller one", code="network-too-large")
        return networks


@dataclass(frozen=True)
class RetrainState:
    round: int
    networks: dict[str, Any]  # name -> weights, along the graph for sparse networks
    connections: dict[str, float]  # Omega of the last round
    diverged: list[str]
    best: dict[str, Any]  # name -> weights, error and number of the round with the lowest validation error so far
    velocities: dict[str, Any] = field(default_factory=dict)  # name -> velocity of `server_momentum`, if it is on


class Retrain(Method[RetrainState]):
    """The server's side."""

    name: ClassVar[str] = "retrain"
    metrics_kind: ClassVar[str] = "networks"
    summary: ClassVar[str] = "train given networks side by side: the validation, or the last tuning, of what was found"
    Config: ClassVar[type[RetrainConfig]] = RetrainConfig
    State: ClassVar[type[RetrainState]] = RetrainState
    config: RetrainConfig

    def __init__(self, config: RetrainConfig, schema: Schema) -> None:
        super().__init__(config.model_copy(update={"networks": config.for_data(schema)}), schema)
        names = ("epochs", "batch", "lr", "decay", "momentum", "weight_decay", "client_accuracy", "server_momentum")
        cosine = config.rounds if config.schedule == "cosine" else 0
        own = {name: getattr(config, name) for name in names}
        extras = config.extras() | ({"with_validation": True} if config.with_validation else {})
        self.training = LocalTraining(**own, cosine=cosine, extras=extras)

    @property
    def measured_on(self) -> str:
        return "test rows" if self.config.with_validation else "validation rows"

    def init(self, federation: Federation, rng: Generator) -> RetrainState:
        # One stream a network: adding or leaving out another one does not change how it starts.
        seed = int(rng.integers(2**62))
        started = []
        for name, arch in self.config.networks.items():
            if name in self.config.start:
                started.append(resumed(name, arch, found_weights(self.config.start[name], arch)))
            else:
                started.append(fresh(name, arch, stream(seed, "network", name)))
        return _state(0, started, {})

    def step(self, state: RetrainState, federation: Federation, rng: Generator) -> tuple[RetrainState, Metrics]:
        infos = {info.name: info for info in federation.clients()}
        chosen = [infos[name] for name in choose(list(infos), self.config.fraction, rng)]
        own = self._own_clients(chosen)
        every, number = self.config.test_every, state.round + 1
        parts: list[Part] = ["test"] if every and (number % every == 0 or number >= self.config.rounds) else []
        parts += [] if self.config.with_validation else ["validation"]
        sent = self._models(state)
        trained = train_models(federation, sent, chosen, self.training, state.round, own, parts)
        validation = {one.name: one.counts.get("validation", Counted()) for one in trained}
        test = self._tested(sent, trained, federation) if "test" in parts else {}
        new = _state(number, trained, self._bests(state, trained, validation))
        table = {one.name: _metrics(one, validation, test) for one in trained}
        errors = [row["error"] for row in table.values() if "error" in row]
        errors = errors or [row["test_error"] for row in table.values() if "test_error" in row]
        return new, ({"error": min(errors)} if errors else {}) | {"networks": table}

    def private_work(self) -> PrivateWork:
        """Every round trains and counts every network; the result measures each after its last and its best round."""
        settings, networks = self.config, list(self.config.networks.values())
        trainings = len(networks) * settings.rounds
        final = 0 if settings.with_validation else 2 * len(networks)
        counts = trainings + final if final else 0
        work = PrivateWork(networks, trainings, settings.epochs, settings.batch, counts, final=final)
        return replace(work, with_validation=settings.with_validation)

    def results(self, state: RetrainState, federation: Federation, rng: Generator) -> list[Candidate]:
        """Every network after the last round and, as NAME-best, after its best round by validation error if that was
        an earlier one. `high` is the one of the lowest validation error or, where that is not measured, the first: test
        rows choose nothing."""
        trained, everyone = self._models(state), federation.clients()
        validation = self._validated(trained, everyone, federation)
        bests = [
            replace(one, name=f"{one.name}-best", weights=state.best[one.name]["weights"], diverged=False)
            for one in trained
            if one.name in state.best and state.best[one.name]["error"] < validation[one.name].error()
        ]
        validation |= self._validated(bests, everyone, federation)
        trained += bests
        test = count_tests(federation, trained, {name: counts.test for name, counts in validation.items()})
        ready = calibrated_each(federation, [(one.architecture, one.whole(), everyone) for one in trained])
        rows = {one.name: _metrics(one, validation, test) for one in trained}
        best = min(trained, key=lambda one: rows[one.name].get("error", 1.0)).name
        candidates = []
        for one, statistics in zip(trained, ready, strict=True):
            cost = spaces.cost(one.architecture)
            row = rows[one.name]
            objectives = {"error": row.get("error", row.get("test_error", 1.0))}
            objectives |= {key: row[key] for key in ("test_error", "connections") if key in row}
            objectives |= {"macs": cost.macs, "params": cost.params, "upload_bytes": cost.bytes}
            if one.architecture["space"] == "sparse":
                objectives["executed_macs"] = sparse.executed_macs(one.architecture)
            # Each is a pick by its own name; where one is called `high`, that name is taken.
            picks = [one.name, *(["high"] if one.name == best and "high" not in rows else [])]
            candidates.append(Candidate(one.name, one.architecture, objectives, picks, one.whole(), statistics))
        return candidates

    def _validated(
        self,
        models: list[FederatedModel],
        clients: list[ClientInfo],
        federation: Federation,
    ) -> dict[str, Counted]:
        """Counts on validation rows, which say nothing where they are trained on, and on the clients' own test rows."""
        if self.config.with_validation:
            return {one.name: Counted() for one in models}
        return count_correct(federation, models, clients, "validation", tested=True)

    def _tested(
        self, sent: list[FederatedModel], trained: list[FederatedModel], federation: Federation
    ) -> dict[str, Counted]:
        """Counts on test rows: those that came with the trained networks, and those of the other holders."""
        models = [replace(one, diverged=after.diverged) for one, after in zip(sent, trained, strict=True)]
        return count_tests(federation, models, {one.name: one.counts.get("test") for one in trained})

    def _bests(
        self, state: RetrainState, trained: list[FederatedModel], validation: dict[str, Counted]
    ) -> dict[str, Any]:
        """The best round of each network so far, the last of equals: what was measured is what the last round gave.
        Networks that were not measured have none."""
        best = dict(state.best)
        for one in trained if state.round else ():
            error = validation[one.name].error()
            if validation[one.name].rows and not one.diverged and error <= best.get(one.name, {"error": 1.0})["error"]:
                best[one.name] = {"weights": state.networks[one.name], "error": error, "round": state.round}
        return best

    def _own_clients(self, chosen: list[ClientInfo]) -> dict[str, list[ClientInfo]]:
        """Section 4.4 of federated NetAdapt: networks in parallel on groups, in turn where there are fewer."""
        count = min(self.config.groups, len(chosen))
        if not count:
            return {}
        sizes, labels = [info.sizes["train"] for info in chosen], [info.labels for info in chosen]
        groups = partition(sizes, labels, count, self.config.balance)
        members = [[chosen[member] for member in group] for group in groups]
        return {name: members[number % count] for number, name in enumerate(self.config.networks)}

    def _models(self, state: RetrainState) -> list[FederatedModel]:
        return [
            FederatedModel(
                name,
                arch,
                state.networks[name],
                state.connections[name],
                diverged=name in state.diverged,
                velocity=state.velocities.get(name, Tensors({})),
            )
            for name, arch in self.config.networks.items()
        ]


def _state(number: int, trained: list[FederatedModel], best: dict[str, Any]) -> RetrainState:
    return RetrainState(
        number,
        {one.name: one.weights for one in trained},
        {one.name: one.connections for one in trained},
        [one.name for one in trained if one.diverged],
        best,
        {one.name: one.velocity for one in trained if one.velocity},
    )


def _metrics(
    one: FederatedModel,
    validation: dict[str, Counted],
    test: dict[str, Counted],
) -> dict[str, Any]:
    """One network's metrics of a round; those without any counts are left out."""
    row: dict[str, Any] = {"connections": one.connections}
    for prefix, counts in (("", validation), ("test_", test)):
        found = counts.get(one.name, Counted())
        if found.rows:
            row |= {f"{prefix}error": found.error(), f"{prefix}accuracy": found.correct / found.rows}
    if one.client_rows:
        row["client_accuracy"] = one.client_correct / one.client_rows
    if one.diverged:
        row["diverged"] = True
    return row
