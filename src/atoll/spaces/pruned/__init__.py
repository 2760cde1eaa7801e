"""Networks described layer by layer, and filter pruning of them."""
