"""Architectures drawn: blocks, layers, cells, evolved graphs."""
