"""Image sets that are decoded on demand: CelebA by identity and ImageNet's folders, on small files of their layout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from atoll.data import DataSettings, Federated, catalogue, image_files, load
from atoll.data import rows as storage
from atoll.data.image_files import ImageFiles, appended
from atoll.data.sources.celeba import combinations
from atoll.errors import ConfigError, DataError
from refusals import refused

# Six images of person 7, five of 3, four of 12 (too few): their attributes are Smiling, Young, Male, Mouth_...
PEOPLE = [7] * 6 + [3] * 5 + [12] * 4


def paint(path: Path, shade: int, size: tuple[int, int] = (8, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade, shade, shade)).save(path)


def celeba(folder: Path) -> Path:
    """Picture n has shade 16 * n, smiles if n is odd, is male for person 3, and never opens the mouth."""
    root = folder / "celeba" / "raw"
    lines = [str(len(PEOPLE)), "Smiling Young Male Mouth_Slightly_Open"]
    owners = []
    for number, person in enumerate(PEOPLE):
        name = f"{number:06d}.png"
        paint(root / "img_align_celeba" / name, 16 * number)
        lines.append(f"{name}  {1 if number % 2 else -1} 1 {1 if person == 3 else -1} -1")
        owners.append(f"{name} {person}")
    (root / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    (root / "identity_CelebA.txt").write_text("\n".join(owners) + "\n")
    return root


def take(folder: Path, name: str = "celeba", **settings: object) -> Federated:
    options = {"split": (1.0, 0.0, 0.0), "size": 8, **settings}
    return load(DataSettings.model_validate({"name": name, **options}), 0, folder)


def test_people_with_five_images_are_clients_and_three_attributes_give_eight_classes(tmp_path: Path) -> None:
    celeba(tmp_path)
    federated = take(tmp_path)
    assert federated.names == ["person-03", "person-07"] and federated.schema.shape == (3, 8, 8)
    assert federated.schema.classes == combinations(("Smiling", "Male", "Mouth_Slightly_Open"))
    assert (
        federated.schema.classes[:3] == ("none", "Mouth_Slightly_Open", "Male") and len(federated.schema.classes) == 8
    )
    x, y = federated.client("person-03").part("train")  # images 6 to 10
    shades = np.round(x[:, 0, 0, 0] * 255 / 16).astype(int)
    expected = [2 + 4 * (number % 2) for number in shades.tolist()]  # male, and smiling where odd
    assert sorted(shades.tolist()) == [6, 7, 8, 9, 10] and y.tolist() == expected
    assert federated.rows == 11


def test_only_images_that_a_client_holds_are_decoded(tmp_path: Path) -> None:
    """Damaged images of clients that are left out do no harm."""
    root = celeba(tmp_path)
    (root / "img_align_celeba" / "000008.png").write_bytes(b"broken")
    assert take(tmp_path, only=["person-07"]).rows == 6
    with refused(DataError, "unreadable-picture", "000008.png"):
        take(tmp_path)


def test_attributes_and_size_are_settings(tmp_path: Path) -> None:
    celeba(tmp_path)
    federated = take(tmp_path, attributes=["Male"], size=16)
    assert federated.schema.classes == ("none", "Male") and federated.schema.shape == (3, 16, 16)
    assert federated.labels("person-03") == (0, 5)


@pytest.mark.parametrize(
    ("file", "text", "code", "named"),
    [
        ("list_attr_celeba.txt", None, "dataset-files-missing", "list_attr_celeba.txt"),
        ("identity_CelebA.txt", None, "dataset-files-missing", "identity_CelebA.txt"),
        ("identity_CelebA.txt", "000000.png 7\n", "picture-without-identity", "000001.png"),
        ("identity_CelebA.txt", "000000.png seven\n", "malformed-line", "identity_CelebA.txt' line 1"),
        (
            "list_attr_celeba.txt",
            "1\nSmiling Male Mouth_Slightly_Open\n000000.png 1 0 1\n",
            "malformed-line",
            "list_attr_celeba.txt' line 3",
        ),
        (
            "list_attr_celeba.txt",
            "1\nSmilin Male Mouth_Slightly_Open\n000000.png 1 1 1\n",
            "unknown-attribute",
            "'Smilin'",
        ),
        ("list_attr_celeba.txt", "", "no-attributes", "list_attr_celeba.txt"),
    ],
)
def test_bad_celeba_files_are_one_line(tmp_path: Path, file: str, text: str | None, code: str, named: str) -> None:
    path = celeba(tmp_path) / file
    path.unlink() if text is None else path.write_text(text)
    with refused(DataError, code, named) as caught:
        take(tmp_path)
    assert "\n" not in str(caught.value)


def test_leaf_files(tmp_path: Path) -> None:
    root = celeba(tmp_path)
    for part, rows in (("train", range(4)), ("test", range(4, 6))):
        path = root.parent / "data" / part / f"all_data_niid_{part}_9.json"
        path.parent.mkdir(parents=True)
        held = {
            "7": {"x": [f"{n:06d}.png" for n in rows], "y": [n % 2 for n in rows]},
            "3": {"x": [f"{n + 6:06d}.png" for n in rows if n < 5], "y": [1] * sum(n < 5 for n in rows)},
        }
        table = {"users": ["7", "3"], "num_samples": [len(held[u]["x"]) for u in ("7", "3")], "user_data": held}
        path.write_text(json.dumps(table))
    federated = take(tmp_path, "celeba_leaf")
    assert federated.names == ["person-03", "person-07"] and federated.rows == 11
    assert federated.labels("person-07") == (3, 3) and federated.labels("person-03") == (0, 5)
    with refused(DataError, "inapplicable-setting", "data.attributes"):
        take(tmp_path, "celeba_leaf", attributes=["Male"])
    path.write_text('{"users": ["7"]}')
    with refused(DataError, "file-damaged", path, "'user_data'"):
        take(tmp_path, "celeba_leaf")


def imagenet(folder: Path) -> Path:
    root = folder / "imagenet"
    for number, name in enumerate(("n01440764", "n01443537", "n02102040")):
        for image in range(4):
            paint(root / "train" / name / f"{name}_{image}.JPEG", 80 * number, (24, 16))
        paint(root / "val" / name / f"ILSVRC2012_val_0000000{number}.JPEG", 80 * number, (16, 24))
        paint(root / "val" / name / f"ILSVRC2012_val_0000001{number}.JPEG", 80 * number, (16, 24))
    return root


def flat(root: Path) -> Path:
    for path in sorted(root.glob("val/*/*.JPEG")):
        path.rename(root / "val" / path.name)
    for folder in sorted((root / "val").iterdir()):
        if folder.is_dir():
            folder.rmdir()
    return root


def shades(federated: Federated) -> list[tuple[int, int]]:
    """(class, class by the shade) of every test row."""
    x, y = federated.client(federated.benchmark[0]).part("test")
    found = np.round(x.mean(axis=(1, 2, 3)) * 255 / 80).astype(int)
    return list(zip(y.tolist(), found.tolist(), strict=True))


def test_imagenet_folders_with_their_test_set(tmp_path: Path) -> None:
    imagenet(tmp_path)
    federated = take(tmp_path, "imagenet", clients=3, partition="iid")
    assert federated.schema.classes == ("n01440764", "n01443537", "n02102040")
    assert federated.schema.shape == (3, 8, 8) and len(federated.names) == 3 and federated.rows == 12
    assert shades(federated) == [(0, 0), (0, 0), (1, 1), (1, 1), (2, 2), (2, 2)]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("val.txt", "{file} {number}"),
        ("val.txt", "val/{file} {folder}"),
        ("LOC_val_solution.csv", "{stem},{folder} 1 2 3 4"),
    ],
)
def test_a_flat_val_with_its_list(tmp_path: Path, name: str, line: str) -> None:
    root = flat(imagenet(tmp_path))
    classes = sorted(path.name for path in (root / "train").iterdir())
    lines = ["ImageId,PredictionString"] if name.endswith("csv") else []
    for path in sorted((root / "val").iterdir()):
        number = int(path.stem[-1])
        lines.append(line.format(file=path.name, stem=path.stem, number=number, folder=classes[number]))
    (root / name).write_text("\n".join(lines) + "\n")
    assert all(label == shade for label, shade in shades(take(tmp_path, "imagenet", clients=2)))


def test_bad_imagenet_folders_are_one_line(tmp_path: Path) -> None:
    root = imagenet(tmp_path)
    with refused(DataError, "dataset-files-missing", "'imagenet'", root / "val"):
        take(tmp_path / "imagenet" / "val", "imagenet")
    (root / "val" / "n09999999").mkdir()
    with refused(DataError, "unknown-class", root / "val" / "n09999999"):
        take(tmp_path, "imagenet")
    (root / "val" / "n09999999").rmdir()
    (root / "train" / "n09999998").mkdir()
    with refused(DataError, "class-without-pictures", root / "train" / "n09999998"):
        take(tmp_path, "imagenet")
    (root / "train" / "n09999998").rmdir()
    flat(root)
    with refused(DataError, "validation-labels-missing", root / "val", "val.txt"):
        take(tmp_path, "imagenet")
    (root / "val.txt").write_text("ILSVRC2012_val_00000000.JPEG 3\n")
    with refused(DataError, "unknown-class", root / "val.txt", "'3'"):
        take(tmp_path, "imagenet")
    (root / "val.txt").write_text("ILSVRC2012_val_00000000.JPEG 1\n")
    with refused(DataError, "label-missing", root / "val.txt", "ILSVRC2012_val_00000001"):
        take(tmp_path, "imagenet")


def test_rows_are_chosen_before_anything_is_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imagenet(tmp_path)
    decoded: list[int] = []
    whole = ImageFiles.decode
    monkeypatch.setattr(
        ImageFiles, "decode", lambda self, numbers: decoded.append(len(numbers)) or whole(self, numbers)
    )
    assert take(tmp_path, "imagenet", clients=2, rows=6, test_rows=3).rows == 6
    assert decoded == [9]


def test_a_crop_takes_the_middle(tmp_path: Path) -> None:
    """An image of 64x32, black with a white middle half: the crop of the middle is white, a stretch is not."""
    image = Image.new("L", (64, 32), 0)
    image.paste(255, (16, 0, 48, 32))
    image.save(tmp_path / "a.png")
    for fit, least, most in (("crop", 0.99, 1.0), ("stretch", 0.4, 0.6)):
        pixels = ImageFiles(tmp_path, ("a.png",), 16, fit).decode(np.array([0]))
        assert pixels.shape == (1, 3, 16, 16) and least <= pixels.mean() / 255 <= most


def test_many_images_are_mapped_from_a_file_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imagenet(tmp_path)
    in_memory = take(tmp_path, "imagenet", clients=2)
    monkeypatch.setattr(image_files, "IN_MEMORY", 0)
    monkeypatch.setenv("ATOLL_CACHE", str(tmp_path / "cache"))
    mapped = take(tmp_path, "imagenet", clients=2)
    (file,) = (tmp_path / "cache").iterdir()
    made = file.stat().st_mtime_ns
    assert mapped.digest() == in_memory.digest()
    assert take(tmp_path, "imagenet", clients=2).digest() == mapped.digest() and file.stat().st_mtime_ns == made
    # Worker processes get a second name of the same file, not a copy.
    mapped.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "x.npy").samefile(file)
    assert Federated.attach(tmp_path / "saved").digest() == mapped.digest()
    # Other images, another file.
    take(tmp_path, "imagenet", clients=2, rows=6)
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_damaged_image_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = imagenet(tmp_path)
    monkeypatch.setattr(image_files, "IN_MEMORY", 0)
    broken = root / "train" / "n01443537" / "n01443537_1.JPEG"
    broken.write_bytes(broken.read_bytes()[:300])
    with refused(DataError, "unreadable-picture", broken):
        take(tmp_path, "imagenet", clients=2)
    assert list((root / ".atoll").iterdir()) == []


def test_a_part_of_a_mapped_file_is_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "whole.npy", np.arange(12).reshape(4, 3))
    whole = np.load(tmp_path / "whole.npy", mmap_mode="r", allow_pickle=False)
    for number, array in enumerate((whole[:2], np.asarray(whole)[1:], np.asarray(whole).T)):
        folder = tmp_path / str(number)
        storage.write(folder, {"x": array}, {})
        assert np.array_equal(storage.read(folder)[0]["x"], array)
        assert not (folder / "x.npy").samefile(tmp_path / "whole.npy")


def test_arrays_side_by_side_are_not_copied() -> None:
    whole = np.arange(12).reshape(4, 3)
    rest = whole.copy()  # an array that owns its memory, so that its slices have it as their base
    assert appended(rest[:3], rest[3:]) is rest
    assert np.array_equal(appended(rest[:2], rest[3:]), rest[[0, 1, 3]])


def test_size_and_attributes_elsewhere_are_refused(tmp_path: Path) -> None:
    with refused(DataError, "inapplicable-setting", "data.size = 16", "'digits'", "celeba", "imagenet"):
        load(DataSettings(name="digits", size=16), 0)
    with refused(ConfigError, "inapplicable-setting", "data.size"):
        DataSettings(folder="somewhere", size=16)
    with refused(ConfigError, "invalid-setting", "data.size = 4", 8):
        DataSettings(name="celeba", size=4)


def test_the_catalogue_sees_them(tmp_path: Path) -> None:
    names = ("celeba", "celeba_leaf", "imagenet")
    assert not any(entry.present for entry in catalogue(tmp_path) if entry.name in names)
    celeba(tmp_path)
    imagenet(tmp_path)
    assert [entry.present for entry in catalogue(tmp_path) if entry.name in names] == [True, False, True]
