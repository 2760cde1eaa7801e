"""Multi-objective evolutionary federated learning: sparse networks by NSGA-II, error against connections.

H. Zhu and Y. Jin, "Multi-objective Evolutionary Federated Learning": Algorithm 5 around Algorithm 4, which trains and
measures one individual (`clients/training_round.py`) and is run for all new individuals at once. A generation takes
`fitness_rounds` communication rounds; a step is one of them. In the order of Algorithm 5's lines:

     1      random parents                                    Moefl.init
     3      offspring by crossover and mutation               Moefl._offspring
     4-5    R = P + Q, trained and measured by Algorithm 4    Moefl.step, Moefl._measure
     7-10   non-dominated sorting, crowding, selection        Moefl.step

Readings that differ from the paper's letter are in docs/papers.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from atoll import spaces
from atoll.algorithms import nsga2
from atoll.algorithms.genetic import Duplicates, Genes, Operators, breed_mixed
from atoll.algorithms.sampling import choose
from atoll.clients import FederatedModel, LocalTraining, count_correct, fresh, train_models
from atoll.errors import ArchitectureError, ConfigError, TooFewReplies
from atoll.methods.base import (
    Candidate,
    Federation,
    Generator,
    Method,
    Metrics,
    PrivateWork,
    Schema,
    TrainingConfig,
)
from atoll.spaces.sparse import genes as sparse_genes
from atoll.spaces.sparse import space as sparse
from atoll.spaces.sparse.genes import Chromosome
from atoll.training.metrics import Objective

Pair = tuple[float, float]
Table = npt.NDArray[np.float64]  # error, Omega


class MoeflConfig(TrainingConfig):
    """Table II and section IV-A. `rounds` counts communication rounds: generations x fitness_rounds."""

    network: Literal["mlp", "cnn"] = "mlp"
    population: int = Field(default=20, ge=2)  # M
    fitness_rounds: int = Field(default=5, ge=1)  # before a network is measured; the paper takes 10 for non-IID data
    fraction: float = Field(default=1.0, gt=0, le=1)  # C
    epochs: int = Field(default=5, ge=1)  # E
    batch: int = Field(default=50, ge=2)  # B
    momentum: float = Field(default=0.0, ge=0, lt=1)
    crossover: float = Field(default=0.9, ge=0, le=1)  # one-point, per pair
    mutation: float = Field(default=0.1, ge=0, le=1)  # flip, per bit
    sbx: float = Field(default=0.9, ge=0, le=1)  # simulated binary crossover, per pair
    sbx_eta: float = Field(default=2.0, gt=0)
    polynomial: float = Field(default=0.1, ge=0, le=1)  # polynomial mutation, per real number
    polynomial_eta: float = Field(default=20.0, gt=0)
    evaluate: Literal["new", "all"] = "new"  # all: parents are trained from scratch again, every generation
    search: Literal["evolution", "random"] = "evolution"  # random: offspring are drawn, not bred
    # Constraint domination: networks beyond a limit follow all others. "standard": no more than the standard network.
    max_connections: int | Literal["standard"] | None = None
    max_error: float | None = Field(default=None, gt=0, le=1)
    crowding: Literal["linear", "log"] = "linear"  # distance of connections on the front; log: of their logarithms
    halving: bool = False  # after every fitness round but the last, the worse half of the new networks is dropped
    inherit: bool = False  # an offspring starts with the weights of a parent where both have a connection
    duplicates: Duplicates = "mutate"  # an offspring that decodes to a parent or sibling is mutated again; or keep
    fitness: Literal["validation", "test"] = "validation"  # test: as in the paper, on the data of the final evaluation
    objective: Objective = "error"  # on these rows; or balanced_error, weighted_f1 (1 minus it)
    test_every: int = Field(default=1, ge=0)  # generations between test evaluations, for the report

    @model_validator(mode="after")
    def _whole_generations(self) -> Self:
        if self.rounds % self.fitness_rounds:
            fits = max(1, self.rounds // self.fitness_rounds) * self.fitness_rounds
            raise ConfigError(
                f"moefl.rounds = {self.rounds}: a generation takes fitness_rounds = {self.fitness_rounds} rounds; "
                f"give a multiple of it, such as {fits}",
                code="indivisible-rounds",
            )
        return self

    def fitted(self, schema: Schema, clients: int) -> Self:
        smallest = _architecture(self.network, schema, sparse_genes.smallest(self.network), 0)
        try:
            least = spaces.cost(smallest).params
        except ArchitectureError as problem:
            raise ConfigError(f"moefl.network = {self.network!r}: {problem}", code="network-data-mismatch") from None
        if isinstance(self.max_connections, int) and self.max_connections < least:
            raise ConfigError(
                f"moefl.max_connections = {self.max_connections}: the smallest network for this data has {least:,}; "
                "raise the limit",
                code="impossible-limit",
            )
        self.augmentation.check(schema)
        return self


@dataclass(frozen=True)
class MoeflState:
    round: int
    generation: int  # that is being trained, counted from 1; after the last round of it, the next one
    parents: list[dict[str, Any]]  # individuals as plain data
    training: list[dict[str, Any]]  # those of this generation; empty between generations
    checkers: list[str] = field(default_factory=list)  # clients that measure at the end only, see `robust.confirm`


@dataclass(frozen=True)
class Individual:
    """A chromosome, its network as far as it is trained, and its objectives once they are measured."""

    chromosome: Chromosome
    model: FederatedModel
    objectives: Pair | None = None

    def to_plain(self) -> dict[str, Any]:
        return {
            "name": self.model.name,
            "bits": "".join("1" if bit else "0" for bit in self.chromosome.bits),
            "reals": list(self.chromosome.reals),
            "architecture": self.model.architecture,
            "weights": self.model.weights,
            "connections": self.model.connections,
            "diverged": self.model.diverged,
            "objectives": list(self.objectives) if self.objectives else None,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Individual:
        names = ("name", "architecture", "weights", "connections", "diverged")
        bits = np.array([sign == "1" for sign in plain["bits"]])
        measured = plain["objectives"]
        return cls(
            Chromosome(bits, tuple(plain["reals"])),
            FederatedModel(**{name: plain[name] for name in names}),
            (measured[0], measured[1]) if measured else None,
        )


class Moefl(Method[MoeflState]):
    """The server's side."""

    name: ClassVar[str] = "moefl"
    confirms: ClassVar[bool] = True
    metrics_kind: ClassVar[str] = "front"
    summary: ClassVar[str] = "evolve sparse networks by error and connections; each is trained for a few rounds"
    Config: ClassVar[type[MoeflConfig]] = MoeflConfig
    State: ClassVar[type[MoeflState]] = MoeflState
    config: MoeflConfig

    def __init__(self, config: MoeflConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        smallest = _architecture(config.network, schema, sparse_genes.smallest(config.network), 0)
        self.standard = spaces.cost(sparse.standard(smallest)).params  # connections of the fully connected network
        self.most = self.standard if config.max_connections == "standard" else config.max_connections
        extras = config.extras()
        self.training = LocalTraining(config.epochs, config.batch, momentum=config.momentum, extras=extras)

    def init(self, federation: Federation, rng: Generator) -> MoeflState:
        part = self.config.fitness
        holders = federation.test_holders() if part == "test" else federation.clients()
        if not any(info.sizes[part] for info in holders):
            rule = f"data.split: no client has {part} rows, and the search measures networks on them"
            if part == "test":
                raise ConfigError(f"{rule}; give the data a test part", code="no-test-rows")
            raise ConfigError(f"{rule}; add some, or set moefl.fitness = 'test'", code="no-validation-rows")
        if part == "test" and federation.robust.confirm:
            raise ConfigError(
                "robust.confirm: networks are measured on test rows, of which no client's are left for the end; set "
                "moefl.fitness = 'validation'",
                code="inapplicable-setting",
            )
        drawn = [sparse_genes.random_chromosome(self.config.network, rng) for _ in range(self.config.population)]
        parents = [one.to_plain() for one in self._born(drawn, "1p", rng)]
        return MoeflState(0, 1, parents, [], federation.draw_checkers(rng))

    def step(self, state: MoeflState, federation: Federation, rng: Generator) -> tuple[MoeflState, Metrics]:
        parents = [Individual.from_plain(plain) for plain in state.parents]
        training = [Individual.from_plain(plain) for plain in state.training] or self._generation(state, parents, rng)
        infos = {info.name: info for info in federation.clients()}
        chosen = [infos[name] for name in choose(list(infos), self.config.fraction, rng)]
        age = state.round % self.config.fitness_rounds
        trained = train_models(federation, [one.model for one in training], chosen, self.training, age)
        training = [replace(one, model=after) for one, after in zip(training, trained, strict=True)]
        if age + 1 < self.config.fitness_rounds:
            if self.config.halving:
                training = self._better_half(self._measure(training, federation, leave_out=state.checkers))
            plain = [one.to_plain() for one in training]
            return replace(state, round=state.round + 1, training=plain), self._under_way(state, training)

        measured = self._measure(training, federation, leave_out=state.checkers)
        everyone = [*(one for one in parents if self._keeps_objectives(one)), *measured]
        table = _table(everyone)
        chosen_rows = nsga2.select(
            table, min(self.config.population, len(everyone)), self._violations(table), self._spacing(table)
        )
        survivors = [everyone[i] for i in chosen_rows]
        plain = [one.to_plain() for one in survivors]
        new = MoeflState(state.round + 1, state.generation + 1, plain, [], state.checkers)
        return new, self._metrics(state.generation, survivors, measured, federation)

    def private_work(self) -> PrivateWork:
        """The first generation trains parents and offspring, later ones their offspring, or parents again as well; all
        are counted after their last round, with halving after every round."""
        settings = self.config
        generations = settings.rounds // settings.fitness_rounds
        doubled = generations if settings.evaluate == "all" else 1
        networks = settings.population * (generations + doubled)
        counted = networks * (settings.fitness_rounds if settings.halving else 1)
        smallest = _architecture(settings.network, self.schema, sparse_genes.smallest(settings.network), 0)
        trainings = networks * settings.fitness_rounds
        counts = counted if settings.fitness == "validation" else 0
        return PrivateWork([smallest], trainings, settings.epochs, settings.batch, counts)

    def results(self, state: MoeflState, federation: Federation, rng: Generator) -> list[Candidate]:
        """The first front, by error; each network as the fitness rounds left it. `atoll retrain` trains it in full.

        A run that is stopped in its first generation has no survivors yet: what it was training is measured as it is.
        """
        survivors = [Individual.from_plain(plain) for plain in state.parents if plain["objectives"]]
        trained = self.config.fitness_rounds if survivors else state.round
        survivors = survivors or [Individual.from_plain(plain) for plain in state.training]
        # Beyond the paper: with `robust.confirm` the front is made of the errors that fresh clients find.
        searching = [info.name for info in federation.clients() if info.name not in state.checkers]
        if state.checkers or not all(one.objectives for one in survivors):
            survivors = self._measure(survivors, federation, leave_out=searching if state.checkers else [])
        table = _table(survivors)
        picks, front = self._picks(table), self._front(table)
        tested = self._test_errors([survivors[i] for i in front], federation)
        found = []
        for i in front:
            one = survivors[i]
            cost = spaces.cost(one.model.architecture)
            error, connections = table[i].tolist()
            objectives = {"error": error, "connections": connections}
            if one.model.name in tested:
                objectives["test_error"] = tested[one.model.name]
            weights, architecture = one.model.whole(), one.model.architecture
            executed, upload = sparse.executed_macs(architecture), sparse.upload_bytes(architecture, connections)
            objectives |= {"macs": cost.macs, "executed_macs": executed, "params": cost.params, "upload_bytes": upload}
            names = [pick for pick, picked in picks.items() if picked == i]
            about = {"trained_rounds": trained}
            found.append(Candidate(one.model.name, architecture, objectives, names, weights, about=about))
        return found

    # -- limits: constraint domination, beyond the paper -------------------------------------------------------------

    def _violations(self, table: Table) -> Table:
        """By how much each row exceeds the limits, in shares of them; 0 within them."""
        found = np.zeros(len(table))
        if self.config.max_error is not None:
            found += np.maximum(0, table[:, 0] / self.config.max_error - 1)
        if self.most is not None:
            found += np.maximum(0, table[:, 1] / self.most - 1)
        return found

    def _spacing(self, table: Table) -> Table:
        """The values by which crowding is measured."""
        if self.config.crowding == "linear":
            return table
        return np.stack([table[:, 0], np.log10(np.maximum(table[:, 1], 1))], axis=1)

    def _front(self, table: Table) -> list[int]:
        """The first front within the limits, by error; without such a network, the one that exceeds them least."""
        violations = self._violations(table)
        within = np.flatnonzero(violations <= 0)
        if not len(within):
            return [int(violations.argmin())]
        return [int(within[i]) for i in nsga2.by_error(table[within])]

    def _picks(self, table: Table) -> dict[str, int]:
        """Two networks of low error and two at the knee; where the front is too short, the last one there is."""
        front = self._front(table)
        knees = [front[int(i)] for i in nsga2.knees(table[front])] or front[:1]
        places = {"high": front[0], "high1": front[0], "high2": front[min(1, len(front) - 1)]}
        return places | {"knee": knees[0], "knee1": knees[0], "knee2": knees[min(1, len(knees) - 1)]}

    def _better_half(self, measured: Sequence[Individual]) -> list[Individual]:
        """Successive halving: the better half by non-dominated sorting, at least as many as fill half a population."""
        least = max(2, self.config.population // 2)
        count = min(len(measured), max(least, (len(measured) + 1) // 2))
        table = _table(measured)
        kept = nsga2.select(table, count, self._violations(table), self._spacing(table))
        return [replace(measured[i], objectives=None) for i in sorted(kept.tolist())]

    # -- Algorithm 5, lines 3-4 ----------------------------------------------------------------------------------------

    def _generation(self, state: MoeflState, parents: Sequence[Individual], rng: Generator) -> list[Individual]:
        """What this generation trains: the offspring, and parents whose objectives are not known or not retained."""
        offspring = self._born(self._offspring(parents, rng), f"{state.generation}o", rng)
        if self.config.inherit and state.generation > 1:
            offspring = [replace(one, model=inherited(one.model, parents, rng)) for one in offspring]
        again = [
            replace(one, model=fresh(one.model.name, one.model.architecture, rng), objectives=None)
            for one in parents
            if not self._keeps_objectives(one)
        ]
        return [*again, *offspring]

    def _keeps_objectives(self, parent: Individual) -> bool:
        return parent.objectives is not None and self.config.evaluate == "new"

    def _offspring(self, parents: Sequence[Individual], rng: Generator) -> list[Chromosome]:
        settings, model = self.config, self.config.network
        if settings.search == "random":
            return [sparse_genes.random_chromosome(model, rng) for _ in range(settings.population)]

        def meaning(genes: Genes) -> str:
            return spaces.canonical(sparse_genes.decode(model, Chromosome(*genes)))

        operators = Operators(
            sparse_genes.LOW,
            sparse_genes.HIGH,
            settings.crossover,
            settings.mutation,
            settings.sbx,
            settings.sbx_eta,
            settings.polynomial,
            settings.polynomial_eta,
        )
        measured = all(one.objectives is not None for one in parents)
        # Before the first generation nothing is measured: the tournament is then a coin flip.
        rank, crowding = None, None
        if measured:
            table = _table(parents)
            rank, crowding = nsga2.rank_and_crowding(table, self._violations(table), self._spacing(table))
        children = breed_mixed(
            [(one.chromosome.bits, one.chromosome.reals) for one in parents],
            rank,
            crowding,
            settings.population,
            operators,
            rng,
            same=meaning if settings.duplicates == "mutate" else None,
        )
        return [sparse_genes.repair(model, Chromosome(*genes)) for genes in children]

    def _born(self, chromosomes: Sequence[Chromosome], label: str, rng: Generator) -> list[Individual]:
        """Individuals with a graph and weights of their own, named by a label and their number."""
        born = []
        for number, chromosome in enumerate(chromosomes):
            arch = _architecture(self.config.network, self.schema, chromosome, graph=int(rng.integers(2**31)))
            born.append(Individual(chromosome, fresh(f"{label}{number:02d}", arch, rng)))
        return born

    # -- Algorithm 4, lines 18-20: the objectives ----------------------------------------------------------------------

    def _measure(
        self, training: Sequence[Individual], federation: Federation, leave_out: Collection[str]
    ) -> list[Individual]:
        part = self.config.fitness
        holders = federation.test_holders() if part == "test" else federation.clients()
        holders = [info for info in holders if info.name not in leave_out]
        models, objective = [one.model for one in training], self.config.objective
        counts = count_correct(
            federation, models, holders, part, test_evaluation=part == "test", confusion=objective != "error"
        )
        measured = []
        for one in training:
            found = counts[one.model.name]
            if one.model.diverged:
                # The worst error, and no fewer connections than the standard's: else it might stand on the front.
                worst = max(self.standard, spaces.cost(one.model.architecture).params)
                measured.append(replace(one, objectives=(1.0, float(worst))))
            elif found.rows == 0:
                raise TooFewReplies(
                    f"no client returned {part} counts for network {one.model.name}", code="too-few-replies"
                )
            else:
                measured.append(replace(one, objectives=(found.error(objective), one.model.connections)))
        return measured

    # -- what the report shows -----------------------------------------------------------------------------------------

    def _under_way(self, state: MoeflState, training: Sequence[Individual]) -> Metrics:
        metrics: Metrics = {"generation": state.generation, "in_training": len(training)}
        known = [plain["objectives"][0] for plain in state.parents if plain["objectives"]]
        return metrics | ({"error": min(known)} if known else {})

    def _metrics(
        self,
        generation: int,
        survivors: Sequence[Individual],
        measured: Sequence[Individual],
        federation: Federation,
    ) -> Metrics:
        table = _table(survivors)
        front, picks = self._front(table), self._picks(table)
        every = self.config.test_every
        chosen = [survivors[i] for i in sorted(set(picks.values()))]
        tested = self._test_errors(chosen, federation) if every and generation % every == 0 else {}
        metrics: Metrics = {
            "generation": generation,
            "in_training": len(measured),
            "error": float(table[front[0], 0]),
            "hypervolume": nsga2.hypervolume(table, [1.0, self.standard]),
            "objectives": ["error", "connections"],
            "front": [[survivors[i].model.name, *table[i].tolist()] for i in front],
            "measured": [[one.model.name, *(one.objectives or ())] for one in measured],
            "diverged": [one.model.name for one in measured if one.model.diverged],
        }
        for pick, i in picks.items():
            name, macs = survivors[i].model.name, spaces.cost(survivors[i].model.architecture).macs
            error, connections = table[i].tolist()
            metrics[pick] = {"key": name, "error": error, "connections": connections, "macs": macs}
            if name in tested:
                metrics[pick]["test_error"] = tested[name]
        return metrics

    def _test_errors(self, chosen: Sequence[Individual], federation: Federation) -> dict[str, float]:
        models = [one.model for one in chosen]
        counts = count_correct(federation, models, federation.test_holders(), "test", test_evaluation=True)
        return {name: found.error() for name, found in counts.items() if found.rows}


def inherited(child: FederatedModel, parents: Sequence[Individual], rng: Generator) -> FederatedModel:
    """The child with the weights of one of the parents, drawn at random, wherever both have a connection.

    Layers are matched by name from the input on; of layers of different widths the common units.
    """
    parent = parents[int(rng.integers(len(parents)))].model.whole()
    own, mixed = child.whole(), {}
    for name, weights in own.items():
        if name not in parent or parent[name].ndim != weights.ndim:
            continue
        common = tuple(slice(min(a, b)) for a, b in zip(weights.shape, parent[name].shape, strict=True))
        values, there = weights.copy(), parent[name][common]
        both = (there != 0) & (weights[common] != 0)
        values[common][both] = there[both]
        mixed[name] = values
    return replace(child, weights=sparse.pack(child.architecture, own.replaced(mixed)))


def _architecture(model: str, schema: Schema, chromosome: Chromosome, graph: int) -> dict[str, Any]:
    data = {"input": list(schema.shape), "classes": schema.outputs}
    return {"space": "sparse", "model": model, **data, **sparse_genes.decode(model, chromosome), "graph": graph}


def _table(individuals: Sequence[Individual]) -> Table:
    return np.array([one.objectives for one in individuals], np.float64)
