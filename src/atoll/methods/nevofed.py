"""NEvoFed: networks evolved where the data is, with no averaging at all.

L. L. Custode, I. De Falco, A. Della Cioppa, G. Iacca, U. Scafuri, "NEvoFed: A Decentralized Approach to Federated
Neuroevolution of Heterogeneous Neural Networks", GECCO 2024: Algorithm 2. Each client evolves a population of its own
by NEAT; the clients' best networks visit all others and stay where they are better than the worst. In the order of its
lines:

     4      choose the clients of the round                  NEvoFed.step, choose
     6-8    a client's first generation                      _update_job, settle
     9      a client's generations, its best so far          NEvoFed._update, _update_job
    11-13   the bests visit all others                       NEvoFed._exchange, _welcome_job
    15-17   each best is scored by all clients               NEvoFed._evaluate, _evaluate_job
    18-20   psi, the mean; the largest is the global model   NEvoFed.results

A client's population stays in its memory; what travels is one genome, in a few hundred bytes. Readings that differ from
the paper's letter are in docs/papers.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from atoll import spaces
from atoll.algorithms.neat import scoring
from atoll.algorithms.neat.coding import GenomeBytes, GenomeLimits, decode, encode, to_json
from atoll.algorithms.neat.expression import expressed, structure, used_inputs
from atoll.algorithms.neat.island import Island, Score, accept_migrants, new_island, next_generation
from atoll.algorithms.neat.population import Population, joined
from atoll.algorithms.neat.scoring import Confusions, Readout
from atoll.algorithms.neat.settings import NeatSettings
from atoll.algorithms.sampling import choose
from atoll.clients import Client
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
from atoll.methods.nevofed_config import NEvoFedConfig
from atoll.spaces import genome
from atoll.training.metrics import accuracy, weighted_f1

UPDATE = "atoll.methods.nevofed:update"
WELCOME = "atoll.methods.nevofed:welcome"
EVALUATE = "atoll.methods.nevofed:evaluate"
IMPORTANCE = "atoll.methods.nevofed:importance"

Evaluated = dict[str, Confusions]  # client -> genomes x true class x answered class


@dataclass(frozen=True)
class NEvoFedState:
    round: int
    bests: dict[str, Array]  # client -> the bytes of its best genome so far
    connections: dict[str, int]  # client -> connections of its whole population, for the cost of a generation


class NEvoFed(Method[NEvoFedState]):
    """The server's side."""

    name: ClassVar[str] = "nevofed"
    metrics_kind: ClassVar[str] = "model"
    summary: ClassVar[str] = "evolve tiny, explainable networks on the clients (NEAT islands), with no averaging"
    Config: ClassVar[type[NEvoFedConfig]] = NEvoFedConfig
    State: ClassVar[type[NEvoFedState]] = NEvoFedState
    config: NEvoFedConfig

    def __init__(self, config: NEvoFedConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.reading = config.reading(schema)
        self.settings = config.neat(schema)
        self.limits = GenomeLimits.of(self.settings)
        self.fitness = scoring.find_fitness(config.fitness)

    def init(self, federation: Federation, rng: Generator) -> NEvoFedState:
        return NEvoFedState(0, {}, {})

    def step(self, state: NEvoFedState, federation: Federation, rng: Generator) -> tuple[NEvoFedState, Metrics]:
        infos = {info.name: info for info in federation.clients()}
        chosen = [infos[name] for name in choose(list(infos), self.config.fraction, rng)]
        replies, failed = self._update(state, chosen, federation)
        bests = {name: reply["genome"] for name, reply in replies.items()}
        stayed = self._exchange(bests, [infos[name] for name in bests], federation)
        connections = {name: int(reply["connections"]) for name, reply in replies.items()}
        new = NEvoFedState(state.round + 1, {**state.bests, **bests}, {**state.connections, **connections})
        metrics = self._metrics(replies) | {"clients": len(replies), "stayed": stayed, "failed": failed}
        return new, metrics | self._test_metrics(new, federation)

    def results(self, state: NEvoFedState, federation: Federation, rng: Generator) -> list[Candidate]:
        """The global model, then every client's own best."""
        names = [info.name for info in federation.clients() if info.name in state.bests]
        codes = [state.bests[name] for name in names]
        winner, psi = self._global(codes, federation)
        test = self._evaluate(codes, federation.test_holders(), "test", federation, test_evaluation=True)
        validation = self._evaluate(codes, federation.clients(), "validation", federation, test_evaluation=True)
        best = self._candidate("global", ["high", "global"], codes[winner], psi[winner], winner, validation, test)
        found = [replace(best, about={"importance": self._importance(codes[winner], federation)})]
        for place, name in enumerate(names):
            own = [{name: found[name]} if name in found else found for found in (validation, test)]
            label = f"personal-{name}"
            found.append(self._candidate(label, [label], codes[place], psi[place], place, *own))
        return found

    # -- lines 5-10: generations on the clients ------------------------------------------------------------------------

    def _update(
        self, state: NEvoFedState, chosen: Sequence[ClientInfo], federation: Federation
    ) -> tuple[dict[str, Payload], dict[str, str]]:
        """Each client's best so far with its counts, and why others have none."""
        payload = self._payload() | {
            "generations": self.config.generations,
            "fitness": self.config.fitness,
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
            tasks.append(Task(f"update:{info.name}", info.name, UPDATE, payload, macs, returns, size=size))
        replies = federation.collect(tasks, what="a usable network")
        bests = {reply.task.client: reply.payload for reply in replies}
        return bests, {reply.task.client: str(reply.error) for reply in replies.failures}

    # -- lines 11-13: migration ----------------------------------------------------------------------------------------

    def _exchange(self, bests: Mapping[str, Array], chosen: Sequence[ClientInfo], federation: Federation) -> int:
        """Every client receives the bests of all others; how many of them stay, in all.

        They travel as named tensors, so that a best which has not changed since the last round is not sent again.
        """
        tasks = []
        for info in chosen:
            guests = Tensors({name: code for name, code in bests.items() if name != info.name})
            if guests:
                connections = sum(len(self._genome(code).source) for code in guests.values())
                payload = self._payload() | {"guests": guests, "fitness": self.config.fitness}
                returns = {"stayed": checks.Count(len(guests))}
                macs = connections * info.sizes["train"]
                size = TaskSize(steps=1, population=len(guests))
                tasks.append(Task(f"welcome:{info.name}", info.name, WELCOME, payload, macs, returns, size=size))
        return sum(int(reply.payload["stayed"]) for reply in federation.collect(tasks, minimum=0))

    # -- lines 15-20: the global model ---------------------------------------------------------------------------------

    def _global(
        self, codes: Sequence[Array], federation: Federation, test_evaluation: bool = False
    ) -> tuple[int, Array]:
        """The place of the best by psi, the mean over all clients of the fitness on their training rows; and psi."""
        evaluated = self._evaluate(codes, federation.clients(), "train", federation, test_evaluation)
        if not evaluated:
            raise TooFewReplies("no client returned counts for the choice of the global model", code="too-few-replies")
        psi = np.mean([self.fitness(found) for found in evaluated.values()], axis=0)
        return int(psi.argmax()), psi

    def _evaluate(
        self,
        codes: Sequence[Array],
        clients: Sequence[ClientInfo],
        part: Part,
        federation: Federation,
        test_evaluation: bool,
    ) -> Evaluated:
        """What each of these genomes gets right and wrong on a part of each client's data."""
        payload = self._payload() | {"genomes": list(codes), "part": part}
        connections = sum(len(self._genome(code).source) for code in codes)
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
        return {reply.task.client: reply.payload["confusions"] for reply in federation.collect(tasks, minimum=0)}

    def _importance(self, code: Array, federation: Federation) -> dict[str, float]:
        """Permutation importance of each feature used: how much the mean fitness on the clients' test rows falls when
        the feature's values are shuffled among a client's rows. For the report, and not charged to the search."""
        used = used_inputs(expressed(self._genome(code)))
        repeats, square = self.config.importance_repeats, (self.reading.classes, self.reading.classes)
        tasks = [
            Task(
                f"importance:{info.name}",
                info.name,
                IMPORTANCE,
                self._payload() | {"genome": code, "features": used, "repeats": repeats},
                returns={
                    "confusions": checks.CountArray((len(used), *square), info.sizes["test"] * repeats, each=1),
                    "confusion": checks.CountArray(square, info.sizes["test"]),
                },
                test_evaluation=True,
            )
            for info in federation.test_holders()
            if used and repeats
        ]
        falls = [
            self.fitness(reply.payload["confusion"][None]) - self.fitness(reply.payload["confusions"])
            for reply in federation.collect(tasks, minimum=0)
        ]
        values = np.mean(falls, axis=0).tolist() if falls else []
        return {str(place): value for place, value in zip(used, values, strict=False)}

    # -- metrics and what is retained ----------------------------------------------------------------------------------

    def _metrics(self, replies: Mapping[str, Payload]) -> Metrics:
        """Of the round: the clients' own bests on their own training rows; sizes of what travels."""
        genomes = [self._genome(reply["genome"]) for reply in replies.values()]
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
        codes = [state.bests[info.name] for info in federation.clients() if info.name in state.bests]
        winner, psi = self._global(codes, federation, test_evaluation=True)
        test = self._evaluate([codes[winner]], federation.test_holders(), "test", federation, test_evaluation=True)
        if not test:
            return {"psi": float(psi[winner])}
        return {"psi": float(psi[winner]), **_metrics([found[0] for found in test.values()], "test_")}

    def _candidate(
        self, label: str, picks: list[str], code: Array, psi: float, place: int, validation: Evaluated, test: Evaluated
    ) -> Candidate:
        network = expressed(self._genome(code))
        architecture = self._architecture(network)
        cost = spaces.cost(architecture)
        tested = {name: found[place] for name, found in test.items()}
        counts = [found[place] for found in validation.values()] or list(tested.values())
        objectives: dict[str, float] = {"error": _metrics(counts, "")["error"]} if counts else {}
        objectives |= _metrics(list(tested.values()), "test_") if tested else {}
        objectives |= {"psi": float(psi), "hidden": len(network.node) - self.settings.outputs}
        objectives |= {"macs": cost.macs, "params": cost.params, "upload_bytes": len(code)}
        own = {
            name: {"test_f1": weighted_f1(found), "test_error": 1.0 - accuracy(found), "test_rows": int(found.sum())}
            for name, found in tested.items()
        }
        return Candidate(label, architecture, objectives, picks, genome.weights_of(network), clients=own)

    def _architecture(self, network: Population) -> dict[str, Any]:
        reading = {name: value for name, value in asdict(self.reading).items() if name != "edges"}
        head = {"space": "genome", "input": list(self.schema.shape), "edges": list(self.reading.edges)}
        return head | reading | structure(network)

    def _genome(self, code: Array) -> Population:
        return decode(code, self.limits)

    def _payload(self) -> Payload:
        """The settings in every task; as a tensor they are sent to a client once and only named afterwards."""
        settings = {"settings": self.settings.to_plain(), "reading": asdict(self.reading)}
        return {"neat": Tensors({"settings": np.frombuffer(wire.canonical(settings).encode(), np.uint8)})}


def _metrics(found: Sequence[Array], prefix: str) -> dict[str, float]:
    """Error over all rows together, and the mean over clients of the weighted F1."""
    return {
        f"{prefix}error": 1.0 - accuracy(np.sum(found, axis=0)),
        f"{prefix}f1": float(np.mean([weighted_f1(counts) for counts in found])),
    }


# -- on the client ---------------------------------------------------------------------------------------------------


def _rows(client: Client, part: Part) -> tuple[Array, Array]:
    x, y = client.data.part(part)
    if not np.isfinite(x).all():
        raise ValueError(
            "a feature is missing or infinite: set data.missing to 'mean', 'median' or 'zero' to fill gaps"
        )
    return x.reshape(len(x), -1), y


def _settings(payload: Payload) -> tuple[NeatSettings, Readout]:
    given = json.loads(payload["neat"]["settings"].tobytes())
    reading = {**given["reading"], "edges": tuple(given["reading"]["edges"])}
    return NeatSettings.from_plain(given["settings"]), Readout(**reading)


def _scorer(payload: Payload, reading: Readout, x: Array, y: Array) -> Score:
    fitness = scoring.find_fitness(payload["fitness"])
    return lambda population: fitness(scoring.confusions(population, x, y, reading))


def _update_job(payload: Payload, client: Client) -> Payload:
    """Lines 27-33: generations on the client's own training rows; the best network so far."""
    settings, reading = _settings(payload)
    if client.size is not None and settings.population > client.size.population:
        raise ValueError(f"population {settings.population}: the task declares {client.size.population} to this site")
    x, y = _rows(client, "train")
    present = np.unique(y)
    if len(present) == 1 and payload["one_class"] == "refuse":
        raise ValueError(
            f"all training rows are of class {client.data.schema.classes[int(present[0])]!r}, so a network that always "
            "answers it is perfect here; leave this client out, or set nevofed.one_class to 'use'"
        )
    score = _scorer(payload, reading, x, y)
    island = Island.from_plain(client.memory["island"]) if "island" in client.memory else None
    for _ in range(payload["generations"]):
        if island is None:
            island = new_island(settings, score, client.rng)
        else:
            island = next_generation(island, settings, score, client.rng)
    assert island is not None
    client.memory["island"] = island.to_plain()
    return {
        "genome": encode(island.best, settings.inputs, settings.outputs),
        "confusion": scoring.confusions(island.best, x, y, reading)[0],
        "connections": len(island.population.source),
        "species": len(island.species.number),
        "constant": int((x == x[0]).all(axis=0).sum()),
    }


def _welcome_job(payload: Payload, client: Client) -> Payload:
    """Lines 35-39: guests are scored on the client's own training rows and replace worse residents."""
    settings, reading = _settings(payload)
    limits = GenomeLimits.of(settings)
    guests = joined([decode(code, limits) for code in payload["guests"].values()])
    score = _scorer(payload, reading, *_rows(client, "train"))
    island, stayed = accept_migrants(Island.from_plain(client.memory["island"]), guests, score(guests), settings)
    client.memory["island"] = island.to_plain()
    return {"stayed": stayed}


def _evaluate_job(payload: Payload, client: Client) -> Payload:
    """Lines 41-44."""
    settings, reading = _settings(payload)
    limits = GenomeLimits.of(settings)
    genomes = joined([decode(code, limits) for code in payload["genomes"]])
    return {"confusions": scoring.confusions(genomes, *_rows(client, payload["part"]), reading)}


def _importance_job(payload: Payload, client: Client) -> Payload:
    """Counts as they are, and with the values of one feature at a time shuffled among the rows."""
    settings, reading = _settings(payload)
    genome = decode(payload["genome"], GenomeLimits.of(settings))
    x, y = _rows(client, "test")
    shuffled = []
    for feature in payload["features"]:
        total = np.zeros((reading.classes, reading.classes), np.int64)
        for _ in range(payload["repeats"]):
            order, other = client.rng.permutation(len(x)), x.copy()
            other[:, feature :: settings.inputs] = x[order, feature :: settings.inputs]  # in every step of time
            total += scoring.confusions(genome, other, y, reading)[0]
        shuffled.append(total)
    return {"confusions": np.array(shuffled), "confusion": scoring.confusions(genome, x, y, reading)[0]}


JOBS = {"update": _update_job, "welcome": _welcome_job, "evaluate": _evaluate_job, "importance": _importance_job}
