"""Raw data in every form that people have it, written to files: folders of clients, and new rows in the same form."""

from __future__ import annotations

import csv
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from atoll.rng import stream

CLIENTS, ROWS = 3, 40


def numeric(folder: Path) -> tuple[dict[str, Any], Any]:
    """Tables of numbers with very different scales; new rows as CSV with columns in another order."""
    for client in range(CLIENTS):
        _write(folder / "clients" / f"site{client}.csv", _numbers(client, ROWS), ["age", "dose", "power", "label"])
    _write(folder / "new.csv", _numbers(9, 12), ["power", "age", "dose"])
    return {"folder": str(folder / "clients"), "logarithm": True}, folder / "new.csv"


def mixed(folder: Path) -> tuple[dict[str, Any], Any]:
    """Text, gaps and dates, separated by semicolons with decimal commas; new rows separated by commas."""
    names = ["visit", "sex", "age", "dose", "outcome"]
    for client in range(CLIENTS):
        _write(folder / "clients" / f"site{client}.csv", _visits(client, ROWS), names, ";")
    _write(folder / "new.csv", _visits(9, 12), names[:-1])
    settings = {"categories": "onehot", "missing": "mean", "dates": {"visit": ["days", "month"]}, "label": "outcome"}
    return {"folder": str(folder / "clients"), **settings}, folder / "new.csv"


def image_folder(folder: Path) -> tuple[dict[str, Any], Any]:
    """PNG files of 8x8 pixels, grey; new ones in a folder."""
    rng = stream(1, "images")
    for client in range(CLIENTS):
        for number in range(24):
            _image(
                rng, number % 2, folder / "clients" / f"site{client}" / ("dark", "light")[number % 2] / f"{number}.png"
            )
    for number in range(6):
        _image(rng, number % 2, folder / "new" / f"{number}.png")
    return {"folder": str(folder / "clients")}, folder / "new"


def npz_images(folder: Path) -> tuple[dict[str, Any], Any]:
    """Colour images as bytes, channels last; new ones as an array."""
    rng = stream(2, "images")
    (folder / "clients").mkdir(parents=True)
    for client in range(CLIENTS):
        y = np.arange(24) % 2
        x = rng.integers(0, 120, (24, 8, 8, 3)) + 100 * y[:, None, None, None]
        np.savez(folder / "clients" / f"site{client}.npz", x=x.astype(np.uint8), y=y)
    np.save(folder / "new.npy", rng.integers(0, 255, (6, 8, 8, 3)).astype(np.uint8))
    return {"folder": str(folder / "clients"), "scale": "federated"}, folder / "new.npy"


def series(folder: Path) -> tuple[dict[str, Any], Any]:
    """Rows in the order of time; four of them make one row for the network."""
    for client in range(CLIENTS):
        _write(folder / "clients" / f"site{client}.csv", _signal(client, 4 * ROWS), ["back", "thigh", "label"])
    _write(folder / "new.csv", _signal(9, 21), ["back", "thigh"])
    return {"folder": str(folder / "clients"), "window": 4}, folder / "new.csv"


FORMS = {"numeric": numeric, "mixed": mixed, "image folder": image_folder, "npz images": npz_images, "series": series}


def _write(path: Path, rows: list[dict[str, Any]], names: list[str], separator: str = ",") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(names)
        for row in rows:
            cells = [row[name] for name in names]
            writer.writerow(
                [str(c).replace(".", ",") if separator == ";" and isinstance(c, float) else c for c in cells]
            )


def _numbers(seed: int, rows: int) -> list[dict[str, Any]]:
    rng = stream(seed, "numbers")
    label = np.arange(rows) % 3
    age, dose = rng.normal(60 + 10 * label, 8), rng.normal(0.004 * label, 0.002)
    power = np.expm1(rng.normal(6 + label, 1))
    return [
        {"age": float(a), "dose": float(d), "power": float(p), "label": ("a", "b", "c")[c]}
        for a, d, p, c in zip(age, dose, power, label, strict=True)
    ]


def _visits(seed: int, rows: int) -> list[dict[str, Any]]:
    rng = stream(seed, "visits")
    found = []
    for number in range(rows):
        sick = number % 2
        found.append(
            {
                "visit": (date(2021, 3, 1) + timedelta(days=int(rng.integers(0, 700)))).isoformat(),
                "sex": ("f", "m", "")[int(rng.integers(0, 3))],
                "age": round(float(rng.normal(50 + 15 * sick, 6)), 2) if rng.random() > 0.1 else "NA",
                "dose": round(float(rng.normal(2 + sick, 0.5)), 3),
                "outcome": ("none", "recovered")[sick],
            }
        )
    return found


def _signal(seed: int, rows: int) -> list[dict[str, Any]]:
    rng = stream(seed, "signal")
    state = (np.arange(rows) // 8) % 2
    return [
        {"back": float(rng.normal(one, 0.4)), "thigh": float(rng.normal(-one, 0.4)), "label": ("rest", "walk")[one]}
        for one in state.tolist()
    ]


def _image(rng: Any, label: int, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((rng.integers(0, 120, (8, 8)) + 120 * label).astype(np.uint8)).save(path)
