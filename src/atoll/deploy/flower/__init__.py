"""Flower as the transport of a real federation: its messages, programs and the opening of a run."""
