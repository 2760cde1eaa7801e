"""Rows under `[privacy]`: noisy sums of bounded values by hand and by brute force, and splits that look at no class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from atoll.data import Federated, load
from atoll.data.loading import settle
from atoll.data.preprocess import Moments
from atoll.data.private import LEAST_VARIANCE, PrivateRows, bounded_sums, sensitivity
from atoll.data.settings import checked_settings
from atoll.errors import ConfigError
from atoll.preparation.value import Preparation, RawColumn, SeriesWindow
from atoll.rng import Generator, stream
from refusals import refused

LOW, HIGH = np.array([0.0, -1.0]), np.array([10.0, 1.0])


class Silent:
    """A stream whose noise is 0."""

    def standard_normal(self, shape: Any) -> Any:
        return np.zeros(shape)


SILENT: Generator = Silent()  # type: ignore[assignment]


def table(*columns: RawColumn, **more: Any) -> Preparation:
    return Preparation(kind="table", columns=list(columns), classes=["a", "b"], **more)


TWO = table(RawColumn(name="x"), RawColumn(name="y"))
BOUNDS = {"x": [0.0, 10.0], "y": [-1.0, 1.0]}


def test_sums_by_hand() -> None:
    """0, 5 and 10 of 0 to 10 become -1, 0 and 1: their sum is 0, that of t^2 - 1/2 is 1/2 - 1/2 + 1/2."""
    rows = np.array([[0, 1], [5, 1], [10, 1]], np.float32)
    assert bounded_sums(rows, LOW, HIGH).tolist() == [[0.0, 3.0], [0.5, 1.5]]
    outside = np.array([[-9, 7], [5, np.inf], [99, 1e30]], np.float32)
    assert bounded_sums(outside, LOW, HIGH).tolist() == [[0.0, 3.0], [0.5, 1.5]]  # clipped
    assert bounded_sums(np.array([[np.nan, 1]], np.float32), LOW, HIGH).tolist() == [[0.0, 1.0], [-0.5, 0.5]]


def test_moments_by_hand() -> None:
    """Values 2, 4 and 9 in bounds of 0 to 10: mean 5, squared deviations 9 + 1 + 16."""
    rows = np.array([[2, 0], [4, 0], [9, 0]], np.float32)
    found = PrivateRows(BOUNDS).moments(rows, TWO, False, SILENT)
    assert found.count == 3
    assert found.mean == pytest.approx([5.0, 0.0])
    assert found.squares == pytest.approx([26.0, 3 * LEAST_VARIANCE])  # a constant keeps the least variance


@pytest.mark.parametrize("inputs", [1, 2, 7])
def test_no_row_changes_the_sums_by_more_than_the_sensitivity(inputs: int) -> None:
    """Brute force: each row is replaced by an empty one, whatever it holds; rows at the bounds come close."""
    rng = stream(1, "rows")
    low, high, longest = np.full(inputs, -2.0), np.full(inputs, 3.0), 0.0
    for scale in (0.1, 1.0, 50.0, np.inf):
        rows = (rng.standard_normal((8, inputs)) * scale).astype(np.float32)
        for place in range(len(rows)):
            others = np.arange(len(rows)) != place
            change = bounded_sums(rows, low, high) - bounded_sums(rows[others], low, high)
            longest = max(longest, float(np.linalg.norm(change)))
    assert 0.99 * sensitivity(inputs) < longest <= sensitivity(inputs) * (1 + 1e-12)


def test_the_noise_is_normal_in_units_of_the_sensitivity() -> None:
    """Kolmogorov-Smirnov, of means and, where they are not limited, of variances."""
    rows, private = np.full((400, 2), 0.0, np.float32), PrivateRows({"x": [-1.0, 1.0], "y": [-1.0, 1.0]}, 3.0)
    found = [private.moments(rows, TWO, False, stream(seed, "noise")) for seed in range(300)]
    deviation = 3.0 * sensitivity(2) / 400
    means = np.concatenate([one.mean for one in found])
    assert stats.kstest(means / deviation, "norm").pvalue > 1e-3
    half = np.repeat(np.array([[1.0, 1.0], [-1.0, -1.0]], np.float32), 200, axis=0) * 0.7
    varied = [private.moments(half, TWO, False, stream(seed, "noise")) for seed in range(300)]
    spread = np.concatenate([one.squares / 400 + one.mean**2 for one in varied]) - 0.49
    assert stats.kstest(spread / deviation, "norm").pvalue > 1e-3


def test_bounds_of_every_kind_of_column() -> None:
    preparation = table(
        RawColumn(name="age"),
        RawColumn(name="ward", kind="category", words=["a", "b", "c"]),
        RawColumn(name="sex", kind="category", words=["f", "m"], coding="onehot"),
        RawColumn(name="day", kind="date", parts=["days", "weekday", "month"]),
    )
    low, high = PrivateRows({"age": [18.0, 99.0], "day (days)": [0.0, 400.0]}).limits(preparation, False)
    assert low.tolist() == [18, 0, 0, 0, 0, 0, 1] and high.tolist() == [99, 2, 1, 1, 400, 6, 12]
    steps = table(RawColumn(name="age"), window=SeriesWindow(steps=2, stride=2))
    assert PrivateRows({"age": [1.0, 2.0]}).limits(steps, False)[1].tolist() == [2, 2]
    logarithm = PrivateRows({"age": [0.0, np.e - 1]}).limits(table(RawColumn(name="age")), True)
    assert logarithm[1].tolist() == pytest.approx([1.0])


@pytest.mark.parametrize(
    ("bounds", "code", "named"),
    [
        ({"x": [0.0, 1.0]}, "privacy-bounds", "needs bounds of column 'y'"),
        ({**BOUNDS, "z": [0.0, 1.0]}, "privacy-bounds", "privacy.bounds.z"),
    ],
)
def test_bounds_that_do_not_fit(bounds: dict[str, Any], code: str, named: str) -> None:
    with refused(ConfigError, code, named):
        PrivateRows(bounds).limits(TWO, False)


def folder(tmp_path: Path, shift: float = 0.0) -> Path:
    rng = stream(2, "folder")
    for name in ("a", "b"):
        lines = ["x,y,label"]
        lines += [f"{rng.random() * 10 + shift:.4f},{rng.random():.4f},{number % 2}" for number in range(50)]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_a_federation_that_is_scaled_by_noisy_sums(tmp_path: Path) -> None:
    """The same numbers for the same seed, others for other noise, and other noise for other rows or bounds."""
    settings = checked_settings({"folder": str(folder(tmp_path)), "blocks": "shuffled"})

    def scaled(private: PrivateRows | None, seed: int = 1) -> Any:
        return settle(settings, seed, None, private)[0].client_rows.scaling

    exact, noisy = scaled(None), scaled(PrivateRows(BOUNDS, 1.0))
    assert noisy.mean.tolist() == scaled(PrivateRows(BOUNDS, 1.0)).mean.tolist()
    assert noisy.mean[0, 0] != exact.mean[0, 0] and abs(noisy.mean[0, 0] - exact.mean[0, 0]) < 3
    close = scaled(PrivateRows(BOUNDS, 1e-6))
    assert close.mean == pytest.approx(exact.mean, rel=1e-3)
    assert close.deviation == pytest.approx(exact.deviation, rel=1e-3)

    def noise(rows: Any, private: PrivateRows) -> Moments:
        with_noise = private.simulated(rows, TWO, False, 1, "a")
        without = private.moments(rows, TWO, False, SILENT)
        return (with_noise.mean - without.mean) / private.noise

    rows = np.full((50, 2), 0.5, np.float32)
    other = rows.copy()
    other[0, 0] = 0.6
    first = noise(rows, PrivateRows(BOUNDS, 1.0))
    for one in (noise(other, PrivateRows(BOUNDS, 1.0)), noise(rows, PrivateRows(BOUNDS, 4.0))):
        assert not np.allclose(first, one)


@pytest.mark.parametrize(
    ("given", "found"), [(None, "shuffled"), ("contiguous", "contiguous"), ("random", "random")], ids=str
)
def test_the_default_split_looks_at_no_class(tmp_path: Path, given: str | None, found: str) -> None:
    table = {"folder": str(folder(tmp_path)), "scale": "none"} | ({} if given is None else {"blocks": given})
    assert settle(checked_settings(table), 1, None, PrivateRows())[1].blocks == found
    assert settle(checked_settings(table), 1)[1].blocks == (given or "random")


def test_one_label_moves_no_other_row(tmp_path: Path) -> None:
    """With the default of other runs it does: that is why they have another one."""
    settings = checked_settings({"folder": str(folder(tmp_path)), "scale": "none", "split": (0.7, 0.3, 0.0)})

    def trained(private: PrivateRows | None) -> Any:
        return settle(settings, 1, None, private)[0].client_rows.rows_of(0, "train").tolist()

    before = [trained(None), trained(PrivateRows())]
    path = tmp_path / "a.csv"
    lines = path.read_text().splitlines()
    lines[7] = lines[7][:-1] + str(1 - int(lines[7][-1]))
    path.write_text("\n".join(lines) + "\n")
    assert trained(PrivateRows()) == before[1]
    assert trained(None) != before[0]


def test_a_federation_knows_how_it_was_prepared(tmp_path: Path) -> None:
    rows = np.arange(40, dtype=np.float32).reshape(20, 2)
    data = Federated.from_arrays(rows, np.arange(20) % 2, [0] * 20, blocks="shuffled", missing="mean")
    data.save(tmp_path / "saved")
    rules = Federated.attach(tmp_path / "saved").client_rows.rules
    assert rules == data.client_rows.rules and rules is not None
    assert (rules.blocks, rules.missing, rules.scale) == ("shuffled", "mean", "none")


def test_scaling_of_images_is_refused() -> None:
    settings = checked_settings({"name": "digits", "scale": "federated"})
    with refused(ConfigError, "privacy-scaling", "data.scale = 'federated'"):
        settle(settings, 1, None, PrivateRows())
    assert load(settings, 1).preparation.scale == "federated"
