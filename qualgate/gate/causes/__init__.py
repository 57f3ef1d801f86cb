"""Causes of a variant's failure."""
