"""Small files in the published formats, for tests."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from pathlib import Path

import numpy as np

from atoll.core.messages import Array
from atoll.rng import stream

IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def idx_bytes(array: Array) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def pictures(rows: int, *shape: int) -> tuple[Array, Array]:
    """Random bytes, and labels 0, 1, ..., 9, 0, ..."""
    return stream(rows).integers(0, 256, (rows, *shape)).astype(np.uint8), (np.arange(rows) % 10).astype(np.uint8)


def write_idx(folder: Path, compress: bool) -> tuple[Array, Array]:
    """The four files of an MNIST-like set of 100 + 20 images of 4x4; gives the training arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = (*pictures(100, 4, 4), *pictures(20, 4, 4))
    for name, array in zip(IDX, arrays, strict=True):
        raw = idx_bytes(array)
        if compress:
            (folder / f"{name}.gz").write_bytes(gzip.compress(raw))
        else:
            (folder / name).write_bytes(raw)
    return arrays[0], arrays[1]


def cifar_bytes(images: Array, labels: Array, label_bytes: int) -> bytes:
    """Records of CIFAR's binary form; of two label bytes the first (coarse) one is 77 throughout."""
    coarse = [np.full((len(labels), 1), 77, np.uint8)] * (label_bytes - 1)
    return np.concatenate([*coarse, labels[:, None], images.reshape(len(images), -1)], axis=1).tobytes()


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(f"cifar-binary/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
