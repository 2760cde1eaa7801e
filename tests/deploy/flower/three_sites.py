"""Three sites with a CSV table or an archive of images each, and the same files in one folder."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message

from atoll.config import Experiment, resolve, settings_table
from atoll.data.settings import SITES
from atoll.deploy.flower.frames import content, frame_of
from atoll.deploy.site import SiteNode
from atoll.deploy.site_file import text_of
from atoll.deploy.worker import site_of
from atoll.rng import stream
from deploy.flower.thread_grid import Handler, ThreadGrid

ONE_AT_A_TIME = threading.Lock()
NAMES = ("north", "south", "west")
MIXTURES = ((0, 1, 2, 2), (0, 0, 1, 2), (0, 1, 2))  # classes of images


def write_rows(path: Path, seed: int, rows: int = 40, shift: float = 0.0) -> None:
    """A table that can be learnt; every site has its own columns' order, scale and mixture of classes."""
    rng = stream(seed, "rows")
    lines = ["age,weight,dose,outcome" if seed % 2 else "dose,outcome,weight,age"]
    for number in range(rows):
        kind = number % 3
        values = {
            "age": f"{50 + 10 * kind + rng.normal() * 4 + shift:.3f}",
            "weight": f"{70 - 8 * kind + rng.normal() * 5:.3f}",
            "dose": f"{kind * 0.1 + rng.normal() * 0.02:.5f}",
            "outcome": ("well", "ill", "unclear")[kind],
        }
        lines.append(",".join(values[name] for name in lines[0].split(",")))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def write_images(path: Path, seed: int, rows: int = 40, side: int = 8) -> None:
    """Grey images of three classes: a bright band, high, in the middle or low, in noise. Every site has its own
    mixture of classes."""
    rng = stream(seed, "images")
    y = np.resize(MIXTURES[seed % len(MIXTURES)], rows)
    x = rng.integers(0, 90, (rows, side, side)).astype(np.uint8)
    for row, kind in enumerate(y):
        x[row, 2 * kind : 2 * kind + 2] += 150
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, x=x, y=y)


@dataclass
class ThreeSites:
    """`together`: a folder with all files, for the local engine. `apart`: a folder for each site. Those with images
    let a run have their rows per class if it asks."""

    root: Path
    names: tuple[str, ...] = NAMES
    images: bool = False

    def __post_init__(self) -> None:
        for number, name in enumerate(self.names):
            file = self.root / "together" / f"{name}.{'npz' if self.images else 'csv'}"
            if self.images:
                write_images(file, number, 40 + 7 * number)
            else:
                write_rows(file, number, 40 + 7 * number, shift=3.0 * number)
            own = self.root / "apart" / name
            (own / "data").mkdir(parents=True)
            (own / "data" / f"anything{file.suffix}").write_bytes(file.read_bytes())
            text = text_of(name, "localhost:8443")
            (own / "site.toml").write_text(text.replace("labels = false", f"labels = {str(self.images).lower()}"))

    def config(self, name: str) -> dict[str, str]:
        """The facts of a site, as its worker is given them."""
        own = self.root / "apart" / name
        return {"name": name, "data": str(own / "data"), "folder": str(own / "work"), "site": str(own / "site.toml")}

    def handler(self, name: str) -> Handler:
        """What the worker of a site does, in a thread. A worker's process is its own; threads take turns, for they
        share the networks that a process keeps built. Each message gets a new node: nothing is kept in memory."""

        def handle(message: Message) -> Message:
            kind, frame = message.metadata.message_type.partition(".")[2], frame_of(message)
            assert frame is not None
            with ONE_AT_A_TIME:
                return Message(content(SiteNode(site_of(self.config(name))).answer(kind, frame)), reply_to=message)

        return handle

    def grid(self) -> ThreadGrid:
        grid = ThreadGrid()
        for name in self.names:
            grid.connect(self.handler(name))
        return grid

    def experiment(self, method: str, engine: str, **options: Any) -> Experiment:
        origin = {"folder": str(self.root / "together")} if engine == "local" else {"name": SITES, "only": self.names}
        settings = {"name": engine, **({"workers": 0} if engine == "local" else {"wait": 240.0})}
        table = {} if self.images else {"label": "outcome"}
        data = {**table, **origin, **options.pop("data", {})}
        return resolve({"method": method, "data": data, "engine": settings, settings_table(method): options})
