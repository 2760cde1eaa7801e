"""Runs live in a browser: a read-only server on this machine that follows event logs. Needs the extra `dashboard`."""
