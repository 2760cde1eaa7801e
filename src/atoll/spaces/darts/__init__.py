"""The space of DARTS cells."""
