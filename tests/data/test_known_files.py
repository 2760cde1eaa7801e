"""Published formats read from made files: numpy archives, idx, CIFAR's binary records, SVHN's MATLAB files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from atoll.core.messages import PARTS, Array
from atoll.data import DataSettings, Federated, catalogue, load
from atoll.data import published as known
from atoll.data.files.formats import read_idx, read_npz
from atoll.data.published import file_digest
from atoll.errors import DataError
from data.made_files import IDX, cifar_bytes, idx_bytes, pictures, write_idx, write_tar
from refusals import refused


def take(name: str, folder: Path) -> Federated:
    return load(DataSettings(name=name, clients=2, split=(1.0, 0.0, 0.0), blocks="contiguous"), 0, folder)


def trust(monkeypatch: pytest.MonkeyPatch, name: str, paths: list[Path]) -> None:
    """Take the made files' checksums for the published ones."""
    files = {path.name: f"md5:{file_digest(path, 'md5')}" for path in paths}
    monkeypatch.setitem(known.PUBLISHED, name, replace(known.PUBLISHED[name], files=files))


def rows_in_order(federated: Federated) -> tuple[Array, Array]:
    held = federated.client_rows
    return held.x[: federated.rows], held.y[: federated.rows]


def test_plain_idx_files_are_trusted_on_first_use_and_then_held_to_it(tmp_path: Path) -> None:
    x, y = write_idx(tmp_path / "mnist", compress=False)
    federated = take("mnist", tmp_path)
    found_x, found_y = rows_in_order(federated)
    assert np.array_equal(found_x[:, 0], x) and np.array_equal(found_y, y)
    assert federated.schema.shape == (1, 4, 4) and federated.sizes("benchmark-00")["test"] == 20
    usual = load(DataSettings(name="mnist", clients=2, test_rows=10), 0, tmp_path)
    assert usual.sizes("client-000") == {"train": 40, "validation": 10, "test": 0}  # the official set does the testing
    assert usual.sizes("benchmark-00")["test"] == 10
    assert {entry.name for entry in catalogue(tmp_path) if entry.present} >= {"mnist"}
    assert (tmp_path / "mnist" / f"{IDX[0]}.sha256").exists()
    (tmp_path / "mnist" / IDX[0]).write_bytes(idx_bytes(255 - x))
    with refused(DataError, "wrong-checksum", IDX[0], "sha256"):
        take("mnist", tmp_path)


def test_gzipped_idx_files_must_have_the_published_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, _ = write_idx(tmp_path / "fashion_mnist", compress=True)
    with refused(DataError, "wrong-checksum", f"{IDX[0]}.gz", "md5", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"):
        take("fashion_mnist", tmp_path)
    trust(monkeypatch, "fashion_mnist", [tmp_path / "fashion_mnist" / f"{name}.gz" for name in IDX])
    federated = take("fashion_mnist", tmp_path)
    assert np.array_equal(rows_in_order(federated)[0][:, 0], x) and federated.schema.classes[9] == "Ankle boot"


def test_idx_files_in_the_data_folder_itself_belong_to_nobody(tmp_path: Path) -> None:
    write_idx(tmp_path, compress=False)
    with refused(DataError, "dataset-files-missing", "'mnist'", tmp_path):
        take("mnist", tmp_path)


def test_an_archive_of_another_content_is_refused(tmp_path: Path) -> None:
    x, y = pictures(20, 4, 4)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with refused(DataError, "wrong-checksum", "mnist.npz", "sha256", "06af5dfe73b7"):
        take("mnist", tmp_path)


def test_an_archive_without_published_checksum_is_read_channels_last(tmp_path: Path) -> None:
    x, y = pictures(20, 32, 32, 3)
    np.savez(tmp_path / "cifar10.npz", x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])
    found, _ = rows_in_order(take("cifar10", tmp_path))
    assert np.array_equal(found, np.moveaxis(x, 3, 1))


def test_cifar10_from_extracted_batches_and_from_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = pictures(60, 3, 32, 32)
    names = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
    members = {n: cifar_bytes(x[i * 10 : i * 10 + 10], y[i * 10 : i * 10 + 10], 1) for i, n in enumerate(names)}
    extracted, packed = tmp_path / "extracted", tmp_path / "packed"
    (extracted / "cifar-10-batches-bin").mkdir(parents=True)
    for name, content in members.items():
        (extracted / "cifar-10-batches-bin" / name).write_bytes(content)
    packed.mkdir()
    # An archive's members come in any order; the rows must not.
    write_tar(packed / "cifar-10-binary.tar.gz", dict(reversed(members.items())))
    trust(monkeypatch, "cifar10", [packed / "cifar-10-binary.tar.gz"])
    for folder in (extracted, packed):
        federated = take("cifar10", folder)
        found_x, found_y = rows_in_order(federated)
        assert np.array_equal(found_x, x[:50]) and np.array_equal(found_y, y[:50])
        assert federated.sizes("benchmark-00")["test"] == 10 and federated.schema.classes[0] == "airplane"


def test_cifar100_takes_the_fine_label(tmp_path: Path) -> None:
    x, y = pictures(20, 3, 32, 32)
    (tmp_path / "cifar100").mkdir()
    for name in ("train.bin", "test.bin"):
        (tmp_path / "cifar100" / name).write_bytes(cifar_bytes(x, y, 2))
    federated = take("cifar100", tmp_path)
    assert np.array_equal(rows_in_order(federated)[1], y)
    assert len(set(federated.schema.classes)) == 100


def test_pickled_cifar_is_not_taken_for_the_binary_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cifar-10-binary.tar.gz"
    write_tar(path, {"data_batch_1": b"pickle"})
    trust(monkeypatch, "cifar10", [path])
    with refused(DataError, "archive-member-missing", path, "data_batch_1.bin"):
        take("cifar10", tmp_path)


def test_svhn_puts_rows_first_and_reads_ten_as_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, _ = pictures(20, 32, 32, 3)
    y = np.arange(1, 21) % 10
    paths = [tmp_path / "train_32x32.mat", tmp_path / "test_32x32.mat"]
    for path in paths:
        savemat(path, {"X": np.transpose(x, (1, 2, 3, 0)), "y": np.where(y == 0, 10, y)[:, None]})
    trust(monkeypatch, "svhn", paths)
    found_x, found_y = rows_in_order(take("svhn", tmp_path))
    assert np.array_equal(found_x, np.moveaxis(x, 3, 1)) and np.array_equal(found_y, y)


def test_subjects_are_natural_clients_and_time_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(80.0, dtype=np.float32)[:, None]
    x[3] = np.nan
    np.savez(
        tmp_path / "wisdm_v11.npz",
        x=x,
        y=np.tile(np.repeat([0, 1], 20), 2).astype(np.uint8),
        subject=np.repeat([33, 5], 40).astype(np.uint8),
        feature_names=np.array(["when"]),
        class_names=np.array(["Walking", "Sitting"]),
    )
    monkeypatch.setitem(known.ARCHIVES, "wisdm_v11.npz", f"sha256:{file_digest(tmp_path / 'wisdm_v11.npz', 'sha256')}")
    federated = load(DataSettings(name="wisdm", scale="none"), 0, tmp_path)
    assert federated.names == ["subject-05", "subject-33"]
    train, validation, test = (federated.client("subject-05").part(part)[0].ravel().tolist() for part in PARTS)
    assert train == [*range(40, 52), *range(60, 72)]  # the first three fifths of each activity
    assert validation == [*range(52, 56), *range(72, 76)] and test == [*range(56, 60), *range(76, 80)]
    filled = federated.client("subject-33").part("train")[0].ravel()
    known_values = [value for value in [*range(12), *range(20, 32)] if value != 3]
    assert filled[3] == pytest.approx(np.mean(known_values))
    one = load(DataSettings(name="wisdm_v11", scale="none", clients=1), 0, tmp_path)
    assert len(one.names) == 1
    with refused(DataError, "too-many-clients", "data.clients = 3", "2"):
        load(DataSettings(name="wisdm", clients=3), 0, tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"not a zip at all", b"\x93NUMPY\x01\x00"])
def test_damaged_archives(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cifar10.npz"
    path.write_bytes(content)
    with refused(DataError, "file-damaged", path) as caught:
        take("cifar10", tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cifar10.npz.sha256").exists()


def test_an_archive_cut_in_the_middle(tmp_path: Path) -> None:
    x, y = pictures(200, 8, 8)
    path = tmp_path / "client.npz"
    np.savez_compressed(path, x=x, y=y)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    for content in (whole[: len(whole) // 2], bytes(damaged)):
        path.write_bytes(content)
        with refused(DataError, "file-damaged", path):
            read_npz(path, ("x", "y"))


def test_objects_and_missing_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "client.npz"
    np.savez(path, x=np.array([{}, []], dtype=object), y=np.zeros(2))
    with refused(DataError, "object-arrays", path):
        read_npz(path, ("x", "y"))
    np.savez(path, x=np.zeros(2))
    with refused(DataError, "array-missing", path, "'y'", "x"):
        read_npz(path, ("x", "y"))


@pytest.mark.parametrize(
    "content", [b"", b"abc", idx_bytes(np.zeros((3, 2)))[:-1], b"\x00\x00\x0d\x01\x00\x00\x00\x00"]
)
def test_damaged_idx(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with refused(DataError, "file-damaged", path):
        read_idx(path)
