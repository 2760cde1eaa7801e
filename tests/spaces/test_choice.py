"""The modules of the choice space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from atoll import spaces
from atoll.core.messages import Tensors
from atoll.errors import ArchitectureError
from atoll.spaces.choice import space as choice
from refusals import refused

IMAGE: dict[str, Any] = {"space": "choice", "input": [1, 28, 28], "classes": 10, "channels": [4, 4, 8, 16, 32]}
TABLE: dict[str, Any] = {"space": "choice", "input": [5], "classes": 3, "widths": [8, 8, 4, 16]}


def _loaded(arch: dict[str, Any], weights: Tensors) -> choice.ChoiceNetwork:
    module = spaces.build(arch)
    assert isinstance(module, choice.ChoiceNetwork)
    module.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
    return module


def _rows(arch: dict[str, Any]) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(3).standard_normal((6, *arch["input"])).astype(np.float32))


@pytest.mark.parametrize("arch", [IMAGE, TABLE])
def test_a_sub_model_is_a_slice_of_the_master_to_the_bit(arch: dict[str, Any]) -> None:
    weights = spaces.initial(arch, np.random.default_rng(0))
    master, x = _loaded(arch, weights), _rows(arch)
    for key in choice.random_keys(6, choice.blocks(arch), np.random.default_rng(1)):
        sub = choice.sub_model(arch, key)
        alone = _loaded(sub, weights.slice(choice.names(sub)))
        assert torch.equal(alone(x), master(x, key))


@pytest.mark.parametrize("size", [(28, 28), (11, 8), (9, 31)])
def test_all_branches_of_a_block_give_the_same_shape(size: tuple[int, int]) -> None:
    arch = {**IMAGE, "input": [1, *size]}
    master = _loaded(arch, spaces.initial(arch, np.random.default_rng(0)))
    x = master.run_stem(torch.ones(2, 1, *size))
    for number, channels in enumerate(arch["channels"]):
        results = [master.run_block(number, branch, x) for branch in range(choice.BRANCHES)]
        assert len({result.shape for result in results}) == 1
        assert results[0].shape[1] == channels
        x = results[0]
    assert x.shape[2:] == (-(-size[0] // 8), -(-size[1] // 8))


def test_no_branch_changes_its_input() -> None:
    for arch in (IMAGE, TABLE):
        master = _loaded(arch, spaces.initial(arch, np.random.default_rng(0)))
        x = master.run_stem(_rows(arch)).detach()
        before = x.clone()
        for branch in range(choice.BRANCHES):
            with torch.no_grad():
                master.run_block(0, branch, x)
        assert torch.equal(x, before)


def test_a_normal_identity_block_hands_its_input_on() -> None:
    master = _loaded(IMAGE, spaces.initial(IMAGE, np.random.default_rng(0)))
    x = torch.ones(2, 4, 28, 28)
    assert master.run_block(0, 0, x) is x
    assert not list(master.blocks[0]["identity"].parameters())  # type: ignore[index]


def test_branches_written_out_by_hand() -> None:
    """Residual: ReLU after the shortcut. Inverted: none. Separable: two norms, ReLU after the shortcut."""
    weights = spaces.initial(IMAGE, np.random.default_rng(0))
    master, x = _loaded(IMAGE, weights), _rows({"input": [4, 9, 9]})

    def convolved(y: torch.Tensor, name: str, groups: int = 1) -> torch.Tensor:
        kernel = torch.tensor(weights[f"blocks.1.{name}.weight"])
        return functional.conv2d(y, kernel, padding=kernel.shape[-1] // 2, groups=groups)

    def norm(y: torch.Tensor) -> torch.Tensor:
        return functional.batch_norm(y, None, None, training=True)

    y = norm(convolved(torch.relu(norm(convolved(x, "residual.first"))), "residual.second"))
    assert torch.equal(master.run_block(1, 1, x), torch.relu(y + x))

    y = torch.relu(norm(convolved(x, "inverted.expand")))
    y = torch.relu(norm(convolved(y, "inverted.depthwise", groups=24)))
    assert torch.equal(master.run_block(1, 2, x), norm(convolved(y, "inverted.project")) + x)

    y = convolved(convolved(x, "separable.depthwise_first", 4), "separable.pointwise_first")
    y = convolved(torch.relu(norm(y)), "separable.depthwise_second", 4)
    assert torch.equal(master.run_block(1, 3, x), torch.relu(norm(convolved(y, "separable.pointwise_second")) + x))


def test_a_reducing_identity_concatenates_two_strided_halves() -> None:
    weights = spaces.initial(IMAGE, np.random.default_rng(0))
    master, x = _loaded(IMAGE, weights), torch.arange(2 * 4 * 25, dtype=torch.float32).reshape(2, 4, 5, 5)
    left = functional.conv2d(x[:, :, ::2, ::2], torch.tensor(weights["blocks.2.identity.left.weight"]))
    result = master.run_block(2, 0, x)
    assert result.shape == (2, 8, 3, 3)
    assert torch.allclose(result[:, :4], left)


def test_the_master_requires_a_key() -> None:
    master = spaces.build(TABLE)
    with refused(ArchitectureError, "branch-key-needed"):
        master(_rows(TABLE))
    with refused(ArchitectureError, "key-length-mismatch", "1", "4"):
        master(_rows(TABLE), [0])


def test_initial_weights_come_from_the_generator_only() -> None:
    one, two = (spaces.initial(IMAGE, np.random.default_rng(5)) for _ in range(2))
    assert one.whole_digest() == two.whole_digest()
    assert list(one) == choice.names(IMAGE)
    assert one.whole_digest() != spaces.initial(IMAGE, np.random.default_rng(6)).whole_digest()


def test_every_parameter_of_every_branch_gets_a_gradient() -> None:
    for arch in (IMAGE, TABLE):
        weights = spaces.initial(arch, np.random.default_rng(0))
        for branch in range(choice.BRANCHES):
            sub = choice.sub_model(arch, [branch] * choice.blocks(arch))
            module = _loaded(sub, weights.slice(choice.names(sub)))
            functional.cross_entropy(module(_rows(arch)), torch.tensor([0, 1, 2, 0, 1, 2])).backward()
            assert all(value.grad is not None and value.grad.abs().sum() > 0 for value in module.parameters())
