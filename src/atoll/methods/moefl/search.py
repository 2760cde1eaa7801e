"""Multi-objective evolutionary federated learning: sparse networks by NSGA-II, error against connections.

H. Zhu and Y. Jin, "Multi-objective Evolutionary Federated Learning": Algorithm 5 around Algorithm 4, which trains and
measures one individual (`clients/training_round.py`) and is run for all new individuals at once. A generation takes
`fitness_rounds` communication rounds; a step is one of them. In the order of Algorithm 5's lines:

     1      random parents                                    Moefl.init
     3      offspring by crossover and mutation               Moefl._offspring
     4-5    R = P + Q, trained and measured by Algorithm 4    Moefl._search_round, Moefl._measure
     7-10   non-dominated sorting, crowding, selection        Moefl._search_round

Beyond the paper, and off in its preset: a closing phase (`finish`), in which picks are trained to the end; limits by
constraint domination; successive halving; inherited weights. `settings.py` has all of them.

Readings that differ from the paper's letter are in docs/papers.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from atoll import spaces
from atoll.algorithms.genetic import Genes, Operators, breed_mixed
from atoll.algorithms.sampling import choose
from atoll.clients import LocalTraining, count_correct, fresh, round_macs, train_models
from atoll.errors import ConfigError, TooFewReplies
from atoll.methods.base import (
    Candidate,
    ClientInfo,
    Federation,
    Generator,
    Method,
    Metrics,
    PrivateWork,
    RunSegment,
    Schema,
)
from atoll.methods.moefl.individuals import Individual, Pair, architecture_of, inherited, table_of
from atoll.methods.moefl.ranking import Chosen, Ranking
from atoll.methods.moefl.settings import MoeflConfig
from atoll.spaces.sparse import genes as sparse_genes
from atoll.spaces.sparse import space as sparse
from atoll.spaces.sparse.genes import Chromosome

DRAWS = 200  # of networks at random until one is within `max_connections`


@dataclass(frozen=True)
class MoeflState:
    round: int
    searched: int  # rounds of the search; the others were of closing phases
    generation: int  # that is being trained, counted from 1; after the last round of it, the next one
    parents: list[dict[str, Any]]  # individuals as plain data
    training: list[dict[str, Any]]  # those of this generation; empty between generations
    finished: list[dict[str, Any]] = field(default_factory=list)  # closing phase: the picks as they are now
    best: list[dict[str, Any]] = field(default_factory=list)  # closing phase: each after its best round by validation
    checkers: list[str] = field(default_factory=list)  # clients that measure at the end only, see `robust.confirm`
    segment: dict[str, int] = field(default_factory=dict)  # see `RunSegment`


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
        smallest = architecture_of(config.network, schema, sparse_genes.smallest(config.network), 0)
        self.standard = spaces.cost(sparse.standard(smallest)).params  # connections of the fully connected network
        most = self.standard if config.max_connections == "standard" else config.max_connections
        self.ranking = Ranking(config.max_error, most, config.crowding, config.objective)
        extras = config.extras()
        own = LocalTraining(config.epochs, config.batch, momentum=config.momentum, extras=extras)
        self.training = replace(own, server_momentum=config.server_momentum)

    @property
    def measured_on(self) -> str:
        return f"{self.config.fitness} rows"

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
        parents = [one.to_plain() for one in self._drawn("1p", rng)]
        return MoeflState(0, 0, 1, parents, [], checkers=federation.draw_checkers(rng))

    def step(self, state: MoeflState, federation: Federation, rng: Generator) -> tuple[MoeflState, Metrics]:
        segment = self._segment(state)
        state = replace(state, segment=asdict(segment))
        if state.round >= segment.searched and not state.training and _individuals(state.parents, measured=True):
            return self._closing_round(state, segment, federation, rng)
        return self._search_round(state, federation, rng)

    def done(self, state: MoeflState) -> bool:
        return self._segment(state).ended(self.config.rounds, state.round)

    def within(self, state: MoeflState, federation: Federation, macs: int) -> MoeflState:
        """Between generations: another one is taken to cost what the last one did; the first one trained parents,
        too."""
        survivors = _individuals(state.parents, measured=True)
        if state.finished or state.training or not survivors:
            return state
        before, settings = self._segment(state), self.config
        another = sum(own.client_macs for own in federation.ledger.rounds[-settings.fitness_rounds :])
        another //= 2 if state.searched == settings.fitness_rounds and settings.evaluate == "new" else 1
        costs = [spaces.cost(one.model.architecture) for one in self._finalists(survivors)]
        counted = settings.fitness == "validation"
        closing = round_macs(costs, federation.clients(), settings.fraction, settings.epochs, counted)
        segment = before.within(state.round, macs, another, closing)
        return state if segment is before else replace(state, segment=asdict(segment))

    def _segment(self, state: MoeflState) -> RunSegment:
        before = RunSegment(**state.segment)
        return before.extended(self.config.rounds, state.round, bool(state.finished), self.config.closing_of)

    def _search_round(self, state: MoeflState, federation: Federation, rng: Generator) -> tuple[MoeflState, Metrics]:
        parents = _individuals(state.parents)
        training = _individuals(state.training) or self._generation(state, parents, rng)
        participating = self._participating(federation, rng)
        age = state.searched % self.config.fitness_rounds
        trained = train_models(federation, [one.model for one in training], participating, self.training, age)
        training = [replace(one, model=after) for one, after in zip(training, trained, strict=True)]
        if age + 1 < self.config.fitness_rounds:
            if self.config.halving and age + 1 in self.config.halvings:
                measured = self._measure(training, federation, leave_out=state.checkers)
                training = self._better_half(measured, parents)
            new = replace(
                state,
                round=state.round + 1,
                searched=state.searched + 1,
                training=[one.to_plain() for one in training],
                finished=[],
                best=[],
            )
            return new, {"generation": state.generation, "in_training": len(training)}

        measured = self._measure(training, federation, leave_out=state.checkers)
        everyone = [*(one for one in parents if self._keeps_objectives(one)), *measured]
        survivors = [everyone[i] for i in self.ranking.select(table_of(everyone), self.config.population)]
        plain = [one.to_plain() for one in survivors]
        new = replace(
            state,
            round=state.round + 1,
            searched=state.searched + 1,
            generation=state.generation + 1,
            parents=plain,
            training=[],
            finished=[],
            best=[],
        )
        chosen = self.ranking.searched(table_of(survivors))
        return new, self._metrics(state.generation, survivors, chosen, measured, survivors, federation)

    def _participating(self, federation: Federation, rng: Generator) -> list[ClientInfo]:
        infos = {info.name: info for info in federation.clients()}
        return [infos[name] for name in choose(list(infos), self.config.fraction, rng)]

    def _closing_round(
        self, state: MoeflState, segment: RunSegment, federation: Federation, rng: Generator
    ) -> tuple[MoeflState, Metrics]:
        """Beyond the paper: picks go on with the weights that the search left them, by all participating clients and
        with a learning rate that falls to zero over the closing phase."""
        if not state.finished:
            federation.new_phase()
        finalists = _individuals(state.finished) or self._finalists(_individuals(state.parents, measured=True))
        training = replace(self.training, cosine=segment.closing)
        rounds_done = state.round - segment.searched
        models = [one.model for one in finalists]
        trained = train_models(federation, models, self._participating(federation, rng), training, rounds_done)
        finalists = [replace(one, model=after) for one, after in zip(finalists, trained, strict=True)]
        measured = self._measure(finalists, federation, leave_out=state.checkers)
        before = {one.model.name: one for one in _individuals(state.best)}
        best = [min(one, before.get(one.model.name, one), key=_objectives) for one in measured]
        new = replace(
            state,
            round=state.round + 1,
            finished=[one.to_plain() for one in measured],
            best=[one.to_plain() for one in best],
        )
        population = _individuals(state.parents, measured=True)
        chosen = self.ranking.finished(table_of(best))
        metrics = self._metrics(state.generation - 1, best, chosen, measured, population, federation)
        return new, {"phase": "final", **metrics}

    def _finalists(self, survivors: Sequence[Individual]) -> list[Individual]:
        """The networks that are finished, each once."""
        front, picks = self.ranking.searched(table_of(survivors))
        chosen = {"high": [picks["high"]], "picks": [picks["high"], picks["knee"]], "front": front}
        return [survivors[i] for i in dict.fromkeys(chosen[self.config.finish_networks])]

    def private_work(self) -> PrivateWork:
        """The first generation trains parents and offspring, later ones their offspring, or parents again as well; all
        are counted after their last round, and before each halving. A closing round trains and counts each finalist."""
        settings = self.config
        generations = (settings.rounds - settings.closing) // settings.fitness_rounds
        doubled = generations if settings.evaluate == "all" else 1
        networks = settings.population * (generations + doubled)
        finishing = settings.closing * {"high": 1, "picks": 2}.get(settings.finish_networks, settings.population)
        counted = networks * (1 + (len(settings.halvings) if settings.halving else 0)) + finishing
        smallest = architecture_of(settings.network, self.schema, sparse_genes.smallest(settings.network), 0)
        trainings = networks * settings.fitness_rounds + finishing
        counts = counted if settings.fitness == "validation" else 0
        return PrivateWork([smallest], trainings, settings.epochs, settings.batch, counts)

    def results(self, state: MoeflState, federation: Federation, rng: Generator) -> list[Candidate]:
        """The finished networks or, without a closing phase, the first front as the fitness rounds left it, by error.

        A run that is stopped in its first generation has no survivors yet: what it was training is measured as it is.
        """
        survivors = _individuals(state.best) or _individuals(state.parents, measured=True)
        about = {} if state.best else {"trained_rounds": self.config.fitness_rounds}
        if not survivors:
            survivors, about = _individuals(state.training), {"trained_rounds": state.round}
        # Beyond the paper: with `robust.confirm` the front is made of the errors that fresh clients find.
        searching = [info.name for info in federation.clients() if info.name not in state.checkers]
        if state.checkers or not all(one.objectives for one in survivors):
            survivors = self._measure(survivors, federation, leave_out=searching if state.checkers else [])
        table = table_of(survivors)
        front, picks = (self.ranking.finished if state.best else self.ranking.searched)(table)
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
            more = about | self.ranking.exceeded(error, connections)
            found.append(Candidate(one.model.name, architecture, objectives, names, weights, about=more))
        return found

    def _better_half(self, measured: Sequence[Individual], parents: Sequence[Individual]) -> list[Individual]:
        """Successive halving: the better half, but no fewer than selection needs beside the parents that it knows."""
        least = max(1, self.config.population - sum(map(self._keeps_objectives, parents)))
        kept = self.ranking.select(table_of(measured), max(least, (len(measured) + 1) // 2))
        return [replace(measured[i], objectives=None) for i in sorted(kept)]

    # -- Algorithm 5, lines 3-4 ----------------------------------------------------------------------------------------

    def _generation(self, state: MoeflState, parents: Sequence[Individual], rng: Generator) -> list[Individual]:
        """What this generation trains: the offspring, and parents whose objectives are not known or not retained."""
        name = f"{state.generation}o"
        if self.config.search == "random":
            offspring = self._drawn(name, rng)
            pairs: list[Sequence[Individual]] = [parents] * len(offspring)  # they have no parents of their own
        else:
            bred = self._offspring(parents, rng)
            offspring = self._born([chromosome for chromosome, _ in bred], name, rng)
            pairs = [[parents[i] for i in pair] for _, pair in bred]
        if self.config.inherit and state.generation > 1:
            pairs_of = zip(offspring, pairs, strict=True)
            offspring = [replace(one, model=inherited(one.model, own, rng)) for one, own in pairs_of]
        again = [
            replace(one, model=fresh(one.model.name, one.model.architecture, rng), objectives=None)
            for one in parents
            if not self._keeps_objectives(one)
        ]
        return [*again, *offspring]

    def _keeps_objectives(self, parent: Individual) -> bool:
        return parent.objectives is not None and self.config.evaluate == "new"

    def _offspring(self, parents: Sequence[Individual], rng: Generator) -> list[tuple[Chromosome, tuple[int, int]]]:
        """Each with the positions of its two parents."""
        settings, model = self.config, self.config.network

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
            rank, crowding = self.ranking.rank_and_crowding(table_of(parents))
        children = breed_mixed(
            [(one.chromosome.bits, one.chromosome.reals) for one in parents],
            rank,
            crowding,
            settings.population,
            operators,
            rng,
            same=meaning if settings.duplicates == "mutate" else None,
        )
        return [(sparse_genes.repair(model, Chromosome(*child.genes)), child.parents) for child in children]

    def _drawn(self, label: str, rng: Generator) -> list[Individual]:
        """A population at random; see `_within`."""
        chromosomes = [sparse_genes.random_chromosome(self.config.network, rng) for _ in range(self.config.population)]
        return [self._within(one, rng) for one in self._born(chromosomes, label, rng)]

    def _within(self, drawn: Individual, rng: Generator) -> Individual:
        """The individual or, if it sends more than `max_connections`, another one: the first that does not, or the
        smallest of many."""
        chromosome, architecture = drawn.chromosome, drawn.model.architecture
        sent, most = sparse.uploaded(architecture), self.ranking.max_connections
        for _ in range(DRAWS):
            if most is None or sent <= most:
                break
            other = sparse_genes.random_chromosome(self.config.network, rng)
            arch = architecture_of(self.config.network, self.schema, other, graph=int(rng.integers(2**31)))
            if (less := sparse.uploaded(arch)) < sent:
                chromosome, architecture, sent = other, arch, less
        if architecture is drawn.model.architecture:
            return drawn
        return Individual(chromosome, fresh(drawn.model.name, architecture, rng))

    def _born(self, chromosomes: Sequence[Chromosome], label: str, rng: Generator) -> list[Individual]:
        """Individuals with a graph and weights of their own, named by a label and their number."""
        born = []
        for number, chromosome in enumerate(chromosomes):
            arch = architecture_of(self.config.network, self.schema, chromosome, graph=int(rng.integers(2**31)))
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

    def _metrics(
        self,
        generation: int,
        survivors: Sequence[Individual],
        chosen: Chosen,
        measured: Sequence[Individual],
        population: Sequence[Individual],  # of the last round of the search, whose hypervolume is reported
        federation: Federation,
    ) -> Metrics:
        table, (front, picks), every = table_of(survivors), chosen, self.config.test_every
        picked = [survivors[i] for i in sorted(set(picks.values()))]
        tested = self._test_errors(picked, federation) if every and generation % every == 0 else {}
        metrics: Metrics = {
            "generation": generation,
            "in_training": len(measured),
            "error": float(table[front[0], 0]),
            "hypervolume": self.ranking.hypervolume(table_of(population), [1.0, self.standard]),
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


def _individuals(plain: Sequence[dict[str, Any]], measured: bool = False) -> list[Individual]:
    """Those of the state; with `measured` only those whose objectives are known."""
    return [Individual.from_plain(one) for one in plain if one["objectives"] or not measured]


def _objectives(one: Individual) -> Pair:
    assert one.objectives is not None
    return one.objectives
