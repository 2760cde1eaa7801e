"""What the replies of an exchange say about their clients, beyond what each reply shows by itself.

Clients whose replies are rejected again and again are set aside: their tasks are not sent any more (`Strikes`).

The norm rule, always on: an update is rejected if one of its blocks (tensors) has a root mean square beyond `FACTOR`
times the usual one of its exchange. The usual one is the larger of two medians: of this block over the replies that
hold it, where they are at least three, and of the whole update over all replies. So one client cannot move it far, and
a block that only one client trains is compared with the updates of all. With fewer than three updates in an exchange a
whole update is compared with those of earlier exchanges, or with 1 before there was one. An update is also rejected if
it is longer than its training can have made it: see `TensorsLike.longest`, which tasks with a clip have.

The median is known when all replies have arrived, so they are held until then, up to `HELD` bytes. Beyond that each
reply is compared with those before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from atoll.algorithms.robust import Averaging, Rule
from atoll.core.checks import TensorsLike
from atoll.core.messages import REJECTED, Array, ClientInfo, Payload, Reply, Task, Tensors
from atoll.errors import ConfigError
from atoll.rng import Generator

FACTOR = 100.0
ROUNDING = 1.01  # a length that is summed in float32 may be this much too large
FEWEST = 3  # updates that can be compared with each other
REMEMBERED = 20  # sizes of earlier updates
# Sizes that are never out of proportion to earlier ones: after the end of a schedule updates become large again.
SMALL = 0.01
HELD = 256 * 2**20  # bytes of updates that wait for the rest of their exchange
CAP = 10  # times the median of all clients' rows

ClientWeights = Literal["rows", "capped", "equal"]
Block = tuple[str, tuple[int, ...], str]  # name, shape, and digest of what was sent: what may be compared


class RobustSettings(BaseModel):
    """The `[robust]` table: what limits the influence of a single client."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    # What a client counts for in an average: its rows, its rows up to ten times the median of all clients, or 1.
    client_weights: ClientWeights = "capped"
    # How the updates of clients become one, in every method that averages models or gradients.
    models: Rule = "mean"
    trim: float = Field(default=0.2, gt=0, lt=0.5)  # trimmed_mean: the share of values left out at each end
    clip: float | None = Field(default=None, ge=1)  # longest update, as a multiple of the median length of a round
    # The error that a search minimises: over the rows of all clients together, or the median of the clients' own.
    fitness: Literal["mean", "median"] = "mean"
    # What a search chooses is confirmed by clients that did not propose it, in methods that choose between networks.
    confirm: bool = False
    guests: float = Field(default=1.0, gt=0, le=1)  # nevofed: the share of a population that guests replace in a round
    # Exchanges in which all replies of a client were rejected, after which it is not asked any more; 0: it always is.
    strikes: int = Field(default=5, ge=0)

    @property
    def averaging(self) -> Averaging:
        return Averaging(self.models, self.trim, self.clip)

    def refuse_too_few(self, clients: int, a_round: int) -> None:
        """Robust rules need three clients, and those of models three in `a_round`: between two no rule can tell which
        one is wrong."""
        self.refuse_fewer(a_round, f"a round waits for {a_round} of {clients} clients", "models")
        self.refuse_fewer(clients, f"there are {clients} clients", "fitness")

    def refuse_fewer(self, number: int, what: str, name: Literal["models", "fitness"]) -> None:
        """Refuse a setting, if it is used, that averages or asks this many clients only; `what` says so in numbers."""
        used = self.fitness != "mean" if name == "fitness" else not self.averaging.plain
        if used and number < FEWEST:
            setting = "clip" if name == "models" and self.models == "mean" else name
            raise ConfigError(
                f"robust.{setting}: {what}; it needs {FEWEST}, between two no rule can tell which one is wrong",
                code="too-few-clients",
            )


class Unchanged:
    """What a round leaves as it was, because fewer than three updates of it are too few for a robust average."""

    def __init__(self) -> None:
        self._models: dict[str, int] = {}
        self._tensors = 0

    def of_model(self, name: str) -> Callable[[int], None]:
        """Called with the number of updates of this model."""

        def add(updates: int) -> None:
            self._models[name] = updates

        return add

    def of_tensors(self, number: int) -> None:
        """Called with a number of tensors."""
        self._tensors += number

    def events(self) -> Payload:
        """For the event of a round; empty afterwards."""
        found = {"unchanged": self._models, "unchanged_tensors": self._tensors}
        self._models, self._tensors = {}, 0
        return {name: value for name, value in found.items() if value}


def draw_checkers(clients: Sequence[ClientInfo], rng: Generator) -> list[str]:
    """A fifth of the clients with validation rows, three at least: they measure nothing before the search is over."""
    names = sorted(info.name for info in clients if info.sizes["validation"])
    if len(names) < 2 * FEWEST:
        raise ConfigError(
            f"robust.confirm: {len(names)} clients have validation rows; {FEWEST} must measure in the search and "
            f"{FEWEST} others at its end, so it needs {2 * FEWEST}",
            code="too-few-clients",
        )
    count = max(FEWEST, len(names) // 5)
    return sorted(rng.choice(names, count, replace=False).tolist())


def capped_shares(clients: Sequence[ClientInfo]) -> dict[str, float]:
    """Clients with more than ten times the median of the training rows, and the share of their rows that counts."""
    sizes = {info.name: info.sizes["train"] for info in clients}
    cap = CAP * median(sizes.values()) if sizes else 0.0
    return {name: cap / size for name, size in sizes.items() if size > cap > 0}


class Strikes:
    """Serves one exchange: `passed` gives its replies, and `found` is then the clients that get a strike, and why.

    A strike is an exchange in which all replies of a client were rejected. Where those of more than half of the clients
    were, the cause is not theirs: a learning rate that is too high makes every client's weights infinite.
    """

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def passed(self, replies: Iterable[Reply]) -> Iterator[Reply]:
        good: set[str] = set()
        bad: dict[str, str] = {}
        for reply in replies:
            if reply.ok:
                good.add(reply.task.client)
            elif reply.error is not None and reply.error.startswith(REJECTED):
                bad[reply.task.client] = reply.error.removeprefix(REJECTED)
            yield reply
        struck = {client: reason for client, reason in bad.items() if client not in good}
        if 2 * len(struck) <= len(good | bad.keys()):
            self.found = struck


def returns_update(tasks: Iterable[Task]) -> bool:
    """Whether a reply to one of these tasks holds an update, which the norm rule is for."""
    return any(next(_update_checks(task.returns), None) is not None for task in tasks)


@dataclass(frozen=True)
class UpdateSizes:
    """The root mean square of each block of an update, and of all of it. `excess`: it is longer than it can be."""

    blocks: Mapping[Block, float]
    whole: float
    nbytes: int
    excess: str | None = None


class NormRule:
    """Serves one exchange: `passed` gives its replies in their order, those that break the rule as failures, of which
    `rejected` is informed."""

    def __init__(self, rejected: Callable[[Reply], None], held: int = HELD, earlier: Sequence[float] = ()) -> None:
        """`earlier`: the sizes that earlier exchanges of the same kind have left in `sizes`."""
        self.whole: dict[str, float] = {}  # the largest update of each client
        self._rejected, self._most, self._earlier = rejected, held, earlier
        self._accepted: list[float] = []
        self._blocks: dict[Block, list[float]] = {}
        self._wholes: list[float] = []

    def passed(self, replies: Iterable[Reply]) -> Iterator[Reply]:
        waiting: list[tuple[Reply, UpdateSizes | None]] = []
        nbytes = 0
        for reply in replies:
            found = measured(reply) if reply.ok else None
            if found is not None and found.excess is not None:  # it does not count for what is usual
                self.whole[reply.task.client] = max(found.whole, self.whole.get(reply.task.client, 0.0))
                reply, found = self._refused(reply, found.excess), None
            waiting.append((reply, found))
            if found is not None:
                nbytes += found.nbytes
                self._count(reply.task.client, found)
            if nbytes > self._most:
                yield from self._judged(waiting)
                waiting = []
        yield from self._judged(waiting)

    @property
    def usual(self) -> float:
        """The usual size of a whole update: the median of this exchange or, with too few here, of earlier ones. Where
        most clients change nothing, or nothing is known, it is 1, the usual order of weights."""
        if len(self._wholes) >= FEWEST:
            return median(self._wholes) or 1.0
        return max(median(self._earlier), SMALL) if self._earlier else 1.0

    @property
    def sizes(self) -> list[float]:
        """What later exchanges should know of this one, and of those before: the last sizes."""
        own = [median(self._wholes)] if len(self._wholes) >= FEWEST else self._accepted
        return [*self._earlier, *filter(math.isfinite, own)][-REMEMBERED:]

    def _count(self, client: str, found: UpdateSizes) -> None:
        self._wholes.append(found.whole)
        self.whole[client] = max(found.whole, self.whole.get(client, 0.0))
        for block, value in found.blocks.items():
            self._blocks.setdefault(block, []).append(value)

    def _judged(self, waiting: Iterable[tuple[Reply, UpdateSizes | None]]) -> Iterator[Reply]:
        usual = self.usual
        if len(self._wholes) < FEWEST:
            for reply, found in waiting:
                if found is not None and found.whole > FACTOR * usual:
                    reply = self._refused(reply, f"norm: an update of {found.whole:.3g}, where {usual:.3g} is usual")
                elif found is not None:
                    self._accepted.append(found.whole)
                yield reply
            return
        known: dict[Block, float] = {}
        for reply, found in waiting:
            reason = None
            for block, value in found.blocks.items() if found is not None else ():
                if value <= FACTOR * usual:
                    continue
                if block not in known:
                    own = self._blocks[block]
                    known[block] = max(usual, median(own) if len(own) >= FEWEST else 0.0)
                if value > FACTOR * known[block]:
                    reason = f"norm: an update of {value:.3g} in {block[0]!r}, where {known[block]:.3g} is usual"
                    break
            yield reply if reason is None else self._refused(reply, reason)

    def _refused(self, reply: Reply, reason: str) -> Reply:
        refused = replace(reply, payload={}, error=f"{REJECTED}{reason}")
        self._rejected(refused)
        return refused


def measured(reply: Reply) -> UpdateSizes | None:
    """The sizes of the update that a reply holds; None if it holds none."""
    blocks: dict[Block, float] = {}
    squares, count, nbytes = 0.0, 0, 0
    excess = None
    for check, values, sent in _updates(reply.task.returns, reply.payload, reply.task.payload):
        own = 0.0
        for name in sorted(values):  # sums must not depend on an order that a resumed run may not keep
            array = values[name]
            total = _squares(array, None if sent is None else sent[name])
            block = (name, array.shape, "" if sent is None else sent.digest(name))
            value = math.sqrt(total / max(1, array.size))
            blocks[block] = max(value, blocks.get(block, 0.0))
            own, count, nbytes = own + total, count + array.size, nbytes + array.nbytes
        squares += own
        if check.longest is not None and math.sqrt(own) > ROUNDING * check.longest:
            excess = f"norm: an update of length {math.sqrt(own):.3g}, where its clip allows {check.longest:.3g}"
    return UpdateSizes(blocks, math.sqrt(squares / count), nbytes, excess) if count else None


def _squares(array: Array, before: Array | None) -> float:
    """The sum of the squares of a change. In float32 it may be infinite, which is large enough to compare."""
    kind = np.float64 if array.dtype == np.float64 else np.float32
    with np.errstate(all="ignore"):
        change = array.astype(kind, copy=False) if before is None else np.subtract(array, before, dtype=kind)
        flat = change.reshape(-1)
        return float(np.dot(flat, flat))


def _update_checks(returns: Any) -> Iterator[TensorsLike]:
    if isinstance(returns, (Mapping, list)):
        for value in returns.values() if isinstance(returns, Mapping) else returns:
            yield from _update_checks(value)
    elif isinstance(returns, TensorsLike) and returns.update:
        yield returns


def _updates(returns: Any, payload: Any, sent: Any) -> Iterator[tuple[TensorsLike, Tensors, Tensors | None]]:
    """The updates in a payload that has passed its checks, each with its check and the tensors that it started from;
    None where it is the change itself."""
    if isinstance(returns, Mapping):
        for key, value in returns.items():
            yield from _updates(value, payload[key], sent.get(key) if isinstance(sent, dict) else None)
    elif isinstance(returns, list):
        for value, own in zip(returns, payload, strict=True):
            yield from _updates(value, own, None)
    elif isinstance(returns, TensorsLike) and returns.update:
        started = sent if returns.update == "values" and isinstance(sent, Tensors) else None
        yield returns, payload, started
