"""The space of sparse networks (Zhu & Jin, multi-objective evolutionary federated learning)."""
