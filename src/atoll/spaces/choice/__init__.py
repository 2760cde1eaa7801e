"""The space of choice blocks (Zhu & Jin, real-time federated evolutionary NAS)."""
