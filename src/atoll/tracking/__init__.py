"""Trackers: the rounds of a run in TensorBoard or MLflow, fed from its event log.

The event log stays the truth. A tracker reads what was appended to it after every round, so it can begin late, and it
may fail without harm to the run.
"""

from __future__ import annotations

from atoll.tracking.feed import KNOWN, TrackedWatcher, Tracker, open_trackers

__all__ = ["KNOWN", "TrackedWatcher", "Tracker", "open_trackers"]
