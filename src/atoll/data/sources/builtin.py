"""Small data sets that are part of scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from atoll.data.source import Dataset, Source, make_source
from atoll.preparation.value import ImageForm, Preparation


def digits(_folder: Path | None = None) -> Source:
    """1797 handwritten digits of 8x8, sixteen shades, scaled to 0 ... 1."""
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    classes = [str(digit) for digit in range(10)]
    form = ImageForm(channels=1, height=8, width=8, dtype="float32", largest=16.0)
    return make_source(
        (bunch.images / 16.0).astype(np.float32),
        bunch.target,
        class_names=classes,
        preparation=Preparation(kind="image", image=form, classes=classes),
        what="digits",
    )


def breast_cancer(_folder: Path | None = None) -> Source:
    """569 tumours, 30 measures of cell nuclei."""
    from sklearn.datasets import load_breast_cancer

    return _table(load_breast_cancer(), "breast_cancer")


def wine(_folder: Path | None = None) -> Source:
    """178 wines of three growers, 13 chemical measures."""
    from sklearn.datasets import load_wine

    return _table(load_wine(), "wine")


def _table(bunch: Any, name: str) -> Source:
    return make_source(
        bunch.data,
        bunch.target,
        class_names=[str(word) for word in bunch.target_names],
        feature_names=[str(word) for word in bunch.feature_names],
        what=name,
    )


DIGITS = Dataset("image", "1,797", 10, "scikit-learn", digits)
BREAST_CANCER = Dataset("table", "569", 2, "scikit-learn", breast_cancer)
WINE = Dataset("table", "178", 3, "scikit-learn", wine)
