"""What a run will send, before it runs: its method with clients that compute nothing.

The server's part is done as in a run: tasks, sizes, the ledger and the virtual network's clock are the real ones. A
client answers at once with random values of the form that its task asks for, so no row is touched. The sizes of
networks that a search selects, the weights that a sparse network loses and the digits of a decimal number are therefore
estimates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from atoll.clients.evaluation import BatchNormSums
from atoll.core import checks, wire
from atoll.core.ledger import Account
from atoll.core.messages import Array, Payload, Tensors, charged
from atoll.errors import ConfigError
from atoll.federation.base import Federation
from atoll.federation.transport import Envelope, Outcome, Transport
from atoll.methods.base import Method
from atoll.rng import Generator, stream

CHANGE = 1e-3  # of a made update: the values differ from those sent, so that they travel again
SHARE = 0.2  # of the longest update that a clip allows: a made one is about as long
DECIMALS = 16  # of a made number


@dataclass
class Traffic:
    """Of one client over a whole run, its final measurements included."""

    down: int = 0
    up: int = 0
    messages: int = 0  # tasks that reach it, those for the report as well


@dataclass(frozen=True)
class Estimate:
    """What a run would send and compute. `total` has the virtual network's seconds, if there is one."""

    rounds: int
    total: Account
    clients: Mapping[str, Traffic]
    busiest: list[int]  # of each round, the most bytes of one client, up and down

    def transfer(self, bytes_per_second: float) -> float:
        """Seconds if every client has this bandwidth to itself and a round waits for its slowest client."""
        return sum(self.busiest) / bytes_per_second


def rehearse(method: Method[Any], federation: Federation, transport: Rehearsal, seed: int) -> Estimate:
    """All rounds of a method on clients of such a transport, and the final measurements."""
    state = method.init(federation, stream(seed, "init"))
    while not method.done(state):
        number = state.round + 1
        federation.begin(number)
        state, _ = method.step(state, federation, stream(seed, "server", number, 1))
    federation.wait_for_all()
    federation.begin(state.round + 1)
    method.results(state, federation, stream(seed, "results"))
    busiest = [max(own.values(), default=0) for own in transport.rounds.values()]
    names = [info.name for info in federation.clients()]  # without those who only hold an official test set
    clients = {name: transport.clients[name] for name in names if name in transport.clients}
    return Estimate(state.round, federation.ledger.total(), clients, busiest)


@dataclass
class Rehearsal(Transport):
    """Clients that answer every task at once, with values of the right form."""

    method: str
    seed: int
    window: int = 1
    clients: dict[str, Traffic] = field(default_factory=dict)
    rounds: dict[int, dict[str, int]] = field(default_factory=dict)  # round -> client -> bytes
    _outcomes: list[Outcome] = field(default_factory=list)

    def start(self, envelope: Envelope) -> None:
        task = envelope.task
        rng = stream(self.seed, "rehearsal", envelope.order)
        try:
            payload = _made(task.returns, task.payload, rng)
        except _NotDescribed as kind:
            raise ConfigError(
                f"--estimate: method {self.method}: the answers to {task.job.rpartition(':')[2]!r} are known only from "
                f"the clients' data ({kind}); run a few rounds instead, atoll show gives their bytes",
                code="estimate-not-possible",
            ) from None
        self._outcomes.append(Outcome(envelope.order, payload, {}, wire.size(payload, digests=False)))
        own = self.clients.setdefault(task.client, Traffic())
        own.messages += 1
        if not task.test_evaluation:
            up = wire.size(charged(payload), digests=False)
            own.down, own.up = own.down + envelope.size, own.up + up
            busy = self.rounds.setdefault(envelope.round, {})
            busy[task.client] = busy.get(task.client, 0) + envelope.size + up

    def poll(self, timeout: float | None) -> list[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def abandon(self, order: int) -> None:
        self._outcomes = [outcome for outcome in self._outcomes if outcome.order != order]


class _NotDescribed(Exception):
    """No value can be made for this check."""


def _made(returns: Any, sent: Any, rng: Generator) -> Any:
    """A value that passes these checks; `sent` is what the task holds at the same place."""
    if isinstance(returns, Mapping):
        inner: Payload = sent if isinstance(sent, dict) else {}
        return {key: _made(check, inner.get(key), rng) for key, check in returns.items()}
    if isinstance(returns, list):
        return [_made(check, None, rng) for check in returns]
    if isinstance(returns, BatchNormSums):
        # Sums over values of 1.
        return Tensors({name: np.full(shape, returns.rows, dtype) for name, (dtype, shape) in returns.model.items()})
    if isinstance(returns, checks.TensorsLike):
        before = sent if isinstance(sent, Tensors) and returns.update == "values" else {}
        size = CHANGE
        if returns.longest is not None:  # a clipped update at a low learning rate is shorter
            values = sum(math.prod(shape) for _, shape in returns.model.values())
            size = min(size, SHARE * returns.longest / math.sqrt(max(1, values)))
        return Tensors({name: _array(*form, before.get(name), rng, size) for name, form in returns.model.items()})
    if isinstance(returns, checks.ArrayOf):
        return _array(returns.dtype, returns.shape, None, rng)
    if isinstance(returns, checks.CountArray):
        return _counts(returns, rng)
    if isinstance(returns, checks.CountsUpTo):
        return rng.integers(0, returns.maximum, returns.shape, endpoint=True)
    if isinstance(returns, checks.Count):
        return int(rng.integers(0, returns.maximum, endpoint=True))
    if isinstance(returns, checks.Number):
        low, high = max(returns.low, 0.0), min(returns.high, 1.0)
        return round(low + (high - low) * float(rng.uniform(0.1, 0.9)), DECIMALS)
    raise _NotDescribed(type(returns).__name__)


def _array(dtype: str, shape: tuple[int, ...], before: Array | None, rng: Generator, size: float = CHANGE) -> Array:
    change = size * rng.standard_normal(shape)
    return np.asarray(change if before is None else before + change).astype(dtype)


def _counts(check: checks.CountArray, rng: Generator) -> Array:
    """The total, spread at random over what adds up to it."""
    leading, summed = check.shape[: check.each], check.shape[check.each :]
    cells = int(np.prod(summed))
    spread: Array = rng.multinomial(check.total, rng.dirichlet(np.ones(cells)), size=leading or None)
    return spread.reshape(check.shape).astype(np.int64)
