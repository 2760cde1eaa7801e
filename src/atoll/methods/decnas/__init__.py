"""Federated NetAdapt."""
