"""Readers of the data sets that Atoll knows by name."""
