"""NEvoFed: networks evolved where the data is, with no averaging at all.

L. L. Custode, I. De Falco, A. Della Cioppa, G. Iacca, U. Scafuri, "NEvoFed: A Decentralized Approach to Federated
Neuroevolution of Heterogeneous Neural Networks", GECCO 2024: Algorithm 2. Each client evolves a population of its own
by NEAT; the clients' best networks visit all others and stay where they are better than the worst. In the order of its
lines:

     4      choose the clients of the round                  NEvoFed.step, choose
     6-8    a client's first generation                      clients.py, update
     9      a client's generations, its best so far          NEvoFed._update; clients.py, update
    11-13   the bests visit all others                       NEvoFed._exchange; clients.py, welcome
    15-17   each best is scored by all clients               NEvoFed._evaluate; clients.py, evaluate
    18-20   psi, the mean; the largest is the global model   NEvoFed.results

A client's population stays in its memory; what travels is one genome, in a few hundred bytes. Beyond the paper, and off
in its preset: `keep` and `patience` use psi during the search, `refine` evolves one population for all clients by soft
psi, and `polish` tunes the weights of the result. Readings that differ from the paper's letter are in docs/papers.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from atoll import spaces
from atoll.algorithms.neat import scoring
from atoll.algorithms.neat.coding import GenomeBytes, GenomeLimits, decode, encode, to_json
from atoll.algorithms.neat.expression import expressed, structure
from atoll.algorithms.neat.island import (
    Island,
    new_island,
    next_generation,
    settled_island,
)
from atoll.algorithms.neat.population import Population, joined
from atoll.algorithms.neat.scoring import Confusions
from atoll.algorithms.sampling import choose
from atoll.core import checks, wire
from atoll.core.messages import TaskSize
from atoll.errors import TooFewReplies
from atoll.methods.base import (
    Array,
    Candidate,
    ClientInfo,
    Federation,
    Generator,
    Method,
    Metrics,
    Part,
    Payload,
    Schema,
    Task,
    Tensors,
)
from atoll.methods.nevofed.clients import EVALUATE, UPDATE, WELCOME, island_check
from atoll.methods.nevofed.importance import importance
from atoll.methods.nevofed.refinement import psi_of, soft_metrics, soft_psi, tuning_of
from atoll.methods.nevofed.settings import NEvoFedConfig
from atoll.spaces import genome
from atoll.training.metrics import accuracy, weighted_f1

Evaluated = dict[str, Confusions]  # client -> genomes x true class x answered class


@dataclass(frozen=True)
class NEvoFedState:
    round: int
    bests: dict[str, Array]  # client -> the bytes of its best genome so far
    connections: dict[str, int]  # client -> connections of its whole population, for the cost of a generation
    top: list[Array]  # the genome of the highest psi of all rounds, as bytes; empty before it is known
    top_psi: float
    falling: int  # rounds of the islands since psi was last raised
    refined: dict[str, Any]  # the one population of all clients, in the phase `refine`
    polished: dict[str, Any]  # genome, seed and history of the phase `polish`


class NEvoFed(Method[NEvoFedState]):
    """The server's side."""

    name: ClassVar[str] = "nevofed"
    confirms: ClassVar[bool] = True
    metrics_kind: ClassVar[str] = "model"
    measured_on = "the clients' own training rows"
    recommended: ClassVar[str] = "global"
    summary: ClassVar[str] = "evolve tiny, explainable networks on the clients (NEAT islands), with no averaging"
    not_private: ClassVar[str] = "genomes go to every participant and have no formal privacy"
    Config: ClassVar[type[NEvoFedConfig]] = NEvoFedConfig
    State: ClassVar[type[NEvoFedState]] = NEvoFedState
    config: NEvoFedConfig

    def __init__(self, config: NEvoFedConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.reading = config.reading(schema)
        self.settings = config.neat(schema)
        self.limits = GenomeLimits.of(self.settings)
        self.fitness = scoring.find_fitness(config.objective)

    def init(self, federation: Federation, rng: Generator) -> NEvoFedState:
        return NEvoFedState(0, {}, {}, [], -1.0, 0, {}, {})

    def done(self, state: NEvoFedState) -> bool:
        return super().done(state) or self._phase(state) == "over"

    def step(self, state: NEvoFedState, federation: Federation, rng: Generator) -> tuple[NEvoFedState, Metrics]:
        phases = {"islands": self._islands_round, "refine": self._refine_round, "polish": self._polish_round}
        phase = self._phase(state)
        if (phase == "refine" and not state.refined) or (phase == "polish" and not state.polished):
            federation.new_phase()
        new, metrics = phases[phase](state, federation, rng)
        return new, metrics | self._test_metrics(new, federation)

    def _phase(self, state: NEvoFedState) -> str:
        """What the next round does. Islands that have stopped leave their rounds to the refinement."""
        rounds = self.config.phases
        if rounds["polish"] and state.round >= self.config.rounds - rounds["polish"]:
            return "polish"
        stopped = bool(self.config.patience) and state.falling >= self.config.patience
        if state.round < rounds["islands"] and not stopped:
            return "islands"
        if rounds["refine"]:
            return "refine"
        return "polish" if rounds["polish"] else "over"

    def _islands_round(
        self, state: NEvoFedState, federation: Federation, rng: Generator
    ) -> tuple[NEvoFedState, Metrics]:
        chosen = self._chosen(federation, rng)
        replies, failed = self._update(state, chosen, federation)
        bests = {name: reply["genome"] for name, reply in replies.items()}
        infos = {info.name: info for info in chosen}
        stayed, visits = self._exchange(replies, [infos[name] for name in bests], federation)
        connections = {name: int(reply["connections"]) for name, reply in replies.items()}
        new = replace(
            state,
            round=state.round + 1,
            bests={**state.bests, **bests},
            connections={**state.connections, **connections},
            refined={},
            polished={},
        )
        metrics = self._metrics(replies) | {"clients": len(replies), "stayed": stayed, "failed": failed}
        if self._scores_guests:
            new = self._with_top(new, replies, visits, len(chosen), federation)
            metrics["psi"] = new.top_psi
        return new, metrics

    def results(self, state: NEvoFedState, federation: Federation, rng: Generator) -> list[Candidate]:
        """The global model, then every client's own best."""
        names = [info.name for info in federation.clients() if info.name in state.bests]
        codes = [self._global(state, federation), *(state.bests[name] for name in names)]
        trained = self._evaluate(codes, federation.clients(), "train", federation, test_evaluation=False)
        if not trained:
            raise TooFewReplies("no client returned counts of the networks", code="too-few-replies")
        psi = psi_of([self.fitness(found) for found in trained.values()], federation)
        test = self._evaluate(codes, federation.test_holders(), "test", federation, test_evaluation=True)
        validation = self._evaluate(codes, federation.clients(), "validation", federation, test_evaluation=True)
        best = self._candidate("global", ["high", "global"], codes[0], psi[0], 0, validation, test)
        found = [replace(best, about={"importance": importance(self, codes[0], federation.test_holders(), federation)})]
        infos = {info.name: info for info in federation.test_holders()}
        for place, name in enumerate(names, start=1):
            own = [{name: counts[name]} if name in counts else counts for counts in (validation, test)]
            label = f"personal-{name}"
            personal = self._candidate(label, [label], codes[place], psi[place], place, *own)
            holders = [infos[name]] if name in infos else []
            about = {"importance": importance(self, codes[place], holders, federation)} if holders else {}
            found.append(replace(personal, owner=name, about=about))
        return found

    def _chosen(self, federation: Federation, rng: Generator) -> list[ClientInfo]:
        infos = {info.name: info for info in federation.clients()}
        return [infos[name] for name in choose(list(infos), self.config.fraction, rng)]

    # -- lines 5-10: generations on the clients ------------------------------------------------------------------------

    def _update(
        self, state: NEvoFedState, chosen: Sequence[ClientInfo], federation: Federation
    ) -> tuple[dict[str, Payload], dict[str, str]]:
        """Each client's best so far with its counts, and why others have none."""
        payload = self.payload() | {
            "generations": self.config.generations,
            "fitness": self.config.objective,
            "one_class": self.config.one_class,
        }
        most = self.settings.population * (self.limits.connections + self.limits.hidden)
        size = TaskSize(steps=self.config.generations, population=self.settings.population)
        tasks = []
        for info in chosen:
            rows = info.sizes["train"]
            connections = state.connections.get(info.name, self.settings.population * self.settings.outputs)
            returns = {
                "genome": GenomeBytes.of(self.settings),
                "confusion": checks.CountArray((self.reading.classes, self.reading.classes), rows),
                "connections": checks.Count(most),
                "species": checks.Count(self.settings.population),
                "constant": checks.Count(self.settings.inputs * self.reading.steps),
            }
            macs = connections * rows * self.config.generations
            tasks.append(self._island_task(UPDATE, info, payload, macs, returns, size))
        replies = federation.collect(tasks, what="a usable network")
        bests = {reply.task.client: reply.payload for reply in replies}
        return bests, {reply.task.client: str(reply.error) for reply in replies.failures}

    def _island_task(
        self, job: str, info: ClientInfo, payload: Payload, macs: int, returns: dict[str, Any], size: TaskSize
    ) -> Task:
        name = f"{job.rpartition(':')[2]}:{info.name}"
        remembers = island_check(self.settings)
        return Task(name, info.name, job, payload, macs, returns, size=size, remembers=remembers)

    # -- lines 11-13: migration ----------------------------------------------------------------------------------------

    @property
    def _scores_guests(self) -> bool:
        """Whether clients also report what their guests get right: psi during the search."""
        return self.config.keep == "best" or self.config.patience > 0

    def _exchange(
        self, replies: Mapping[str, Payload], chosen: Sequence[ClientInfo], federation: Federation
    ) -> tuple[int, dict[str, list[Array]]]:
        """Every client receives the bests of all others; how many of them stay, in all. Also, if psi is wanted, each
        best's counts on the clients it visited.

        They travel as named tensors, so that a best which has not changed since the last round is not sent again.
        """
        tasks, classes = [], self.reading.classes
        bounds = self._bounds(replies, federation)
        for info in chosen:
            guests = Tensors({name: own["genome"] for name, own in sorted(replies.items()) if name != info.name})
            if guests:
                connections = sum(len(self.genome(code).source) for code in guests.values())
                payload = self.payload() | {"guests": guests, "fitness": self.config.objective} | bounds
                returns: dict[str, Any] = {"stayed": checks.Count(len(guests))}
                if self._scores_guests:
                    payload["counts"] = True
                    square = (len(guests), classes, classes)
                    returns["confusions"] = checks.CountArray(square, info.sizes["train"], each=1)
                macs = connections * info.sizes["train"]
                size = TaskSize(steps=1, population=len(guests))
                tasks.append(self._island_task(WELCOME, info, payload, macs, returns, size))
        stayed, visits = 0, {name: [] for name in replies}  # type: tuple[int, dict[str, list[Array]]]
        for reply in federation.collect(tasks, minimum=0):
            stayed += int(reply.payload["stayed"])
            for name, found in zip(
                sorted(reply.task.payload["guests"]), reply.payload.get("confusions", ()), strict=False
            ):
                visits[name].append(found)
        return stayed, visits

    def _bounds(self, replies: Mapping[str, Payload], federation: Federation) -> Payload:
        """What limits guests, beyond the paper and off by default: `robust.guests` and `robust.confirm`."""
        found: Payload = {}
        if federation.robust.guests < 1:
            found["most"] = max(1, int(federation.robust.guests * self.settings.population))
        if federation.robust.confirm:
            found["claimed"] = {
                name: float(self.fitness(own["confusion"][None])[0]) for name, own in sorted(replies.items())
            }
        return found

    def _with_top(
        self,
        state: NEvoFedState,
        replies: Mapping[str, Payload],
        visits: Mapping[str, list[Array]],
        participating: int,
        federation: Federation,
    ) -> NEvoFedState:
        """With the genome of the highest psi so far: its mean fitness at home and on the clients it visited. At home
        alone every best looks good, so only those count that most of the participating clients have measured."""
        known = {name: own for name, own in replies.items() if 2 * (1 + len(visits[name])) > participating}
        if not known:
            return state
        bests = {name: own["genome"] for name, own in known.items()}
        each = {name: self.fitness(np.array([own["confusion"], *visits[name]])) for name, own in known.items()}
        psi = {name: float(psi_of(found, federation)) for name, found in each.items()}
        leader = max(sorted(psi), key=lambda name: psi[name])
        if psi[leader] <= state.top_psi:
            return replace(state, falling=state.falling + 1)
        return replace(state, top=[bests[leader]], top_psi=psi[leader], falling=0)

    # -- one population for all clients, and its last tuning ----------------------------------------------------------

    def _refine_round(
        self, state: NEvoFedState, federation: Federation, rng: Generator
    ) -> tuple[NEvoFedState, Metrics]:
        """A generation of one population on the server, whose fitness is soft psi over all clients."""
        settings, clients = self.config.gentle(self.schema), self._chosen(federation, rng)
        totals: list[Array] = []

        def score(population: Population) -> Array:
            psi, total = soft_psi(self, population, clients, federation)
            totals.append(total)
            return psi

        if state.refined:
            island = next_generation(Island.from_plain(state.refined), settings, score, rng)
        elif state.bests:
            codes = [*state.top, *(state.bests[name] for name in sorted(state.bests))]
            settlers = joined([self.genome(code) for code in codes[: settings.population]])
            island = settled_island(settlers, settings, score, rng)
        else:
            island = new_island(settings, score, rng)
        new = replace(state, round=state.round + 1, refined=island.to_plain(), polished={})
        return new, soft_metrics(self, "refine", island.best, island.best_fitness, totals[-1])

    def _polish_round(
        self, state: NEvoFedState, federation: Federation, rng: Generator
    ) -> tuple[NEvoFedState, Metrics]:
        """A generation of CMA-ES on the weights of the best network so far."""
        plan = state.polished or {
            "genome": self._global(state, federation),
            "seed": int(rng.integers(2**31)),
            "history": [],
        }
        tuning = tuning_of(self, plan)
        psi, total = soft_psi(self, tuning.candidates(), self._chosen(federation, rng), federation)
        tuning.tell(psi.tolist())
        plan = {**plan, "history": [*plan["history"], psi.tolist()]}
        new = replace(state, round=state.round + 1, polished=plan)
        return new, soft_metrics(self, "polish", tuning.best, tuning.best_fitness, total)

    # -- lines 15-20: the global model ---------------------------------------------------------------------------------

    def _global(self, state: NEvoFedState, federation: Federation, test_evaluation: bool = False) -> Array:
        """The genome for all clients: polished, else refined, else the best by psi, of all rounds or the last."""
        inputs, outputs = self.settings.inputs, self.settings.outputs
        if state.polished:
            return encode(tuning_of(self, state.polished).best, inputs, outputs)
        if state.refined:
            return encode(Island.from_plain(state.refined).best, inputs, outputs)
        if state.top and self.config.keep == "best":
            return state.top[0]
        codes = [state.bests[info.name] for info in federation.clients() if info.name in state.bests]
        evaluated = self._evaluate(codes, federation.clients(), "train", federation, test_evaluation)
        if not evaluated:
            raise TooFewReplies("no client returned counts for the choice of the global model", code="too-few-replies")
        psi = psi_of([self.fitness(found) for found in evaluated.values()], federation)
        return codes[int(psi.argmax())]

    def _evaluate(
        self,
        codes: Sequence[Array],
        clients: Sequence[ClientInfo],
        part: Part,
        federation: Federation,
        test_evaluation: bool,
    ) -> Evaluated:
        """What each of these genomes gets right and wrong on a part of each client's data."""
        payload = self.payload() | {"genomes": list(codes), "part": part}
        connections = sum(len(self.genome(code).source) for code in codes)
        classes = self.reading.classes
        tasks = [
            Task(
                f"evaluate-{part}:{info.name}",
                info.name,
                EVALUATE,
                payload,
                connections * info.sizes[part],
                {"confusions": checks.CountArray((len(codes), classes, classes), info.sizes[part], each=1)},
                test_evaluation,
            )
            for info in clients
            if info.sizes[part] > 0
        ]
        replies = federation.collect(tasks, 0 if test_evaluation else min(1, len(tasks)), f"{part} counts")
        return {reply.task.client: reply.payload["confusions"] for reply in replies}

    # -- metrics and what is retained ----------------------------------------------------------------------------------

    def _metrics(self, replies: Mapping[str, Payload]) -> Metrics:
        """Of the round: the clients' own bests on their own training rows; sizes of what travels."""
        genomes = [self.genome(reply["genome"]) for reply in replies.values()]
        counts = [reply["confusion"] for reply in replies.values()]
        networks = [expressed(genome) for genome in genomes]
        return {
            "error": 1.0 - float(np.mean([accuracy(found) for found in counts])),
            "f1": float(np.mean([weighted_f1(found) for found in counts])),
            "hidden": float(np.mean([len(network.node) - self.settings.outputs for network in networks])),
            "connections": float(np.mean([len(network.source) for network in networks])),
            "species": float(np.mean([reply["species"] for reply in replies.values()])),
            "constant_features": max(int(reply["constant"]) for reply in replies.values()),
            "genome_bytes": float(np.mean([len(reply["genome"]) for reply in replies.values()])),
            "genome_json_bytes": float(np.mean([len(to_json(genome)) for genome in genomes])),
        }

    def _test_metrics(self, state: NEvoFedState, federation: Federation) -> Metrics:
        """For the report, and not charged to the search: what would be the global model now, on test rows."""
        every = self.config.test_every
        if not every or state.round % every:
            return {}
        code = self._global(state, federation, test_evaluation=True)
        test = self._evaluate([code], federation.test_holders(), "test", federation, test_evaluation=True)
        return _metrics([found[0] for found in test.values()], "test_") if test else {}

    def _candidate(
        self, label: str, picks: list[str], code: Array, psi: float, place: int, validation: Evaluated, test: Evaluated
    ) -> Candidate:
        network = expressed(self.genome(code))
        architecture = self._architecture(network)
        cost = spaces.cost(architecture)
        tested = {name: found[place] for name, found in test.items()}
        counts = [found[place] for found in validation.values()] or list(tested.values())
        objectives: dict[str, float] = {"error": _metrics(counts, "")["error"]} if counts else {}
        objectives |= _metrics(list(tested.values()), "test_") if tested else {}
        objectives |= {"psi": float(psi), "hidden": len(network.node) - self.settings.outputs}
        objectives |= {"macs": cost.macs, "params": cost.params, "upload_bytes": len(code)}
        return Candidate(label, architecture, objectives, picks, genome.weights_of(network))

    def _architecture(self, network: Population) -> dict[str, Any]:
        reading = {name: value for name, value in asdict(self.reading).items() if name != "edges"}
        head = {"space": "genome", "input": list(self.schema.shape), "edges": list(self.reading.edges)}
        return head | reading | structure(network)

    def genome(self, code: Array) -> Population:
        return decode(code, self.limits)

    def payload(self) -> Payload:
        """The settings in every task; as a tensor they are sent to a client once and only named afterwards."""
        settings = {"settings": self.settings.to_plain(), "reading": asdict(self.reading)}
        return {"neat": Tensors({"settings": np.frombuffer(wire.canonical(settings).encode(), np.uint8)})}


def _metrics(found: Sequence[Array], prefix: str) -> dict[str, float]:
    """Error over all rows together, and the mean over clients of the weighted F1."""
    return {
        f"{prefix}error": 1.0 - accuracy(np.sum(found, axis=0)),
        f"{prefix}f1": float(np.mean([weighted_f1(counts) for counts in found])),
    }
