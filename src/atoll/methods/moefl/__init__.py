"""Sparse networks by evolution: error against connections."""
