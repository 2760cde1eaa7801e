"""Algorithms that search methods share: pure functions of arrays and an explicit random generator."""
