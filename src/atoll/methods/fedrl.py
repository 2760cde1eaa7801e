"""Federated model search by reinforcement learning, with late clients.

Yao et al., "Federated Model Search via Reinforcement Learning": Algorithm 1 over the DARTS space. The server holds a
supernet and a softmax policy; each client gets one sub-model drawn from it, a slice of the supernet's weights, and
answers with the gradient of one batch and how many of its rows were right. In the order of Algorithm 1's lines:

     2      initialise theta, alpha                              FedRL.init
     4-9    save theta, alpha; draw a key per client; prune      FedRL._draw
    10-11   larger sub-models over faster links                  FedRL._draw, assign
    12-14   send                                                 FedRL._task
    15      wait for most clients                                FedRL.step, receive
    16-31   fresh and late replies, delay compensation           FedRL._fold, FedRL._compensated
    32-33   means over the M replies; update alpha and theta     FedRL._update
    34-35   forget what is older than Delta                      _kept
    37-42   client: one batch, gradient and reward               _slope_job

Section VI-A goes through four phases: warm-up (alpha is fixed), search, the found network trained from scratch
(`FedRL._retrain`), and its evaluation (`FedRL.results`); what they share with other searches over this space is in
`darts_search.py`. Readings that differ from the paper's letter are in docs/papers.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from atoll import spaces
from atoll.algorithms import reinforce
from atoll.algorithms.aggregation import GradientMean, clip_gradient
from atoll.algorithms.sampling import assign
from atoll.core.checks import Count, TensorsLike
from atoll.core.messages import Array, ClientInfo, Payload, Reply, Schema, Task, Tensors
from atoll.errors import NotResumable, TooFewReplies
from atoll.federation.base import Federation
from atoll.methods.base import Candidate, Metrics
from atoll.methods.darts_search import DartsSearch, accuracy_metrics, by_kind
from atoll.methods.fedrl_config import FedRLConfig, Phase
from atoll.methods.measure import failure_reasons
from atoll.rng import Generator
from atoll.spaces.darts import space as darts
from atoll.training.client import Client
from atoll.training.gradients import batch_gradient, epochs_gradient
from atoll.training.networks import network

GRADIENT = "atoll.methods.fedrl:slope"
NONE = darts.OPERATIONS.index("none")


@dataclass(frozen=True)
class FedRLState:
    round: int
    weights: Tensors  # theta
    velocity: Tensors  # of theta: its momentum
    alpha: Array  # (2, 14, 8): normal and reduction cells, edges, operations
    climb: Array  # the memory of alpha's optimiser
    baseline: float  # b of Eq. 9
    recent: list[float]  # accuracies of this phase's last rounds, for the moving average
    # The pools, by round: kept while a reply from that round may still be used.
    past_weights: dict[str, Any]  # Theta
    past_alphas: dict[str, Any]  # A
    past_keys: dict[str, Any]  # G: client -> key, of clients that have not answered
    found: dict[str, Any]  # the found network while it is trained: architecture and weights


@dataclass
class _Received:
    """What the replies of one round add up to."""

    mean: GradientMean = field(default_factory=GradientMean)  # of L with respect to theta
    accuracies: list[float] = field(default_factory=list)
    slopes: list[Array] = field(default_factory=list)  # gradients of log p
    ages: list[int] = field(default_factory=list)
    thrown: int = 0
    errors: list[str | None] = field(default_factory=list)


class FedRL(DartsSearch):
    """The server's side."""

    name: ClassVar[str] = "fedrl"
    summary: ClassVar[str] = (
        "search DARTS cells by reinforcement learning; clients train small sub-models, late ones count"
    )
    Config: ClassVar[type[FedRLConfig]] = FedRLConfig
    State: ClassVar[type[FedRLState]] = FedRLState
    centralised: ClassVar[bool] = False
    takes_late: ClassVar[bool] = True

    def __init__(self, config: FedRLConfig, schema: Schema) -> None:
        super().__init__(config, schema)
        self.config = config

    def init(self, federation: Federation, rng: Generator) -> FedRLState:
        start = spaces.initial(self.supernet, rng)
        weights = start.slice(darts.names(self.supernet))
        still = Tensors({name: np.zeros_like(array) for name, array in weights.items()})
        alpha = np.stack([start[name] for name in darts.ALPHAS]).astype(np.float64)
        guess = 1 / self.supernet["classes"]
        return FedRLState(0, weights, still, alpha, self.config.ascent.start(alpha), guess, [], {}, {}, {}, {})

    def step(self, state: FedRLState, federation: Federation, rng: Generator) -> tuple[FedRLState, Metrics]:
        phase = self.config.phase(state.round)
        if phase == "final":
            return self._retrain(state, federation, rng)
        everyone, busy = federation.clients(), federation.busy
        asked = [info for info in everyone if info.name not in busy]  # a client does one task at a time
        state, tasks = self._draw(replace(state, found={}), asked, federation.round, rng)
        federation.send(tasks)
        needed = self.config.replies_needed(len(asked), len(everyone)) or 1  # if nobody is free, someone will be
        heard = _Received()
        while replies := federation.receive(at_least=needed, deadline=self.config.deadline):
            for reply in replies:
                state = self._fold(heard, reply, state, federation)
            if heard.ages or not federation.busy or (heard.thrown and not asked):
                break
            needed = 1  # nothing of use so far: who is still at work may do better
        if asked and not heard.ages and not state.past_keys[str(federation.round)]:
            raise _nobody(len(asked), heard.errors)
        new = _kept(self._update(state, heard, phase), federation.round + 1 - self.config.threshold)
        self._refuse_to_end_without_replies(new, phase)
        return new, self._metrics(new, heard, tasks, phase, federation)

    def done(self, state: FedRLState) -> bool:
        return state.round >= self.config.rounds

    def snapshots(self, state: FedRLState) -> list[Candidate]:
        return []

    def results(self, state: FedRLState, federation: Federation, rng: Generator) -> list[Candidate]:
        """P4: the found network if it was trained, and the likeliest sub-model with the weights it shares."""
        path = self._likeliest(state)
        weights = state.weights.slice(darts.names(path))
        return self.candidates(state.found, "path", path, weights, state.alpha, federation)

    # -- lines 4-14: a sub-model for every client ----------------------------------------------------------------------

    def _draw(
        self, state: FedRLState, asked: Sequence[ClientInfo], number: int, rng: Generator
    ) -> tuple[FedRLState, list[Task]]:
        """Keys drawn, sorted to the clients, and saved under the client that finally gets them."""
        keys = [reinforce.draw(state.alpha, rng) for _ in asked]
        sub_models = [darts.sub_model(self.supernet, by_kind(key)) for key in keys]
        sizes = [darts.weight_count(sub_model) for sub_model in sub_models]
        order = assign(sizes, [info.bandwidth for info in asked], self.config.transmission, rng)
        pairs = [(info, keys[i], sub_models[i]) for info, i in zip(asked, order, strict=True)]
        saved = replace(
            state,
            past_weights={**state.past_weights, str(number): state.weights},
            past_alphas={**state.past_alphas, str(number): state.alpha},
            past_keys={**state.past_keys, str(number): {info.name: key for info, key, _ in pairs}},
        )
        return saved, [self._task(info, sub_model, state.weights) for info, _, sub_model in pairs]

    def _task(self, info: ClientInfo, sub_model: dict[str, Any], theta: Tensors) -> Task:
        weights = theta.slice(darts.names(sub_model))
        payload: Payload = {
            "architecture": sub_model,
            "weights": weights,
            "batch": self.config.batch,
            "epochs": self.config.epochs,
            "lr": self.config.lr,
        }
        rows = self.config.rows(info)
        macs = 3 * darts.cost(sub_model).macs * rows  # a training pass counts as three forward ones
        returns = {"gradient": TensorsLike.of(weights), "correct": Count(rows)}
        return Task(f"slope:{info.name}", info.name, GRADIENT, payload, macs, returns)

    # -- lines 16-31: fresh and late replies ---------------------------------------------------------------------------

    def _fold(self, heard: _Received, reply: Reply, state: FedRLState, federation: Federation) -> FedRLState:
        """One reply taken into account; the state without the key that it answers."""
        sent, age = str(reply.round), federation.round - reply.round
        waiting = dict(state.past_keys.get(sent, {}))
        key = waiting.get(reply.task.client)
        if key is not None and _answers(reply, key):
            del waiting[reply.task.client]
        else:
            key = None  # nobody asked, or what was asked has been drawn anew since: a round may be tried again
        after = replace(state, past_keys={**state.past_keys, sent: waiting})
        if not reply.ok:
            heard.errors.append(reply.error)
            return after
        gradient: Mapping[str, Array] = reply.payload["gradient"]
        if self.config.bound is not None:
            gradient = clip_gradient(gradient, self.config.bound)
        usable = key is not None and age <= self.config.threshold and (age == 0 or self.config.stale != "throw")
        if usable and age > 0 and self.config.stale == "compensate":
            gradient = self._compensated(gradient, state, sent)
            usable = all(np.isfinite(array).all() for array in gradient.values())  # its square may be too large
        if not usable or key is None:
            federation.forget(reply)
            heard.thrown += 1
            return after
        heard.mean.add(gradient)
        heard.accuracies.append(reply.payload["correct"] / reply.task.returns["correct"].maximum)
        heard.slopes.append(self._slope(key, state, sent, late=age > 0))
        heard.ages.append(age)
        return after

    def _compensated(self, gradient: Mapping[str, Array], state: FedRLState, sent: str) -> dict[str, Array]:
        """Line 27, Eq. 13: as if the gradient had been taken at the present weights."""
        then, strength = state.past_weights[sent], self.config.compensation
        with np.errstate(over="ignore", invalid="ignore"):
            return {
                name: reinforce.compensated(array, state.weights[name], then[name], strength)
                for name, array in gradient.items()
            }

    def _slope(self, key: Array, state: FedRLState, sent: str, late: bool) -> Array:
        """Lines 20 and 28: the gradient of log p, corrected for a late key unless late replies are used as they are."""
        then = state.past_alphas[sent]
        if late and self.config.stale == "compensate":
            return reinforce.corrected(key, then, state.alpha, self.config.correction, self.config.compensation)
        return reinforce.log_gradient(then, key)

    # -- lines 32-33: theta descends, alpha climbs ---------------------------------------------------------------------

    def _update(self, state: FedRLState, heard: _Received, phase: str) -> FedRLState:
        """Without a reply neither moves; with one alone the policy stays, for its advantage over itself is nothing."""
        done, window = state.round + 1, self.config.window
        before = [] if state.round == self.config.warmup else state.recent  # a new phase starts anew
        if not heard.ages:
            return replace(state, round=done, recent=before)
        new = replace(state, round=done, recent=[*before, float(np.mean(heard.accuracies))][-window:])
        if phase == "warmup" or not self.config.policy_only:
            gradient = heard.mean.result()
            weights, velocity = self.config.descent.step(state.weights, gradient, state.velocity)
            new = replace(new, weights=weights, velocity=velocity)
        if phase == "search" and len(heard.ages) >= 2:
            baseline = reinforce.next_baseline(state.baseline, heard.accuracies, self.config.baseline)
            uphill = reinforce.reinforce(heard.accuracies, baseline, heard.slopes)
            alpha, climb = self.config.ascent.step(state.alpha, uphill, state.climb)
            new = replace(new, baseline=baseline, alpha=alpha, climb=climb)
        return new

    def _refuse_to_end_without_replies(self, state: FedRLState, phase: Phase) -> None:
        """A phase, or both together, in which replies could have counted and none did: what is found would be noise."""
        untrained = not any(array.any() for array in state.velocity.values())
        if self.config.ends(phase, state.round):
            what: str = phase
        elif untrained and self.config.ends("both", state.round):
            what = "search, warm-up and all,"
        else:
            return
        if not state.recent:
            came = f"no reply of the whole {what} came in time to count"
            raise NotResumable(
                f"{came}; start anew with a longer deadline, or a higher fedrl.threshold", code="no-timely-replies"
            )

    # -- P3: the found network, trained from scratch -------------------------------------------------------------------

    def _retrain(self, state: FedRLState, federation: Federation, rng: Generator) -> tuple[FedRLState, Metrics]:
        for late in federation.receive(at_least=0):
            if late.ok:
                federation.forget(late)
        found, metrics = self.retrain_round(state.found, state.alpha, self.config.batch, state.round, federation, rng)
        return replace(_kept(state, federation.round + 1), round=state.round + 1, found=found), metrics

    def _likeliest(self, state: FedRLState) -> dict[str, Any]:
        """The likeliest sub-model without `none`."""
        possible = state.alpha.copy()
        possible[..., NONE] = -np.inf
        return darts.sub_model(self.supernet, by_kind(reinforce.likeliest(possible)))

    # -- what a round tells --------------------------------------------------------------------------------------------

    def _metrics(
        self, state: FedRLState, heard: _Received, tasks: Sequence[Task], phase: str, federation: Federation
    ) -> Metrics:
        sizes = [darts.weight_count(task.payload["architecture"]) for task in tasks]
        metrics: Metrics = {
            "phase": phase,
            "baseline": state.baseline,
            **self.policy_metrics(state.alpha),
            "asked": len(tasks),
            "ages": [heard.ages.count(age) for age in range(self.config.threshold + 1)],
            "thrown": heard.thrown,
        }
        if sizes:
            metrics["size_share"] = float(np.mean(sizes)) / self.size
        if heard.ages:
            metrics["accuracy"] = float(np.mean(heard.accuracies))
        path = self._likeliest(state)
        tested = self.tested(state.round, federation, path, state.weights.slice(darts.names(path)))
        return metrics | accuracy_metrics(state.recent) | tested


def _answers(reply: Reply, key: Array) -> bool:
    asked = reply.task.payload["architecture"]["key"]
    return all(np.array_equal(asked[kind], own) for kind, own in by_kind(key).items())


def _nobody(asked: int, errors: Sequence[str | None]) -> TooFewReplies:
    """What most clients say, and what that may come from."""
    text = f"none of {asked} clients returned a usable gradient ({failure_reasons(errors)})"
    if "nonfinite" in text:
        return NotResumable(
            f"{text}; the supernet has diverged: start anew with a lower fedrl.lr", code="diverged-supernet"
        )
    return TooFewReplies(text, code="too-few-replies")


def _kept(state: FedRLState, oldest: int) -> FedRLState:
    """Lines 34-35: without what is older than this round, and without rounds that all clients have answered."""
    keys = {sent: waiting for sent, waiting in state.past_keys.items() if waiting and int(sent) >= oldest}
    return replace(
        state,
        past_weights={sent: state.past_weights[sent] for sent in keys},
        past_alphas={sent: state.past_alphas[sent] for sent in keys},
        past_keys=keys,
    )


# -- the clients' side, lines 37-42 ------------------------------------------------------------------------------------


def _gradient_job(payload: Payload, client: Client) -> Payload:
    """The gradient of the sub-model on one batch (or its change over local epochs), and the rows that were right."""
    x, y = client.data.part("train")
    module = network(payload["architecture"], client.device)
    weights, batch, device = payload["weights"], payload["batch"], client.device
    if payload["epochs"]:
        slope = epochs_gradient(
            module, weights, x, y, payload["epochs"], batch, payload["lr"], client.rng, device=device
        )
    else:
        slope = batch_gradient(module, weights, x, y, batch, client.rng, device=device)
    return {"gradient": slope.gradient, "correct": slope.correct}


JOBS: dict[str, Any] = {"slope": _gradient_job}
