"""Nights: what of a nightly file is due, what became of it, and who is told."""
