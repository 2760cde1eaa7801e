"""Pieces that search methods share: pure functions of arrays and a passed random generator."""
