"""Training and evaluation on one client's data: the hot loops.

Nothing is imported here: torch takes seconds to load, and some users need `determinism` or `metrics` only.
"""
