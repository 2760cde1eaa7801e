"""MLflow: the rounds of a run as metrics of an MLflow run, in the store that MLFLOW_TRACKING_URI names."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from atoll.errors import ConfigError
from atoll.run.reader import Run
from atoll.tracking.feed import final_numbers

EXPERIMENT = "atoll"  # unless MLFLOW_EXPERIMENT_NAME says otherwise
TAG = "atoll.run"  # by which a resumed run finds its MLflow run again
BATCH = 900  # metrics that one request may hold: MLflow allows 1,000
LONGEST = 6000  # characters of a parameter
ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # nothing is reported to anyone else
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # a search does not wait minutes for a server that is gone
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
}
NOT_ALLOWED = re.compile(r"[^\w\-. /:]")  # in the name of a metric or parameter


class MlflowTracker:
    """One MLflow run for each run. A resumed run continues it, and sends no round twice."""

    def __init__(self) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        try:
            self._client = MlflowClient()
            self._uri = self._client.tracking_uri
            self._client.search_experiments(max_results=1)
        except (MlflowException, OSError) as problem:
            reason = " ".join(str(problem).split())[:200]
            place = os.environ.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")
            raise ConfigError(
                f"--track mlflow: the store at {place} cannot be used ({reason}); set MLFLOW_TRACKING_URI",
                code="tracker-not-reachable",
            ) from None
        self._run = ""

    @property
    def place(self) -> str:
        return f"mlflow ui --backend-store-uri {self._uri}"

    def begin(self, run: Run) -> int:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        found = self._client.get_experiment_by_name(name)
        experiment = found.experiment_id if found is not None else self._client.create_experiment(name)
        mark = str(run.manifest["run"])
        earlier = self._client.search_runs([experiment], f"tags.`{TAG}` = '{mark}'", max_results=1)
        if earlier:
            self._run = earlier[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
            return int(earlier[0].data.metrics.get("round", 0))
        tags = {TAG: mark, "atoll.method": str(run.manifest["method"]), "atoll.data": str(run.manifest["source"])}
        self._run = self._client.create_run(experiment, run_name=run.path.name, tags=tags).info.run_id
        self._send_settings(run)
        return 0

    def _send_settings(self, run: Run) -> None:
        from mlflow.entities import Param

        params = [Param(_name(key), str(value)[:LONGEST]) for key, value in _flat(run.config)]
        for start in range(0, len(params), 100):
            self._client.log_batch(self._run, params=params[start : start + 100])

    def log(self, number: int, values: Mapping[str, float]) -> None:
        self._send({**values, "round": float(number)}, number)

    def end(self, run: Run) -> None:
        if run.finished:
            self._send(final_numbers(run), int(run.result["rounds"]))
            for file in ("result.json", "config.toml"):
                self._client.log_artifact(self._run, str(run.path / file))
        self._client.set_terminated(self._run, "FINISHED" if run.finished else "KILLED")

    def _send(self, values: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        moment = int(time.time() * 1000)
        metrics = [Metric(_name(name), value, moment, step) for name, value in values.items()]
        for start in range(0, len(metrics), BATCH):
            self._client.log_batch(self._run, metrics=metrics[start : start + BATCH])


def _name(text: str) -> str:
    return NOT_ALLOWED.sub("_", text)[:250]


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
