"""File formats: NumPy archives, idx, CIFAR's binary records, MATLAB. None of them can run code; no pickle is read.

Each reader checks the structure and raises a one-line `DataError` for a file that is truncated, damaged or of another
format.
"""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from atoll.core.messages import Array
from atoll.errors import DataError

Bytes = npt.NDArray[np.uint8]
BROKEN = (OSError, ValueError, KeyError, EOFError, zlib.error, zipfile.BadZipFile, struct.error, tarfile.TarError)


def read_npz(path: Path, needed: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Array]:
    """Named arrays of a NumPy archive; refuses object arrays, which need pickle."""
    try:
        archive: Any = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(
                f"'{path}' is a single array, not an archive; save it with np.savez(path, x=..., y=...)",
                code="not-an-archive",
            )
        with archive:
            for name in needed:
                if name not in archive.files:
                    held = ", ".join(archive.files) or "nothing"
                    raise DataError(
                        f"'{path}' has no array '{name}' (it holds {held}); save x and y under these names",
                        code="array-missing",
                    )
            return {name: archive[name] for name in (*needed, *optional) if name in archive.files}
    except FileNotFoundError:
        raise DataError(f"'{path}' does not exist; put the file there", code="file-missing") from None
    except BROKEN as error:
        if "allow_pickle" in str(error) and zipfile.is_zipfile(path):
            raise DataError(
                f"'{path}' holds arrays of Python objects, which are not read; save numbers or text",
                code="object-arrays",
            ) from None
        raise DataError(
            f"'{path}' is not a readable NPZ file ({_short(error)}); make or copy it again", code="file-damaged"
        ) from None


def read_idx(path: Path) -> Bytes:
    """An idx file of unsigned bytes (MNIST's format), plain or gzipped."""
    try:
        stored = path.read_bytes()
        raw = gzip.decompress(stored) if path.suffix == ".gz" else stored
        zeros, kind, axes = struct.unpack(">HBB", raw[:4])
        shape = struct.unpack(f">{axes}I", raw[4 : 4 + 4 * axes])
    except BROKEN as error:
        raise DataError(
            f"'{path}' is not a readable idx file ({_short(error)}); make or copy it again", code="file-damaged"
        ) from None
    if zeros != 0 or kind != 8 or int(np.prod(shape)) != len(raw) - 4 - 4 * axes:
        raise DataError(
            f"'{path}' is not an idx file of bytes or is truncated; make or copy it again", code="file-damaged"
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)


def cifar_records(raw: bytes, label_bytes: int, origin: str) -> tuple[Bytes, Bytes]:
    """CIFAR's binary records: label bytes (the last one counts), then 3072 bytes of one image, channels first."""
    size = label_bytes + 3072
    if not raw or len(raw) % size:
        raise DataError(
            f"'{origin}' is not a CIFAR binary file ({len(raw)} bytes, not a multiple of {size})", code="file-damaged"
        )
    records = np.frombuffer(raw, dtype=np.uint8).reshape(-1, size)
    return records[:, label_bytes:].reshape(-1, 3, 32, 32), records[:, label_bytes - 1]


def tar_members(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    """The content of these files of a tar archive, by file name; nothing is extracted to disk."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = Path(member.name).name
                content = archive.extractfile(member) if name in names and member.isfile() else None
                if content is not None:
                    found[name] = content.read()
    except BROKEN as error:
        raise DataError(
            f"'{path}' is not a readable tar.gz file ({_short(error)}); make or copy it again", code="file-damaged"
        ) from None
    for name in names:
        if name not in found:
            raise DataError(
                f"'{path}' has no member {name}: this is not the binary version; get the one for C programs",
                code="archive-member-missing",
            )
    return found


def read_mat(path: Path) -> dict[str, Array]:
    """The arrays of a MATLAB (version 5) file."""
    from scipy.io import loadmat

    try:
        content: dict[str, Any] = loadmat(io.BytesIO(path.read_bytes()))
    except Exception as error:  # a damaged file can make the MATLAB reader raise anything
        raise DataError(
            f"'{path}' is not a readable .mat file ({_short(error)}); make or copy it again", code="file-damaged"
        ) from None
    return {name: value for name, value in content.items() if isinstance(value, np.ndarray)}


def _short(error: BaseException) -> str:
    """The first line of an error, shortened for a one-line message."""
    text = str(error).strip().splitlines() or [type(error).__name__]
    return text[0][:100]
