"""The space of choice blocks."""
