"""Runs of several methods or settings side by side, over seeds: rows, statistics, tables, pages."""
