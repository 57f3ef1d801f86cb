"""Nights: items of a nightly file that are due, their results, and their digests."""
