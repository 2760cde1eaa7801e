"""A scripted federation whose clients answer late when told to, and rounds of `fedrl` played on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from atoll.core.messages import Payload, Schema, Task, Tensors
from atoll.federation.exchange import ExchangeRules
from atoll.federation.transport import Envelope, Outcome, Transport
from atoll.methods.fedrl import FedRL, FedRLConfig, FedRLState
from atoll.rng import stream
from atoll.testing import ScriptedFederation

Odd = Callable[[Outcome], list[Outcome]]


class LateFederation(ScriptedFederation):
    """Replies of clients in `held` stay under way until they are taken out of it; `odd` changes what arrives."""

    def __init__(
        self, names: Sequence[str], answer: Callable[[Task], Payload], schema: Schema, rows: int = 10, **rules: Any
    ) -> None:
        super().__init__(names, answer, schema, rows)
        self.rules = ExchangeRules(**{"late": "compensate", **rules})
        self.held: set[str] = set()
        self.odd: Odd = lambda outcome: [outcome]
        inner = self.transport
        self.transport = _Holding(inner.start, inner.poll, self)

    def rates(self, **bandwidth: float) -> None:
        """What each client's link is said to carry."""
        self._clients = [replace(info, bandwidth=bandwidth.get(info.name)) for info in self._clients]


class _Holding(Transport):
    window = 100

    def __init__(
        self,
        start: Callable[[Envelope], None],
        poll: Callable[[float | None], list[Outcome]],
        federation: LateFederation,
    ) -> None:
        self._start, self._poll, self._federation = start, poll, federation
        self._clients: dict[int, str] = {}
        self._under_way: list[Outcome] = []

    def start(self, envelope: Envelope) -> None:
        self._clients[envelope.order] = envelope.task.client
        self._start(envelope)

    def poll(self, timeout: float | None) -> list[Outcome]:
        self._under_way += self._poll(timeout)
        here = [one for one in self._under_way if self._clients[one.order] not in self._federation.held]
        self._under_way = [one for one in self._under_way if one not in here]
        return [outcome for one in here for outcome in self._federation.odd(one)]

    def abandon(self, order: int) -> None:
        self._under_way = [one for one in self._under_way if one.order != order]

    def close(self) -> None:
        pass


SCHEMA = Schema("image", (1, 6, 6), ("a", "b"))
PLAIN = {"channels": 2, "cells": 3, "batch": 10, "lr": 1.0, "momentum": 0.0, "weight_decay": 0.0, "clip": 1e9}


def make(**settings: Any) -> FedRL:
    """Plain gradient descent with a rate of 1, so that a step is the mean gradient itself."""
    config = FedRLConfig(**{"rounds": 10, "warmup": 0, "retrain": 0, **PLAIN, **settings})
    return FedRL(config.fitted(SCHEMA, 2), SCHEMA)


def answering(values: dict[str, float], correct: dict[str, int]) -> Any:
    """Each client's gradient is filled with its number."""

    def answer(task: Task) -> Payload:
        weights = task.payload["weights"]
        gradient = {name: np.full_like(array, values[task.client]) for name, array in weights.items()}
        return {"gradient": Tensors(gradient), "correct": correct[task.client]}

    return answer


def federation_of(values: dict[str, float], correct: dict[str, int] | None = None, **rules: Any) -> LateFederation:
    return LateFederation(list(values), answering(values, correct or dict.fromkeys(values, 5)), SCHEMA, **rules)


def play(method: FedRL, federation: LateFederation, state: FedRLState | None = None) -> tuple[FedRLState, Any]:
    """The next round."""
    state = state or method.init(federation, stream(1, "init"))
    federation.begin(state.round + 1)
    return method.step(state, federation, stream(1, "round", state.round + 1))
