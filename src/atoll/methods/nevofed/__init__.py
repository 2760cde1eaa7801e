"""NEAT islands on the clients."""
