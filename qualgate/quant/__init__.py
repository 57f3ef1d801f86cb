"""Making variants: rounding weights, packing them, keeping them on disk and running them."""
