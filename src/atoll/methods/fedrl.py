"""Federated model search by reinforcement learning, with late clients.

Yao et al., "Federated Model Search via Reinforcement Learning": Algorithm 1 over the DARTS space. The server holds a
supernet and a softmax policy; each client gets one sub-model drawn from it, a slice of the supernet's weights, and
answers with the gradient of one batch and how many of its rows were right. In the order of Algorithm 1's lines:

     2      initialise theta, alpha                              FedRL.init
     4-9    save theta, alpha; draw a key per client; prune      FedRL._draw
    10-11   larger sub-models over faster links                  FedRL._draw, assign
    12-14   send                                                 FedRL._task
    15      wait for most clients                                FedRL.step; the engine's quorum
    16-31   fresh and late replies, delay compensation           FedRL._fold, FedRL._compensated
    32-33   means over the M replies; update alpha and theta     FedRL._update
    34-35   forget what is older than Delta                      _retained
    37-42   client: one batch, gradient and reward               clients/jobs.py, gradient

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
from atoll.algorithms.aggregation import GradientMean, clip_gradient, gradient_norm
from atoll.algorithms.robust import RobustGradient
from atoll.algorithms.sampling import assign
from atoll.clients import FederatedModel, PrivateWork, count_correct, jobs
from atoll.core.checks import Count, CountArray, TensorsLike, is_finite
from atoll.errors import NotResumable, TooFewReplies
from atoll.federation.replies import failure_reasons, mostly_nonfinite
from atoll.methods.base import (
    Array,
    Candidate,
    ClientInfo,
    Federation,
    Generator,
    Late,
    Metrics,
    Payload,
    Reply,
    Task,
    Tensors,
)
from atoll.methods.darts_search import DartsSearch, accuracy_metrics, by_kind
from atoll.methods.fedrl_config import WITNESSES, FedRLConfig, Phase, refuse_too_few
from atoll.spaces.darts import space as darts
from atoll.spaces.darts.genotype import Genotype
from atoll.spaces.darts.layers import OPERATIONS
from atoll.training.metrics import objective_error

NONE = OPERATIONS.index("none")


@dataclass(frozen=True)
class FedRLState:
    round: int
    weights: Tensors  # theta
    velocity: Tensors  # of theta: its momentum
    alpha: Array  # (2, 14, 8): normal and reduction cells, edges, operations
    ascent: Array  # the memory of alpha's optimiser
    squares: Tensors  # moving mean of theta's squared gradients, for adaptive compensation; else empty
    reference: Array  # policies that get the same rewards without signal, see reinforce.WithoutSignal
    baseline: float  # b of Eq. 9
    recent: list[float]  # accuracies of this phase's last rounds, for the moving average
    # The pools, by round: retained while a reply from that round may still be used.
    past_weights: dict[str, Any]  # Theta
    past_alphas: dict[str, Any]  # A
    past_keys: dict[str, Any]  # G: client -> key, of clients that have not answered
    found: dict[str, Any]  # the found network while it is trained: architecture and weights


@dataclass
class _Received:
    """What the replies of one round add up to."""

    mean: GradientMean | RobustGradient  # of L with respect to theta
    accuracies: list[float] = field(default_factory=list)
    policy_gradients: list[Array] = field(default_factory=list)  # gradients of log p
    ages: list[int] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)  # that the used replies answer
    compensations: list[float] = field(default_factory=list)  # each as a share of its gradient's length
    discarded: int = 0  # too late, or not asked
    errors: list[str | None] = field(default_factory=list)


class FedRL(DartsSearch[FedRLState]):
    """The server's side."""

    name: ClassVar[str] = "fedrl"
    metrics_kind: ClassVar[str] = "policy"
    summary: ClassVar[str] = (
        "search DARTS cells by reinforcement learning; clients train small sub-models, late ones count"
    )
    Config: ClassVar[type[FedRLConfig]] = FedRLConfig
    State: ClassVar[type[FedRLState]] = FedRLState
    late: ClassVar[tuple[Late, ...]] = ("compensate", "use", "drop")
    config: FedRLConfig

    @property
    def rounds_late(self) -> int:
        return self.config.threshold

    def init(self, federation: Federation, rng: Generator) -> FedRLState:
        refuse_too_few(federation)
        start = spaces.initial(self.supernet, rng)
        weights = start.slice(darts.names(self.supernet))
        still = Tensors({name: np.zeros_like(array) for name, array in weights.items()})
        alpha = np.stack([start[name] for name in darts.ALPHAS]).astype(np.float64)
        adaptive = self.config.compensation_rule == "adaptive"
        reference = reinforce.WithoutSignal(self.config.ascent).start(alpha, self.config.reference)
        return FedRLState(
            round=0,
            weights=weights,
            velocity=still,
            alpha=alpha,
            ascent=self.config.ascent.start(alpha),
            squares=still if adaptive else Tensors({}),
            reference=reference,
            baseline=1 / self.supernet["classes"],
            recent=[],
            past_weights={},
            past_alphas={},
            past_keys={},
            found={},
        )

    def step(self, state: FedRLState, federation: Federation, rng: Generator) -> tuple[FedRLState, Metrics]:
        phase = self.config.phase(state.round)
        if phase == "final":
            return self._retrain(state, federation, rng)
        everyone, asked = federation.clients(), federation.available()  # a client does one task at a time
        state, tasks = self._draw(replace(state, found={}), asked, federation.round, rng)
        replies = federation.collect(tasks, minimum=0, takes_late=True, participating=len(everyone))
        received = _Received(federation.gradient_mean())
        for reply in replies:
            state = self._fold(received, reply, state, federation)
        for failure in replies.failures:
            state = self._fold(received, failure, state, federation)
        over = asked and not state.past_keys[str(federation.round)]  # none of this round is under way
        if over and not (received.ages and replies.enough):
            raise _too_few_replies(len(asked), received)
        if federation.median_fitness and phase == "search":
            received.accuracies = self._witnessed(received, federation, rng)
        new = self._update(state, received, phase, rng)
        new = _retained(new, federation.round + 1 - self.config.threshold)
        self._refuse_to_end_without_replies(new, phase)
        return new, self._metrics(new, received, tasks, phase, federation)

    def private_work(self) -> PrivateWork:
        """Every round one noisy step, or the steps of local epochs, and a reward; then the choice, and retraining."""
        settings, rounds = self.config, self.config.search_rounds
        chosen = settings.choice + 1 if settings.choice else 0
        return PrivateWork(
            [self.supernet],
            rounds,
            max(1, settings.epochs),
            settings.batch,
            rounds + chosen,
            steps=None if settings.epochs else 1,
            rewards=True,
            then=self.private_retraining(settings.batch),
        )

    def results(self, state: FedRLState, federation: Federation, rng: Generator) -> list[Candidate]:
        """P4: the found network if it was trained, and the likeliest sub-model with the weights it shares."""
        path = self._likeliest(state)
        weights = state.weights.slice(darts.names(path))
        network = state.found.get("architecture") or self.derived(self._choice(state, federation, rng)[0])
        return self.candidates(state.found, "path", path, weights, network, federation)

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
        rows, trained, cost = self.config.rows(info), self.config.trained_rows(info), darts.cost(sub_model)
        if rows > trained:
            payload["counted"] = rows
        macs = spaces.training_macs(cost, trained) + cost.macs * (rows - trained)
        returns: dict[str, Any] = {"gradient": TensorsLike.of(weights, "change"), "correct": Count(rows)}
        if self.config.objective != "error":
            payload["confusion"], classes = True, int(sub_model["classes"])
            returns = {"gradient": returns["gradient"], "confusion": CountArray((classes, classes), rows)}
        return Task(f"gradient:{info.name}", info.name, jobs.GRADIENT, payload, macs, returns)

    # -- lines 16-31: fresh and late replies ---------------------------------------------------------------------------

    def _fold(self, received: _Received, reply: Reply, state: FedRLState, federation: Federation) -> FedRLState:
        """One reply taken into account; the state without the key that it answers."""
        sent, age = str(reply.round), federation.round - reply.round
        waiting = dict(state.past_keys.get(sent, {}))
        key = waiting.get(reply.task.client)
        if key is not None and _answers(reply, key):
            del waiting[reply.task.client]
        else:
            key = None  # not asked, or drawn again since: a round may be tried again
        after = replace(state, past_keys={**state.past_keys, sent: waiting})
        if not reply.ok:
            received.errors.append(reply.error)
            return after
        gradient: Mapping[str, Array] = reply.payload["gradient"]
        if self.config.bound is not None:
            gradient = clip_gradient(gradient, self.config.bound)
        usable = key is not None and age <= self.config.threshold
        squares = reinforce.mean_squares(after.squares, gradient) if after.squares else {}
        if usable and age > 0 and federation.late == "compensate":
            before, gradient = gradient, self._compensated(gradient, after, sent, squares)
            usable = all(map(is_finite, [*gradient.values(), *squares.values()]))  # its square may be too large
            if usable:
                moved = {name: array - before[name] for name, array in gradient.items()}
                received.compensations.append(gradient_norm(moved) / max(gradient_norm(before), 1e-30))
        if not usable or key is None:
            federation.forget(reply)
            received.discarded += 1
            return after
        if all(map(is_finite, squares.values())):
            after = replace(after, squares=after.squares.replaced(squares))
        received.mean.add(gradient)
        received.accuracies.append(self._reward(reply))
        corrected = age > 0 and federation.late == "compensate"
        received.policy_gradients.append(self._policy_gradient(key, state, sent, corrected))
        received.ages.append(age)
        received.tasks.append(reply.task)
        return after

    def _reward(self, reply: Reply) -> float:
        """The accuracy on the rows that count, or 1 minus another objective."""
        if self.config.objective == "error":
            return float(reply.payload["correct"] / reply.task.returns["correct"].maximum)
        return 1.0 - objective_error(self.config.objective, reply.payload["confusion"])

    def _witnessed(self, received: _Received, federation: Federation, rng: Generator) -> list[float]:
        """Beyond the paper (`robust.fitness`): two other clients measure each sub-model on their validation rows, and
        the reward is the median of the three. So no client decides alone what its sub-model is worth."""
        holders = [info for info in federation.clients() if info.sizes["validation"]]
        models, witnesses = [], {}
        for number, task in enumerate(received.tasks):
            others = [info for info in holders if info.name != task.client]
            chosen = rng.choice(len(others), min(WITNESSES, len(others)), replace=False).tolist()
            models.append(FederatedModel(str(number), task.payload["architecture"], task.payload["weights"]))
            witnesses[str(number)] = [others[place] for place in sorted(chosen)]
        objective = self.config.objective
        counted = count_correct(
            federation, models, holders, "validation", own=witnesses, confusion=objective != "error"
        )
        found = []
        for number, own in enumerate(received.accuracies):
            each = [1.0 - one.error(objective) for one in counted[str(number)].each]
            found.append(float(np.median([own, *each])))
        return found

    def _compensated(
        self, gradient: Mapping[str, Array], state: FedRLState, sent: str, squares: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Line 27, Eq. 13: as if the gradient had been taken at the present weights; adaptively by these squares."""
        now, then, settings = state.weights, state.past_weights[sent], self.config

        def moved(name: str, array: Array) -> Array:
            if not squares:
                return reinforce.compensated(array, now[name], then[name], settings.compensation)
            own, strength = squares[name], settings.adaptive_compensation
            return reinforce.compensated_adaptively(array, now[name], then[name], own, strength)

        with np.errstate(over="ignore", invalid="ignore"):
            return {name: moved(name, array) for name, array in gradient.items()}

    def _policy_gradient(self, key: Array, state: FedRLState, sent: str, corrected: bool) -> Array:
        """Lines 20 and 28: the gradient of log p, corrected for a late key unless late replies are used as they are."""
        then = state.past_alphas[sent]
        if corrected:
            return reinforce.corrected(key, then, state.alpha, self.config.correction, self.config.compensation)
        return reinforce.log_gradient(then, key)

    # -- lines 32-33: theta descends, alpha ascends --------------------------------------------------------------------

    def _update(self, state: FedRLState, received: _Received, phase: str, rng: Generator) -> FedRLState:
        """Without a reply neither moves; with one alone the policy stays, for its advantage over itself is nothing."""
        done, window = state.round + 1, self.config.window
        before = [] if state.round == self.config.warmup else state.recent  # a new phase starts from scratch
        if not received.ages:
            return replace(state, round=done, recent=before)
        new = replace(state, round=done, recent=[*before, float(np.mean(received.accuracies))][-window:])
        if phase == "warmup" or not self.config.policy_only:
            gradient = received.mean.gradient()
            weights, velocity = self.config.descent.step(state.weights, gradient, state.velocity)
            new = replace(new, weights=weights, velocity=velocity)
        if phase == "search" and len(received.ages) >= 2:
            baseline = reinforce.next_baseline(state.baseline, received.accuracies, self.config.baseline)
            uphill = reinforce.reinforce(received.accuracies, baseline, received.policy_gradients)
            alpha, ascent = self.config.ascent.step(state.alpha, uphill, state.ascent)
            new = replace(new, baseline=baseline, alpha=alpha, ascent=ascent)
            if len(state.reference):
                chance, (apart,) = reinforce.WithoutSignal(self.config.ascent), rng.spawn(1)  # no draw of the search
                reference = chance.step(state.reference, received.accuracies, baseline, apart)
                new = replace(new, reference=reference)
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
                f"{came}; start again with a longer deadline, or a higher fedrl.threshold", code="no-timely-replies"
            )

    # -- P3: the found network, trained from scratch -------------------------------------------------------------------

    def _retrain(self, state: FedRLState, federation: Federation, rng: Generator) -> tuple[FedRLState, Metrics]:
        start: dict[str, Any] = state.found
        about: Metrics = {}
        if not start:
            federation.new_phase()
            cells, about = self._choice(state, federation, rng)
            start = {"architecture": self.derived(cells)}
        found, metrics = self.retrain_round(start, self.config.batch, state.round, federation, rng)
        return replace(_retained(state, federation.round + 1), round=state.round + 1, found=found), metrics | about

    def _choice(self, state: FedRLState, federation: Federation, rng: Generator) -> tuple[Genotype, Metrics]:
        """The likeliest cells, or the best of those and some drawn from the policy: by their error on all clients'
        validation rows, with the weights that they share."""
        cells = [darts.genotype(*state.alpha)]
        if not self.config.choice or not any(info.sizes["validation"] for info in federation.clients()):
            return cells[0], {}
        normal, reduce = state.alpha
        cells += [darts.sampled_genotype(normal, reduce, rng) for _ in range(self.config.choice)]
        models = []
        for number, own in enumerate(cells):
            path = darts.sub_model(self.supernet, darts.path_key(own))
            models.append(FederatedModel(f"choice-{number}", path, state.weights.slice(darts.names(path))))
        objective = self.config.objective
        counts = count_correct(
            federation,
            models,
            federation.clients(),
            "validation",
            confusion=objective != "error",
            same_clients=True,
        )
        errors = [counts[model.name].error(objective) for model in models]
        best = int(np.argmin(errors))
        return cells[best], {"choice_errors": errors, "chosen": best}

    def _likeliest(self, state: FedRLState) -> dict[str, Any]:
        """The likeliest sub-model without `none`."""
        possible = state.alpha.copy()
        possible[..., NONE] = -np.inf
        return darts.sub_model(self.supernet, by_kind(reinforce.likeliest(possible)))

    # -- what a round reports ------------------------------------------------------------------------------------------

    def _metrics(
        self, state: FedRLState, received: _Received, tasks: Sequence[Task], phase: str, federation: Federation
    ) -> Metrics:
        sizes = [darts.weight_count(task.payload["architecture"]) for task in tasks]
        metrics: Metrics = {
            "phase": phase,
            "baseline": state.baseline,
            **self.policy_metrics(state.alpha),
            "asked": len(tasks),
            "ages": [received.ages.count(age) for age in range(self.config.threshold + 1)],
            "discarded": received.discarded,
        }
        if sizes:
            metrics["size_share"] = float(np.mean(sizes)) / self.size
        if received.ages:
            metrics["accuracy"] = float(np.mean(received.accuracies))
            metrics["accuracy_deviation"] = float(np.std(received.accuracies))  # over the replies: bars of Fig. 12
        if received.compensations:
            metrics["compensation"] = float(np.mean(received.compensations))
        if phase == "search" and len(state.reference):
            median, low = reinforce.WithoutSignal.entropies(state.reference)
            metrics |= {"entropy_without_signal": median, "entropy_without_signal_5": low}
        path = self._likeliest(state)
        tested = self.tested(state.round, federation, path, state.weights.slice(darts.names(path)))
        return metrics | accuracy_metrics(state.recent) | tested


def _answers(reply: Reply, key: Array) -> bool:
    asked = reply.task.payload["architecture"]["key"]
    return all(np.array_equal(asked[kind], own) for kind, own in by_kind(key).items())


def _too_few_replies(asked: int, received: _Received) -> TooFewReplies:
    """The most frequent failure reasons, and what they may come from."""
    found, reasons = len(received.ages) or "none", failure_reasons(received.errors)
    text = f"{found} of {asked} clients returned a usable gradient ({reasons})"
    if mostly_nonfinite(received.errors, asked):
        return NotResumable(
            f"{text}; the supernet has diverged: start again with a lower fedrl.lr", code="diverged-supernet"
        )
    return TooFewReplies(text, code="too-few-replies")


def _retained(state: FedRLState, oldest: int) -> FedRLState:
    """Lines 34-35: without what is older than this round, and without rounds that all clients have answered."""
    keys = {sent: waiting for sent, waiting in state.past_keys.items() if waiting and int(sent) >= oldest}
    return replace(
        state,
        past_weights={sent: state.past_weights[sent] for sent in keys},
        past_alphas={sent: state.past_alphas[sent] for sent in keys},
        past_keys=keys,
    )
