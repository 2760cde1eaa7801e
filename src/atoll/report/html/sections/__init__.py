"""The sections of a run's report: functions from a view to markup, or to None if the run has nothing to show."""
