"""Networks described layer by layer, and how they are made narrower."""
