"""Runs: launching, the loop, reading results, retraining and sweeps over seeds."""
