"""A run from its experiment file to its result: loop, launch, reading, retraining, sweeps."""
