"""The parts of two runs that must be equal."""

from __future__ import annotations

from typing import Any

from atoll.run.reader import Run


def outcome(run: Run) -> dict[str, Any]:
    """The result and the events without times, and the digests of the weights."""
    result = {key: value for key, value in run.result.items() if key != "wall_seconds"}
    events = [{key: value for key, value in event.items() if key != "wall_seconds"} for event in run.history]
    digests = [run.load_model(candidate["id"]).weights.whole_digest() for candidate in result["candidates"]]
    return {"result": result, "events": events, "weights": digests}
