"""Reading a run directory, during the run or after it."""

from __future__ import annotations

import json
import tomllib
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.errors import RunDamaged, RunDirectoryError, nearest
from atoll.run.accounts import client_problems, clients_so_far, network_problems
from atoll.store.checkpoints import recorded_digests
from atoll.store.directory import SCHEMA, reconfigured
from atoll.store.files import read_file
from atoll.store.integrity import changed_files, checked_lines, listed_files, unsealed
from atoll.store.models import Model, load_model

if TYPE_CHECKING:
    import torch

    from atoll.export.card import CardFacts
    from atoll.export.files import Exported
    from atoll.export.predictor import Predictor
    from atoll.preparation import Answers

ATTEMPTS = 5  # a running search may replace a model file before it is read; then the pointer is read again


def load(path: str | Path) -> Run:
    """The run in this directory."""
    folder = Path(path)
    if not (folder / "config.toml").is_file():
        why = "it has no config.toml" if folder.is_dir() else "no such folder"
        raise RunDirectoryError(
            f"{folder}: not a run directory ({why}); `atoll run` creates one",
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


class _Fields(dict[str, Any]):
    """A file's fields; one that is missing is said in one line."""

    def __init__(self, values: dict[str, Any], place: Path) -> None:
        super().__init__(values)
        self._place = place

    def __missing__(self, key: str) -> Any:
        raise RunDamaged(f"{self._place}: it has no {key!r}; restore the file from a copy", code="file-damaged")


class Run:
    """A run, read from nothing but its directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        return self._json("manifest.json")

    @property
    def config(self) -> dict[str, Any]:
        """The tables of `config.toml`."""
        try:
            return tomllib.loads(read_file(self.path / "config.toml").decode())
        except (ValueError, RecursionError) as problem:
            raise RunDamaged(f"{self.path}: config.toml cannot be read ({problem})", code="config-unreadable") from None

    @property
    def metrics_kind(self) -> str:
        """The kind of metrics that its rounds hold, see `atoll.run.metrics`."""
        return str(self.manifest["metrics_kind"])

    @property
    def recommended(self) -> str:
        """The pick that most users want."""
        return str(self.manifest["recommended"])

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of a confusion matrix."""
        return tuple(self._json("preparation.json")["classes"])

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
        found = self._json("result.json")
        found.pop("digests", None)  # see `changed_files`
        return found

    @property
    def changed_files(self) -> list[str]:
        """Files of a finished run that are not as they were at its end."""
        recorded = dict(self._json("result.json").get("digests", {})) if self.finished else {}
        last = recorded.pop("events.jsonl", None)
        found = changed_files(self.path, recorded, reconfigured(self.path))
        file = self.path / "events.jsonl"
        if last is not None and (not file.exists() or checked_lines(read_file(file), file)[1] != last):
            found.append("events.jsonl")
        return found

    @property
    def unverified_files(self) -> list[str]:
        """Files that are not as this run has written them, or whose content nothing vouches for."""
        if self.finished:
            own = [] if "digest" in json.loads(read_file(self.path / "result.json")) else ["result.json"]
            return own + self.changed_files
        return changed_files(self.path, recorded_digests(self.path / "checkpoints"), reconfigured(self.path))

    @property
    def history(self) -> list[dict[str, Any]]:
        """The events of all rounds, failed ones included. An incomplete last line is left out."""
        file = self.path / "events.jsonl"
        try:
            return checked_lines(read_file(file), file)[0]
        except FileNotFoundError:
            return []  # the run has just started

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The events of successful rounds."""
        return [event for event in self.history if "metrics" in event]

    @property
    def clients(self) -> dict[str, dict[str, Any]]:
        """What became of each client's replies in the search: how many were asked for, used, late, stale, rejected
        and failed (these two by reason), and in how many rounds the client was idle. Zeros are left out.

        Before the end: of the clients that were asked, in the rounds so far.
        """
        found: dict[str, dict[str, Any]] = self.result["clients"] if self.finished else clients_so_far(self.history)
        return found

    @property
    def problems(self) -> list[str]:
        """One sentence each for what a reader should know: clients that never took part or whose replies were not all
        used, with the reasons; a search that was cut short; a recommended network that is no better than chance."""
        changed = self.changed_files
        found = [f"{listed_files(changed)} changed or removed after the end of the run"] if changed else []
        found += client_problems(self.clients)
        entry = self._entries().get(self.recommended) if self.finished else None
        return found if entry is None else found + network_problems(entry, self.recommended, self.classes)

    def candidate(self, pick: str | None = None) -> dict[str, Any]:
        """The entry of `result.json` of a network, by one of its picks or its name; without one, the recommended."""
        pick = pick or self.recommended
        entries = self._entries()
        if pick not in entries:
            raise RunDirectoryError(f"{self.path}: no network '{pick}'; {nearest(pick, entries)}", code="unknown-pick")
        return entries[pick]

    def _entries(self) -> dict[str, dict[str, Any]]:
        return {name: c for c in self.result["candidates"] for name in (c["id"], *c["picks"])}

    def predict(self, rows: Any, pick: str | None = None, *, statistics: Any = None, **options: str) -> Answers:
        """The class of each raw row and its probabilities (scores, if the network has no softmax).

        Without a `pick`, here and in what follows, by the network that the method recommends.
        `rows` is a DataFrame, a list of dicts, an array, or a path: CSV, Parquet, array file, image, folder of images.
        Options are those of `Predictor`.
        """
        return self.predictor(pick, statistics=statistics)(rows, **options)

    def predictor(self, pick: str | None = None, *, statistics: Any = None) -> Predictor:
        """The trained network of a pick, ready to answer raw rows many times. `statistics`: see `Predictor`."""
        from atoll.export.predictor import Predictor

        return Predictor(self.load_model(pick), statistics)

    def export(self, path: str | Path, pick: str | None = None, *, statistics: Any = None) -> Exported:
        """Write the network of a pick to a file that needs no Atoll: .onnx, .pt2, .safetensors, or .py (evolved ones).

        Beside it: the preparation of raw rows (JSON), a model card and, for ONNX, a program that answers raw rows.
        """
        from atoll.export.files import export

        return export(self.load_model(pick), Path(path), self.facts(pick), statistics)

    def facts(self, pick: str | None = None) -> CardFacts:
        """What a model card says of a pick."""
        from atoll.export.card import CardFacts

        pick = pick or self.recommended
        about, done = self.manifest, self.rounds
        result = self.result if self.finished else {}
        found = self._entries().get(pick, {}) if self.finished else {}
        data = about["data"]
        return CardFacts(
            pick=pick,
            method=about["method"],
            data=about["source"],
            seed=about["seed"],
            rounds=len(done),
            clients=data["clients"],
            rows=data["rows"],
            candidate=found,
            ledger=result.get("ledger", {}),
            privacy=result.get("privacy", {}),
        )

    def model(self, pick: str | None = None) -> torch.nn.Module:
        """The trained network of a pick, as an ordinary torch module that works on a batch or on a single row or image.

        It takes prepared rows; `predict` takes raw ones.
        """
        return self.load_model(pick).module()

    def load_model(self, pick: str | None = None) -> Model:
        """The trained network of a pick as architecture and arrays, without building a module."""
        for _ in range(ATTEMPTS):
            weights = self._weights_of(pick)
            try:
                return load_model(self.path / weights)
            except FileNotFoundError:
                continue
        raise RunDamaged(f"{self.path}: {weights} is missing", code="file-missing")

    def weights_file(self, pick: str | None = None) -> Path:
        """The file with the trained weights of a pick."""
        return self.path / self._weights_of(pick)

    def _weights_of(self, pick: str | None) -> str:
        """The relative path of a pick's weights, from the result or, before the end, from the current snapshots."""
        pick = pick or self.recommended
        if self.finished:
            by_pick = {name: entry["weights"] for name, entry in self._entries().items()}
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
            value = json.loads(read_file(self.path / name))
        except FileNotFoundError:
            raise RunDamaged(f"{self.path}: {name} is missing", code="file-missing") from None
        except (ValueError, RecursionError) as problem:
            raise RunDamaged(f"{self.path}: {name} cannot be read ({problem})", code="file-damaged") from None
        if not isinstance(value, dict):
            raise RunDamaged(f"{self.path}: {name} is not a table", code="file-damaged")
        return _Fields(unsealed(value, self.path / name), self.path / name)

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
