"""Differential privacy of single rows: its settings, the accountant, and the account of every client.

The mechanisms are where the work is: noisy gradients in `training/private.py`, noisy counts in `clients/jobs.py`, and
what each task releases in `clients/coverage.py`.
"""
