"""Exact tests of two paired binary outcomes."""
