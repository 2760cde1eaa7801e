"""Noisy training: clipping by brute force over neighbouring data sets, the noise by its distribution, and no step
without it."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch
from scipy import stats

from atoll import spaces
from atoll.clients import jobs
from atoll.core.messages import Array, Part, Payload, Schema, Tensors
from atoll.errors import ConfigError
from atoll.privacy.settings import LEAST_CLIP
from atoll.rng import stream
from atoll.spaces.choice import table as choice
from atoll.spaces.darts import space as darts
from atoll.spaces.layers import Perceptron
from atoll.spaces.pruned.space import from_fixed
from atoll.spaces.sparse import space as sparse
from atoll.training import alternating, private, sgd
from atoll.training.batches import Rows
from atoll.training.client import Client
from atoll.training.networks import load, network
from atoll.training.private import PrivateSteps, noisy_counts

TABLE: dict[str, Any] = {"space": "fixed", "model": "mlp", "input": [3], "classes": 3, "hidden": [4]}
IMAGES: dict[str, Any] = {"space": "fixed", "model": "cnn", "input": [1, 4, 4], "classes": 3}
IMAGES |= {"filters": [2], "hidden": [4]}
CHOICE: dict[str, Any] = {"space": "choice", "input": [1, 8, 8], "classes": 3, "channels": [4, 8], "norm": "group"}
CHOICE |= {"key": [2, 3]}
PRUNED = from_fixed(
    {
        "space": "fixed",
        "model": "convnet",
        "widths": [4, 3, 4, 4, 4, 4],
        "input": [1, 8, 8],
        "classes": 3,
        "norm": "group",
    }
)
CELLS: dict[str, Any] = {"space": "darts", "form": "genotype", "channels": 2, "cells": 1, "norm": "group"}
CELLS |= {"input": [1, 4, 4], "classes": 3, "genotype": darts.random_genotype(stream(4, "genotype"))}
NETWORKS = [TABLE, IMAGES, CHOICE, PRUNED, CELLS]
PLAIN = sgd.TrainSettings(lr=1.0)
ROWS = 6


class Silent(np.random.Generator):
    """Every row takes part, and the noise is zero: what is left is the sum of clipped gradients."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(1))

    def random(self, size: Any = None, *_: Any, **__: Any) -> Any:
        return np.zeros(size)

    def standard_normal(self, size: Any = None, *_: Any, **__: Any) -> Any:
        return np.zeros(size, np.float32)


def rows(arch: dict[str, Any], number: int = ROWS, scale: float = 3.0) -> tuple[Array, Array]:
    rng = stream(3, "rows", str(arch["space"]), len(arch["input"]))
    x = scale * rng.standard_normal((number, *arch["input"])).astype(np.float32)
    return x, rng.integers(3, size=number)


def gradient_sum(arch: dict[str, Any], x: Array, y: Array, clip: float, weights: Tensors | None = None) -> Array:
    """The sum of clipped gradients, as one step without noise shows it."""
    start = weights or spaces.initial(arch, stream(1, "start"))
    after = private.train(network(arch), start, x, y, PLAIN, PrivateSteps(clip, 1.0, 1.0, 1), Silent())
    change = [(start[name] - after[name]).ravel() * len(y) for name in start]
    return np.concatenate(change).astype(np.float64)


@pytest.mark.parametrize("arch", NETWORKS, ids=["mlp", "cnn", "choice", "pruned", "darts"])
@pytest.mark.parametrize("clip", [0.1, 1.0])
def test_no_row_changes_the_sum_by_more_than_the_clipping(arch: dict[str, Any], clip: float) -> None:
    """Brute force: each row in turn is replaced by an empty one, and by rows of very different sizes."""
    x, y = rows(arch)
    longest = 0.0
    for place in range(ROWS):
        for scale in (1.0, 1e3, 1e18):
            changed = x.copy()
            changed[place] *= scale
            with_row = gradient_sum(arch, changed, y, clip)
            others = np.arange(ROWS) != place
            without = gradient_sum(arch, changed[others], y[others], clip)
            length = float(np.linalg.norm(with_row - without))
            assert np.isfinite(length)
            longest = max(longest, length)
    assert longest <= clip * (1 + 1e-3)
    assert longest > 0.5 * clip  # so the rows were long enough for the test to mean something


@pytest.mark.parametrize("arch", NETWORKS, ids=["mlp", "cnn", "choice", "pruned", "darts"])
def test_without_clipping_it_is_the_gradient(arch: dict[str, Any]) -> None:
    x, y = rows(arch, scale=1.0)
    weights = spaces.initial(arch, stream(1, "start"))
    module = network(arch)
    parameters = load(module, weights)
    loss = torch.nn.functional.cross_entropy(module(torch.tensor(x)), torch.tensor(y), reduction="sum")
    expected = torch.cat([one.flatten() for one in torch.autograd.grad(loss, parameters)]).numpy()
    np.testing.assert_allclose(gradient_sum(arch, x, y, 1e6), expected, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("arch", [TABLE, IMAGES], ids=["mlp", "cnn"])
def test_all_rows_of_a_large_batch_count_once(arch: dict[str, Any]) -> None:
    """They are computed in several chunks, of which the last one is smaller."""
    x, y = rows(arch, 2 * private.CHUNK + 5)
    each = sum(gradient_sum(arch, x[place : place + 1], y[place : place + 1], 0.5) for place in range(len(y)))
    np.testing.assert_allclose(gradient_sum(arch, x, y, 0.5), each, rtol=1e-3, atol=1e-3)


def test_the_fast_path_of_perceptrons_is_the_general_one() -> None:
    x, y = rows(TABLE)
    weights = spaces.initial(TABLE, stream(1, "start"))
    module = network(TABLE)
    assert isinstance(module, Perceptron)
    parameters = load(module, weights)
    general = private._AnySum(module, list(weights), parameters, 0.7, None)(torch.tensor(x), torch.tensor(y))
    places = {id(one): place for place, one in enumerate(parameters)}
    fast = private._PerceptronSum(module, places, 0.7)(torch.tensor(x), torch.tensor(y))
    for one, two in zip(general, fast, strict=True):
        np.testing.assert_allclose(one.numpy(), two.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("arch", NETWORKS, ids=["mlp", "cnn", "choice", "pruned", "darts"])
def test_every_parameter_gets_the_noise(arch: dict[str, Any]) -> None:
    """Kolmogorov-Smirnov: without rows in the batch the change is normal noise of deviation noise * clip / rows."""
    x, y = rows(arch)
    start = spaces.initial(arch, stream(1, "start"))
    rare = PrivateSteps(clip=0.5, noise=2.0, rate=1e-12, steps=1)
    samples: dict[str, list[Array]] = {name: [] for name in start}
    for seed in range(60):
        after = private.train(network(arch), start, x, y, PLAIN, rare, stream(seed, "noise"))
        for name in start:
            samples[name].append((start[name] - after[name]).ravel() * rare.rate * len(y))
    for name, found in samples.items():
        values = np.concatenate(found)
        assert stats.kstest(values / (rare.clip * rare.noise), "norm").pvalue > 1e-4, name
    every = np.concatenate([np.concatenate(found) for found in samples.values()])
    assert every.std() == pytest.approx(1.0, rel=0.05)


def test_no_parameter_is_updated_without_noise() -> None:
    """Two streams give two results in every parameter, after one step and after many, with everything switched on."""
    x, y = rows(TABLE)
    start = spaces.initial(TABLE, stream(1, "start"))
    settings = sgd.TrainSettings(lr=0.1, momentum=0.9, weight_decay=0.1)
    for steps in (1, 7):
        one, two = (
            private.train(
                network(TABLE), start, x, y, settings, PrivateSteps(1.0, 1.0, 0.5, steps), stream(seed, "n"), prox=0.1
            )
            for seed in (1, 2)
        )
        for name in start:
            assert (one[name] != two[name]).all(), name


def test_batches_are_poisson(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    whole = private._PerceptronSum.__call__

    def counted(self: private._PerceptronSum, inputs: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
        sizes.append(len(labels))
        return whole(self, inputs, labels)

    monkeypatch.setattr(private._PerceptronSum, "__call__", counted)
    x, y = rows(TABLE, 50)
    start = spaces.initial(TABLE, stream(1, "start"))
    private.train(network(TABLE), start, x, y, PLAIN, PrivateSteps(1.0, 1.0, 0.4, 400), stream(1, "batches"))
    assert np.mean(sizes) == pytest.approx(20, rel=0.05)
    assert np.var(sizes) == pytest.approx(50 * 0.4 * 0.6, rel=0.3)


def test_no_gradient_escapes_because_its_squares_are_0() -> None:
    """The square of an error of 1e-23 is 0 in float32; with inputs of 1e17 the gradient is above the clipping."""
    arch = {**TABLE, "hidden": []}
    zero = {name: np.zeros_like(value) for name, value in spaces.initial(arch, stream(1, "start")).items()}
    bias = np.array([0, -52, -52], np.float32)  # class 0 is certain, up to an error of 3e-23
    start = Tensors({name: bias if value.ndim == 1 else value for name, value in zero.items()})
    for size in (1e16, 5e17, 1e30):
        x, y = np.full((1, 3), size, np.float32), np.zeros(1, np.int64)
        assert np.linalg.norm(gradient_sum(arch, x, y, LEAST_CLIP, start)) <= LEAST_CLIP * (1 + 1e-3)


def test_a_gradient_that_is_not_finite_contributes_nothing() -> None:
    x, y = rows(TABLE)
    others = gradient_sum(TABLE, x[1:], y[1:], 1.0)
    x[0] = np.inf
    np.testing.assert_allclose(gradient_sum(TABLE, x, y, 1.0), others, atol=1e-5)


SPARSE: dict[str, Any] = {"space": "sparse", "model": "mlp", "input": [6], "classes": 3, "hidden": [5, 4]}
SPARSE |= {"epsilon": 1, "graph": 1}
MASTER = {name: value for name, value in CHOICE.items() if name != "key"}


class Held:
    """These rows are the training rows."""

    def __init__(self, x: Array, y: Array) -> None:
        self.x, self.y, self.schema = x, y, Schema("table", x.shape[1:], ("a", "b", "c"))

    def part(self, part: Part, /) -> tuple[Array, Array]:
        assert part == "train"
        return self.x, self.y


def sum_by_job(arch: dict[str, Any], weights: Tensors, x: Array, y: Array, clip: float, **more: Any) -> Array:
    """The sum of clipped gradients, as the upload of a task of training shows it."""
    payload: Payload = {"architecture": arch, "weights": weights, "epochs": 1, "batch": len(y), "lr": 1.0, **more}
    payload["privacy"] = {"clip": clip, "noise": 1.0, "rate": 1.0, "steps": 1}
    answer = jobs.train(payload, Client(Held(x, y), {}, stream(1, "unused"), noise=Silent()))["weights"]
    assert list(answer) == list(weights)
    change = [(weights[name] - answer[name]).ravel() * len(y) for name in weights]
    return np.concatenate(change).astype(np.float64)


def path(key: list[int]) -> Tensors:
    """The weights of a path of the master, as a task carries them."""
    return spaces.initial(MASTER, stream(1, "start")).slice(choice.names({**MASTER, "key": key}))


def packed() -> Tensors:
    """The weights of the sparse network, as a task carries them."""
    return sparse.pack(SPARSE, spaces.initial(SPARSE, stream(1, "start")))


@pytest.mark.parametrize(
    ("arch", "weights", "more"),
    [
        (SPARSE, packed(), {}),
        (MASTER, path([2, 3]), {"key": [2, 3]}),
        (MASTER, path([0, 1]), {"key": [0, 1]}),
    ],
    ids=["sparse", "key 2 3", "key 0 1"],
)
def test_no_row_changes_what_a_task_uploads_by_more_than_the_clipping(
    arch: dict[str, Any], weights: Tensors, more: dict[str, Any]
) -> None:
    """Brute force over rows, for sparse networks, whose gradients are masked, and for paths of a master network."""
    x, y = rows(arch)
    clip, longest = 0.1, 0.0
    for place in range(ROWS):
        others = np.arange(ROWS) != place
        for scale in (1.0, 1e3, 1e18):
            changed = x.copy()
            changed[place] *= scale
            with_row = sum_by_job(arch, weights, changed, y, clip, **more)
            without = sum_by_job(arch, weights, changed[others], y[others], clip, **more)
            longest = max(longest, float(np.linalg.norm(with_row - without)))
    assert 0.2 * clip < longest <= clip * (1 + 1e-3)


def test_what_is_outside_of_a_sparse_network_never_leaves() -> None:
    """Only connections of the graph travel, and each of them has noise."""
    x, y = rows(SPARSE)
    weights = packed()
    payload: Payload = {"architecture": SPARSE, "weights": weights, "epochs": 1, "batch": 6, "lr": 1.0}
    payload["privacy"] = {"clip": 1.0, "noise": 1.0, "rate": 0.5, "steps": 2}

    def uploaded(seed: int) -> Tensors:
        return jobs.train(payload, Client(Held(x, y), {}, stream(1, "r"), noise=stream(seed, "n")))["weights"]

    one, two = uploaded(1), uploaded(2)
    for name, mask in sparse.masks(SPARSE).items():
        assert weights[name].size < mask.size == np.prod(mask.shape)
        assert one[name].shape == weights[name].shape and (one[name] != two[name]).all()


SUPERNET = darts.supernet([1, 4, 4], 3, channels=2, cells=2, norm="group")


def parts_of_a_supernet() -> list[list[str]]:
    """A supernet has two kinds of parameters, which different rows train."""
    return [list(darts.ALPHAS), [name for name in spaces.initial(SUPERNET, stream(1, "start")) if "alpha" not in name]]


@pytest.mark.parametrize("names", parts_of_a_supernet(), ids=["alphas", "weights"])
def test_no_row_changes_the_gradient_of_a_supernet_by_more_than_the_clipping(names: list[str]) -> None:
    x, y = rows(SUPERNET)
    module, start = network(SUPERNET), spaces.initial(SUPERNET, stream(1, "start"))
    named = dict(zip(start, load(module, start), strict=True))
    own, clip = {name: named[name] for name in names}, 1e-4

    def drawn(x: Array, y: Array) -> Array:
        steps = PrivateSteps(clip, 1.0, 1.0, 1)
        found = private.NoisyGradients(module, own, Rows(x, y, module, "cpu"), steps).draw(Silent())
        return torch.cat([one.flatten() for one in found]).numpy().astype(np.float64) * len(y)

    longest = 0.0
    for place in range(ROWS):
        others = np.arange(ROWS) != place
        longest = max(longest, float(np.linalg.norm(drawn(x, y) - drawn(x[others], y[others]))))
    assert 0.5 * clip < longest <= clip * (1 + 1e-3)


def test_a_private_search_of_a_supernet_moves_nothing_without_noise() -> None:
    """Two streams give two results in every weight and every alpha, and one stream always the same."""
    x, y = rows(SUPERNET, 12)
    start = spaces.initial(SUPERNET, stream(1, "start"))
    steps = PrivateSteps(1.0, 1.0, 0.5, 2)

    def searched(seed: int, level: Literal["validation", "mixed"] = "validation") -> Tensors:
        settings = alternating.Alternation(1, 4, 0.1, 0.9, 0.0, None, 0.01, 0.0, level)
        return alternating.search_privately(
            network(SUPERNET),
            start,
            darts.ALPHAS,
            (x[:6], y[:6]),
            (x[6:], y[6:]),
            settings,
            steps,
            steps,
            stream(seed, "n"),
        )

    one, two, again = searched(1), searched(2), searched(1)
    for name in start:
        assert (one[name] != two[name]).all() and (one[name] != start[name]).all(), name
        assert (one[name] == again[name]).all()
    with pytest.raises(ValueError, match="'mixed': alphas that follow the loss of training rows"):
        searched(1, "mixed")


def test_the_gradient_of_one_poisson_batch_has_noise() -> None:
    x, y = rows(CELLS)
    start = spaces.initial(CELLS, stream(1, "start"))
    rare = PrivateSteps(clip=0.5, noise=2.0, rate=1e-12, steps=1)
    found = [private.gradient(network(CELLS), start, x, y, rare, stream(seed, "noise")) for seed in range(20)]
    for name in start:
        values = np.concatenate([one[name].ravel() for one in found]) * rare.rate * len(y)
        assert stats.kstest(values / (rare.clip * rare.noise), "norm").pvalue > 1e-4, name
    silent = private.gradient(network(CELLS), start, x, y, PrivateSteps(0.1, 1.0, 1.0, 1), Silent())
    flat = np.concatenate([silent[name].ravel() for name in start]) * len(y)
    np.testing.assert_allclose(flat, gradient_sum(CELLS, x, y, 0.1), rtol=1e-3, atol=1e-5)


def test_masked_weights_stay_zero() -> None:
    x, y = rows(TABLE)
    start = spaces.initial(TABLE, stream(1, "start"))
    name = "layers.0.weight"
    mask = np.arange(start[name].size).reshape(start[name].shape) % 2 == 0
    start = start.replaced({name: start[name] * mask})
    steps = PrivateSteps(1.0, 1.0, 0.5, 3)
    after = private.train(network(TABLE), start, x, y, PLAIN, steps, stream(1, "n"), masks={name: mask})
    assert (after[name][~mask] == 0).all() and (after[name][mask] != start[name][mask]).all()


def test_batch_norm_and_unknown_layers_are_refused() -> None:
    with pytest.raises(ConfigError, match="is a batch norm, which lets rows influence each other; set norm = 'group'"):
        private.refuse_mixed_rows(spaces.skeleton({**CHOICE, "norm": "batch"}))

    class Mixing(torch.nn.Module):
        pass

    with pytest.raises(ConfigError, match="Mixing"):
        private.refuse_mixed_rows(torch.nn.Sequential(torch.nn.Linear(2, 2), Mixing()))


@pytest.mark.parametrize(
    "wrong",
    [
        *({"clip": 0.0}, {"clip": 1e-30}, {"noise": 0.0}, {"noise": float("inf")}, {"noise": np.array([1.0])}),
        *({"rate": 0.0}, {"rate": "0.5"}, {"steps": 0}, {"steps": 1.5}, {"steps": True}),
    ],
    ids=str,
)
def test_steps_without_noise_or_clipping_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"finite|whole number|at least one step"):
        PrivateSteps.of({"clip": 1.0, "noise": 1.0, "rate": 0.5, "steps": 1, **wrong})


def test_counts_get_normal_noise_and_stay_counts() -> None:
    exact = np.full(4000, 5000)
    noisy = noisy_counts(exact, 30.0, 10_000, stream(1, "counts"))
    assert noisy.dtype == np.int64
    assert stats.kstest((noisy - exact + stream(2, "u").random(4000) - 0.5) / 30, "norm").pvalue > 1e-3
    limited = noisy_counts(np.array([0, 10]), 50.0, 10, stream(1, "counts"))
    assert ((limited >= 0) & (limited <= 10)).all()
