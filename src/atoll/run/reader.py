"""Reading a run directory, while the run goes on or after its end."""

from __future__ import annotations

import json
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.errors import RunDamaged, RunDirectoryError, nearest
from atoll.store.models import Model, load_model

if TYPE_CHECKING:
    import torch

ATTEMPTS = 5  # a reader may be overtaken by a search that replaces its models; then it looks again


def load(path: str | Path) -> Run:
    """The run in this directory."""
    folder = Path(path)
    if not (folder / "config.toml").is_file():
        raise RunDirectoryError(
            f"{folder}: not a run directory (it has no config.toml); `atoll run` makes one", code="not-a-run-directory"
        )
    return Run(folder)


class Run:
    """A run, read from its directory only."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return self._json("manifest.json")

    @property
    def metrics_kind(self) -> str:
        """The kind of metrics that its rounds hold, see `atoll.run.metrics`."""
        if "metrics_kind" not in self.manifest:
            raise RunDirectoryError(
                f"{self.path}: manifest.json does not name the kind of its metrics; an earlier version of Atoll made "
                "this run, start it again",
                code="old-run-directory",
            )
        return str(self.manifest["metrics_kind"])

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    @property
    def result(self) -> dict[str, Any]:
        """What came out: candidates, ledger, hypervolume. See the form of `result.json` in the documentation."""
        if not self.finished:
            raise RunDirectoryError(
                f"{self.path}: no result yet; go on with `atoll resume {self.path}`", code="no-result-yet"
            )
        return self._json("result.json")

    @property
    def history(self) -> list[dict[str, Any]]:
        """The events of all rounds. A last line that is still being written is left out."""
        try:
            *lines, _ = (self.path / "events.jsonl").read_bytes().split(b"\n")
        except FileNotFoundError:
            return []  # the run has only just begun
        try:
            return [json.loads(line) for line in lines]
        except ValueError as problem:
            raise RunDamaged(f"{self.path}: events.jsonl cannot be read ({problem})", code="file-damaged") from None

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The events of rounds that succeeded."""
        return [event for event in self.history if "metrics" in event]

    def model(self, pick: str = "high") -> torch.nn.Module:
        """The trained network of this pick: an ordinary module that works on a single row or image."""
        return self.load_model(pick).module()

    def load_model(self, pick: str = "high") -> Model:
        """The same as architecture and arrays, without building the module."""
        for _ in range(ATTEMPTS):
            weights = self._weights_of(pick)
            try:
                return load_model(self.path / weights)
            except FileNotFoundError:
                continue
        raise RunDamaged(f"{self.path}: {weights} is missing", code="file-missing")

    def weights_file(self, pick: str) -> Path:
        """Where the trained weights of a pick are stored."""
        return self.path / self._weights_of(pick)

    def _weights_of(self, pick: str) -> str:
        """Where the weights of a pick are: in the result, or among the models on offer while the search goes on."""
        if self.finished:
            by_pick = {name: c["weights"] for c in self.result["candidates"] for name in (c["id"], *c["picks"])}
        elif (self.path / "models" / "current.json").exists():
            by_pick = {name: f"models/{file}" for name, file in self._json("models/current.json")["models"].items()}
        else:
            reason = "the run is not finished and its method offers none before its end"
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
