"""Answers to raw rows: by an exported network, as a program too. See `tables.py` for what this file may import."""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from atoll.preparation.cells import to_number
from atoll.preparation.images import image_files, image_values, read_array
from atoll.preparation.tables import CHOICES, RowError, as_table, table_values

FORMAT = 1  # of the preparation


class Answers(NamedTuple):
    """What a network says of rows: the name of the class of each, and `values`, rows x classes.

    `kind` says what the values are: "probabilities", which add up to 1, or "scores", whose largest marks the class.
    """

    labels: list[str]
    values: Any
    classes: tuple[str, ...]
    kind: str
    places: Sequence[str] = ()

    def write(self, path: Path) -> None:
        """A CSV file: the row, its class, and one column for each class."""
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["row", "class", *map(guarded, self.classes)])
            for place, label, values in zip(self.places, self.labels, self.values.tolist(), strict=True):
                writer.writerow([guarded(place), guarded(label), *(f"{value:.6g}" for value in values)])


def guarded(word: str) -> str:
    """Text for a cell that a spreadsheet must not read as a formula."""
    formula = word[:1] in ("=", "+", "-", "@", "\t", "\r") and to_number(word) is None
    return f"'{word}" if formula else word


def network_input(
    preparation: Mapping[str, Any], rows: Any, unknown_category: str = "refuse", extra_columns: str = "refuse"
) -> tuple[Any, Sequence[str]]:
    """The numbers that a network takes for these rows, and where each row comes from."""
    if preparation["kind"] == "image":
        found = image_values(preparation, rows)
        return found, _image_places(rows, len(found))
    window = preparation["window"]
    names = [column["name"] for column in preparation["columns"]]
    if window and not isinstance(rows, (str, Path)) and np.ndim(rows) == 3:  # windows already
        whole = np.asarray(rows)
        if whole.shape[1:] != (window["steps"], len(names)):
            raise RowError(
                f"windows of shape {whole.shape[1:]}: the network takes {window['steps']} steps of {len(names)} values",
                "row-shapes-differ",
            )
        return whole.reshape(len(whole), -1).astype(np.float32), [f"window {row}" for row in range(len(whole))]
    if isinstance(rows, (str, Path)) and Path(rows).suffix.lower() in (".npy", ".npz"):
        rows = read_array(Path(rows))
    table = as_table(rows, names, preparation.get("text_format", {}))
    values = table_values(preparation, table, unknown_category, extra_columns)
    if window:
        return values, [table.places[row * window["stride"] + window["steps"] - 1] for row in range(len(values))]
    return values, table.places


def _image_places(rows: Any, count: int) -> list[str]:
    if isinstance(rows, (str, Path)):
        path = Path(rows)
        if path.is_dir():
            return [str(image) for image in image_files(path)]
        return [str(rows)] if count == 1 else [f"'{rows}' row {row}" for row in range(count)]
    if isinstance(rows, Sequence) and all(isinstance(row, (str, Path)) for row in rows):
        return [str(row) for row in rows]
    return [f"row {row}" for row in range(count)]


def answers(preparation: Mapping[str, Any], kind: str, values: Any, places: Sequence[str]) -> Answers:
    classes = tuple(preparation["classes"])
    return Answers([classes[place] for place in values.argmax(axis=1).tolist()], values, classes, kind, list(places))


class ExportedNetwork:
    """A network as `atoll export` wrote it: NAME.onnx, and NAME.json with its preparation."""

    def __init__(self, path: str | Path) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise RowError(
                f"'{path}': an exported network needs onnxruntime; install it with: pip install onnxruntime, or "
                "pip install 'atoll[export]'",
                "extra-missing",
            ) from None
        self.path = Path(path)
        beside = self.path.with_suffix(".json")
        try:
            about = json.loads(beside.read_text(encoding="utf-8"))
            data = self.path.read_bytes()
        except (OSError, ValueError) as error:
            missing = [str(one) for one in (self.path, beside) if not one.exists()]
            why = f"no such file: {' and '.join(missing)}" if missing else str(error)
            raise RowError(
                f"'{self.path}' with '{beside.name}' beside it cannot be read ({why}); `atoll export` writes both",
                "file-unreadable",
            ) from None
        check_format(about.get("preparation", {}), str(beside))
        if hashlib.sha256(data).hexdigest() != about.get("networks", {}).get(self.path.name):
            raise RowError(
                f"'{beside}' belongs to another network than '{self.path.name}'; export it again", "wrong-checksum"
            )
        self.preparation, self.kind = about["preparation"], about["output"]
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def predict(self, rows: Any, unknown_category: str = "refuse", extra_columns: str = "refuse") -> Answers:
        """The answers to raw rows: a path (CSV, Parquet, array or image), a DataFrame, dicts or an array."""
        numbers, places = network_input(self.preparation, rows, unknown_category, extra_columns)
        return answers(self.preparation, self.kind, self.run(numbers), places)

    def run(self, numbers: Any, batch: int = 1000) -> Any:
        """The outputs for prepared numbers."""
        name = self._session.get_inputs()[0].name
        starts = range(0, len(numbers), batch)
        return np.concatenate([self._session.run(None, {name: numbers[at : at + batch]})[0] for at in starts])


def check_format(preparation: Mapping[str, Any], place: str) -> None:
    """A preparation that this version cannot read is refused."""
    found = preparation.get("format")
    if found != FORMAT:
        newer = isinstance(found, int) and found > FORMAT
        why = f"has format {found}, newer than {FORMAT}, which this version reads" if newer else "is damaged"
        hint = "install the version of Atoll that wrote it" if newer else "write it again"
        raise RowError(f"'{place}': the preparation of raw rows {why}; {hint}", "preparation-format")


def main(arguments: Sequence[str] | None = None) -> int:
    """The program."""
    here = Path(__file__)
    network = here.with_name(here.stem.removesuffix("_predict") + ".onnx")
    parser = argparse.ArgumentParser(description=f"Answers raw rows with the network {network.name}.")
    parser.add_argument("rows", help="a CSV file, or images: a file, a folder, or an array (.npy)")
    parser.add_argument("-o", "--out", help="the file of the answers (.csv); without it they are printed")
    parser.add_argument("--unknown-category", choices=CHOICES["unknown_category"], default="refuse")
    parser.add_argument("--extra-columns", choices=CHOICES["extra_columns"], default="refuse")
    options = parser.parse_args(arguments)
    try:
        found = ExportedNetwork(network).predict(options.rows, options.unknown_category, options.extra_columns)
    except RowError as error:
        print(f"{here.name}: {error}", file=sys.stderr)
        return 2
    if options.out:
        found.write(Path(options.out))
        print(f"{len(found.labels)} rows answered in {options.out}")
        return 0
    for place, label, values in zip(found.places, found.labels, found.values.tolist(), strict=True):
        print(f"{place}: {label} ({', '.join(f'{value:.4g}' for value in values)})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
