"""Published files of the data sets: addresses and checksums."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from atoll.errors import DataError


def file_digest(path: Path, algorithm: str) -> str:
    """The hexadecimal digest of a file. MD5 is supported because some publishers give no other."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def verify(path: Path, known: str | None) -> None:
    """Compare with `known` ("sha256:..." or "md5:..."), or with the checksum recorded beside the file."""
    record = _record(path)
    source = "its published checksum"
    if known is None and record.exists():
        known = f"sha256:{record.read_text(encoding='utf-8').partition(' ')[0].strip()}"
        source = f"recorded in '{record.name}'"
    if known is None:
        return
    algorithm, _, wanted = known.partition(":")
    found = file_digest(path, algorithm)
    if found != wanted:
        raise DataError(
            f"'{path}' has {algorithm} {found}, not {wanted} ({source}): it is damaged or another version; "
            "put the original file there",
            code="wrong-checksum",
        )


def remember(path: Path, known: str | None) -> None:
    """Record the checksum of a file that was read without error, unless it is published or the folder is read-only."""
    record = _record(path)
    if known is None and not record.exists():
        with suppress(OSError):
            record.write_text(f"{file_digest(path, 'sha256')}  {path.name}\n", encoding="utf-8")


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


@dataclass(frozen=True)
class Published:
    """Files offered for download under one address, each with its publisher's checksum."""

    base: str
    files: dict[str, str]


_TRAIN_X, _TRAIN_Y = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
_TEST_X, _TEST_Y = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"

PUBLISHED: dict[str, Published] = {
    "mnist": Published(
        # The authors' own server no longer answers; this is the usual mirror.
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            _TRAIN_X: "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
            _TRAIN_Y: "md5:d53e105ee54ea40749a09fcbcd1e9432",
            _TEST_X: "md5:9fb629c4189551a2d022fa330f9573f3",
            _TEST_Y: "md5:ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion_mnist": Published(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            _TRAIN_X: "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            _TRAIN_Y: "md5:25c81989df183df01b3e8a0aad5dffbe",
            _TEST_X: "md5:bef4ecab320f06d8554ea6380940ec79",
            _TEST_Y: "md5:bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "cifar10": Published(
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-10-binary.tar.gz": "md5:c32a1d4ab5d03f1284b67883e8d87530"},
    ),
    "cifar100": Published(
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-100-binary.tar.gz": "md5:03b5dce01913d631647c71ecec9e9cb8"},
    ),
    "svhn": Published(
        "http://ufldl.stanford.edu/housenumbers/",
        {
            "train_32x32.mat": "md5:e26dedcc434d2e4c54c9b2d4a06d8373",
            "test_32x32.mat": "md5:eb5a983be6a315427106f1b164d9cef3",
        },
    ),
}

ARCHIVES: dict[str, str] = {  # the numpy archives described in the documentation
    "mnist.npz": "sha256:06af5dfe73b70e3bc1c36439982b18a8d76803db9b544f6fdf838a37fbb01b64",
    "fashion_mnist.npz": "sha256:5b6d2c4c694a91887af8ab7d039c04f80af3c29378d731c93a538d2e831aa469",
    "cifar10_small.npz": "sha256:84fb916c672519d47fc255fbf2ac4ac28f5725c5e937ccfca1ae7af4b065e91d",
    "uci_har.npz": "sha256:2a0dbea46bc8bebd2f43614d4ea0708d94b419f134788c7221c1fe1cc03e1bbd",
    "wisdm_v11.npz": "sha256:059e3c7e8ac4daab4071fa956e05f619258566ccb9c03e25ec0be1298edd7b38",
    "apnea_hrv.npz": "sha256:b1b5a0cfe99c0de05dc2dbdb6d4a9ff9001a258d91a1a6f7ac4a897ffa0f2085",
}
