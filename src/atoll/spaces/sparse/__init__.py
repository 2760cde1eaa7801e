"""The space of sparse networks."""
