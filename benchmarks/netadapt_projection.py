"""What a search by federated NetAdapt would cost its clients: its rounds played through the ledger without training.

The rules are the method's own: which candidates an iteration has and how large they are (`Decnas.prunings`), which
group gets which (`netadapt.scheduled`), how many remain after each round (`netadapt.left_after`), how many rounds there
are (`DecnasConfig.rounds_of`), and the tasks themselves (`tune_task`), whose wire bytes are counted.
What cannot be known without training is who wins. Here it is the unit that has the largest part of its filters left,
so that pruning goes round; every client holds the mean number of rows.

Counted in models instead (`in_models`), every network weighs the same, and the law can be read off:

    uplink per client and iteration     (sum over r = 1..R of s(r)) / G
    training per client and iteration   (sum over r = 0..R-1 of s(r)) / G

with G groups, R rounds, s(0) = K0 candidates and s(r) those left after round r; naive has G = 1, s(r) = K0 and the
largest R. So the saving is G * K0 * R_max / (sum of s).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from atoll import spaces
from atoll.algorithms import netadapt
from atoll.algorithms.netadapt import assign_groups, remaining_after, survivors
from atoll.core import wire
from atoll.core.ledger import Account, Ledger
from atoll.core.messages import ClientInfo, Part, Payload, Schema, Tensors
from atoll.federation.client_cache import ClientCache
from atoll.methods.decnas.clients import Orders, PrunedCandidate, tune_task, upload_task
from atoll.methods.decnas.search import TRAINING, Decnas
from atoll.methods.decnas.settings import DecnasConfig, parameter_shapes
from atoll.rng import stream
from atoll.spaces.pruned import pruning

ONE = "client-0000"  # a client like all others of its group


@dataclass(frozen=True)
class Setting:
    """A federation that need not exist: so many clients with so many rows each, and what they would search."""

    clients: int
    train: int  # rows of a client
    validation: int
    schema: Schema
    config: DecnasConfig

    @property
    def naive(self) -> Setting:
        """All clients tune every candidate, nobody is dropped, always the largest number of rounds."""
        return self.without("grouping", "dropping", "dynamic_rounds")

    def without(self, *switches: str) -> Setting:
        """The same with these optimisations off."""
        return replace(self, config=self.config.model_copy(update=dict.fromkeys(switches, False)))

    def with_groups(self, groups: int) -> Setting:
        return replace(self, config=self.config.model_copy(update={"groups": groups}))


@dataclass(frozen=True)
class _Weight:
    """What one candidate costs one client: bytes of the task, of the accuracy, of the weight change; MACs."""

    down: int
    answer: int
    change: int
    macs: int
    ask: int  # bytes of the message that asks for the change
    previous_down: int = 0  # more of both where the group scores the iteration's start network, too
    previous_macs: int = 0
    tensors: Mapping[str, int] = field(default_factory=dict)  # name and shape -> bytes, as the iteration begins
    previous_tensors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Iteration:
    """Candidates by unit, and the network that they were pruned from: architectures in their canonical spelling."""

    previous: str
    candidates: tuple[tuple[str, str], ...]
    winner: int


def project(setting: Setting, iterations: int, in_models: bool = False) -> list[Account]:
    """The account of every iteration, up to so many or to the final budget.

    With `in_models` a network weighs 1 and so does a client's training of it; all else weighs nothing.
    """
    rows = (setting.train, setting.validation)
    training = tuple((name, getattr(setting.config, name)) for name in TRAINING)
    accounts = []
    for number, step in enumerate(_prunings(_alike(setting.config), setting.schema, iterations), start=1):
        if in_models:
            weights = [_Weight(down=1, answer=0, change=1, macs=1, ask=0) for _ in step.candidates]
        else:
            weights = [_weigh(unit, found, step.previous, rows, training) for unit, found in step.candidates]
        accounts.append(_play_iteration(setting, weights, step.winner, number))
    return accounts


def _alike(config: DecnasConfig) -> str:
    """The settings as text, without those that do not change what is pruned."""
    return config.model_dump_json(exclude={"grouping", "groups", "dropping", "dynamic_rounds", "alpha", "tune_rounds"})


@lru_cache(maxsize=16)
def _prunings(settings: str, schema: Schema, iterations: int) -> tuple[_Iteration, ...]:
    method = Decnas(DecnasConfig.model_validate_json(settings), schema)
    architecture, found = method.architecture, []
    for iteration in range(1, iterations + 1):
        prunings = method.prunings(architecture, iteration)
        if not prunings or netadapt.within_budget(method.resources(architecture), method.final):
            break
        pruned = [(unit.name, pruning.narrowed(architecture, unit.name, keep)) for unit, keep in prunings]
        winner = _winner(prunings, method)
        spelled = tuple((unit, spaces.canonical(arch)) for unit, arch in pruned)
        found.append(_Iteration(spaces.canonical(architecture), spelled, winner))
        architecture = pruned[winner][1]
    return tuple(found)


def _play_iteration(setting: Setting, weights: Sequence[_Weight], winner: int, iteration: int) -> Account:
    """Lines 7-9 of the paper's Algorithm 4.1, the accounts only.

    All clients of a group do the same, so one of each keeps a ledger, and counts as often as its group has members.
    """
    config, first, sizes = setting.config, len(weights), _group_sizes(setting)
    nobody: list[int | None] = [None] * first
    work, paces = [float(weight.macs) for weight in weights], [float(setting.train)] * len(sizes)
    places = assign_groups(work, nobody, nobody, paces, stream(0, "projection", iteration))
    ledgers = [Ledger() for _ in sizes]
    alive, rounds = list(range(first)), config.rounds_of(iteration)
    for number in range(1, rounds + 1):
        left = remaining_after(first, number, rounds, config.alpha) if config.dropping else first
        kept = sorted(alive, key=lambda order: order != winner)[:left]
        for group in sorted({places[order] for order in alive}):
            mine = [order for order in alive if places[order] == group]
            ledgers[group].open_round()
            # Where some are dropped, changes are asked for after the drop; else they come with the accuracy.
            _tune([weights[order] for order in mine], ledgers[group], left == len(alive), first_round=number == 1)
            if left < len(alive):
                _collect(
                    max(weights[order].ask for order in mine),
                    [weights[order] for order in mine if order in kept],
                    ledgers[group],
                )
        alive = kept
    return total([_times(ledger.total(), size) for ledger, size in zip(ledgers, sizes, strict=True)])


def _tune(mine: Sequence[_Weight], ledger: Ledger, with_change: bool, first_round: bool) -> None:
    """One client trains and tests its group's candidates.

    In the first round it scores the network they were pruned from, too, and does not get again what it holds: the
    candidates still share most tensors. Later each has its own.
    """
    cache = ClientCache()
    for order, weight in enumerate(mine):
        scores = first_round and order == 0
        down, macs = weight.down, weight.macs
        if first_round:
            held = cache.of(ONE)
            down -= sum(size for tensor, size in weight.tensors.items() if tensor in held)
            cache.take(ONE, {**weight.tensors, **(weight.previous_tensors if scores else {})})
        if scores:
            down, macs = down + weight.previous_down, macs + weight.previous_macs
        ledger.sent(ONE, down)
        ledger.received("used", weight.answer + (weight.change if with_change else 0), macs)


def _collect(ask: int, wanted: Sequence[_Weight], ledger: Ledger) -> None:
    """One message to a client that trained: which changes to upload, the others to be forgotten."""
    ledger.sent(ONE, ask)
    ledger.received("used", sum(weight.change for weight in wanted))


def _times(account: Account, count: int) -> Account:
    """So many clients that all did the same."""
    return Account(
        account.tasks * count,
        {fate: number * count for fate, number in account.replies.items()},
        account.bytes_down * count,
        account.bytes_up * count,
        account.client_macs * count,
        account.simulated_seconds * count,
    )


def _group_sizes(setting: Setting) -> list[int]:
    count = min(setting.config.groups or 1, setting.clients) if setting.config.grouping else 1
    return [setting.clients // count + (number < setting.clients % count) for number in range(count)]


def _winner(prunings: Sequence[tuple[pruning.Unit, int]], method: Decnas) -> int:
    """The place of the unit that has the largest part of its filters left."""
    whole = {unit.name: unit.width for unit in method.units(method.architecture)}
    shares = [keep / whole[unit.name] for unit, keep in prunings]
    return shares.index(max(shares))


@lru_cache(maxsize=2048)
def _weigh(
    unit: str, candidate: str, previous: str, rows: tuple[int, int], training: tuple[tuple[str, Any], ...]
) -> _Weight:
    """The bytes and MACs of the real messages about a candidate; architectures in their canonical spelling."""
    sizes: dict[Part, int] = {"train": rows[0], "validation": rows[1], "test": 0}
    info = ClientInfo(ONE, sizes, Schema("table", (1,), ("", "")))  # of which a task takes name and sizes
    arch, before = json.loads(candidate), json.loads(previous)
    one = PrunedCandidate(unit, arch, _full(arch))
    orders = Orders(1, dict(training), True, {"architecture": before, "weights": _full(before)})
    task, scoring = (tune_task(one, info, orders, asks) for asks in (False, True))
    answer: Payload = {"correct": rows[1]}
    change: Payload = {"changes": [one.weights]}
    nothing: Payload = {"changes": []}
    down = wire.size(task.payload)
    return _Weight(
        down,
        wire.size(answer, digests=False),
        wire.size(change, digests=False) - wire.size(nothing, digests=False),
        task.macs,
        wire.size(upload_task(info.name, [one], 1).payload),
        wire.size(scoring.payload) - down,
        scoring.macs - task.macs,
        _sizes(one.weights),
        _sizes(orders.previous["weights"]),
    )


def _full(architecture: dict[str, Any]) -> Tensors:
    """Weights without zeros, which would travel in fewer bytes; of equal names and shapes equal, of others not."""
    shapes = parameter_shapes(architecture)
    return Tensors(
        {name: np.full(shape, number + 1, np.float32) for number, (name, shape) in enumerate(shapes.items())}
    )


def _sizes(weights: Tensors) -> dict[str, int]:
    return {f"{name} {weights[name].shape}": weights[name].nbytes for name in weights}


def savings(accounts: Sequence[Account], naive: Sequence[Account]) -> Iterator[tuple[float, float]]:
    """How many times less than naive, uplink and computing, iteration by iteration."""
    for ours, theirs in zip(accounts, naive, strict=False):
        yield theirs.bytes_up / ours.bytes_up, theirs.client_macs / ours.client_macs


def total(accounts: Sequence[Account]) -> Account:
    whole = Account()
    for account in accounts:
        whole.add(account)
    return whole


def law(
    candidates: int, groups: int, rounds: int, most_rounds: int, share: float, last_keeps_one: bool = True
) -> tuple[float, float]:
    """The savings of one iteration, uplink and training, with networks of equal size (see the module's head).

    Without `last_keeps_one` the last round drops its share like any other, as if nothing were known of its being last.
    """
    after = [survivors(candidates, number, share) for number in range(1, rounds + 1)]
    if last_keeps_one:
        after = [remaining_after(candidates, number, rounds, share) for number in range(1, rounds + 1)]
    naive = groups * candidates * most_rounds
    return naive / sum(after), naive / sum([candidates, *after[:-1]])
