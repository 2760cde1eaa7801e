"""The space of DARTS cells (Liu et al., 2019)."""
