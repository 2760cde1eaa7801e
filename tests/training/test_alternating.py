"""One alternating step of weights and alphas on a small supernet, against torch written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from atoll import spaces
from atoll.rng import stream
from atoll.spaces.darts import space as darts
from atoll.training.alternating import Alternation, search_locally, validation_rows
from atoll.training.networks import load, network

ARCH = darts.supernet([1, 6, 6], 2, channels=2, cells=1)
SETTINGS = Alternation(
    epochs=1,
    batch=100,
    lr=0.1,
    momentum=0.9,
    weight_decay=0.01,
    clip=0.5,
    alpha_lr=0.01,
    alpha_decay=0.001,
    level="validation",
)


def part(seed: int, rows: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = stream(seed, "rows")
    return rng.normal(size=(rows, 1, 6, 6)).astype(np.float32), rng.integers(0, 2, rows)


@pytest.mark.parametrize("level", ["validation", "mixed"])
def test_one_step_of_each(level: str) -> None:
    """One batch of all rows: first the alphas by Adam, whose first step is the rate; then the weights, with these."""
    tensors = spaces.initial(ARCH, stream(1, "supernet"))
    train, validation = part(1), part(2)
    settings = replace(SETTINGS, level=level)  # type: ignore[arg-type]
    found = search_locally(network(ARCH), tensors, darts.ALPHAS, train, validation, settings, stream(1, "client"))

    module = spaces.build(ARCH)
    load(module, tensors)
    named = dict(module.named_parameters())

    def loss(rows: tuple[np.ndarray, np.ndarray]) -> torch.Tensor:
        return functional.cross_entropy(module(torch.tensor(rows[0])), torch.tensor(rows[1]))

    alphas = [named[name] for name in darts.ALPHAS]
    total = loss(validation) + (loss(train) if level == "mixed" else 0)
    slopes = torch.autograd.grad(total, alphas, allow_unused=True, materialize_grads=True)
    used = darts.ALPHAS[1]  # a single cell is a reduction cell: the other alphas only decay
    slope = slopes[1].numpy() + 0.001 * tensors[used]
    assert np.allclose(found.tensors[used], tensors[used] - 0.01 * np.sign(slope), atol=2e-3)
    load(module, {name: found.tensors[name] for name in darts.ALPHAS})
    theta = [named[name] for name in darts.names(ARCH)]
    gradients = torch.autograd.grad(loss(train), theta)
    norm = float(torch.sqrt(sum((gradient**2).sum() for gradient in gradients)))  # type: ignore[arg-type]
    shrink = min(1.0, 0.5 / norm)
    for name, gradient in zip(darts.names(ARCH), gradients, strict=True):
        wanted = tensors[name] - 0.1 * (shrink * gradient.numpy() + 0.01 * tensors[name])
        assert np.allclose(found.tensors[name], wanted, atol=1e-5), name
    assert found.rows == 12 and 0 <= found.correct <= 12


def test_nothing_is_left_in_the_module() -> None:
    tensors = spaces.initial(ARCH, stream(1, "supernet"))
    module = network(ARCH)
    first = search_locally(
        module, tensors, darts.ALPHAS, part(1), part(2, 5), replace(SETTINGS, batch=4), stream(1, "c")
    )
    again = search_locally(
        module, tensors, darts.ALPHAS, part(1), part(2, 5), replace(SETTINGS, batch=4), stream(1, "c")
    )
    assert first.tensors.whole_digest() == again.tensors.whole_digest()
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize(("train", "validation", "batch"), [(12, 12, 100), (20, 5, 8), (17, 7, 3), (9, 4, 4)])
def test_the_rows_that_judge_are_those_that_pass_through_the_network(train: int, validation: int, batch: int) -> None:
    settings, module, seen = replace(SETTINGS, epochs=2, batch=batch), network(ARCH), []
    hook = module.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    tensors = spaces.initial(ARCH, stream(1, "supernet"))
    search_locally(module, tensors, darts.ALPHAS, part(1, train), part(2, validation), settings, stream(1, "client"))
    hook.remove()  # a module is kept and used again
    assert sum(seen) == 2 * train + validation_rows(train, validation, settings)
