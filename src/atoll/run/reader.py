"""Reading a run directory, during the run or after it."""

from __future__ import annotations

import json
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.errors import RunDamaged, RunDirectoryError, nearest
from atoll.store.directory import SCHEMA
from atoll.store.models import Model, load_model

if TYPE_CHECKING:
    import torch

ATTEMPTS = 5  # a running search may replace a model file before it is read; then the pointer is read again


def load(path: str | Path) -> Run:
    """The run in this directory."""
    folder = Path(path)
    if not (folder / "config.toml").is_file():
        raise RunDirectoryError(
            f"{folder}: not a run directory (it has no config.toml); `atoll run` creates one",
            code="not-a-run-directory",
        )
    run = Run(folder)
    if (folder / "manifest.json").exists() and run.manifest.get("schema", SCHEMA) != SCHEMA:
        raise RunDirectoryError(
            f"{folder}: its files have format {run.manifest['schema']!r}, this version of Atoll reads {SCHEMA}; "
            "read it with the version that wrote it, or run the experiment again",
            code="old-run-directory",
        )
    return run


class Run:
    """A run, read from nothing but its directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return self._json("manifest.json")

    @property
    def metrics_kind(self) -> str:
        """The kind of metrics that its rounds hold, see `atoll.run.metrics`."""
        return str(self.manifest["metrics_kind"])

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    @property
    def result(self) -> dict[str, Any]:
        """The content of `result.json`: candidates, ledger, hypervolume. The documentation describes its fields."""
        if not self.finished:
            raise RunDirectoryError(
                f"{self.path}: no result yet; continue it with `atoll resume {self.path}`", code="no-result-yet"
            )
        return self._json("result.json")

    @property
    def history(self) -> list[dict[str, Any]]:
        """The events of all rounds, failed ones included. An incomplete last line is left out."""
        try:
            *lines, _ = (self.path / "events.jsonl").read_bytes().split(b"\n")
        except FileNotFoundError:
            return []  # the run has just started
        try:
            return [json.loads(line) for line in lines]
        except ValueError as problem:
            raise RunDamaged(f"{self.path}: events.jsonl cannot be read ({problem})", code="file-damaged") from None

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The events of successful rounds."""
        return [event for event in self.history if "metrics" in event]

    def model(self, pick: str = "high") -> torch.nn.Module:
        """The trained network of a pick, as an ordinary torch module that works on a single row or image."""
        return self.load_model(pick).module()

    def load_model(self, pick: str = "high") -> Model:
        """The trained network of a pick as architecture and arrays, without building a module."""
        for _ in range(ATTEMPTS):
            weights = self._weights_of(pick)
            try:
                return load_model(self.path / weights)
            except FileNotFoundError:
                continue
        raise RunDamaged(f"{self.path}: {weights} is missing", code="file-missing")

    def weights_file(self, pick: str) -> Path:
        """The file with the trained weights of a pick."""
        return self.path / self._weights_of(pick)

    def _weights_of(self, pick: str) -> str:
        """The relative path of a pick's weights, from the result or, before the end, from the current snapshots."""
        if self.finished:
            by_pick = {name: c["weights"] for c in self.result["candidates"] for name in (c["id"], *c["picks"])}
        elif (self.path / "models" / "current.json").exists():
            by_pick = {name: f"models/{file}" for name, file in self._json("models/current.json")["models"].items()}
        else:
            reason = "the run is not finished and its method has no snapshots"
            raise RunDirectoryError(f"{self.path}: no model yet; {reason}", code="no-model-yet")
        if pick not in by_pick:
            raise RunDirectoryError(f"{self.path}: no model '{pick}'; {nearest(pick, by_pick)}", code="unknown-pick")
        return str(by_pick[pick])

    def _json(self, name: str) -> dict[str, Any]:
        try:
            value: dict[str, Any] = json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            raise RunDamaged(f"{self.path}: {name} is missing", code="file-missing") from None
        except ValueError as problem:
            raise RunDamaged(f"{self.path}: {name} cannot be read ({problem})", code="file-damaged") from None
        return value

    def __repr__(self) -> str:
        done = len(self.rounds)
        status = ", finished" if self.finished else ""
        return f"Run({str(self.path)!r}, {self.manifest['method']}, {done} rounds{status})"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        if not self.finished:
            return f"<pre>{escape(repr(self))}</pre>"
        rows = []
        for candidate in self.result["candidates"]:
            cells = [candidate["id"], ", ".join(candidate["picks"])]
            cells += [f"{value:.4g}" for value in candidate["objectives"].values()]
            rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
        names = ["network", "picks", *self.result["candidates"][0]["objectives"]] if rows else []
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<p>{escape(repr(self))}</p><table><tr>{head}</tr>{body}</table>"
