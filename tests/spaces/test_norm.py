"""Batch norm without affine parameters and running averages."""

from __future__ import annotations

import pytest
import torch

from atoll.spaces.norm import AffineBatchNorm, BatchNorm


def test_two_rows_by_hand() -> None:
    # mean 3, biased variance 4, and 5 under the root with what is added to it
    out = BatchNorm(1, epsilon=1.0)(torch.tensor([[1.0], [5.0]]))
    assert out.flatten().tolist() == pytest.approx([-2 / 5**0.5, 2 / 5**0.5])


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 4, 5)])
def test_equals_torch_without_affine_and_tracking(shape: tuple[int, ...]) -> None:
    x = torch.arange(6 * 3 * (20 if len(shape) == 4 else 1), dtype=torch.float32).reshape(shape).sin()
    kind = torch.nn.BatchNorm2d if len(shape) == 4 else torch.nn.BatchNorm1d
    torch.testing.assert_close(BatchNorm(3)(x), kind(3, affine=False, track_running_stats=False)(x))


def test_evaluation_mode_still_uses_the_batch() -> None:
    layer, x = BatchNorm(2), torch.tensor([[1.0, 2.0], [3.0, 8.0]])
    assert torch.equal(layer.eval()(x), layer.train()(x))
    assert not list(layer.parameters())
    assert not layer.state_dict()


def test_fixed_statistics_work_on_one_row() -> None:
    layer = BatchNorm(2, epsilon=0.0)
    layer.fix(torch.tensor([1.0, 2.0]), torch.tensor([4.0, 9.0]))
    assert layer(torch.tensor([[5.0, 5.0]])).tolist() == [[2.0, 1.0]]
    assert set(layer.state_dict()) == {"mean", "variance"}


def test_statistics_of_other_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="2 channels"):
        BatchNorm(2).fix(torch.zeros(3), torch.ones(3))


def test_affine_parameters_scale_and_shift_batch_and_fixed_statistics_alike() -> None:
    layer = AffineBatchNorm(1, epsilon=1.0)
    with torch.no_grad():
        layer.weight.fill_(5**0.5)
        layer.bias.fill_(10.0)
    assert layer(torch.tensor([[1.0], [5.0]])).flatten().tolist() == pytest.approx([8.0, 12.0])
    layer.fix(torch.tensor([3.0]), torch.tensor([4.0]))
    assert layer(torch.tensor([[5.0]])).item() == pytest.approx(12.0)
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]
