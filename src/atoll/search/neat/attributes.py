"""Mutation of weights, biases, responses, functions and enabled flags, of all genes of a population at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from atoll.rng import Generator
from atoll.search.neat.functions import ACTIVATIONS, AGGREGATIONS
from atoll.search.neat.population import Codes, Population, Reals
from atoll.search.neat.settings import NeatSettings
from atoll.search.neat.start import allowed_codes, normal


def mutate_attributes(population: Population, settings: NeatSettings, rng: Generator) -> Population:
    """Each gene's attributes for themselves, with the probabilities of the settings."""
    enabled = population.enabled.copy()
    changed = rng.random(len(enabled)) < settings.enabled_mutation
    enabled[changed] = rng.random(int(changed.sum())) < 0.5
    return replace(
        population,
        weight=_reals(population.weight, settings, "weight", rng),
        enabled=enabled,
        bias=_reals(population.bias, settings, "bias", rng),
        response=_reals(population.response, settings, "response", rng),
        activation=_codes(
            population.activation, settings.activation_mutation, allowed_codes(ACTIVATIONS, settings.activations), rng
        ),
        aggregation=_codes(
            population.aggregation,
            settings.aggregation_mutation,
            allowed_codes(AGGREGATIONS, settings.aggregations),
            rng,
        ),
    )


def _reals(values: Reals, settings: NeatSettings, what: str, rng: Generator) -> Reals:
    """Some are shifted by a normal step, some are drawn anew (a response anew is 1), the others stay."""
    rate, anew = getattr(settings, f"{what}_mutation"), getattr(settings, f"{what}_replace")
    if rate == 0 and anew == 0:
        return values
    drawn = rng.random(len(values))
    step = rng.standard_normal(len(values)) * getattr(settings, f"{what}_power")
    shifted = np.clip(values + step, -settings.bound, settings.bound).astype(np.float32)
    fresh = np.ones_like(values) if what == "response" else normal(len(values), settings.bound, rng)
    return np.where(drawn < rate, shifted, np.where(drawn < rate + anew, fresh, values))


def _codes(codes: Codes, rate: float, allowed: Codes, rng: Generator) -> Codes:
    """Some become any of those allowed, perhaps the same again."""
    changed = rng.random(len(codes)) < rate
    new = codes.copy()
    new[changed] = allowed[rng.integers(0, len(allowed), int(changed.sum()))]
    return new
