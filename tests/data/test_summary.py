"""The class histogram, as numbers and as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from atoll.data import DataSettings, Federated, load
from atoll.data.federated import histogram
from atoll.errors import UserError
from atoll.report.figures.partition import BANDS, _bands, draw_partition


def test_counts_over_all_parts_without_the_official_test_set() -> None:
    federated = Federated.from_arrays(
        np.zeros((10, 1)), [0] * 4 + [1] * 6, ["a"] * 5 + ["b"] * 5, test=(np.zeros((4, 1)), [0, 1, 0, 1])
    )
    assert histogram(federated).tolist() == [[4, 1], [0, 5]]


@pytest.mark.parametrize("clients", [8, 300])
def test_a_picture_is_drawn_for_few_and_for_many(tmp_path: Path, clients: int) -> None:
    federated = load(DataSettings(name="digits", clients=clients, partition="dirichlet:0.5"), 0)
    path = draw_partition(federated, tmp_path / "deep" / "p.png")
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert pixels.shape[0] > 400 and len(np.unique(pixels.reshape(-1, 3), axis=0)) > 20
    svg = draw_partition(federated, tmp_path / "p.svg").read_text(encoding="utf-8")
    assert "<svg" in svg
    with pytest.raises(UserError, match=r"p\.doc"):
        draw_partition(federated, tmp_path / "p.doc")


def test_bands_average_neighbours_and_lose_nobody() -> None:
    counts = np.arange(2 * BANDS * 3).reshape(2 * BANDS, 3)
    bands = _bands(counts)
    assert bands.shape == (BANDS, 3) and bands[0].tolist() == [1.5, 2.5, 3.5]
    assert bands.sum() * 2 == counts.sum()
    assert np.array_equal(_bands(counts[:5]), counts[:5])
